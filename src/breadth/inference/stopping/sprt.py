"""Wald's sequential test between the first two answers."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import ClassVar

import numpy as np

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.stopping.rule import StopRule
from breadth.inference.stored_votes import Paths, map_combinations
from breadth.inference.voting import VoteState
from breadth.measure.validate import BoolArray


@dataclass(frozen=True)
class Sprt(StopRule):
    """Test, vote by vote, whether the leader has ``share`` of the votes for the first two answers, or only half.

    Log likelihood ratio = v1 ln(2 share) + v2 ln(2 (1 - share)). At ln((1 - beta) / alpha) or above the leader is
    accepted; at ln(beta / (1 - alpha)) or below the two count as equal. Wald's test ends on either side, and so does
    this rule: separating the two would cost more than the test was set up to pay, and the answer is the current leader,
    a tie broken at random. ``give_up=False`` continues instead. With the defaults a vote for the leader is worth 0.405,
    one for the runner-up -0.693, and 2.944 accepts: unanimity stops at the eighth vote, a tie at 11 to 11.
    ConSol (arXiv 2503.17587) proposes the test; the constants of its code make it `Lead` with three votes. The mixture
    over shares that it also offers is the `Certificate`. The defaults here are ours: errors of 5 % each, at odds of
    three to one. Harm: the two answers are chosen after looking, so alpha and beta are not the error rates of Wald's
    theorem; for a guarantee use `Certificate`.
    """

    paper = Paper(
        "arXiv 2503.17587", "ConSol's test", "a true sequential test; see `lead` for what its constants amount to"
    )

    share: float = 0.75
    """The leader's share of the two under the alternative hypothesis; the null is one half."""
    alpha: float = 0.05
    """Nominal chance to accept a leader that is only equal."""
    beta: float = 0.05
    """Nominal chance to call the two equal when the leader has its share."""
    give_up: bool = True
    """Whether to stop once the two count as equal."""

    by_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self, "share", 0.5 < self.share < 1, "a share between 0.5 and 1")
        require(self, "alpha", 0 < self.alpha < 1, "a probability between 0 and 1")
        require(self, "beta", 0 < self.beta < 1, "a probability between 0 and 1")
        require(self, "beta", self.alpha + self.beta < 1, "less than 1 - alpha")

    def is_decided(self, state: VoteState) -> bool:
        """Compare the ratio with both thresholds of the test."""
        return self.has_ended(state.leader, state.runner_up)

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Look up the pairs of counts in a table."""
        return np.asarray(map_combinations(self.has_ended, paths.leader, paths.runner_up))

    def has_ended(self, first: int, second: int) -> bool:
        """Return whether the test has accepted the leader, or called the two equal."""
        ratio = self.log_ratio(first, second)  # 0 without votes: between the ends, as alpha + beta is below 1
        accepted = ratio >= log((1 - self.beta) / self.alpha)
        return accepted or (self.give_up and ratio <= log(self.beta / (1 - self.alpha)))

    def log_ratio(self, first: int, second: int) -> float:
        """Return the log likelihood ratio of the leader's share against one half."""
        return first * log(2 * self.share) + second * log(2 * (1 - self.share))
