"""Policies side by side: graded answers to the same problems, accuracy against samples and tokens, the one to use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from breadth.base.errors import BrokenFileError, MeasureError
from breadth.measure.answers import answer_classes
from breadth.measure.intervals import Interval, curve_intervals, mean_interval
from breadth.measure.paired_tests import PairedComparison, paired_difference
from breadth.measure.pass_at_k import Extrapolation, extrapolate_pass_at_k, pass_at_k
from breadth.measure.validate import BoolArray, FloatArray, IntArray
from breadth.measure.vote_counting import maj_at_k_by_problem
from breadth.report.plaintext import pluralize
from breadth.runs.outcomes import ANY_BUDGET, budget_condition, budget_name, read_samples, rollout_steps, sample_budgets
from breadth.runs.paths import locate
from breadth.runs.reader import Run

MAX_CHECKPOINTS = 8
"""Most checkpoints of one run to compare when none is named: as many as a chart can tell apart."""


@dataclass(frozen=True, eq=False)
class ComparedPolicy:
    """The graded samples of one policy, one row per sample, in order of problems."""

    name: str
    """Name in the report."""
    problems: npt.NDArray[np.object_]
    """Problem of each sample."""
    answers: tuple[str | None, ...]
    """Answer of each sample; None where none could be read."""
    right: BoolArray
    """Whether each sample is right."""
    tokens: float | None
    """Mean tokens per sample; None where they were not logged."""
    split: str = "eval"
    """Whether the problems are held-out ones (eval) or were trained on (train)."""

    def keep_problems(self, kept: npt.NDArray[np.object_]) -> ComparedPolicy:
        """Return the policy with only the samples of some problems."""
        keep = np.isin(self.problems.astype(str), kept.astype(str))
        answers = tuple(answer for answer, stays in zip(self.answers, keep.tolist(), strict=True) if stays)
        return replace(self, problems=self.problems[keep], answers=answers, right=self.right[keep])

    @property
    def classes(self) -> IntArray:
        """Class of each answer; -1 where none could be read."""
        return answer_classes(self.answers)

    @property
    def counts(self) -> tuple[IntArray, IntArray]:
        """Number of samples and of right ones per problem, in sorted order of problems."""
        _, owners = np.unique(self.problems.astype(str), return_inverse=True)
        return np.bincount(owners).astype(np.int64), np.bincount(owners, self.right).astype(np.int64)


def choose_split(runs: Sequence[Run]) -> str | None:
    """Return the kind of problems that all runs have rollouts of, held-out ones first; None where there is none."""
    return next((split for split in ("eval", "train") if all(len(rollout_steps(run, split)) for run in runs)), None)


def read_run_policies(run: Run, name: str, steps: Sequence[int] = (), split: str | None = None) -> list[ComparedPolicy]:
    """Read checkpoints of a run: those at some steps, else the last one. Each budget of thinking is a policy.

    Without a ``split`` held-out replies are read where there are any.
    """
    split = split or choose_split([run]) or "train"
    available = rollout_steps(run, split)
    if not len(available):
        raise BrokenFileError(
            run.place,
            "has no rollouts: nothing to compare.",
            "Compare runs whose rollouts were logged (breadth show RUN).",
        )
    missing = [step for step in steps if step not in available]
    if missing:
        raise BrokenFileError(
            run.place,
            f"has no rollouts at step {missing[0]}.",
            f"It has them at {', '.join(str(step) for step in available[:20])}.",
        )
    if budgets := sample_budgets(run, split):
        step = int(available[-1])
        return [read_checkpoint(run, f"{name}, {budget_name(budget)}", step, split, budget) for budget in budgets]
    chosen = list(steps) or [int(available[-1])]
    if is_one_evaluation(run):
        return [read_checkpoint(run, name, chosen[0], split)]
    return [read_checkpoint(run, f"{name}, step {step}", step, split) for step in chosen]


def is_one_evaluation(run: Run) -> bool:
    """Say whether a run is one evaluation without a step, whose step 0 means nothing."""
    return bool(run.header.files) and not run.metric_names() and not len(rollout_steps(run))


def checkpoints(run: Run) -> list[int]:
    """Return the steps of a run that have held-out replies, thinned evenly to at most eight."""
    available = rollout_steps(run, "eval")
    places = np.linspace(0, len(available) - 1, min(MAX_CHECKPOINTS, len(available))).round().astype(np.int64)
    return [int(available[place]) for place in np.unique(places)]


def read_checkpoint(run: Run, name: str, step: int, split: str, budget: int | None = ANY_BUDGET) -> ComparedPolicy:
    """Read the graded samples of one step, of all budgets or of one; refuse rollouts without a grade."""
    samples = read_samples(run, step, step, split, budget)
    if np.isnan(samples.correct).any() or not len(samples):
        raise MeasureError(
            f"Some rollouts of {run.place.name} at step {step} are neither right nor wrong.",
            "Log a grade, or a reward with two values: `breadth show RUN` says how.",
        )
    order = np.argsort(samples.problems, kind="stable")
    names = np.array(samples.names, dtype=object)[samples.problems[order]]
    answers = tuple(samples.answers[place] for place in order.tolist())
    tokens = None
    if "tokens" in run.columns:
        mean = f"SELECT avg(tokens) AS mean FROM rollouts WHERE split = ? AND step = ? {budget_condition(budget)}"  # noqa: S608 - a number
        tokens = run.query(mean, split, step).to_pylist()[0]["mean"]
    correct = (samples.correct == 1)[order]
    return ComparedPolicy(name, names, answers, correct, None if tokens is None else float(tokens), split)


def keep_common_problems(policies: Sequence[ComparedPolicy]) -> tuple[list[ComparedPolicy], int]:
    """Keep the problems that all policies were asked; also return the fewest samples that any of them has."""
    common = set(policies[0].problems.tolist())
    for policy in policies[1:]:
        common &= set(policy.problems.tolist())
    if len(common) < 2:
        raise MeasureError(
            f"{' and '.join(policy.name for policy in policies[:2])} were asked {len(common)} common problems.",
            "Compare policies that were asked the same problems: two at least.",
        )
    kept = np.array(sorted(common), dtype=object)
    narrowed = [policy.keep_problems(kept) for policy in policies]
    return narrowed, int(min(policy.counts[0].min() for policy in narrowed))


def parse_address(text: str) -> tuple[Path, tuple[int, ...]]:
    """Read ``RUN`` or ``RUN@STEP``; a folder whose name has an @ is a folder."""
    place, _, step = text.rpartition("@")
    if not step.isdigit() or Path(text).exists():
        return locate(text), ()
    return locate(place), (int(step),)


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
