"""The routes from a problem to its answer: which operations each takes, and which of them wait for others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from breadth.lab.task.problems import Problem

ROUTES = ("add", "left", "right", "expand")
"""Add first and multiply once; multiply each term of the left sum by the right sum; the left sum by each term of the
right; expand.
"""


@dataclass(frozen=True)
class Step:
    """One operation of a route; its operands are the values of these names."""

    name: str
    """Name of its result."""
    sign: str
    """``+`` or ``*``."""
    first: str
    """Name of one operand."""
    second: str
    """Name of the other."""


def routes_of(problem: Problem) -> tuple[str, ...]:
    """List the routes that differ for a problem: with one term on the right there is nothing to distribute there."""
    return ROUTES if len(problem.right) > 1 else ("add", "left")


@cache
def steps_of(route: str, terms: int, added: bool) -> tuple[Step, ...]:
    """List the operations of a route, for a right sum of so many terms; ``a b`` and ``c d`` are the terms, ``e`` what is added."""
    right = "t" if terms > 1 else "c"
    sums = (Step("s", "+", "a", "b"),), (Step("t", "+", "c", "d"),) if terms > 1 else ()
    products = {
        "add": (*sums[0], *sums[1], Step("r", "*", "s", right)),
        "left": (*sums[1], Step("u", "*", "a", right), Step("v", "*", "b", right), Step("r", "+", "u", "v")),
        "right": (*sums[0], Step("u", "*", "s", "c"), Step("v", "*", "s", "d"), Step("r", "+", "u", "v")),
        "expand": (
            *(Step(one + other, "*", one, other) for one in "ab" for other in "cd"),
            Step("u", "+", "ac", "ad"),
            Step("v", "+", "bc", "bd"),
            Step("r", "+", "u", "v"),
        ),
    }
    return (*products[route], *((Step("z", "+", "r", "e"),) if added else ()))


@dataclass
class Progress:
    """How far one attempt along a route has come: the values known, the steps still to take."""

    problem: Problem
    """What is being solved."""
    route: str
    """Along which route."""
    values: dict[str, int] = field(default_factory=dict)
    """Name -> value found so far."""
    left: list[Step] = field(default_factory=list)
    """Steps not taken yet."""
    result: int | None = None
    """Value of the last step taken."""

    def __post_init__(self) -> None:
        given = (*self.problem.left, *self.problem.right)
        self.values = dict(zip("abcd", given, strict=False))
        if self.problem.added is not None:
            self.values["e"] = self.problem.added
        self.left = list(steps_of(self.route, len(self.problem.right), self.problem.added is not None))

    def ready(self) -> list[Step]:
        """List the steps whose operands are known."""
        return [step for step in self.left if step.first in self.values and step.second in self.values]

    def take(self, step: Step, value: int) -> None:
        """Note the value of a step."""
        self.left.remove(step)
        self.values[step.name] = self.result = value

    def after(self, step: Step, value: int) -> Progress:
        """Return how far it would be with one more step taken; this one stays as it is."""
        further = Progress(self.problem, self.route)
        further.values, further.left = dict(self.values), list(self.left)
        further.take(step, value)
        return further

    def matching(self, sign: str, first: int, second: int) -> list[Step]:
        """List the steps that may be taken now with these operands, in either order; equal terms make it several."""
        wanted = ((first, second), (second, first))
        return [
            step
            for step in self.ready()
            if step.sign == sign and (self.values[step.first], self.values[step.second]) in wanted
        ]
