"""Which checkpoint under which inference policy for a budget: the vote each can pay for, compared by problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from breadth.base.errors import MeasureError
from breadth.comparison.accuracy_curves import AccuracyCurves
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.paired_tests import PairedComparison, paired_difference
from breadth.measure.validate import FloatArray


@dataclass(frozen=True, eq=False)
class PolicyChoice:
    """One policy and the vote it can pay for."""

    curves: AccuracyCurves
    """Accuracy of the policy."""
    draws: int
    """Samples that the budget pays for, at most those that were drawn."""
    cut: bool
    """Whether the budget pays for more samples than were drawn."""
    scores: FloatArray
    """Accuracy of its vote, problem by problem."""

    @property
    def score(self) -> Interval:
        """Mean accuracy."""
        return mean_interval(self.scores, bounds=(0.0, 1.0))

    @property
    def method(self) -> str:
        """Description of how to answer."""
        return "one draw" if self.draws < 3 else f"a vote of {self.draws}"


@dataclass(frozen=True, eq=False)
class Recommendation:
    """Which policy to use at a budget."""

    budget: str
    """Description of the budget."""
    choices: tuple[PolicyChoice, ...]
    """Every policy that can pay for a draw, best first."""
    against_next: PairedComparison | None
    """Score of the best less that of the second; None where there is only curves."""

    @property
    def is_significant(self) -> bool:
        """Whether the best is shown to beat the second."""
        return self.against_next is None or self.against_next.difference.low > 0


def recommend(
    curves: Sequence[AccuracyCurves], *, draws: int | None = None, tokens: int | None = None
) -> Recommendation:
    """Choose for a budget of samples or of tokens per question; shorter replies buy more samples per token."""
    most = int(curves[0].ks[-1])
    size = draws if draws is not None else most
    budget = f"{tokens:,} tokens a question" if tokens is not None else f"{size} draws a question"
    choices = [choose_vote(policy, size, tokens) for policy in curves]
    able = sorted((choice for choice in choices if choice is not None), key=lambda choice: -choice.score.value)
    if not able:
        raise MeasureError(
            f"{budget} pay for no sample of any policy.", "Give a larger budget, or compare by --samples."
        )
    against = paired_difference(able[0].scores, able[1].scores) if len(able) > 1 else None
    return Recommendation(budget, tuple(able), against)


def choose_vote(curves: AccuracyCurves, draws: int, tokens: int | None) -> PolicyChoice | None:
    """Return the largest vote that a budget pays for; None where it pays for no sample."""
    most = int(curves.ks[-1])
    if tokens is not None:
        if curves.policy.tokens is None:
            raise MeasureError(
                f"The tokens of {curves.policy.name} were not logged.", "Compare by --samples, or log tokens."
            )
        draws = int(tokens / curves.policy.tokens)
    if draws < 1:
        return None
    paid = min(draws, most)
    votes = curves.vote_at(paid)
    scores = votes if votes is not None else np.asarray(curves.passed[:, 0])
    return PolicyChoice(curves, paid if votes is not None else 1, draws > most, scores)
