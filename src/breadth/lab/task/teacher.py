"""What the teacher knows of sums and products modulo a prime: most facts firmly, some only shakily."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from breadth.base.errors import require
from breadth.lab.task.grammar import AGAIN, CLOSE, END, OPEN, STYLES, RouteProgress, available_routes, write_operation
from breadth.lab.task.problems import ROUTES_OPERATORS, Problem
from breadth.measure.validate import BoolArray, FloatArray, IntArray

RIVAL_SHARES = (0.5, 0.3, 0.2)
"""How a shaky fact's belief is shared among the false values it is mistaken for."""


@dataclass(frozen=True)
class ArithmeticFacts:
    """Two tables of facts.

    A firm fact is always recalled right; a shaky one seldom, mostly as one of three false values of its own.

    ``3 + 5`` and ``5 + 3`` are two facts: one may be firm and the other shaky, so the order in which operands are taken
    matters as the route does. The chance of recalling v for a shaky fact is ``right`` if v is the truth, ``believed``
    times (0.5, 0.3, 0.2) if v is one of the three rivals, plus what is left spread evenly over all values.
    """

    prime: int = 29
    """Numbers are 0 to one below this; sums and products are taken modulo it."""
    shaky: float = 0.45
    """Share of facts that are shaky."""
    right: float = 0.03
    """Chance that a shaky fact is recalled right, beyond the even spread."""
    believed: float = 0.85
    """Chance that a shaky fact is recalled as one of its three rivals."""
    seed: int = 0
    """Decides which facts are shaky and what they are mistaken for."""

    def __post_init__(self) -> None:
        require(
            self,
            "prime",
            self.prime >= 5 and all(self.prime % divisor for divisor in range(2, self.prime)),
            "a prime from 5 up",
        )
        require(self, "shaky", 0 <= self.shaky <= 1, "a share from 0 to 1")
        require(self, "right", 0 <= self.right <= 1, "a chance from 0 to 1")
        require(self, "believed", 0 <= self.believed <= 1 - self.right + 1e-12, "a chance, with 'right' at most 1")
        require(self, "seed", self.seed >= 0, "0 or more")

    @cached_property
    def truth(self) -> IntArray:
        """The right values: by table (in the order of `SIGNS`), first and second operand."""
        numbers = np.arange(self.prime)
        return np.stack([np.add.outer(numbers, numbers), np.multiply.outer(numbers, numbers)]) % self.prime

    @cached_property
    def firm(self) -> BoolArray:
        """Which facts are firm, by table and operands."""
        return np.random.default_rng((self.seed, 11)).random(self.truth.shape) >= self.shaky

    @cached_property
    def chances(self) -> FloatArray:
        """The chance of each value being recalled, by table, operands and value."""
        rng = np.random.default_rng((self.seed, 12))
        table = np.zeros((*self.truth.shape, self.prime))
        for place in np.ndindex(self.truth.shape):
            right = self.truth[place]
            false = rng.choice(self.prime - 1, len(RIVAL_SHARES), replace=False)
            if not self.firm[place]:
                table[place] = max(0.0, 1 - self.right - self.believed) / self.prime
                table[(*place, false + (false >= right))] += self.believed * np.array(RIVAL_SHARES)
            table[(*place, right)] += 1.0 if self.firm[place] else self.right
        return table

    @cached_property
    def _cumulative(self) -> FloatArray:
        return np.cumsum(self.chances, -1)

    def value(self, sign: str, first: int, second: int) -> int:
        """Return the right value of an operation."""
        return int(self.truth[ROUTES_OPERATORS.index(sign), first, second])

    def is_firm(self, sign: str, first: int, second: int) -> bool:
        """Say whether this fact, in this order, is firm."""
        return bool(self.firm[ROUTES_OPERATORS.index(sign), first, second])

    def recall(self, sign: str, first: int, second: int, rng: np.random.Generator) -> int:
        """Return what comes to the teacher's mind."""
        found = np.searchsorted(
            self._cumulative[ROUTES_OPERATORS.index(sign), first, second], rng.random(), side="right"
        )
        return min(int(found), self.prime - 1)


ROUTE_SHARES = {"add": 0.4, "left": 0.25, "right": 0.25, "expand": 0.1}
"""How often the teacher takes each route, where a problem has them all."""


@dataclass(frozen=True)
class TeacherTrace:
    """A trace to learn from."""

    words: tuple[str, ...]
    """Its tokens, from the opening of the thinking to the end."""
    imposed: int | None = None
    """Place of a token that is not the teacher's own choice, so not to be learnt: the end of a thinking that was cut.
    """


@dataclass(frozen=True)
class Teacher:
    """Writes traces: attempts along random routes until one feels right, then the answer of the last one.

    The teacher knows, more often than not, whether an attempt went right: he stops behind a right one with chance
    ``content`` and behind a wrong one with chance ``careless``. A reader of many traces cannot know that, but can learn
    which facts are firm; so the reasoner's own choice to stop is worth something, and overruling it costs. Some
    thinking is cut at a random place, so that the reasoner has seen what it looks like to answer without having
    finished: with the result of the last finished attempt, else with the last value found, else with a guess.
    """

    facts: ArithmeticFacts = ArithmeticFacts()
    """What he knows."""
    attempts: int = 3
    """Attempts at most."""
    content: float = 0.95
    """Chance to stop behind a right attempt."""
    careless: float = 0.3
    """Chance to stop behind a wrong one."""
    cut: float = 0.1
    """Share of traces whose thinking is cut."""

    def __post_init__(self) -> None:
        require(self, "attempts", self.attempts >= 1, "1 or more")
        for field in ("content", "careless", "cut"):
            require(self, field, 0 <= getattr(self, field) <= 1, "a chance from 0 to 1")

    def write(self, problem: Problem, rng: np.random.Generator) -> TeacherTrace:
        """Write one trace."""
        words, results = [OPEN], list[tuple[int, int]]()
        style = STYLES[rng.integers(len(STYLES))]
        for attempt in range(self.attempts):
            result = self._attempt(problem, style, rng, words)
            results.append((len(words), result))
            right = result == problem.answer(self.facts.prime)
            if attempt == self.attempts - 1 or rng.random() < (self.content if right else self.careless):
                break
            words.append(AGAIN)
        if rng.random() < self.cut:
            return self._cut(words, results, rng)
        return TeacherTrace((*words, CLOSE, str(result), END))

    def _attempt(self, problem: Problem, style: str, rng: np.random.Generator, words: list[str]) -> int:
        """Write one attempt and return its result."""
        routes = available_routes(problem)
        shares = np.array([ROUTE_SHARES[route] for route in routes])
        route = routes[int(np.searchsorted(np.cumsum(shares / shares.sum()), rng.random()))]
        progress = RouteProgress(problem, route)
        words.append(route)
        while progress.left:
            ready = progress.ready_steps()
            step = ready[rng.integers(len(ready))]
            operands = progress.values[step.first], progress.values[step.second]
            first, second = operands if rng.random() < 0.5 else operands[::-1]
            value = self.facts.recall(step.sign, first, second, rng)
            words += write_operation(style, step.sign, first, second, value)
            progress.take(step, value)
        return progress.values["r" if problem.added is None else "z"]

    def _cut(self, words: list[str], results: list[tuple[int, int]], rng: np.random.Generator) -> TeacherTrace:
        """Cut the thinking at random; answer with the last finished attempt, else the last value, else a guess."""
        kept = words[: rng.integers(1, len(words) + 1)]
        finished = [result for end, result in results if end <= len(kept)]
        values = [int(word[1:]) for word in kept if word.startswith("=")]
        answer = next(iter([*finished[-1:], *values[-1:]]), int(rng.integers(self.facts.prime)))
        return TeacherTrace((*kept, CLOSE, str(answer), END), len(kept))
