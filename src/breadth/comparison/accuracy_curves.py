"""pass@k and maj@k of policies on common problems: curves, where they cross, and pass@k past the samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from breadth.comparison.policies import ComparedPolicy
from breadth.measure.intervals import Interval, curve_intervals
from breadth.measure.paired_tests import PairedComparison, paired_difference
from breadth.measure.pass_at_k import Extrapolation, extrapolate_pass_at_k, pass_at_k
from breadth.measure.validate import FloatArray, IntArray
from breadth.measure.vote_counting import maj_at_k_by_problem

EXTRAPOLATION_FACTOR = 4
"""pass@k is extrapolated to this many times the samples: the fit's error grows with every doubling."""
MIN_HOLDOUT_SAMPLES = 8
"""Fewest samples per problem with which half of them can be held out to test the extrapolation."""


@dataclass(frozen=True, eq=False)
class AccuracyCurves:
    """pass@k and maj@k of one policy, problem by problem."""

    policy: ComparedPolicy
    """Policy that was measured."""
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
    """Where the pass@k curves of two policies cross."""

    before: int
    """Largest k at which the leader at k = 1 is still ahead."""
    after: int
    """Smallest k at which it is behind."""
    ahead: PairedComparison
    """The leader less the other at k = 1."""
    behind: PairedComparison
    """The same at the largest k."""

    @property
    def is_significant(self) -> bool:
        """Whether the intervals at both ends leave out zero."""
        return self.ahead.difference.low > 0 > self.behind.difference.high


@dataclass(frozen=True)
class PassExtrapolation:
    """pass@k past the samples, and whether the same method predicts what was measured."""

    fits: Extrapolation
    """The two fits."""
    predicted: Interval | None
    """pass@n as half of the samples predict it, from the fit that errs downward to the one that errs upward.

    None with too few samples.
    """
    measured: float
    """pass@n of all samples."""

    @property
    def is_reliable(self) -> bool | None:
        """Whether the predicted interval holds the measured value."""
        return None if self.predicted is None else self.predicted.low <= self.measured <= self.predicted.high


def measure_curves(policy: ComparedPolicy, most: int) -> AccuracyCurves:
    """Measure one policy at every k up to ``most``, the samples that all policies have."""
    ks = np.arange(1, most + 1)
    samples, right = policy.counts
    readable = (policy.classes >= 0).any()
    voted = maj_at_k_by_problem(policy.problems.astype(str), policy.classes, policy.right, ks) if readable else None
    return AccuracyCurves(policy, ks, pass_at_k(samples, right, ks), voted)


def find_crossing(first: AccuracyCurves, second: AccuracyCurves) -> Crossing | None:
    """Find where pass@k of two policies crosses; None where one leads throughout."""
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


def extrapolate_past_samples(curves: AccuracyCurves) -> PassExtrapolation:
    """Extrapolate pass@k past the samples, and test the method on the second half of this policy's samples."""
    samples, right = curves.policy.counts
    most = int(curves.ks[-1])
    fits = extrapolate_pass_at_k(samples, right, [EXTRAPOLATION_FACTOR * most])
    if most < MIN_HOLDOUT_SAMPLES:
        return PassExtrapolation(fits, None, float(curves.passed[:, -1].mean()))
    half = count_first_half(curves.policy)
    early = extrapolate_pass_at_k(*half, [most])
    low, high = early.zero_inflated_pass[0], early.beta_pass[0]
    predicted = Interval(
        (low.value + high.value) / 2, min(low.low, high.low), max(low.high, high.high), method="both fits"
    )
    return PassExtrapolation(fits, predicted, float(curves.passed[:, -1].mean()))


def count_first_half(policy: ComparedPolicy) -> tuple[IntArray, IntArray]:
    """Count samples and right ones among the first half of each problem's samples."""
    _, owners, sizes = np.unique(policy.problems.astype(str), return_inverse=True, return_counts=True)
    order = np.argsort(owners, kind="stable")
    places = np.empty(len(owners), np.int64)
    places[order] = np.concatenate([np.arange(size) for size in sizes])
    early = places < sizes[owners] // 2
    return np.bincount(owners[early]).astype(np.int64), np.bincount(owners[early], policy.right[early]).astype(np.int64)
