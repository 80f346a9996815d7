"""Accuracy of policies against samples and tokens, and which policy to use for a budget, compared by problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from breadth.base.errors import MeasureError
from breadth.comparison.policies import ComparedPolicy
from breadth.measure.intervals import Interval, curve_intervals, mean_interval
from breadth.measure.paired_tests import PairedComparison, paired_difference
from breadth.measure.pass_at_k import Extrapolation, extrapolate_pass_at_k, pass_at_k
from breadth.measure.validate import FloatArray, IntArray
from breadth.measure.vote_counting import maj_at_k_by_problem
from breadth.report.plaintext import pluralize

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


@dataclass(frozen=True, eq=False)
class PolicyChoice:
    """One policy and the vote it can pay for."""

    curves: AccuracyCurves
    """Accuracy of the policy."""
    draws: int
    """Samples that the budget pays for, at most those there are."""
    cut: bool
    """Whether the budget pays for more samples than there are."""
    scores: FloatArray
    """Accuracy of its vote, problem by problem."""

    @property
    def score(self) -> Interval:
        """Mean accuracy."""
        return mean_interval(self.scores, bounds=(0.0, 1.0))

    @property
    def method(self) -> str:
        """Description of how to answer."""
        return "one sample" if self.draws < 3 else f"a vote of {self.draws}"


@dataclass(frozen=True, eq=False)
class Recommendation:
    """Which policy to use at a budget."""

    budget: str
    """Description of the budget."""
    choices: tuple[PolicyChoice, ...]
    """Every policy that can pay for a sample, best first."""
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
    budget = f"{tokens:,} tokens per question" if tokens is not None else f"{pluralize(size, 'sample')} per question"
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
