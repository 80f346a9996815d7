"""The problems of Routes: products of sums modulo a prime, in three lengths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import orjson

from breadth.base.errors import SettingsError, require
from breadth.base.system import atomic_file

Level = Literal["easy", "medium", "hard"]
"""How long the expression is: ``(a + b) * c``, ``(a + b) * (c + d)`` or ``(a + b) * (c + d) + e``."""
LEVELS: tuple[Level, ...] = ("easy", "medium", "hard")
OPERANDS: dict[Level, int] = {"easy": 3, "medium": 4, "hard": 5}
"""How many numbers a problem of each level is made of."""
HELD_OUT_SEED = 1729
"""Seed of the problems that pretraining never shows, so that what is measured on them was not learnt by heart."""
NUMBER = re.compile("0|[1-9][0-9]{0,8}")
"""A number as it is written: no sign, no leading zero, no digits of other scripts, never too long to be read."""


@dataclass(frozen=True)
class Problem:
    """A product of two sums, the second of which may have one term, and perhaps a number to add."""

    left: tuple[int, int]
    """Terms of the first sum."""
    right: tuple[int, ...]
    """Terms of the second sum: two, or one."""
    added: int | None = None
    """What is added to the product."""

    def __post_init__(self) -> None:
        require(self, "left", len(self.left) == 2, "two terms")
        require(
            self,
            "right",
            len(self.right) == 2 or (len(self.right) == 1 and self.added is None),
            "two terms, or one and nothing added",
        )

    @property
    def level(self) -> Level:
        """How long it is."""
        return "hard" if self.added is not None else "medium" if len(self.right) > 1 else "easy"

    @property
    def words(self) -> list[str]:
        """The tokens it is posed in."""
        right = ["(", str(self.right[0]), "+", str(self.right[1]), ")"] if len(self.right) > 1 else [str(self.right[0])]
        added = [] if self.added is None else ["+", str(self.added)]
        return ["(", str(self.left[0]), "+", str(self.left[1]), ")", "*", *right, *added, "="]

    @property
    def text(self) -> str:
        """How it is posed."""
        return " ".join(self.words)

    @property
    def canonical(self) -> Problem:
        """The representative of all its commuted forms: terms of each sum in order, the lower of two sums first."""
        left, right = sorted(self.left), sorted(self.right)
        if len(right) > 1:
            left, right = sorted((left, right))
        return Problem((left[0], left[1]), tuple(right), self.added)

    def answer(self, prime: int) -> int:
        """Return the right answer."""
        return (sum(self.left) * sum(self.right) + (self.added or 0)) % prime


def draw_problem(rng: np.random.Generator, prime: int, level: Level = "medium") -> Problem:
    """Draw a problem; no operand is zero, for zero makes a product trivial."""
    a, b, c, d, e = (int(number) for number in rng.integers(1, prime, 5))
    right = (c,) if level == "easy" else (c, d)
    return Problem((a, b), right, e if level == "hard" else None)


def draw_problems(
    count: int, prime: int, level: Level, seed: int, without: frozenset[Problem] = frozenset()
) -> list[Problem]:
    """Draw different problems, none of them among those to leave out; what merely commutes is not different."""
    left_out = drawable_problems(without, prime, level)
    if count > (there := count_level_problems(prime, level) - len(left_out)):
        raise SettingsError(
            f"There are {there} {level} problems below {prime} to draw from, not {count}.", f"Ask for {there} or fewer."
        )
    rng = np.random.default_rng((seed, 14))  # a stream of its own: the same seed draws other things elsewhere
    found: dict[Problem, Problem] = {}
    while len(found) < count:
        problem = draw_problem(rng, prime, level)
        if problem.canonical not in left_out:
            found.setdefault(problem.canonical, problem)
    return list(found.values())


def count_level_problems(prime: int, level: Level) -> int:
    """Count the problems of a level that can be drawn, all commuted forms of one as one."""
    if level not in OPERANDS:
        raise SettingsError(f"There is no level '{level}'.", f"Choose one of {', '.join(LEVELS)}.")
    numbers = prime - 1
    sums = count_pairs(numbers)
    return {"easy": sums * numbers, "medium": count_pairs(sums), "hard": count_pairs(sums) * numbers}[level]


def count_pairs(things: int) -> int:
    """Count the pairs of things, whichever comes first; both may be the same thing."""
    return things * (things + 1) // 2


def drawable_problems(problems: frozenset[Problem], prime: int, level: Level) -> frozenset[Problem]:
    """Return those of some problems that could be drawn, in their canonical form."""
    there = (problem.canonical for problem in problems if problem.level == level)
    return frozenset(
        problem
        for problem in there
        if all(
            0 < number < prime
            for number in (*problem.left, *problem.right, *([] if problem.added is None else [problem.added]))
        )
    )


def read_problem(text: str) -> Problem:
    """Read a problem as it is posed."""
    words = text.split()
    numbers = [int(word) for word in words if NUMBER.fullmatch(word)]
    if len(numbers) in OPERANDS.values():
        problem = Problem((numbers[0], numbers[1]), tuple(numbers[2:4]), numbers[4] if len(numbers) > 4 else None)
        if problem.words == words:
            return problem
    raise SettingsError(
        f"'{text[:80]}' is no problem of Routes.", "Pose it as '( 3 + 4 ) * ( 5 + 6 ) =', words set apart by spaces."
    )


ROUTES_OPERATORS = ("+", "*")
"""The two tables, by the sign of their operation."""


MAX_HELD_OUT = 1000
"""Problems of a level that are held out of pretraining, where there are ten times as many; else a tenth of them."""


def draw_held_out(prime: int, level: Level) -> list[Problem]:
    """List the problems of a level that are held out of pretraining, always in the same order."""
    return draw_problems(min(MAX_HELD_OUT, count_level_problems(prime, level) // 10), prime, level, HELD_OUT_SEED)


def draw_tasks(count: int, prime: int, level: Level, seed: int = 0) -> list[Problem]:
    """Draw so many of the problems held out, in an order that depends on the seed."""
    problems = draw_held_out(prime, level)
    if not 1 <= count <= len(problems):
        raise SettingsError(
            f"{count} {level} questions were asked for; {len(problems)} are held out of pretraining.",
            f"Ask for 1 to {len(problems)}.",
        )
    return [problems[place] for place in np.random.default_rng(seed).permutation(len(problems))[:count]]


def write_tasks(path: Path, problems: Sequence[Problem], prime: int) -> None:
    """Write problems as JSON lines: id, question, answer, level; whole or not at all."""
    rows = (
        {
            "id": problem.text.removesuffix(" =").replace(" ", ""),
            "question": problem.text,
            "answer": str(problem.answer(prime)),
            "level": problem.level,
        }
        for problem in problems
    )
    with atomic_file(path) as temporary:
        temporary.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
