"""pass@k and maj@k of policies on common problems: curves, paired differences, where they cross, and what lies beyond the samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from breadth.comparison.policies import ComparedPolicy
from breadth.measure.coverage import pass_at_k
from breadth.measure.extrapolation import Extrapolation, extrapolate_pass_at_k
from breadth.measure.intervals import Interval, curve_intervals
from breadth.measure.paired_tests import PairedComparison, paired_difference
from breadth.measure.validate import FloatArray, IntArray
from breadth.measure.vote_counting import maj_at_k_by_problem

BEYOND = 4
"""How many times the samples drawn pass@k is carried on to: the fit's error grows with every doubling."""
FEWEST = 8
"""Samples a problem needs before half of them can be held out to test the extrapolation."""


@dataclass(frozen=True, eq=False)
class Worth:
    """What one policy is worth, problem by problem."""

    contestant: ComparedPolicy
    """Which."""
    ks: IntArray
    """Numbers of samples."""
    passed: FloatArray
    """pass@k: [problems, k]."""
    voted: FloatArray | None
    """maj@k: [problems, k]; None where no answer could be read."""

    @property
    def pass_curve(self) -> tuple[Interval, ...]:
        """Mean pass@k with intervals over problems."""
        return curve_intervals(self.passed, bounds=(0.0, 1.0))

    @property
    def vote_curve(self) -> tuple[Interval, ...] | None:
        """Mean maj@k with intervals over problems."""
        return None if self.voted is None else curve_intervals(self.voted, bounds=(0.0, 1.0))

    def vote_at(self, k: int) -> FloatArray | None:
        """Return maj@k of each problem."""
        return None if self.voted is None else np.asarray(self.voted[:, int(np.flatnonzero(self.ks == k)[0])])


@dataclass(frozen=True)
class Crossing:
    """Where two curves change places."""

    before: int
    """Largest k at which the leader at k = 1 is still ahead."""
    after: int
    """Smallest k at which it is behind."""
    ahead: PairedComparison
    """The leader less the other at k = 1."""
    behind: PairedComparison
    """The same at the largest k."""

    @property
    def sure(self) -> bool:
        """Whether both ends leave out zero."""
        return self.ahead.difference.low > 0 > self.behind.difference.high


@dataclass(frozen=True)
class Beyond:
    """pass@k past the samples, and whether the same method could have foretold what was measured."""

    found: Extrapolation
    """The two fits."""
    foretold: Interval | None
    """pass@n as half of the samples foretell it, from the fit that errs downward to the one that errs upward; None with
    too few samples.
    """
    measured: float
    """pass@n as all samples have it."""

    @property
    def honest(self) -> bool | None:
        """Whether what was foretold holds what was measured."""
        return None if self.foretold is None else self.foretold.low <= self.measured <= self.foretold.high


def worth(contestant: ComparedPolicy, most: int) -> Worth:
    """Measure one policy at every k up to the samples that all have."""
    ks = np.arange(1, most + 1)
    drawn, right = contestant.counts
    readable = (contestant.classes >= 0).any()
    voted = (
        maj_at_k_by_problem(contestant.problems.astype(str), contestant.classes, contestant.right, ks)
        if readable
        else None
    )
    return Worth(contestant, ks, pass_at_k(drawn, right, ks), voted)


def crossing(first: Worth, second: Worth) -> Crossing | None:
    """Find where pass@k of two policies changes places; None where one leads throughout."""
    gap = first.passed.mean(axis=0) - second.passed.mean(axis=0)
    if gap[0] == 0 or np.sign(gap[-1]) in (0, np.sign(gap[0])):
        return None
    leader, other = (first, second) if gap[0] > 0 else (second, first)
    ahead = np.sign(gap[0]) * gap > 0
    last = int(np.flatnonzero(ahead)[-1])
    return Crossing(
        int(first.ks[last]),
        int(first.ks[last + 1]),
        paired_difference(leader.passed[:, 0], other.passed[:, 0]),
        paired_difference(leader.passed[:, -1], other.passed[:, -1]),
    )


def beyond(one: Worth) -> Beyond:
    """Carry pass@k on past the samples drawn, and test the method on this policy's own second half."""
    drawn, right = one.contestant.counts
    most = int(one.ks[-1])
    found = extrapolate_pass_at_k(drawn, right, [BEYOND * most])
    if most < FEWEST:
        return Beyond(found, None, float(one.passed[:, -1].mean()))
    half = _first_half(one.contestant)
    early = extrapolate_pass_at_k(*half, [most])
    low, high = early.zero_inflated_pass[0], early.beta_pass[0]
    foretold = Interval(
        (low.value + high.value) / 2, min(low.low, high.low), max(low.high, high.high), method="both fits"
    )
    return Beyond(found, foretold, float(one.passed[:, -1].mean()))


def _first_half(contestant: ComparedPolicy) -> tuple[IntArray, IntArray]:
    """Count samples and right ones among the first half of every problem's."""
    _, owners, sizes = np.unique(contestant.problems.astype(str), return_inverse=True, return_counts=True)
    order = np.argsort(owners, kind="stable")
    places = np.empty(len(owners), np.int64)
    places[order] = np.concatenate([np.arange(size) for size in sizes])
    early = places < sizes[owners] // 2
    return np.bincount(owners[early]).astype(np.int64), np.bincount(owners[early], contestant.right[early]).astype(
        np.int64
    )
