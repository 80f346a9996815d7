"""Does diversity lost on solved problems go missing on unsolved ones too: the transfer gap, its confounds controlled.

Two arms answer the same problems: the trained policy and the base model. Where no sample was ever right, no reward ever
arrived; fewer distinct answers there than the base model gives is diversity lost by transfer (arXiv 2509.06941).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from breadth.base.errors import MeasureError
from breadth.measure.diversity import as_answer_classes, count_answers
from breadth.measure.intervals import Columns, Interval, Resamples, quotient, resample
from breadth.measure.validate import BoolArray, FloatArray, IntArray, as_booleans, check_same_length


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
    """Distinct answers on unsolved problems, base model less trained policy; above 0, diversity was lost where no reward arrived."""

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
    """Problems never trained on: a gap here is transfer, not memory. None when not told, or when there are none."""
    trained_on: TransferGap | None
    """The rest. None when not told, or when there are none."""


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

    Sample both arms at one temperature: nothing here can see or mend that. For cause and effect, train on some
    problems, hold out others that the base model fails, and take step 0 as the base.
    """
    ids, sizes = _common(trained, base)
    size = sample_size if sample_size is not None else int(np.bincount(sizes).argmax()) if len(sizes) else 0
    kept = ids[sizes >= size]
    if size < 1 or not len(kept):
        raise MeasureError(
            f"No problem has {size} samples in both arms.",
            "Compare at fewer draws, or sample both arms on the same problems.",
        )
    columns = _columns(_arm(trained, kept, size), _arm(base, kept, size), size)

    def over(which: BoolArray) -> TransferGap:
        return _gap({name: column[which] for name, column in columns.items()}, kept[which], size, level, seed)

    novel = np.isin(kept, np.asarray([] if held_out is None else held_out))
    told = held_out is not None
    return Transfer(
        sample_size=size,
        left_out=len(np.union1d(trained.problems, base.problems)) - len(kept),
        every=over(np.ones_like(novel)),
        held_out=over(novel) if told and novel.any() else None,
        trained_on=over(~novel) if told and not novel.all() else None,
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


def _common(trained: ArmSamples, base: ArmSamples) -> tuple[NDArray[Any], IntArray]:
    """Return the problems both arms have, and how many samples the poorer arm has on each."""
    ids, counts = np.unique(trained.problems, return_counts=True)
    base_ids, base_counts = np.unique(base.problems, return_counts=True)
    both, place, base_place = np.intersect1d(ids, base_ids, assume_unique=True, return_indices=True)
    return both, np.minimum(counts[place], base_counts[base_place])


def _arm(samples: ArmSamples, ids: NDArray[Any], draws: int) -> _Arm:
    known = np.isin(samples.problems, ids)
    places, classes, correct = (
        np.searchsorted(ids, samples.problems[known]),
        samples.classes[known],
        samples.correct[known],
    )
    size = np.full(len(ids), draws)
    wrong, told = ~correct, ~correct & (classes >= 0)
    return _Arm(
        # Being right is an answer like another: its chance to show in so many draws is pass@draws.
        solved=_expected(places, np.where(correct, 0, -1), size),
        distinct=_expected(places, classes, size),
        wrong_distinct=_expected(places[wrong], classes[wrong], size),
        samples=np.bincount(places, minlength=len(ids)).astype(np.float64),
        parsed=np.bincount(places[classes >= 0], minlength=len(ids)).astype(np.float64),
        places=places[told],
        classes=classes[told],
    )


def _expected(places: IntArray, classes: IntArray, draws: IntArray) -> FloatArray:
    """Return expected distinct answers per problem, 0 where there are too few samples (such problems get no weight)."""
    expected = np.zeros(len(draws))
    if len(places):
        counted = count_answers(places, classes)
        expected[counted.groups] = np.nan_to_num(counted.expected_distinct(draws[counted.groups]))
    return expected


def _columns(trained: _Arm, base: _Arm, draws: int) -> dict[str, FloatArray]:
    """Return what is averaged, one number a problem."""
    shared = (1 - trained.solved) * (1 - base.solved)
    told = np.minimum(*(np.bincount(arm.places, minlength=len(shared)) for arm in (trained, base)))
    size = np.minimum(told, draws)
    told_gap = _expected(base.places, base.classes, size) - _expected(trained.places, trained.classes, size)
    columns = {
        "problems": np.ones_like(shared),
        "shared": shared,
        "shared_gap": shared * (base.wrong_distinct - trained.wrong_distinct),
        "told": shared * (told > 0),
        "told_gap": shared * told_gap,
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


def _gap(columns: Columns, ids: NDArray[Any], draws: int, level: float, seed: int) -> TransferGap:
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
        shared_parsed=resamples.ratio("told_gap", "told", either),
    )


def _arm_diversity(resamples: Resamples, arm: str, draws: int) -> ArmDiversity:
    return ArmDiversity(
        solved=resamples.ratio(f"{arm}_solved", "problems", (0.0, 1.0)),
        distinct=resamples.ratio(f"{arm}_distinct", "problems", (0.0, float(draws))),
        distinct_unsolved=resamples.ratio(f"{arm}_unsolved_distinct", f"{arm}_unsolved", (0.0, float(draws))),
        parse_rate=resamples.ratio(f"{arm}_parsed", f"{arm}_samples", (0.0, 1.0)),
    )
