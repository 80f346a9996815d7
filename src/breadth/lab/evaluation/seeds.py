"""Numbers over the seeds of an arm: their mean with Student's interval, and ranks that admit ties."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from breadth.measure.intervals import UNBOUNDED, Bounds, Interval, check_level, t_critical
from breadth.measure.validate import FloatArray, as_finite


def seed_interval(values: npt.ArrayLike, *, bounds: Bounds = UNBOUNDED, level: float = 0.95) -> Interval:
    """Return the mean of one value per seed with Student's t interval, cut at the values the quantity cannot leave.

    One seed says nothing about the spread: the interval is then as wide as the bounds. It misleads where the values of
    a few seeds are far from normal; with three seeds it reaches four standard errors to either side, as it should.
    """
    check_level(level)
    found = as_finite(values, "values")
    mean, count = float(found.mean()), len(found)
    if count == 1:
        return Interval(mean, *bounds, level, "one seed")
    reach = t_critical(count - 1, level) * float(found.std(ddof=1)) / math.sqrt(count)
    return Interval(
        mean, max(bounds[0], mean - reach), min(bounds[1], mean + reach), level, f"Student's t over {count} seeds"
    )


def seed_ranks(intervals: Mapping[str, Interval]) -> dict[str, str]:
    """Return the places each arm may have, the largest value first: arms whose intervals overlap share theirs, e.g.

    ``1-4``.
    """
    placed = {}
    for name, own in intervals.items():
        better = sum(other.low > own.high for other in intervals.values())
        worse = sum(other.high < own.low for other in intervals.values())
        first, last = 1 + better, len(intervals) - worse
        placed[name] = f"{first}" if first == last else f"{first}-{last}"
    return placed


def trailing_mean(values: Sequence[float], width: int) -> FloatArray:
    """Return for each value the mean of the last ``width`` up to it, of fewer at the start."""
    totals = np.cumsum([0.0, *values])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - width)
    return np.asarray((totals[ends] - totals[starts]) / (ends - starts))
