"""What a look at a policy found, small enough to keep: every answer it gave to the problems held out, and how undecided it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from breadth.lab.measuring.evaluation import Evaluation, passed, voted
from breadth.lab.task.grammar import Role
from breadth.measure.diversity import tally
from breadth.measure.transfer import ArmSamples

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Look:
    """One policy on some problems, as many replies to each."""

    step: int
    """Optimizer steps it has been trained for; 0 is the base."""
    gold: Sequence[int]
    """The right answer of each problem."""
    answers: Sequence[Sequence[int]]
    """The answers given to each, -1 where there is none."""
    entropy: float
    """Mean entropy of all tokens, in nats; NaN where there is none."""
    planning: float
    """The same of the tokens that choose: route, operands, operator, going on or not."""
    execution: float
    """The same of the tokens that state a value."""
    formed: float
    """Share of replies that keep to the grammar and are complete."""
    tokens: float
    """Mean tokens of a reply."""
    styles: Mapping[str, float]
    """How often each surface format is used."""
    routes: Mapping[str, float]
    """How often each route is taken first."""

    @cached_property
    def table(self) -> NDArray[np.int64]:
        """The answers: [problems, samples]."""
        return np.array(self.answers, np.int64)

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """Whether each is right: [problems, samples]."""
        return np.asarray(self.table == np.array(self.gold, np.int64)[:, None])

    @property
    def samples(self) -> int:
        """Replies to each problem."""
        return int(self.table.shape[1])

    def passed(self, k: int) -> Floats:
        """Return pass@k of each problem."""
        return passed(self.right, k)

    def voted(self, k: int) -> Floats:
        """Return maj@k of each problem."""
        return voted(self.table, self.right, k)

    def distinct(self, draws: int) -> Floats:
        """Return the different answers to expect in so many replies to each problem."""
        return np.asarray(tally(self._owners, self.table.ravel()).expected_distinct(draws), np.float64)

    @property
    def arm(self) -> ArmSamples:
        """The same as an arm of the transfer gap."""
        return ArmSamples(self._owners, self.table.ravel(), self.right.ravel())

    def to_row(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Look:
        """Read what `to_row` gave; a number that was none is NaN again."""
        numbers = {
            name: float("nan") if row[name] is None else row[name] for name in ("entropy", "planning", "execution")
        }
        return cls(**{**row, **numbers})

    @property
    def _owners(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.table)), self.samples)


def look_of(evaluation: Evaluation, step: int) -> Look:
    """Keep what matters of an evaluation."""
    return Look(
        step,
        [problem.answer(evaluation.prime) for problem in evaluation.problems],
        evaluation.answers.tolist(),
        evaluation.entropy(),
        evaluation.entropy(Role.PLANNING),
        evaluation.entropy(Role.EXECUTION),
        evaluation.formed(),
        float(evaluation.tokens.mean()),
        evaluation.styles(),
        evaluation.routes(),
    )
