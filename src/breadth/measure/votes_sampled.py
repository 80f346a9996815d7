"""maj@k by Monte Carlo: the fallback for weighted votes and for votes too large to count exactly."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from breadth.base.errors import MeasureError
from breadth.measure.coverage import draw_sizes, whole_numbers
from breadth.measure.intervals import Interval
from breadth.measure.votes import TIE, checked_ballots

Floats: TypeAlias = NDArray[np.float64]
"""Numbers in double precision."""
Ints: TypeAlias = NDArray[np.int64]
"""Counts and positions."""

_CELLS = 1 << 20
"""Numbers per array of one batch of draws (8 MB)."""


def sampled_maj_at_k(
    classes: ArrayLike, correct: ArrayLike, k: int, *, weights: ArrayLike | None = None, draws: int = 10_000, seed: int = 0
) -> Interval:
    """Estimate the accuracy of a vote over ``k`` of one problem's samples by drawing them again and again.

    One row per sample: its answer class (-1: may be drawn, never votes), its grade and, for a weighted vote, its weight. A
    draw is k samples without replacement; ties are shared equally; a draw in which nobody votes scores 0. For unweighted
    votes `breadth.measure.votes.maj_at_k` is exact and much faster.

    The default of 10,000 draws keeps the standard error at or below 0.005. The interval (95 %) is Wilson's with the draws as
    trials, a little too wide when ties are shared; it is about the error of drawing only, not about which samples the
    model happened to give.
    """
    labels, weight = checked_ballots(classes, np.ones(np.shape(classes)) if weights is None else weights)
    grades = np.asarray(correct, dtype=np.float64)
    if grades.shape != labels.shape or not np.all((grades >= 0) & (grades <= 1)) or labels.size == 0:
        raise MeasureError(f"Got {labels.size} classes and grades of shape {grades.shape}.", "Give one grade from 0 to 1 per sample.")
    size = int(draw_sizes(k, labels.size)[0])
    repeats = int(whole_numbers(draws, "draws"))
    if repeats < 1:
        raise MeasureError(f"draws = {repeats}; at least one is needed.", "Leave draws at its default of 10,000.")
    scores, values = _class_table(labels, weight, grades)
    total = _total_score(scores, values, size, repeats, np.random.default_rng(seed))
    return _wilson(total, repeats)


def _class_table(labels: Ints, weight: Floats, grades: Floats) -> tuple[Floats, Floats]:
    """Each sample's weight in the column of its class, as [samples, classes], and the share of each class that is correct."""
    voting = labels >= 0
    names, place = np.unique(labels[voting], return_inverse=True)
    table = np.zeros((labels.size, max(names.size, 1)))
    table[np.flatnonzero(voting), place] = weight[voting]
    counts = np.maximum(np.bincount(place, minlength=table.shape[1]), 1)
    return table, np.bincount(place, grades[voting], minlength=table.shape[1]) / counts


def _total_score(scores: Floats, values: Floats, size: int, repeats: int, rng: np.random.Generator) -> float:
    """Sum of the outcomes of ``repeats`` votes."""
    samples = len(scores)
    at_once = max(1, _CELLS // max(scores.shape))
    total = 0.0
    for start in range(0, repeats, at_once):
        order = rng.random((min(at_once, repeats - start), samples)).argpartition(size - 1, axis=1)
        drawn = np.zeros(order.shape)
        np.put_along_axis(drawn, order[:, :size], 1.0, axis=1)
        sums = drawn @ scores
        top = sums.max(axis=1, keepdims=True)
        leads = (sums >= top * (1 - TIE)) & (top > 0)
        total += float(np.sum(leads @ values / np.maximum(leads.sum(axis=1), 1)))
    return total


def _wilson(total: float, trials: int) -> Interval:
    """Wilson's interval around a mean of outcomes between 0 and 1: their variance is at most that of a yes or no."""
    z = NormalDist().inv_cdf(0.975)
    share, shrink = total / trials, 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / shrink
    half = z / shrink * math.sqrt(max(share * (1 - share), 0.0) / trials + z * z / (4 * trials * trials))
    low, high = max(0.0, min(middle - half, share)), min(1.0, max(middle + half, share))
    return Interval(share, low, high, 0.95, f"wilson over {trials} draws without replacement")
