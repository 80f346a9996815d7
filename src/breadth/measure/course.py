"""The course of a series: how high its stretches lie, which lies highest and lowest, and since when it no longer moves.

A trend compares the start with the end. A series that rises, falls and freezes has both at the same level: what
happened lies in between, and only the whole course shows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from breadth.measure.intervals import Interval, t_critical
from breadth.measure.series import CleanSeries, Noise, clean_series, count_broken_off, smooth_by_median, winsorize
from breadth.measure.trends import MIN_TREND_POINTS, noise_around_jumps
from breadth.measure.validate import FloatArray

MAX_COURSE_POINTS = 600
"""Longer series are first thinned to so many means: a stretch that matters is longer than a point of those."""
PEAK_SHARES = (1 / 16, 1 / 8, 1 / 4)
"""Lengths of the stretches that are compared, as shares of the run: a short one shows a peak, a long one is sure."""
LEVEL_SHARES = (1 / 8, 1 / 4)
"""The same for a series whose short peaks say nothing, as a score's, which depend on the problems drawn."""
_MIN_POINTS, _MIN_NEIGHBOURS = 3, 8
# Points of a stretch, and points around it that its noise is read from, at least.
_OPENING_SHARE = 1 / 32
# The start is this share of the run where the series leaves its first level within the first eighth ...
_LEAVES, _LEAVES_BY_LOG = 0.25, math.log(1.5)
# ... by a quarter of the larger level, or by half as much again where levels are compared by logarithms.
_ZERO = 1e-30
# What a series of zeros counts as, by logarithms.
_METHOD = "means; noise from differences of neighbours"


@dataclass(frozen=True)
class Stretch:
    """Neighbouring points and their level."""

    begin: int
    """Index of its first point."""
    end: int
    """Index after its last point."""
    first: float
    """Step of its first point."""
    last: float
    """Step of its last point."""
    level: Interval
    """Mean of its points, as exactly as they were measured; in the units of the series."""
    error: float
    """Standard error of the mean; of its logarithm in a course by logarithms."""
    freedom: float
    """Degrees of freedom of the error."""


@dataclass(frozen=True)
class Course:
    """Levels along a series."""

    start: Stretch
    """The first eighth of the points; less where the series leaves its first level within that."""
    middle: Stretch
    """The eighth around the middle."""
    early: Stretch
    """The first half."""
    late: Stretch
    """The second half."""
    end: Stretch
    """The last eighth."""
    highest: Stretch
    """The stretch that most surely lies highest, of several lengths."""
    lowest: Stretch
    """The stretch that most surely lies lowest."""
    frozen: float | None
    """Step from which on every value is the same; None where the last sixteenth of the points still moves."""
    steps: FloatArray
    """Steps of the points that were compared."""
    values: FloatArray
    """Their values, spikes pulled in; logarithms in a course by logarithms."""
    noise: Noise
    """Noise around a smooth curve with jumps, autocorrelated."""
    looks: int
    """Independent stretches that were compared."""
    by_log: bool
    """Whether levels are compared by their ratio."""
    broken_off: int = 0
    """Points at the end that lie far beyond all others on one side, as those of a run that has just died."""
    before_break: Stretch | None = None
    """The same at the start, as of a score that the first updates destroyed; None where there are none."""

    def change(self, before: Stretch, after: Stretch, *, level: float = 0.95, chosen: bool = True) -> Interval:
        """Return the difference of two stretches, or their ratio by logarithms, as exactly as they were measured.

        Where one of them was chosen for its height, the interval allows for how many there were to choose from
        (Bonferroni), unless ``chosen`` says not to: to exclude a fall from the best stretch the choice needs no
        correction, as it makes the fall look larger.
        """
        corrected = self._correct_level(before, after, level) if chosen else level
        reach = t_critical(min(before.freedom, after.freedom), corrected)
        return self._around(before, after, reach * math.hypot(before.error, after.error), level)

    def change_beyond_wander(self, before: Stretch, after: Stretch, *, level: float = 0.95) -> Interval:
        """Return the same, where the series may also wander slowly without any cause, of two given stretches."""
        weights = np.zeros(len(self.values))
        weights[before.begin : before.end] -= 1 / (before.end - before.begin)
        weights[after.begin : after.end] += 1 / (after.end - after.begin)
        reach = t_critical(self.noise.degrees_of_freedom, level)
        return self._around(before, after, reach * self.noise.weighted_sd(weights), level)

    def _correct_level(self, before: Stretch, after: Stretch, level: float) -> float:
        fixed = {before, after} <= {self.start, self.middle, self.early, self.late, self.end}
        return level if fixed else 1 - (1 - level) / self.looks

    def _around(self, before: Stretch, after: Stretch, reach: float, level: float) -> Interval:
        change = self._mean(after) - self._mean(before)
        found = Interval(change, change - reach, change + reach, level, _METHOD)
        return exponentiate(found) if self.by_log else found

    def _mean(self, stretch: Stretch) -> float:
        return float(self.values[stretch.begin : stretch.end].mean())

    def first_past(self, level: float, *, below: bool, begin: int = 0) -> float | None:
        """Return the step from which on the series stays past a level up to its end; None where it does not.

        A running median of five points must stay past it.
        """
        wanted = math.log(max(level, 1e-300)) if self.by_log else level
        middle = smooth_by_median(self.values)
        past = middle < wanted if below else middle > wanted
        if not past[-1]:
            return None
        inside = np.flatnonzero(~past)
        place = max(0 if not len(inside) else int(inside[-1]) + 1, begin)
        return float(self.steps[place])


def exponentiate(logs: Interval) -> Interval:
    """Turn a difference of logarithms into a factor."""
    low, value, high = (math.exp(min(end, 700.0)) for end in (logs.low, logs.value, logs.high))
    return replace(logs, value=value, low=low, high=high)


def describe_course(
    steps: npt.ArrayLike,
    values: npt.ArrayLike,
    *,
    by_log: bool = False,
    shares: tuple[float, ...] = PEAK_SHARES,
    level: float = 0.95,
) -> Course | None:
    """Measure the levels of a series' stretches; None with fewer than eight usable points.

    By logarithms, what lies below a thousandth of the median counts as that thousandth, so that a zero is a small value
    and not an infinite one.
    """
    series = clean_series(steps, values)
    if len(series) < MIN_TREND_POINTS:
        return None
    series = thin_to_means(series, MAX_COURSE_POINTS)
    seen = logarithms(series.values) if by_log else series.values
    calm, broken_off = winsorize(seen), count_broken_off(seen)
    calm[len(calm) - broken_off :] = seen[len(seen) - broken_off :]
    opening = count_broken_off(seen[::-1])
    calm[:opening] = seen[:opening]
    measured = _Stretches(series.steps, calm, by_log, level)
    n, eighth = len(calm), measured.points(1 / 8)
    every = list(measured.every(shares))
    return Course(
        measured.first_stretch(),
        measured.stretch((n - eighth) // 2, (n - eighth) // 2 + eighth),
        measured.stretch(0, n // 2),
        measured.stretch(n // 2, n),
        measured.stretch(n - eighth, n),
        max(every, key=measured.lower_end),
        min(every, key=measured.upper_end),
        find_freeze(series),
        series.steps,
        calm,
        noise_around_jumps(CleanSeries(series.steps, seen, series.dropped)),
        sum(n // points for points in {measured.points(share) for share in shares}),
        by_log,
        broken_off,
        measured.stretch(0, opening) if opening else None,
    )


def logarithms(values: FloatArray) -> FloatArray:
    """Return logarithms; of what is below a thousandth of the median of the positive values, that of the thousandth."""
    positive = values[values > 0]
    least = 1e-3 * float(np.median(positive)) if len(positive) else _ZERO
    return np.log(np.maximum(values, least))


def thin_to_means(series: CleanSeries, max_points: int) -> CleanSeries:
    """Replace runs of neighbouring points by their means, spikes pulled in, until at most ``max_points`` are left."""
    if len(series) <= max_points:
        return series
    group = -(-len(series) // max_points)
    edges = np.arange(0, len(series), group)
    counts = np.diff(np.append(edges, len(series)))
    calm = winsorize(series.values)
    return CleanSeries(series.steps[edges], np.add.reduceat(calm, edges) / counts, series.dropped)


def find_freeze(series: CleanSeries) -> float | None:
    """Return the step from which on all values are equal, if that is a sixteenth of the points and four at least."""
    values, n = series.values, len(series)
    still = np.abs(values - values[-1]) <= 1e-9 * max(abs(float(values[-1])), 1e-12)
    moving = np.flatnonzero(~still)
    place = 0 if not len(moving) else int(moving[-1]) + 1
    return float(series.steps[place]) if n - place >= max(4, n // 16) else None


class _Stretches:
    """Means and errors of all stretches of a series, by running sums."""

    def __init__(self, steps: FloatArray, values: FloatArray, by_log: bool, level: float) -> None:
        self.steps, self.values, self.by_log, self.level = steps, values, by_log, level
        self._sums = np.concatenate([[0.0], np.cumsum(values - values.mean())])
        self._offset = float(values.mean())
        self._squares = np.concatenate([[0.0], np.cumsum(np.diff(values) ** 2 / 2)])
        width = min(_MIN_NEIGHBOURS, len(values)) - 1
        local = (self._squares[width:] - self._squares[:-width]) / width
        self._usual = float(np.median(local))

    def points(self, share: float) -> int:
        """Return how many points a stretch of a share of the run has."""
        return min(max(_MIN_POINTS, round(share * len(self.values))), len(self.values))

    def stretch(self, begin: int, end: int) -> Stretch:
        """Measure one stretch."""
        mean = self._offset + float(self._sums[end] - self._sums[begin]) / (end - begin)
        around = max(_MIN_NEIGHBOURS - (end - begin), 0)
        low = max(begin - around // 2, 0)
        high = min(max(end + around - around // 2, low + _MIN_NEIGHBOURS), len(self.values))
        low = max(min(low, high - _MIN_NEIGHBOURS), 0)
        count = max(high - low - 1, 1)
        own = float(self._squares[high - 1] - self._squares[low]) / count
        if own < self._usual:  # few equal points are luck: the usual noise, which is known better, counts
            own, count = self._usual, len(self.values) - 1
        error, freedom = math.sqrt(max(own, 0.0) / (end - begin)), max(2 * count / 3, 2.0)
        reach = t_critical(freedom, self.level) * error
        found = Interval(mean, mean - reach, mean + reach, self.level, _METHOD)
        return Stretch(
            begin,
            end,
            float(self.steps[begin]),
            float(self.steps[end - 1]),
            exponentiate(found) if self.by_log else found,
            error,
            freedom,
        )

    def every(self, shares: tuple[float, ...]) -> Iterator[Stretch]:
        """Yield stretches of each length, moved on by a quarter of their length."""
        n = len(self.values)
        for points in sorted({self.points(share) for share in shares}):
            places = range(0, n - points + 1, max(points // 4, 1))
            yield from (self.stretch(begin, begin + points) for begin in (*places, n - points))

    def lower_end(self, stretch: Stretch) -> float:
        """Return what a stretch's level surely exceeds."""
        return stretch.level.low

    def upper_end(self, stretch: Stretch) -> float:
        """Return what a stretch's level surely stays below."""
        return stretch.level.high

    def first_stretch(self) -> Stretch:
        """Return the first eighth; less of it where the series leaves its first level within that."""
        whole, few = self.points(1 / 8), self.points(_OPENING_SHARE)
        if few < whole - 1:
            first, rest = self.stretch(0, few), self.stretch(few, whole)
            before, after = (float(self.values[part.begin : part.end].mean()) for part in (first, rest))
            reach = t_critical(min(first.freedom, rest.freedom), 0.99) * math.hypot(first.error, rest.error)
            matters = _LEAVES_BY_LOG if self.by_log else _LEAVES * max(abs(before), abs(after))
            if abs(after - before) > max(reach, matters):
                return first
        return self.stretch(0, whole)
