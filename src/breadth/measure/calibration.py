"""Calibration of confidence: Brier score, calibration error, AUROC, and the risk of answering only when sure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.measure.intervals import Interval, beta_quantile, check_level, t_critical
from breadth.measure.validate import BoolArray, FloatArray, as_booleans, as_finite, check_same_length

CALIBRATION_BINS = 10
"""Bins of the calibration errors: the number nearly every paper reports with."""
_THRESHOLDS = 20
# Thresholds tried for a target risk: each costs confidence (see `threshold_for_risk`), and 5 % steps of coverage are
# fine enough.


@dataclass(frozen=True)
class RiskCoverage:
    """Share of wrong answers among those given, against the share of questions answered, most confident first."""

    thresholds: tuple[float, ...]
    """Distinct scores, falling: answer when the score is at least this."""
    coverages: tuple[float, ...]
    """Share of questions answered at each threshold."""
    risks: tuple[float, ...]
    """Share of wrong answers among those."""
    area: float
    """Mean risk over all numbers of questions answered, equal scores in random order; lower is better."""


@dataclass(frozen=True)
class RiskThreshold:
    """A score above which the answers may be trusted to a target risk."""

    threshold: float
    """Answer when the score is at least this."""
    coverage: float
    """Share of questions answered then."""
    risk: float
    """Share of wrong answers among them, as measured."""
    risk_bound: float
    """Upper bound of the true risk, at the level asked for over the whole search."""


def brier(confidences: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Return the mean squared difference of confidence and outcome: a proper score; lower is better."""
    stated, right = _check_probabilities(confidences, correct)
    return float(np.mean((stated - right) ** 2))


def ece_equal_width(confidences: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = CALIBRATION_BINS) -> float:
    """Measure the expected calibration error: mean |accuracy - confidence| over bins of equal width, weighted by size.

    A bin holds its lower edge; 1 goes to the last. Not proper (a constant guess of the accuracy scores 0), and too high
    with few samples per bin: always read it together with `brier`.
    """
    stated, right = _check_probabilities(confidences, correct)
    _check_bins(bins)
    # The small addend puts 0.57 of 100 bins, which is 56.999... in binary, where 0.57 belongs.
    place = np.minimum((stated * bins + 1e-9).astype(np.int64), bins - 1)
    gaps = np.bincount(place, weights=stated - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(stated))


def ece_equal_mass(confidences: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = CALIBRATION_BINS) -> float:
    """Measure the expected calibration error over bins of (nearly) equally many samples; equal confidences share a bin.

    Steadier than equal width when confidences crowd together, as those of language models do near 1. Same warnings.
    """
    stated, right = _check_probabilities(confidences, correct)
    _check_bins(bins)
    levels, level, counts = np.unique(stated, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2
    place = np.minimum((middle * bins / len(stated)).astype(np.int64), bins - 1)
    gaps = np.bincount(place, weights=np.bincount(level, weights=stated - right, minlength=len(levels)), minlength=bins)
    return float(np.abs(gaps).sum() / len(stated))


def auroc(
    scores: npt.ArrayLike, correct: npt.ArrayLike, problems: npt.ArrayLike | None = None, *, level: float = 0.95
) -> Interval:
    """Chance that a right answer has a higher score than a wrong one, ties counting half; any score, of any scale.

    The interval is DeLong's (1988), summed by problem when ``problems`` names the problem of each sample (Obuchowski
    1997), on the log-odds scale, which keeps it within (0, 1). Give ``problems`` whenever a problem has several
    samples: they are not independent. Without variance (perfect separation, all scores equal) the ends come from the
    number of clusters alone.
    """
    check_level(level)
    ranked, right = as_finite(scores, "scores"), as_booleans(correct, "correct")
    check_same_length(scores=ranked, correct=right)
    positives, negatives = int(right.sum()), int((~right).sum())
    if not positives or not negatives:
        raise MeasureError(f"{positives} right and {negatives} wrong answers.", "Ranking needs at least one of each.")
    placements = delong_placements(ranked, right)
    value = float(placements[right].mean())
    names = np.arange(len(right)) if problems is None else np.asarray(problems)
    check_same_length(scores=ranked, problems=names)
    owners = np.unique(names, return_inverse=True)[1]
    variance, clusters = auroc_variance(placements - value, right, owners)
    return auroc_interval(value, variance, clusters, level)


def risk_coverage(scores: npt.ArrayLike, correct: npt.ArrayLike) -> RiskCoverage:
    """Risk at every coverage that a threshold on the score can reach, and the area under the curve.

    Any score, of any scale.
    """
    thresholds, answered, wrong = cumulate_from_top(scores, correct)
    total = answered[-1]
    # Equal scores enter in random order, so wrong answers rise on a straight line between thresholds.
    numbers = np.arange(1, int(total) + 1)
    expected = np.interp(numbers, np.concatenate([[0.0], answered]), np.concatenate([[0.0], wrong]))
    return RiskCoverage(
        tuple(thresholds.tolist()),
        tuple((answered / total).tolist()),
        tuple((wrong / answered).tolist()),
        float(np.mean(expected / numbers)),
    )


def threshold_for_risk(
    scores: npt.ArrayLike, correct: npt.ArrayLike, target: float, *, level: float = 0.95
) -> RiskThreshold | None:
    """Find the threshold that answers most while the risk stays at or below the target; None when no threshold does.

    The bound is Clopper-Pearson's upper one. Up to 20 thresholds spaced evenly in coverage are tried, each at 1 - (1 -
    level) / tried, so the bound holds for the one chosen (Bonferroni), not only for one fixed in advance. It holds
    for new questions like these: one sample per question, same model, same prompt.
    """
    check_level(level)
    if not 0 < target < 1:
        raise MeasureError(f"Target risk {target}.", "Give the share of wrong answers you accept, between 0 and 1.")
    thresholds, answered, wrong = cumulate_from_top(scores, correct)
    tried = np.unique(np.searchsorted(answered, answered[-1] * np.arange(1, _THRESHOLDS + 1) / _THRESHOLDS - 1e-9))
    total, errors = answered[tried], wrong[tried]
    sure = 1 - (1 - level) / len(tried)
    bounds = np.array(
        [
            beta_quantile(wrongs + 1, count - wrongs, sure) if wrongs < count else 1.0
            for wrongs, count in zip(errors.tolist(), total.tolist(), strict=True)
        ]
    )
    kept = np.flatnonzero(bounds <= target)
    if len(kept) == 0:
        return None
    best = kept[-1]
    return RiskThreshold(
        float(thresholds[tried[best]]),
        float(total[best] / answered[-1]),
        float(errors[best] / total[best]),
        float(bounds[best]),
    )


def _check_probabilities(confidences: npt.ArrayLike, correct: npt.ArrayLike) -> tuple[FloatArray, BoolArray]:
    stated, right = as_finite(confidences, "confidences"), as_booleans(correct, "correct")
    check_same_length(confidences=stated, correct=right)
    outside = int(np.count_nonzero((stated < 0) | (stated > 1)))
    if outside:
        raise MeasureError(
            f"{outside} of {len(stated)} confidences lie outside [0, 1].",
            "Give probabilities; a raw score can only be ranked (auroc, risk_coverage).",
        )
    return stated, right


def _check_bins(bins: int) -> None:
    if bins < 1:
        raise MeasureError(f"{bins} bins asked for.", f"Use at least one; {CALIBRATION_BINS} is usual.")


def delong_placements(scores: FloatArray, right: BoolArray) -> FloatArray:
    """Return, for a right answer, the share of wrong ones it beats; for a wrong one, of right ones that beat it.

    Ties count half.
    """
    low, high = np.sort(scores[~right]), np.sort(scores[right])
    beaten = (np.searchsorted(low, scores, "left") + np.searchsorted(low, scores, "right")) / (2 * len(low))
    beating = 1 - (np.searchsorted(high, scores, "left") + np.searchsorted(high, scores, "right")) / (2 * len(high))
    return np.where(right, beaten, beating)


def auroc_variance(centred: FloatArray, right: BoolArray, owners: npt.NDArray[np.intp]) -> tuple[float, int]:
    """Return the variance of the AUROC, from centred placements summed by problem, and its number of clusters.

    That is the smaller number of problems with either outcome.
    """
    sizes = [int(right.sum()), int((~right).sum())]
    parts = [
        np.bincount(owners, np.where(side, centred, 0.0)) / size
        for side, size in zip((right, ~right), sizes, strict=True)
    ]
    clusters = [len(np.unique(owners[side])) for side in (right, ~right)]
    if min(clusters) < 2:
        return 0.0, 1
    both = len(np.unique(owners))
    own = sum(count / (count - 1) * float(part @ part) for count, part in zip(clusters, parts, strict=True))
    return max(0.0, own + 2 * both / (both - 1) * float(parts[0] @ parts[1])), min(clusters)


def auroc_interval(value: float, variance: float, clusters: int, level: float) -> Interval:
    """Return Student's interval on the log-odds scale; without variance, one from the number of clusters alone."""
    method = f"DeLong, {clusters} clusters of the rarer outcome"
    if variance <= 1e-15 or value in (0.0, 1.0):
        share = ((1 - level) / 2) ** (1 / clusters)
        return Interval(value, share * value, share * value + (1 - share), level, f"{method}: no spread")
    reach, odds = t_critical(clusters - 1, level) * math.sqrt(variance) / (value * (1 - value)), value / (1 - value)
    shrink = math.exp(-reach)
    return Interval(value, odds * shrink / (1 + odds * shrink), odds / (odds + shrink), level, method)


def cumulate_from_top(scores: npt.ArrayLike, correct: npt.ArrayLike) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the distinct scores, falling, with the samples at or above each and how many of those are wrong."""
    ranked, right = as_finite(scores, "scores"), as_booleans(correct, "correct")
    check_same_length(scores=ranked, correct=right)
    levels, level = np.unique(-ranked, return_inverse=True)
    counts = np.bincount(level).astype(np.float64)
    return -levels, np.cumsum(counts), np.cumsum(np.bincount(level, weights=~right))
