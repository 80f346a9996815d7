"""Sequential tests: Wald's, between the first two answers, and a certificate that holds at every vote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, inf, log
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.stopping.posterior import binomial_sum
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


FIRST_ANSWER_THRESHOLD = 3.0
"""Evidence times risk that the first answer to appear needs; each later answer needs twice as much as the previous."""


@dataclass(frozen=True)
class Certificate(StopRule):
    """Stop when chance alone gives so much evidence for the leader over every rival with probability ``risk`` at most.

    Evidence for answer i over answer j is a wealth that cannot grow on average while i is not the more frequent one:
    E(n_i, n_j) = 2^(n_i + n_j + 1) times the integral of q^n_i (1 - q)^n_j over q from 1/2 to 1, the likelihood of i's
    share of the two under a uniform prior on (1/2, 1) over that of one half. By Ville's inequality it exceeds 1/a at
    any time with probability a at most (the e-process of arXiv 2510.17472; ConSol's mixture test, arXiv 2503.17587,
    with a0 = b0 = 1 and without its H0 side). Over how many pairs? Only the true mode has to be beaten, so rivals need
    no correction, but any other answer might be the false leader, and their number is not known. So the risk is spread
    in the order in which answers first appear: the a-th may stop at E = 3 2^(a-1) / risk. (The weights 1/3, 1/6, ...
    times E at first appearance, 1.5 at most, add up to at most 1, so the weighted wealth starts at 1 and Ville's
    inequality bounds the whole.) Hence, for independent votes: the chance ever to stop at an answer that is not the
    most frequent one is at most ``risk``, for any number of answers and at any stopping time. With 0.05 unanimity stops
    at the ninth vote.
    The default is the usual level of a test. Harm: the guarantee is for the hardest possible question, so it costs
    about twice the votes of `BetaLead`; an answer at a strategy's limit is not certified; samples that arrive by length
    are not independent.
    """

    paper = Paper("arXiv 2510.17472", "anytime-valid certificate", "a Beta mixture for each rival")

    risk: float = 0.05
    """Largest chance of stopping at an answer that is not the most frequent."""

    def __post_init__(self) -> None:
        require(self, "risk", 0 < self.risk < 1, "a probability between 0 and 1")

    def is_decided(self, state: VoteState) -> bool:
        """Compare the evidence with the threshold for the leader's order of appearance."""
        if not state.total:
            return False
        return self.is_certified(state.leader, state.runner_up, answers_before_leader(state.arrivals))

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Look up counts and order of appearance in a table."""
        earlier = answers_before_leader_along(paths)
        return np.asarray(map_combinations(self.is_certified, paths.leader, paths.runner_up, earlier))

    def is_certified(self, first: int, second: int, earlier: int) -> bool:
        """Return whether the first of two counts is proven ahead, when ``earlier`` answers appeared before it."""
        return pair_evidence(first, second) * self.risk * 2.0**-earlier >= FIRST_ANSWER_THRESHOLD


@lru_cache(maxsize=1 << 16)
def pair_evidence(first: int, second: int) -> float:
    """Return the wealth E of the first of two answers (see `Certificate`); 1 without votes."""
    # The integral over (1/2, 1) is B(a, b) P(Binomial(n + 1, 1/2) <= first), with n = first + second and
    # 1/B = (n + 1) C(n, first).
    votes = first + second
    try:
        return binomial_sum(first, votes + 1) / ((votes + 1) * comb(votes, first))
    except OverflowError:  # a thousand votes for one answer
        return inf


def answers_before_leader(arrivals: Sequence[int]) -> int:
    """Return how many other answers appeared before the leading one; of equal leaders, the first to appear counts."""
    counts = list(Counter(arrivals).values())  # in order of appearance
    return counts.index(max(counts))


def answers_before_leader_along(paths: Paths) -> NDArray[np.int32]:
    """Return `answers_before_leader` after each draw; for equal leaders any of them, as none is certified."""
    rows = np.arange(len(paths.classes))
    place_of = np.zeros((len(rows), paths.width), dtype=np.int32)
    answers, leading = np.zeros(len(rows), dtype=np.int32), np.zeros(len(rows), dtype=np.int32)
    along = np.zeros(paths.classes.shape, dtype=np.int32)
    for draw, label in paths.iterate_draws():
        new = (label >= 0) & (paths.earlier[:, draw] == 0)
        place_of[rows[new], label[new]] = answers[new]
        answers += new
        ahead = (label >= 0) & (paths.earlier[:, draw] + 1 == paths.leader[:, draw])
        leading[ahead] = place_of[rows[ahead], label[ahead]]
        along[:, draw] = leading
    return along
