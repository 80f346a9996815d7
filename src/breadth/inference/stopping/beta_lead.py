"""Stop when the leader is unlikely to be overtaken by the runner-up (Adaptive-Consistency's Beta rule)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.stopping.rule import StopRule
from breadth.inference.stored_votes import Paths, map_combinations
from breadth.inference.voting import VoteState
from breadth.measure.validate import BoolArray


@dataclass(frozen=True)
class BetaLead(StopRule):
    """Stop when the leader beats the runner-up with posterior probability ``threshold``.

    P = 1 - I_1/2(v1 + 1, v2 + 1): the chance, under a uniform prior, that the leader's share of the votes for the first
    two answers, v1 and v2, exceeds one half (arXiv 2305.11860). Unanimity stops at the fourth vote with 0.95. The
    default is the paper's. Harm: the leader is chosen after looking at the votes and the test is repeated at each of
    them, so the chance of a wrong stop is not one minus the threshold. On stored votes it is smaller on easy questions
    and larger on hard ones.
    """

    paper = Paper("arXiv 2305.11860", "Adaptive-Consistency: the Beta rule")

    threshold: float = 0.95
    """Posterior probability at which to stop."""

    by_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self, "threshold", 0.5 <= self.threshold < 1, "a probability from 0.5 to below 1")

    def is_decided(self, state: VoteState) -> bool:
        """Compare the leader with the runner-up."""
        return state.total > 0 and beta_lead(state.leader, state.runner_up) >= self.threshold

    def posterior(self, state: VoteState) -> float | None:
        """Return P; None without votes."""
        return beta_lead(state.leader, state.runner_up) if state.total else None

    @property
    def basis(self) -> str:
        """Short description of the posterior."""
        return "leader against runner-up, uniform prior"

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Look up the pairs of counts in a table."""
        chances = map_combinations(beta_lead, paths.leader, paths.runner_up)
        return np.asarray((chances >= self.threshold) & (paths.total > 0))


@lru_cache(maxsize=1 << 16)
def beta_lead(first: int, second: int) -> float:
    """Return 1 - I_1/2(first + 1, second + 1), the chance that the leader's share of the two exceeds one half."""
    # I_1/2(a, b) with integer a, b is a binomial tail: P(Binomial(a + b - 1, 1/2) >= a).
    trials = first + second + 1
    return binomial_sum(first, trials) / (1 << trials)


def binomial_sum(most: int, trials: int) -> int:
    """Return the exact sum of C(trials, k) over k from 0 to ``most``; a millisecond for a thousand trials."""
    if 2 * most >= trials:  # the other side has fewer terms
        return (1 << trials) - binomial_sum(trials - most - 1, trials)
    ways, term = 0, 1
    for k in range(most + 1):
        ways += term
        term = term * (trials - k) // (k + 1)
    return ways
