"""The task of the second rung: sums of three digits in plain text, step by step, behind one worked example."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement, permutations

import numpy as np

from breadth.inference.records import Reading

TERMS, LARGEST = 3, 9
"""How many numbers are added, each from 1 to the largest. Of such sums the model gets one in ten right, of two-digit
ones next to none.
"""
POOL, MOST = 64, 400
"""Problems held out, in all; problems that may be trained on."""
SHUFFLE = 77
"""Seed by which numbers are held out or not: the same for every seed of training."""
READING = Reading("number")
"""The answer of a reply is the last number in it, if it has ended; in one that was cut nothing is read."""


@dataclass(frozen=True)
class Sum:
    """One problem."""

    numbers: tuple[int, ...]
    """What is added."""

    @property
    def text(self) -> str:
        """The question as it stands at the end of the prompt, e.g. ``3 + 8 + 5 =``."""
        return f"{_added(self.numbers)} ="

    @property
    def answer(self) -> str:
        """The right answer."""
        return str(sum(self.numbers))

    @property
    def worked(self) -> str:
        """The whole line, added from the left: ``3 + 8 + 5 = 11 + 5 = 16``."""
        steps = [(sum(self.numbers[:done]), *self.numbers[done:]) for done in range(1, len(self.numbers) + 1)]
        return " = ".join(map(_added, steps))

    @property
    def prompt(self) -> str:
        """What the model continues: a worked example and the question.

        Every token of it is paid for with each reply trained on.
        """
        return f"{EXAMPLE.worked}\n{self.text}"


EXAMPLE = Sum((2, 9, 4))
"""The worked example before every question: never a question itself."""


def held_out(count: int = POOL) -> list[Sum]:
    """List problems that are never trained on, in any order of their numbers; no two add the same numbers."""
    return list(_sides()[0][:count])


def trained_on(count: int) -> list[Sum]:
    """List problems to train on; the same numbers in another order are another problem."""
    return list(_sides()[1][:count])


def read_answer(text: str, *, ended: bool) -> str | None:
    """Return the answer of a reply in canonical form, None where there is none or the reply was cut."""
    return READING.read_with_key(text, ended=ended)[1]


@cache
def _sides() -> tuple[list[Sum], list[Sum]]:
    """Return all problems that are held out, and all that may be trained on, both shuffled."""
    chance = np.random.default_rng(SHUFFLE)
    known = tuple(sorted(EXAMPLE.numbers))
    sets = [one for one in combinations_with_replacement(range(1, LARGEST + 1), TERMS) if one != known]
    shuffled = [sets[place] for place in chance.permutation(len(sets))]
    kept = [Sum(tuple(map(int, chance.permutation(one)))) for one in shuffled[:POOL]]
    orders = [Sum(order) for one in shuffled[POOL:] for order in sorted(set(permutations(one)))]
    return kept, [orders[place] for place in chance.permutation(len(orders))]


def _added(numbers: tuple[int, ...]) -> str:
    return " + ".join(map(str, numbers))
