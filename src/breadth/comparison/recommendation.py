"""Which checkpoint under which inference policy for a budget: the vote each can pay for, compared problem by problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from breadth.base.errors import MeasureError
from breadth.comparison.accuracy_curves import Worth
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.paired_tests import PairedComparison, paired_difference
from breadth.measure.validate import FloatArray


@dataclass(frozen=True, eq=False)
class Choice:
    """One policy at the budget."""

    worth: Worth
    """Which."""
    draws: int
    """Samples it can pay for; cut to what was drawn."""
    cut: bool
    """Whether the budget would pay for more samples than there are to judge by."""
    scores: FloatArray
    """Accuracy of its vote, problem by problem."""

    @property
    def score(self) -> Interval:
        """Mean accuracy."""
        return mean_interval(self.scores, bounds=(0.0, 1.0))

    @property
    def policy(self) -> str:
        """How to answer, in words."""
        return "one draw" if self.draws < 3 else f"a vote of {self.draws}"


@dataclass(frozen=True, eq=False)
class Recommendation:
    """What to use."""

    budget: str
    """In words."""
    choices: tuple[Choice, ...]
    """Every policy that can pay for a draw, best first."""
    against_next: PairedComparison | None
    """The best less the second; None where there is one."""

    @property
    def shown(self) -> bool:
        """Whether the best is shown to beat the second."""
        return self.against_next is None or self.against_next.difference.low > 0


def recommend(found: Sequence[Worth], *, draws: int | None = None, tokens: int | None = None) -> Recommendation:
    """Choose for a budget of draws a question, or of tokens: there a policy with shorter replies can pay for more of them."""
    most = int(found[0].ks[-1])
    size = draws if draws is not None else most
    budget = f"{tokens:,} tokens a question" if tokens is not None else f"{size} draws a question"
    choices = [_choice(one, size, tokens) for one in found]
    able = sorted((one for one in choices if one is not None), key=lambda one: -one.score.value)
    if not able:
        raise MeasureError(
            f"{budget} pay for no sample of any policy.", "Give a larger budget, or compare by --samples."
        )
    against = paired_difference(able[0].scores, able[1].scores) if len(able) > 1 else None
    return Recommendation(budget, tuple(able), against)


def _choice(one: Worth, draws: int, tokens: int | None) -> Choice | None:
    most = int(one.ks[-1])
    if tokens is not None:
        if one.contestant.tokens is None:
            raise MeasureError(
                f"The tokens of {one.contestant.name} were not logged.", "Compare by --samples, or log tokens."
            )
        draws = int(tokens / one.contestant.tokens)
    if draws < 1:
        return None
    paid = min(draws, most)
    votes = one.vote_at(paid)
    scores = votes if votes is not None else np.asarray(one.passed[:, 0])
    return Choice(one, paid if votes is not None else 1, draws > most, scores)
