"""The teacher whose worked traces the tiny reasoner is pretrained on: any route, any order, facts as they come to mind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from breadth.base.checks import require
from breadth.lab.task.facts import Facts
from breadth.lab.task.grammar import AGAIN, CLOSE, END, OPEN, STYLES, operation
from breadth.lab.task.problems import Problem
from breadth.lab.task.routes import Progress, routes_of

SHARES = {"add": 0.4, "left": 0.25, "right": 0.25, "expand": 0.1}
"""How often the teacher takes each route, where a problem has them all."""


@dataclass(frozen=True)
class Written:
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

    facts: Facts = Facts()
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

    def write(self, problem: Problem, rng: np.random.Generator) -> Written:
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
        return Written((*words, CLOSE, str(result), END))

    def _attempt(self, problem: Problem, style: str, rng: np.random.Generator, words: list[str]) -> int:
        """Write one attempt and return its result."""
        routes = routes_of(problem)
        shares = np.array([SHARES[route] for route in routes])
        route = routes[int(np.searchsorted(np.cumsum(shares / shares.sum()), rng.random()))]
        progress = Progress(problem, route)
        words.append(route)
        while progress.left:
            ready = progress.ready()
            step = ready[rng.integers(len(ready))]
            operands = progress.values[step.first], progress.values[step.second]
            first, second = operands if rng.random() < 0.5 else operands[::-1]
            value = self.facts.recall(step.sign, first, second, rng)
            words += operation(style, step.sign, first, second, value)
            progress.take(step, value)
        return progress.values["r" if problem.added is None else "z"]

    def _cut(self, words: list[str], results: list[tuple[int, int]], rng: np.random.Generator) -> Written:
        """Cut the thinking behind a random token; the answer is that of the last finished attempt, or the last value found, or a guess."""
        kept = words[: rng.integers(1, len(words) + 1)]
        finished = [result for end, result in results if end <= len(kept)]
        values = [int(word[1:]) for word in kept if word.startswith("=")]
        answer = next(iter([*finished[-1:], *values[-1:]]), int(rng.integers(self.facts.prime)))
        return Written((*kept, CLOSE, str(answer), END), len(kept))
