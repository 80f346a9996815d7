"""Series of logged values: in step order, without what is not a number, spikes pulled in."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from breadth.base.errors import MeasureError
from breadth.measure.finite import BoolArray, FloatArray, numbers

_SPIKE_WINDOW = 7
# Points of the running median a spike is measured against: it outvotes spikes of up to three points.
_SPIKE_LIMIT = 4.0
# Robust standard deviations beyond which a point is pulled in; Gaussian noise reaches it once in 16,000 points.
_END_LIMIT = 3.0
# At the ends a point may leave its neighbours' range by so many ranges: an exponential decline leaves it by two to three.
_NORMAL_MAD = 1.482602218505602
# Standard deviation of a normal variable over its median absolute deviation.
_LARGEST = 1e100
# Beyond this squares overflow; a logged value this large is an overflow in the making.


@dataclass(frozen=True)
class Series:
    """A series in step order, without the points that are not numbers."""

    steps: FloatArray
    """Steps, ascending; they may have gaps and, after a resume, repeats."""
    values: FloatArray
    """One finite value per step, those of a repeated step in the order they were logged."""
    dropped: int
    """How many points were left out because the value was NaN, infinite or beyond 1e100."""

    def __len__(self) -> int:
        return len(self.values)

    def last(self, count: int) -> Series:
        """Keep only the last ``count`` points."""
        return Series(self.steps[-count:], self.values[-count:], self.dropped)


def clean_series(steps: npt.ArrayLike, values: npt.ArrayLike) -> Series:
    """Sort a series by step (repeats stay, in logged order) and leave out, counted, values that are not finite (or beyond 1e100)."""
    at, kept = numbers(steps, "steps"), numbers(values, "values")
    if at.ndim != 1 or at.shape != kept.shape:
        raise MeasureError(
            f"A series needs one step per value, got steps of shape {at.shape} and values of shape {kept.shape}.",
            "Pass two flat lists of equal length.",
        )
    missing = int(np.count_nonzero(~np.isfinite(at)))
    if missing:
        raise MeasureError(
            f"{missing} of {len(at)} steps are NaN or infinite.", "Number the points 0, 1, 2, ... where the log has no steps."
        )
    good = usable(kept)
    order = np.argsort(at[good], kind="stable")
    values_kept = np.where(np.abs(kept) < 1 / _LARGEST, 0.0, kept)[good][order]  # squares of smaller ones are zero anyway
    return Series(at[good][order], values_kept, int(np.count_nonzero(~good)))


def usable(values: FloatArray) -> BoolArray:
    """Tell which values a series keeps: those that are finite and not beyond 1e100."""
    return np.asarray(np.abs(values) < _LARGEST, dtype=np.bool_)


def thin(series: Series, most: int) -> Series:
    """Replace runs of neighbouring points by their medians until at most ``most`` are left."""
    if len(series) <= most:
        return series
    group = -(-len(series) // most)
    whole = len(series) // group * group
    middles = [np.median(of[:whole].reshape(-1, group), axis=1) for of in (series.steps, series.values)]
    rest = [[np.median(of[whole:])] if whole < len(series) else [] for of in (series.steps, series.values)]
    return Series(np.append(middles[0], rest[0]), np.append(middles[1], rest[1]), series.dropped)


def robust_sd(values: FloatArray) -> float:
    """Estimate the standard deviation from the median absolute deviation (the mean one where most values are equal); NaN of nothing."""
    if not len(values):
        return math.nan
    away = np.abs(values - np.median(values))
    return float(_NORMAL_MAD * np.median(away) or math.sqrt(math.pi / 2) * np.mean(away))


def sorted_medians(ordered: FloatArray) -> FloatArray:
    """Return the median of each row of finite numbers that are in order: numpy sorts long rows faster than it looks for their middle."""
    count = ordered.shape[-1]
    return np.asarray((ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2, dtype=np.float64)


def tame(values: FloatArray) -> FloatArray:
    """Pull spikes in to four robust standard deviations from the running median of seven points; levels, jumps and slopes stay.

    Within three points of either end there is no running median; a point there may leave the range of its inner neighbours by
    at most three times that range, which a smooth curve hardly exceeds. Fewer than seven points are left as they are.
    """
    if len(values) < _SPIKE_WINDOW:
        return values
    half, calm = _SPIKE_WINDOW // 2, values.copy()
    middle = sorted_medians(np.sort(sliding_window_view(values, _SPIKE_WINDOW)))
    away = values[half:-half] - middle
    reach = _SPIKE_LIMIT * _NORMAL_MAD * _typical_distance(away)
    calm[half:-half] = middle + np.clip(away, -reach, reach)
    calm[:half] = [_within_neighbours(values[:_SPIKE_WINDOW], place) for place in range(half)]
    calm[-half:] = [_within_neighbours(values[-_SPIKE_WINDOW:], place) for place in range(half + 1, _SPIKE_WINDOW)]
    return calm


def _typical_distance(away: FloatArray) -> float:
    # Smooth stretches lie exactly on their running median; where most points do, the others set the measure.
    distance = np.abs(away)
    off = distance[distance > 1e-9 * distance.max()]
    return float(np.median(distance if 2 * len(off) > len(distance) else off)) if len(off) else 0.0


def _within_neighbours(window: FloatArray, place: int) -> float:
    # Inner four of the six: one of them may be wild itself.
    inner = np.sort(np.delete(window, place))[1:-1]
    low, high = float(inner[0]), float(inner[-1])
    reach = _END_LIMIT * (high - low)
    return min(max(float(window[place]), low - reach), high + reach)
