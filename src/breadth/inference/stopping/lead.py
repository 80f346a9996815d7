"""Stop when the leader is a fixed number of votes ahead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.stopping.rule import StopRule
from breadth.inference.stored_votes import Paths
from breadth.inference.voting import VoteState
from breadth.measure.validate import BoolArray


@dataclass(frozen=True)
class Lead(StopRule):
    """Stop when the leader is ``votes`` ahead of the runner-up.

    The simplest rule to explain. It is also what ConSol (arXiv 2503.17587) does: with the constants in its code, those
    of a sequential test (p1 = 0.5001, alpha = 0.05, beta = 0.949976), every count needs a lead of exactly three and the
    side of the null hypothesis lies beyond its cap; its mixture form needs three as well. Hence the default. Harm: a
    lead of three means less at 20 votes than at 3, so on hard questions it stops too early.
    """

    paper = Paper("arXiv 2503.17587", "ConSol as its code runs", "its shipped constants amount to a lead of three")

    votes: int = 3
    """How far ahead the leader must be."""

    by_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self, "votes", self.votes >= 1, "at least one vote")

    def is_decided(self, state: VoteState) -> bool:
        """Compare the leader with the runner-up."""
        return state.leader - state.runner_up >= self.votes

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Compare all counts at once."""
        return np.asarray(paths.leader - paths.runner_up >= self.votes)
