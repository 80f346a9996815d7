"""What is kept of an evaluation: numbers by problem, intervals, and one reply to look at; goes to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from breadth.base.errors import MeasureError
from breadth.lab.measuring.evaluation import Evaluation
from breadth.lab.task.grammar import Role
from breadth.lab.task.vocabulary import words_of
from breadth.measure.intervals import Interval, mean_interval


@dataclass(frozen=True)
class AtK:
    """What k replies to a problem are worth, problem by problem."""

    k: int
    """How many."""
    passed: tuple[float, ...]
    """Chance that one of them is right."""
    majority: tuple[float, ...]
    """Chance that a vote over them is right, exactly."""

    @property
    def pass_rate(self) -> Interval:
        """Its mean, with an interval over problems."""
        return mean_interval(self.passed, bounds=(0.0, 1.0))

    @property
    def majority_rate(self) -> Interval:
        """Its mean, with an interval over problems."""
        return mean_interval(self.majority, bounds=(0.0, 1.0))


@dataclass(frozen=True)
class Said:
    """A token of a reply."""

    word: str
    """The token."""
    entropy: float
    """Of the distribution it was drawn from, in nats."""
    role: Role
    """What it is."""


@dataclass(frozen=True)
class Measured:
    """One reasoner on held-out problems."""

    samples: int
    """Replies to each problem."""
    curve: tuple[AtK, ...]
    """pass@k and maj@k, by rising k."""
    entropy: Interval
    """Mean entropy of all tokens, in nats."""
    planning: Interval
    """The same of planning tokens: the forks."""
    execution: Interval
    """The same of execution tokens: the mechanical ones."""
    answer_entropy: Interval
    """Entropy of a problem's answers, in nats."""
    tokens: Interval
    """Tokens of a reply."""
    formed: float
    """Share of replies that keep to the grammar."""
    routes: Mapping[str, float]
    """How often each route is taken first."""
    question: str
    """The first problem."""
    reply: tuple[Said, ...]
    """The first reply to it: the first, not a chosen one."""

    def at(self, k: int) -> AtK:
        """Return what k replies are worth."""
        found = next((one for one in self.curve if one.k == k), None)
        if found is None:
            raise MeasureError(
                f"Nothing was measured at k = {k}.", f"Ask for one of {', '.join(str(one.k) for one in self.curve)}."
            )
        return found


def measured(evaluation: Evaluation, ks: tuple[int, ...]) -> Measured:
    """Sum an evaluation up; the number of replies bounds k."""
    drawn, trace = evaluation.drawn[0][0], evaluation.traces[0][0]
    words = words_of(evaluation.prime)
    reply = zip(drawn.ids.tolist(), drawn.entropies.tolist(), trace.roles, strict=True)
    return Measured(
        samples=evaluation.samples,
        curve=tuple(
            AtK(
                k,
                tuple(map(float, evaluation.pass_by_problem(k))),
                tuple(map(float, evaluation.majority_by_problem(k))),
            )
            for k in sorted(ks)
        ),
        entropy=evaluation.entropy_interval(),
        planning=evaluation.entropy_interval(Role.PLANNING),
        execution=evaluation.entropy_interval(Role.EXECUTION),
        answer_entropy=evaluation.answer_entropy(),
        tokens=mean_interval(np.asarray(evaluation.tokens.mean(1), np.float64)),
        formed=evaluation.formed(),
        routes=evaluation.routes(),
        question=evaluation.problems[0].text,
        reply=tuple(Said(words[number], round(entropy, 4), role) for number, entropy, role in reply),
    )
