"""Stop when the leader is unlikely to be overtaken: by the runner-up (Beta), or by any answer (Dirichlet)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import ClassVar

import numpy as np

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.stopping.rule import StopRule
from breadth.inference.stored_votes import TOP_COUNTS, Paths, map_combinations
from breadth.inference.voting import VoteState
from breadth.measure.validate import BoolArray, FloatArray


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


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@dataclass(frozen=True)
class Dirichlet(StopRule):
    """Stop when the leader of the five largest counts has the largest share with probability ``threshold``.

    The shares have a Dirichlet posterior with one added to each count (arXiv 2305.11860). With fewer than three answers
    it is the Beta rule, as in the authors' code. Their code uses nested integrals or random draws; here the chance is
    an integral over one variable: shares are Gamma variables divided by their sum, so it is the leader's density times
    the others' distribution functions. The default is the paper's.
    Harm: as for `BetaLead`: the leader is chosen after looking, and the test repeats at every vote.
    """

    paper = Paper("arXiv 2305.11860", "Adaptive-Consistency: the Dirichlet rule")

    threshold: float = 0.95
    """Posterior probability at which to stop."""

    by_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self, "threshold", 0.5 <= self.threshold < 1, "a probability from 0.5 to below 1")

    def is_decided(self, state: VoteState) -> bool:
        """Compare the leader with the four that follow it."""
        return self.reaches_threshold(*state.counts[:TOP_COUNTS])

    def posterior(self, state: VoteState) -> float | None:
        """Return the chance that the leader has the largest share; None without votes."""
        return largest_share(*state.counts[:TOP_COUNTS]) if state.total else None

    @property
    def basis(self) -> str:
        """Short description of the posterior."""
        return "leader against the next four, uniform prior"

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Compute each set of five counts once."""
        return np.asarray(map_combinations(self.reaches_threshold, *np.moveaxis(paths.top_counts, 2, 0)))

    def reaches_threshold(self, *counts: int) -> bool:
        """Compare the chance with the threshold; the integral is computed only where bounds do not decide."""
        first, *others = [count for count in counts if count > 0] or [0]
        chances = [beta_lead(first, other) for other in others or [0]]
        if not first or min(chances) < self.threshold:  # to be ahead of all is no likelier than to be ahead of one
            return False
        union_bound = 1 - sum(1 - chance for chance in chances)
        if len(chances) == 1 or union_bound >= self.threshold:
            return True
        return largest_share(*counts) >= self.threshold


@lru_cache(maxsize=1 << 17)
def largest_share(*counts: int) -> float:
    """Return the chance that the first answer has the largest share, given the votes of each, most first; 0 is none."""
    first, *others = [count for count in counts if count > 0] or [0]
    if len(others) < 2:
        return beta_lead(first, others[0] if others else 0)
    points, weights = gamma_quadrature(first + 1)
    density = np.exp(first * np.log(points) - points - _log_factorials(first)[-1])
    return min(1.0, float(np.sum(weights * density * np.prod(gamma_cdfs(others, points), axis=0))))


def gamma_quadrature(shape: int) -> tuple[FloatArray, FloatArray]:
    """Return Gauss-Legendre points and weights over the range of a Gamma variable of this shape, to about 1e-13."""
    width = 9 * sqrt(shape)
    edges = np.linspace(max(0.0, shape - width), shape + width + 24, 17)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + _NODES)).ravel(), (half * _WEIGHTS).ravel()


def gamma_cdfs(counts: list[int], points: FloatArray) -> FloatArray:
    """Return the Gamma CDF of shape n + 1 at each point, one row per n: the chance of more than n Poisson events."""
    events = np.arange(max(counts) + 1)[:, None]
    chances = np.exp(events * np.log(points) - points - _log_factorials(max(counts))[:, None])
    return np.asarray(1 - np.cumsum(chances, axis=0)[counts])


def _log_factorials(most: int) -> FloatArray:
    return np.cumsum(np.log(np.maximum(np.arange(most + 1), 1)))
