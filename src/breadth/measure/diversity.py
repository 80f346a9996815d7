"""How many different answers a policy gives, on solved and unsolved problems, and what training took away.

Answers come as classes: whole numbers, equal for equivalent answers, -1 for a sample with no parsable answer. Such a
sample uses up budget and lowers the parse rate, but it is never an answer.

The transfer gap asks whether diversity lost on solved problems goes missing on unsolved ones too, its confounds
controlled. Two arms answer the same problems: the trained policy and the base model. Where no sample was ever right, no
reward ever arrived; fewer distinct answers there than the base model gives is diversity lost by transfer
(arXiv 2509.06941).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from breadth.base.errors import MeasureError
from breadth.measure.intervals import Columns, Interval, Resamples, quotient, resample
from breadth.measure.validate import BoolArray, FloatArray, IntArray, as_answer_classes, as_booleans, check_same_length


@dataclass(frozen=True, eq=False)
class AnswerCounts:
    """Answers counted per group.

    Kept as one entry for every (group, answer) pair that occurs, so a million samples of any number of answers stay
    small.
    """

    groups: NDArray[Any]
    """Group ids, sorted."""
    rows: IntArray
    """For each sample, the place of its group in ``groups``."""
    samples: IntArray
    """Samples per group, parsable or not."""
    owners: IntArray
    """For each pair of a group and one of its answers: the place of the group in ``groups``."""
    answers: IntArray
    """For each such pair: the class of the answer."""
    counts: IntArray
    """For each such pair: how many samples of the group gave that answer."""

    @cached_property
    def parsable(self) -> IntArray:
        """Samples with a parsable answer, per group."""
        return self.sums(self.counts).astype(np.int64)

    @cached_property
    def distinct(self) -> IntArray:
        """Distinct answers per group."""
        return np.bincount(self.owners, minlength=len(self.groups))

    def sums(self, terms: NDArray[Any]) -> FloatArray:
        """Add up one term per pair within each group."""
        return np.bincount(self.owners, terms.astype(np.float64), len(self.groups)).astype(np.float64)

    def expected_distinct(self, sample_size: ArrayLike) -> FloatArray:
        """Return, per group, the distinct answers to expect in ``draws`` of its samples, drawn without replacement.

        Rarefaction, exact: ``sum over answers of 1 - C(n - count, draws) / C(n, draws)``. It brings groups of unequal
        size to a common one without throwing samples away. A sample with no parsable answer is drawn like any other and
        brings nothing. ``draws`` is one number or one per group; NaN where a group has fewer samples.
        """
        taken = np.broadcast_to(np.asarray(sample_size, dtype=np.int64), self.samples.shape)
        if taken.min() < 0:
            raise MeasureError(
                f"{taken.min()} draws were asked for; the number must be 0 or more.", "Use the smallest group's size."
            )
        enough = taken <= self.samples
        total, drawn = self.samples[self.owners], np.where(enough, taken, 0)[self.owners]
        others = total - self.counts
        log_factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, self.samples.max() + 1)))))
        left = np.maximum(others - drawn, 0)
        log_missed = log_factorial[others] - log_factorial[left] - log_factorial[total] + log_factorial[total - drawn]
        seen = np.where(others < drawn, 1.0, -np.expm1(np.minimum(log_missed, 0.0)))
        return np.where(enough, self.sums(seen), np.nan)


def count_answers(groups: ArrayLike, classes: ArrayLike) -> AnswerCounts:
    """Count answers per group from two columns, one row a sample, in any order; class -1 is no answer."""
    names, labels = np.asarray(groups), as_answer_classes(classes)
    if names.ndim != 1 or names.shape != labels.shape or not names.size:
        raise MeasureError(
            f"Got groups of shape {names.shape} and classes of shape {labels.shape}; need columns of equal length, not"
            " empty.",
            "Give one group id and one answer class per sample.",
        )
    ids, rows = np.unique(names, return_inverse=True)
    known = labels >= 0
    answers, label = np.unique(labels[known], return_inverse=True)
    width = max(len(answers), 1)
    pairs, counts = np.unique(rows[known] * width + label, return_counts=True)
    owners, place = np.divmod(pairs, width)
    return AnswerCounts(ids, rows, np.bincount(rows, minlength=len(ids)), owners, answers[place], counts)


EntropyEstimator: TypeAlias = Literal["plug-in", "miller-madow", "chao-shen"]
"""How a policy's entropy is estimated from few samples.

``plug-in``: entropy of the observed shares. Low by about ``(K - 1) / 2n`` for K answers in n samples: 8 samples of 20
equally likely answers read 1.85 for a true 3.00 nats. Right only as a description of the sample itself.

``miller-madow``: plug-in plus ``(K - 1) / 2n`` with K the distinct answers seen, which puts back the first term of the
bias. The default: it takes back a quarter to a half of the error at 8 to 16 samples, is exactly 0 for one answer, and
never adds half a nat, so the effective number stays below 1.65 n. Still low where most answers are unseen.

``chao-shen``: shares scaled by the sample coverage ``1 - singletons / n``, each term weighted up by the chance that its
answer was seen. Nearly unbiased from 16 samples on, but 8 different answers in 8 samples read 4.4 nats (80 answers):
take it for one large sample, not for the mean of ``exp(H)`` over small groups.
"""


@dataclass(frozen=True, eq=False)
class GroupDiversity:
    """Diversity of the answers of many groups: one entry a group, in the order of ``groups``."""

    groups: NDArray[Any]
    """Group ids, sorted."""
    samples: IntArray
    """Samples in the group, parsable or not."""
    parsed: IntArray
    """Samples with a parsable answer."""
    distinct: IntArray
    """Distinct answers in all samples of the group."""
    entropy: FloatArray
    """Entropy of the answers in nats; NaN where nothing was parsed."""
    effective: FloatArray
    """Effective number of answers, ``exp(entropy)``; NaN where nothing was parsed."""
    expected_distinct: FloatArray
    """Distinct answers to expect in ``draws`` samples of the group; NaN where it has fewer."""
    sample_size: int
    """The sample size at which ``expected_distinct`` compares groups."""


@dataclass(frozen=True)
class DiversityMeans:
    """Mean diversity over a set of groups."""

    groups: int
    """How many groups."""
    left_out: int
    """Groups with fewer samples than the common size; ``distinct`` is without them."""
    distinct: Interval
    """Mean distinct answers in samples of the common size."""
    effective: Interval
    """Mean effective number of answers, over groups with a parsed answer."""
    parse_rate: Interval
    """Share of all samples with a parsable answer. When two sets differ here, so do their distinct answers."""


@dataclass(frozen=True)
class SolvedSplit:
    """Diversity where some sample was right, where none was, and everywhere."""

    solved: DiversityMeans
    """Groups with at least one right sample."""
    unsolved: DiversityMeans
    """Groups with no right sample."""
    every: DiversityMeans
    """All groups."""
    sample_size: int
    """The sample size at which distinct answers are compared."""


def answer_entropy(classes: ArrayLike, estimator: EntropyEstimator = "miller-madow") -> float:
    """Return the entropy in nats of one group's answers, ``-sum p log p``; NaN when none could be parsed."""
    return float(estimate_entropies(_as_one_group(classes), estimator)[0])


def effective_answers(classes: ArrayLike, estimator: EntropyEstimator = "miller-madow") -> float:
    """Return how many equally likely answers would have the same entropy, ``exp(H)``; NaN when none could be parsed.

    1 is a policy with one answer. A leading answer with a thin spread of others can still read as several.
    """
    return math.exp(answer_entropy(classes, estimator))


def expected_distinct(classes: ArrayLike, sample_size: int) -> float:
    """Return the distinct answers to expect in ``draws`` of one group's samples (see ``Tally.expected_distinct``)."""
    counted = _as_one_group(classes)
    if sample_size > counted.samples[0]:
        raise MeasureError(
            f"{sample_size} draws were asked for, but the group has {counted.samples[0]} samples.",
            "Draw at most that many.",
        )
    return float(counted.expected_distinct(sample_size)[0])


def group_diversity(
    groups: ArrayLike,
    classes: ArrayLike,
    *,
    sample_size: int | None = None,
    estimator: EntropyEstimator = "miller-madow",
) -> GroupDiversity:
    """Measure every group at once: one row a sample, in any order.

    ``draws`` is the sample size for ``expected_distinct``; without it the commonest group size (the smaller of two
    equally common), which in a training dump is the number of rollouts per prompt.
    """
    return _measure_groups(count_answers(groups, classes), sample_size, estimator)


def split_by_solved(
    groups: ArrayLike,
    classes: ArrayLike,
    correct: ArrayLike,
    *,
    problems: ArrayLike | None = None,
    sample_size: int | None = None,
    estimator: EntropyEstimator = "miller-madow",
    level: float = 0.95,
    seed: int = 0,
) -> SolvedSplit:
    """Compare diversity on solved groups with diversity on unsolved ones (the per-group table of arXiv 2509.06941).

    A group is solved when one of its rows is ``correct``. ``problems`` names the problem of each row where one problem
    has several groups (steps, temperatures): intervals come from resampling problems, by default groups. Unsolved
    problems are harder, and harder problems draw more answers from any policy, so a difference between the two sets is
    no finding; a change of either over training is.
    """
    counted = count_answers(groups, classes)
    right = as_booleans(correct, "correct")
    check_same_length(groups=counted.rows, correct=right)
    measured = _measure_groups(counted, sample_size, estimator)
    solved = np.bincount(counted.rows, weights=right, minlength=len(counted.groups)) > 0
    sides = {"solved": solved, "unsolved": ~solved, "every": np.ones_like(solved)}
    # One set of resamples for all three: half the work, and the sides stay comparable.
    columns = {
        f"{side} {name}": column * which
        for side, which in sides.items()
        for name, column in _group_columns(measured).items()
    }
    resamples = resample(columns, group_problems(counted, problems), level=level, seed=seed)
    # The most this estimator can read from the largest group: all its samples different.
    most = effective_answers(np.arange(counted.samples.max()), estimator)
    means = {
        side: _diversity_means(resamples, side, int(which.sum()), measured.sample_size, most)
        for side, which in sides.items()
    }
    return SolvedSplit(**means, sample_size=measured.sample_size)


def _measure_groups(counted: AnswerCounts, draws: int | None, estimator: EntropyEstimator) -> GroupDiversity:
    size = int(np.bincount(counted.samples).argmax()) if draws is None else draws
    entropy = estimate_entropies(counted, estimator)
    return GroupDiversity(
        groups=counted.groups,
        samples=counted.samples,
        parsed=counted.parsable,
        distinct=counted.distinct,
        entropy=entropy,
        effective=np.exp(entropy),
        expected_distinct=counted.expected_distinct(size),
        sample_size=size,
    )


def estimate_entropies(counted: AnswerCounts, estimator: EntropyEstimator) -> FloatArray:
    """Return the entropy of each group by the estimator named; NaN where nothing was parsed."""
    terms = {
        "plug-in": plug_in_entropies,
        "miller-madow": miller_madow_entropies,
        "chao-shen": chao_shen_entropies,
    }.get(estimator)
    if terms is None:
        known = ", ".join(get_args(EntropyEstimator))
        raise MeasureError(f"There is no entropy estimator '{estimator}'.", f"Use one of: {known}.")
    return np.where(counted.parsable > 0, np.maximum(terms(counted), 0.0), np.nan)


def plug_in_entropies(counted: AnswerCounts) -> FloatArray:
    """Return the entropy of the observed shares."""
    share = counted.counts / counted.parsable[counted.owners]
    return counted.sums(-share * np.log(share))


def miller_madow_entropies(counted: AnswerCounts) -> FloatArray:
    """Return the plug-in entropy plus the first term of its bias."""
    missing: FloatArray = (counted.distinct - 1) / (2 * np.maximum(counted.parsable, 1))
    return plug_in_entropies(counted) + missing


def chao_shen_entropies(counted: AnswerCounts) -> FloatArray:
    """Return Chao and Shen's entropy, corrected by the sample coverage."""
    parsed = counted.parsable[counted.owners]
    singletons = counted.sums(counted.counts == 1)
    # Singletons alone would mean no coverage at all; counting one fewer is the usual way out.
    covered = np.maximum(counted.parsable - singletons, np.minimum(counted.parsable, 1))
    share = covered[counted.owners] * counted.counts / parsed**2
    seen = 1 - np.power(1 - share, parsed)
    return counted.sums(-share * np.log(share) / seen)


def _group_columns(measured: GroupDiversity) -> dict[str, FloatArray]:
    """Return what is summed over groups: each measure, 0 where it is unknown, and for how many it is known."""
    enough, known = np.isfinite(measured.expected_distinct), np.isfinite(measured.effective)
    return {
        "distinct": np.where(enough, measured.expected_distinct, 0.0),
        "enough": enough.astype(np.float64),
        "effective": np.where(known, measured.effective, 0.0),
        "known": known.astype(np.float64),
        "parsed": measured.parsed.astype(np.float64),
        "samples": measured.samples.astype(np.float64),
    }


def _diversity_means(resamples: Resamples, side: str, groups: int, draws: int, most_effective: float) -> DiversityMeans:
    return DiversityMeans(
        groups=groups,
        left_out=groups - int(resamples.sums[f"{side} enough"].sum()),
        distinct=resamples.ratio(f"{side} distinct", f"{side} enough", (0.0, float(draws))),
        effective=resamples.ratio(f"{side} effective", f"{side} known", (1.0, most_effective)),
        parse_rate=resamples.ratio(f"{side} parsed", f"{side} samples", (0.0, 1.0)),
    )


def group_problems(counted: AnswerCounts, problems: ArrayLike | None) -> NDArray[Any]:
    """Return the problem of each group, taken from any of its rows."""
    if problems is None:
        return counted.groups
    named = np.asarray(problems)
    check_same_length(groups=counted.rows, problems=named)
    first = np.unique(counted.rows, return_index=True)[1]
    if (named[first][counted.rows] != named).any():
        raise MeasureError("A group has rows of more than one problem.", "Give each group rows of one problem only.")
    return np.asarray(named[first])


def _as_one_group(classes: ArrayLike) -> AnswerCounts:
    return count_answers(np.zeros(np.size(np.asarray(classes)), dtype=np.int64), classes)


@dataclass(frozen=True, eq=False, init=False)
class ArmSamples:
    """What one arm answered: three columns, one row a sample, in any order."""

    problems: NDArray[Any]
    """Problem ids."""
    classes: IntArray
    """Answer classes, -1 for no parsable answer; only answers of one problem are compared."""
    correct: BoolArray
    """Whether the sample was right."""

    def __init__(self, problems: ArrayLike, classes: ArrayLike, correct: ArrayLike) -> None:
        columns = {
            "problems": np.asarray(problems),
            "classes": as_answer_classes(classes),
            "correct": as_booleans(correct, "correct"),
        }
        check_same_length(**columns)
        for name, column in columns.items():
            object.__setattr__(self, name, column)


@dataclass(frozen=True)
class ArmDiversity:
    """One arm at the common sample size."""

    solved: Interval
    """Share of problems with a right sample."""
    distinct: Interval
    """Mean distinct answers over all problems."""
    distinct_unsolved: Interval
    """Mean distinct answers over the problems this arm leaves unsolved."""
    parse_rate: Interval
    """Share of samples with a parsable answer."""


@dataclass(frozen=True)
class TransferGap:
    """Distinct answers on unsolved problems, base model less trained policy; above 0: diversity lost by transfer."""

    problems: int
    """Problems compared: those with enough samples in both arms."""
    trained: ArmDiversity
    """The trained policy."""
    base: ArmDiversity
    """The base model."""
    own: Interval
    """Each arm on its own unsolved problems, as published. The sets differ: the trained arm's are harder, which hides a
    loss.
    """
    shared: Interval
    """Both arms on the problems neither solves: the one to read."""
    shared_parsed: Interval
    """As ``shared``, at equally many parsable answers per problem: what is left when the arms fail to parse unequally
    often.
    """


@dataclass(frozen=True)
class Transfer:
    """The transfer gap over all problems and, where it is known which were trained on, over either part."""

    sample_size: int
    """Samples per problem and arm at which everything is compared."""
    left_out: int
    """Problems missing from one arm or with fewer samples there."""
    every: TransferGap
    """All problems compared."""
    held_out: TransferGap | None
    """Problems never trained on: a gap here is transfer, not memory. None when not given, or when there are none."""
    trained_on: TransferGap | None
    """The rest. None when not given, or when there are none."""


def transfer_gap(
    trained: ArmSamples,
    base: ArmSamples,
    *,
    held_out: ArrayLike | None = None,
    sample_size: int | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Transfer:
    """Compare distinct answers of a trained policy and its base model on problems that stay unsolved.

    ``gap = mean distinct(base) - mean distinct(trained)`` over unsolved problems, at equally many samples. An arm with
    more is brought to ``draws`` exactly, not cut: a problem weighs in with its chance ``C(wrong, draws) / C(n, draws)``
    to stay unsolved in that many samples, and with the distinct answers to expect in them. Without ``draws``, the
    commonest number of samples that both arms have on a problem. ``held_out`` names problems never trained on.
    Intervals resample problems.

    Sample both arms at one temperature: nothing here can see or correct that. For cause and effect, train on some
    problems, hold out others that the base model fails, and take step 0 as the base.
    """
    ids, sizes = common_problems(trained, base)
    size = sample_size if sample_size is not None else int(np.bincount(sizes).argmax()) if len(sizes) else 0
    kept = ids[sizes >= size]
    if size < 1 or not len(kept):
        raise MeasureError(
            f"No problem has {size} samples in both arms.",
            "Compare at fewer draws, or sample both arms on the same problems.",
        )
    columns = _arm_columns(_measure_arm(trained, kept, size), _measure_arm(base, kept, size), size)

    def measure_gap(which: BoolArray) -> TransferGap:
        return _measure_gap({name: column[which] for name, column in columns.items()}, kept[which], size, level, seed)

    novel = np.isin(kept, np.asarray([] if held_out is None else held_out))
    is_split = held_out is not None
    return Transfer(
        sample_size=size,
        left_out=len(np.union1d(trained.problems, base.problems)) - len(kept),
        every=measure_gap(np.ones_like(novel)),
        held_out=measure_gap(novel) if is_split and novel.any() else None,
        trained_on=measure_gap(~novel) if is_split and not novel.all() else None,
    )


@dataclass(frozen=True, eq=False)
class _Arm:
    """One arm at the common sample size, one entry a problem."""

    solved: FloatArray
    """Chance of a right sample among ``draws``."""
    distinct: FloatArray
    """Distinct answers to expect in ``draws`` samples."""
    wrong_distinct: FloatArray
    """The same given that none of them is right."""
    samples: FloatArray
    parsed: FloatArray
    places: IntArray
    """Of each wrong, parsable sample: its problem."""
    classes: IntArray
    """Of each wrong, parsable sample: its answer."""


def common_problems(trained: ArmSamples, base: ArmSamples) -> tuple[NDArray[Any], IntArray]:
    """Return the problems both arms have, and how many samples the poorer arm has on each."""
    ids, counts = np.unique(trained.problems, return_counts=True)
    base_ids, base_counts = np.unique(base.problems, return_counts=True)
    both, place, base_place = np.intersect1d(ids, base_ids, assume_unique=True, return_indices=True)
    return both, np.minimum(counts[place], base_counts[base_place])


def _measure_arm(samples: ArmSamples, ids: NDArray[Any], draws: int) -> _Arm:
    known = np.isin(samples.problems, ids)
    places, classes, correct = (
        np.searchsorted(ids, samples.problems[known]),
        samples.classes[known],
        samples.correct[known],
    )
    size = np.full(len(ids), draws)
    wrong, parsed = ~correct, ~correct & (classes >= 0)
    return _Arm(
        # Being right is an answer like another: its chance to show in so many draws is pass@draws.
        solved=_expected_distinct(places, np.where(correct, 0, -1), size),
        distinct=_expected_distinct(places, classes, size),
        wrong_distinct=_expected_distinct(places[wrong], classes[wrong], size),
        samples=np.bincount(places, minlength=len(ids)).astype(np.float64),
        parsed=np.bincount(places[classes >= 0], minlength=len(ids)).astype(np.float64),
        places=places[parsed],
        classes=classes[parsed],
    )


def _expected_distinct(places: IntArray, classes: IntArray, draws: IntArray) -> FloatArray:
    """Return expected distinct answers per problem, 0 where there are too few samples (such problems get no weight)."""
    expected = np.zeros(len(draws))
    if len(places):
        counted = count_answers(places, classes)
        expected[counted.groups] = np.nan_to_num(counted.expected_distinct(draws[counted.groups]))
    return expected


def _arm_columns(trained: _Arm, base: _Arm, draws: int) -> dict[str, FloatArray]:
    """Return what is averaged, one number a problem."""
    shared = (1 - trained.solved) * (1 - base.solved)
    parsed = np.minimum(*(np.bincount(arm.places, minlength=len(shared)) for arm in (trained, base)))
    size = np.minimum(parsed, draws)
    parsed_gap = _expected_distinct(base.places, base.classes, size) - _expected_distinct(
        trained.places, trained.classes, size
    )
    columns = {
        "problems": np.ones_like(shared),
        "shared": shared,
        "shared_gap": shared * (base.wrong_distinct - trained.wrong_distinct),
        "parsed": shared * (parsed > 0),
        "parsed_gap": shared * parsed_gap,
    }
    for name, arm in (("trained", trained), ("base", base)):
        columns |= {
            f"{name}_solved": arm.solved,
            f"{name}_distinct": arm.distinct,
            f"{name}_unsolved": 1 - arm.solved,
            f"{name}_unsolved_distinct": (1 - arm.solved) * arm.wrong_distinct,
            f"{name}_samples": arm.samples,
            f"{name}_parsed": arm.parsed,
        }
    return columns


def _measure_gap(columns: Columns, ids: NDArray[Any], draws: int, level: float, seed: int) -> TransferGap:
    resamples = resample(columns, ids, level=level, seed=seed)
    either = (-float(draws), float(draws))

    def own(means: Columns) -> FloatArray:
        base = quotient(means["base_unsolved_distinct"], means["base_unsolved"])
        return base - quotient(means["trained_unsolved_distinct"], means["trained_unsolved"])

    return TransferGap(
        problems=len(ids),
        trained=_arm_diversity(resamples, "trained", draws),
        base=_arm_diversity(resamples, "base", draws),
        own=resamples.interval(own, "trained_unsolved", either),
        shared=resamples.ratio("shared_gap", "shared", either),
        shared_parsed=resamples.ratio("parsed_gap", "parsed", either),
    )


def _arm_diversity(resamples: Resamples, arm: str, draws: int) -> ArmDiversity:
    return ArmDiversity(
        solved=resamples.ratio(f"{arm}_solved", "problems", (0.0, 1.0)),
        distinct=resamples.ratio(f"{arm}_distinct", "problems", (0.0, float(draws))),
        distinct_unsolved=resamples.ratio(f"{arm}_unsolved_distinct", f"{arm}_unsolved", (0.0, float(draws))),
        parse_rate=resamples.ratio(f"{arm}_parsed", f"{arm}_samples", (0.0, 1.0)),
    )
