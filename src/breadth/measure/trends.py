"""Trends of short noisy series relative to the run's own start: rising, falling, flat, or cannot tell.

Slopes that outliers cannot decide (Theil-Sen with an interval, the Mann-Kendall test), when a level will be reached,
and the levels at start and end, as exactly as the points were measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.measure.change_points import find_jumps
from breadth.measure.intervals import BOOTSTRAP_REPLICATES, Interval, check_level, normal_quantile, t_critical
from breadth.measure.series import (
    CleanSeries,
    Noise,
    clean_series,
    estimate_noise,
    resample_windows,
    robust_sd,
    sorted_medians,
    subsample,
    winsorize,
)
from breadth.measure.validate import FloatArray

MIN_TREND_POINTS = 8
"""Fewest points a trend is read from: with fewer, two independent halves of three points each cannot be set apart."""
_MAX_PAIRED_POINTS = 600
# All pairs are compared, so longer series are first thinned to this many medians; 180,000 pairs take 20 ms.

_COMPARABLE = 2.0
# A continuation whose typical distance from the points is more than twice the other's is not believed.


@dataclass(frozen=True)
class RobustSlope:
    """A series' steady change per step, from the slopes between all pairs of its points."""

    tau: float
    """Kendall's tau-b of value and step: 1 when it only ever rises, -1 when it only ever falls; NaN of too few points.
    """
    p_value: float
    """How often noise this sluggish alone would give so strong a tau (two-sided Mann-Kendall)."""
    points: int
    """Points compared in pairs."""
    _slopes: FloatArray
    _score_sd: float
    _noise: Noise | None

    def interval(self, level: float = 0.95) -> Interval:
        """Return the Theil-Sen slope, the median over all pairs, with its interval; unbounded with too few points."""
        if self._noise is None:
            return Interval(math.nan, -math.inf, math.inf, level, f"too few points ({self.points})")
        pairs, reach = len(self._slopes), self._noise.quantile(level) * self._score_sd
        low, high = math.floor((pairs - reach) / 2) - 1, math.ceil((pairs + reach) / 2)
        bottom = float(self._slopes[low]) if low >= 0 else -math.inf
        top = float(self._slopes[high]) if high < pairs else math.inf
        return Interval(
            float(sorted_medians(self._slopes)), bottom, top, level, "theil-sen, ranks corrected for autocorrelation"
        )


def robust_slope(steps: npt.ArrayLike, values: npt.ArrayLike) -> RobustSlope:
    """Measure the slope of a noisy series so neither spikes nor autocorrelation decide.

    Slope: median of pairwise slopes (Theil 1950, Sen 1968). Test and interval: Mann-Kendall's S with ties, its variance
    inflated for autocorrelation as by Hamed and Rao (1998), ``1 + 2 / (n (n-1) (n-2)) sum_k (n-k)(n-k-1)(n-k-2) r_k``,
    but with the rank autocorrelations ``r_k = 6/pi asin(rho^k / 2)`` of the estimated first-order noise: on short
    series the single empirical ones are too noisy to sum. Student's t replaces the normal quantile. Misleads on a curve
    that turns: it averages over the ways up and down.
    """
    return theil_sen_slope(clean_series(steps, values))


def theil_sen_slope(series: CleanSeries) -> RobustSlope:
    """As `robust_slope`, of a series that is already clean."""
    series = subsample(series, _MAX_PAIRED_POINTS)
    if len(series) < MIN_TREND_POINTS or len(np.unique(series.steps)) < MIN_TREND_POINTS // 2:
        return RobustSlope(math.nan, 1.0, len(series), np.zeros(0), 0.0, None)
    noise = estimate_noise(series.values)
    rise, run = pairwise_changes(series)
    slopes, score, deviation = np.sort(rise / run), float(np.sign(rise).sum()), kendall_score_sd(series, noise)
    group = tie_sizes(series.values)
    untied = (len(series) * (len(series) - 1) - float(np.sum(group * (group - 1)))) / 2
    if (
        untied == 0 or deviation == 0
    ):  # all values are equal; where steps repeat, rounding may leave a deviation all the same
        return RobustSlope(0.0, 1.0, len(series), slopes, 0.0, noise)
    p_value = noise.p_value(max(abs(score) - 1, 0) / deviation)
    return RobustSlope(score / math.sqrt(len(rise) * untied), p_value, len(series), slopes, deviation, noise)


def steps_until(steps: npt.ArrayLike, values: npt.ArrayLike, target: float, *, level: float = 0.95) -> Interval | None:
    """Estimate how many steps after the last one a series reaches ``target`` if its recent trend continues.

    The last third (at least eight points) is continued by its Theil-Sen line and, where value and target are positive,
    also by the Theil-Sen line of the logarithm, since entropies seldom fall straight to zero. The value is that of the
    line which fits better; the interval covers both unless one fits less than half as well. Zero when the target has
    been crossed; an upper end of infinity when the trend may be none; None when there is no trend towards the target,
    or fewer than eight points. An extrapolation: it knows nothing of what the trainer will change.
    """
    check_level(level)
    series = clean_series(steps, values)
    if not math.isfinite(target):
        raise MeasureError(
            f"The target is {target}; it must be a finite number.", "Give the level whose time is asked for."
        )
    if len(series) < MIN_TREND_POINTS:
        return None
    recent = series.last(max(MIN_TREND_POINTS, len(series) // 3))
    if has_crossed(series, target):
        return Interval(0.0, 0.0, 0.0, level, "already there")
    forecasts = [_extrapolate(recent, target, level)]
    if target > 0 and recent.values.min() > 0:
        forecasts.append(_extrapolate(recent, target, level, exponential=True))
    best = min(forecasts, key=lambda forecast: forecast.misfit)
    if not math.isfinite(best.time.value):
        return None
    likely = [forecast.time for forecast in forecasts if forecast.misfit <= _COMPARABLE * best.misfit]
    return Interval(
        best.time.value, min(time.low for time in likely), max(time.high for time in likely), level, best.time.method
    )


@dataclass(frozen=True)
class _Forecast:
    misfit: float
    time: Interval


def has_crossed(series: CleanSeries, target: float) -> bool:
    """Say whether the target lies between the first and the last eighth of a series."""
    eighth = max(3, len(series) // 8)
    start, now = float(np.median(series.values[:eighth])), float(np.median(series.values[-eighth:]))
    return (start - target) * (now - target) <= 0


def _extrapolate(recent: CleanSeries, target: float, level: float, exponential: bool = False) -> _Forecast:
    seen = CleanSeries(recent.steps, np.log(recent.values), 0) if exponential else recent
    goal = math.log(target) if exponential else target
    slope = theil_sen_slope(seen).interval(level)
    line = slope.value * seen.steps
    line += np.median(seen.values - line)
    misfit = float(np.median(np.abs(recent.values - (np.exp(line) if exponential else line))))
    method = f"{'exponential' if exponential else 'straight'} continuation of the last {len(recent)} points"
    low, high = sorted(steps_to_goal(seen, rate, goal) for rate in (slope.low, slope.high))
    return _Forecast(misfit, Interval(steps_to_goal(seen, slope.value, goal), low, high, level, method))


def steps_to_goal(seen: CleanSeries, rate: float, goal: float) -> float:
    # Steps from the last one until a line of this slope through the middle of the points is at the goal.
    """Return the steps from the last one until a line of this slope through the middle of the points is at the goal."""
    direction = math.copysign(1.0, goal - float(np.median(seen.values)))
    if not rate * direction > 0:
        return math.inf
    if math.isinf(rate):
        return 0.0
    now = float(np.median(seen.values + rate * (seen.steps[-1] - seen.steps)))
    return max((goal - now) / rate, 0.0)


def pairwise_changes(series: CleanSeries) -> tuple[FloatArray, FloatArray]:
    """Return rise and run of every pair of points with different steps."""
    lags = range(1, len(series))
    run, rise = (np.concatenate([of[lag:] - of[:-lag] for lag in lags]) for of in (series.steps, series.values))
    forward = run > 0
    return (rise, run) if forward.all() else (rise[forward], run[forward])


def kendall_score_sd(series: CleanSeries, noise: Noise) -> float:
    # Kendall's variance of the score with ties on both sides, times the inflation by autocorrelation.
    """Return the standard deviation of Kendall's score, with ties and autocorrelation."""
    n, t, u = len(series), tie_sizes(series.steps), tie_sizes(series.values)
    plain = n * (n - 1) * (2 * n + 5) - np.sum(t * (t - 1) * (2 * t + 5)) - np.sum(u * (u - 1) * (2 * u + 5))
    twos = np.sum(t * (t - 1)) * np.sum(u * (u - 1)) / (2 * n * (n - 1))
    threes = np.sum(t * (t - 1) * (t - 2)) * np.sum(u * (u - 1) * (u - 2)) / (9 * n * (n - 1) * (n - 2))
    lag = np.arange(1, n)
    ranks = 6 / math.pi * np.arcsin(noise.autocorrelation**lag / 2)
    inflation = 1 + 2 * np.sum((n - lag) * (n - lag - 1) * (n - lag - 2) * ranks) / (n * (n - 1) * (n - 2))
    return math.sqrt(max(float(plain / 18 + twos + threes), 0.0) * float(inflation))


def tie_sizes(values: FloatArray) -> FloatArray:
    """Return how often each value occurs."""
    return np.unique(values, return_counts=True)[1].astype(np.float64)


_METHOD = "medians; noise from differences of neighbours"


def edge_points(points: int) -> int:
    """Return how many points of either end its level is read from: an eighth, at least three."""
    return max(3, points // 8)


def measured_levels(values: FloatArray, level: float) -> tuple[Interval, Interval, Interval]:
    """Return the level at the start, that at the end and the change between them; needs eight points.

    Levels are medians of the edges. Their noise is half the mean square of differences between neighbours in the nearer
    quarter of the points, at least five (von Neumann 1941), each end its own: a trend and a slow random walk hardly add
    to it, as they are no measurement errors. With k differences it has about 2 k / 3 degrees of freedom. A median of m
    points has pi / 2 times the variance of their mean.
    """
    size, near, calm = edge_points(len(values)), max(len(values) // 4, 5), winsorize(values)
    start, end = _Level.from_points(values[:size], calm[:near]), _Level.from_points(values[-size:], calm[-near:])
    change = _Level(end.value - start.value, math.hypot(start.error, end.error), min(start.freedom, end.freedom))
    return start.interval(level), end.interval(level), change.interval(level)


@dataclass(frozen=True)
class _Level:
    value: float
    error: float
    freedom: float

    @classmethod
    def from_points(cls, part: FloatArray, around: FloatArray) -> _Level:
        differences = np.diff(around)
        variance = float(np.mean(differences**2)) / 2
        return cls(float(np.median(part)), math.sqrt(math.pi / 2 * variance / len(part)), 2 * len(differences) / 3)

    def interval(self, level: float) -> Interval:
        reach = t_critical(self.freedom, level) * self.error
        return Interval(self.value, self.value - reach, self.value + reach, level, _METHOD)


Verdict: TypeAlias = Literal["rising", "falling", "flat", "cannot tell"]
"""Direction of a series."""

_RELEVANT_SHARE = 0.1
# Change that matters by default, as a share of the start level: what a reader of a plot would call a change.
_HIGH_AUTOCORRELATION, _JUMP_LEVEL = 0.7, 0.95
# Autocorrelation from which on it is worth looking for jumps behind it, and how sure to be of one.
_MAX_SEARCHED_POINTS = 600
# Jumps behind the noise need no finer place than this many medians give.
_MAX_TREND_POINTS = 3000
# Longer series are first thinned to medians, so the work stays bounded.


@dataclass(frozen=True)
class Trend:
    """Where a series started, where it is now, and whether that is a change."""

    verdict: Verdict
    """``flat`` only when a relevant change is excluded; ``cannot tell`` when the series is too short or too noisy."""
    reason: str
    """One sentence with the numbers behind the verdict."""
    start: Interval
    """Level at the start: median of the first eighth of the points, at least three."""
    start_spread: float
    """Robust standard deviation of those points."""
    end: Interval
    """Level now: median of as many points at the end."""
    change: Interval
    """End minus start."""
    ratio: Interval | None
    """End over start; None where the start is not clearly above zero."""
    slope: Interval
    """Theil-Sen slope per step."""
    tau: float
    """Kendall's tau-b of value and step."""
    p_value: float
    """Two-sided Mann-Kendall p-value, corrected for autocorrelation."""
    relevant_change: float
    """The change that was taken to matter, in the series' units."""
    autocorrelation: float
    """Correlation of neighbouring points around the trend."""
    points: int
    """Points used."""
    dropped: int
    """Points left out because they were NaN or infinite."""


def trend(
    steps: npt.ArrayLike, values: npt.ArrayLike, *, relevant: float | None = None, level: float = 0.95, seed: int = 0
) -> Trend:
    """Say whether a series rises, falls or stays, compared with its start; intervals respect autocorrelation.

    Levels are medians of the first and last eighth; their intervals come from the moving-block bootstrap of the noise
    around the series' best smooth curve, the slope's from Mann-Kendall ranks. The series rises (falls) when the change
    or the slope is above (below) zero and the other does not contradict; each is tested at half the error, so the two
    together err at ``1 - level``. Where a quarter of the points have one value, medians jump, and means are tested
    instead. It is flat when both the change and the slope over the whole run stay within ``relevant`` of zero, even if
    they are not exactly zero. ``relevant`` is in the series' units; by default a tenth of the start level, or the
    start's spread where the start is not clear of zero. Needs eight points. Misleads when the
    noise is a slow random walk over the whole run, which looks like a trend in a single run, and when the series
    turned: see `breadth.measure.change_points`.
    """
    if relevant is not None and not 0 <= relevant < math.inf:
        raise MeasureError(
            f"The relevant change is {relevant}; it must be a finite number of at least 0.",
            "Leave it out for a tenth of the start level.",
        )
    check_level(level)
    series = clean_series(steps, values)
    if len(series) < MIN_TREND_POINTS:
        return _trend_of_too_few(series, relevant, level)
    levels = _Levels.from_series(subsample(series, _MAX_TREND_POINTS), seed)
    matters = levels.relevant_change(level) if relevant is None else relevant
    slope = theil_sen_slope(series)
    verdict, reason = _decide(series, levels, slope, matters, level)
    return Trend(
        verdict=verdict,
        reason=reason,
        start=levels.start(level),
        start_spread=levels.start_spread,
        end=levels.end(level),
        change=levels.change(level),
        ratio=levels.ratio(level),
        slope=slope.interval(level),
        tau=slope.tau,
        p_value=slope.p_value,
        relevant_change=matters,
        autocorrelation=levels.noise.autocorrelation,
        points=len(series),
        dropped=series.dropped,
    )


def log_trend(steps: npt.ArrayLike, values: npt.ArrayLike, *, level: float = 0.95, seed: int = 0) -> Trend:
    """Find the trend of a positive quantity that moves by factors, as entropy does: by its logarithm, in its own units.

    What falls by the same share at every step is a straight line there, and its noise is as large at the end as at the
    start; on a straight scale the bend passes for autocorrelated noise. A tenth up or down matters. Whether it
    moves at all is tested against a random walk, as `trend` does. How far it has come is a matter of measurement error
    alone: a policy that has drifted to a third of its entropy has a third now. So the levels' intervals cover the
    differences of neighbouring points and no random walk. The slope is the share gained per step. Where a value is
    not above zero there is no logarithm, and the result is that of `trend`.
    """
    series = clean_series(steps, values)
    if len(series) < MIN_TREND_POINTS or series.values.min() <= 0:
        return trend(steps, values, level=level, seed=seed)
    logs = CleanSeries(series.steps, np.log(series.values), series.dropped)
    by_log = trend(logs.steps, logs.values, relevant=math.log1p(_RELEVANT_SHARE), level=level, seed=seed)
    start, end, change = measured_levels(subsample(logs, _MAX_TREND_POINTS).values, level)
    ratio, first, last = _exp(change), _exp(start), _exp(end)
    return replace(
        by_log,
        reason=(
            f"from {first.value:.4g} to {last.value:.4g}, {ratio.value:.3g} times [{ratio.low:.3g}, {ratio.high:.3g}]"
            " the start"
        ),
        start=first,
        start_spread=first.value * by_log.start_spread,
        end=last,
        change=interval_difference(first, last),
        ratio=ratio,
        slope=map_interval(by_log.slope, math.expm1),
        relevant_change=_RELEVANT_SHARE * first.value,
        dropped=series.dropped,
    )


def _exp(logs: Interval) -> Interval:
    return map_interval(logs, math.exp)


def map_interval(interval: Interval, function: Callable[[float], float]) -> Interval:
    """Apply a rising function to an interval."""
    low, value, high = (function(end) for end in (interval.low, interval.value, interval.high))
    return replace(interval, value=value, low=low, high=high)


def interval_difference(start: Interval, end: Interval) -> Interval:
    """Return the difference of two levels whose errors are independent: to each side the root of the squares."""
    change = end.value - start.value
    down, up = (
        math.hypot(end.value - end.low, start.high - start.value),
        math.hypot(end.high - end.value, start.value - start.low),
    )
    return replace(end, value=change, low=change - down, high=change + up)


@dataclass(frozen=True)
class _Levels:
    """Start and end of a series with bootstrap draws of their errors."""

    first: float
    last: float
    first_errors: FloatArray
    last_errors: FloatArray
    start_spread: float
    noise: Noise

    @classmethod
    def from_series(cls, series: CleanSeries, seed: int) -> _Levels:
        eighth, noise, rng = edge_points(len(series)), noise_around_jumps(series), np.random.default_rng(seed)
        first, last = series.values[:eighth], series.values[-eighth:]
        errors = [resample_median_errors(curve, noise, rng) for curve in (noise.curve[:eighth], noise.curve[-eighth:])]
        return cls(float(np.median(first)), float(np.median(last)), errors[0], errors[1], robust_sd(first), noise)

    def start(self, level: float) -> Interval:
        return self._around(self.first, self.first_errors, level)

    def end(self, level: float) -> Interval:
        return self._around(self.last, self.last_errors, level)

    def change(self, level: float) -> Interval:
        return self._around(self.last - self.first, self.last_errors - self.first_errors, level)

    def ratio(self, level: float) -> Interval | None:
        if self.start(level).low <= 0:
            return None
        widening = self._widen_factor(level)
        draws = (self.last - widening * self.last_errors) / (self.first - widening * self.first_errors)
        low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
        return Interval(self.last / self.first, float(low), float(high), level, "moving-block bootstrap")

    def relevant_change(self, level: float) -> float:
        return self.start_spread if 0 in self.start(level) else _RELEVANT_SHARE * abs(self.first)

    def _around(self, value: float, errors: FloatArray, level: float) -> Interval:
        low, high = np.quantile(errors * self._widen_factor(level), [(1 - level) / 2, (1 + level) / 2])
        return Interval(
            value, float(min(value - high, value)), float(max(value - low, value)), level, "moving-block bootstrap"
        )

    def _widen_factor(self, level: float) -> float:
        return self.noise.quantile(level) / normal_quantile(level)


def noise_around_jumps(series: CleanSeries) -> Noise:
    """Estimate noise around a smooth curve with the jumps that it has: they pass for sluggish noise otherwise."""
    noise = estimate_noise(series.values)
    if noise.autocorrelation <= _HIGH_AUTOCORRELATION:
        return noise
    group = -(-len(series) // _MAX_SEARCHED_POINTS)
    places = tuple(
        group * jump.index for jump in find_jumps(subsample(series, _MAX_SEARCHED_POINTS).values, _JUMP_LEVEL)
    )
    return estimate_noise(series.values, places) if places else noise


def resample_median_errors(curve: FloatArray, noise: Noise, rng: np.random.Generator) -> FloatArray:
    """Return how far the medians of resampled windows around a curve lie from its own."""
    draws = sorted_medians(np.sort(curve + resample_windows(noise, len(curve), BOOTSTRAP_REPLICATES, rng)))
    return np.asarray(draws - np.median(curve), dtype=np.float64)


def _decide(
    series: CleanSeries, levels: _Levels, slope: RobustSlope, matters: float, level: float
) -> tuple[Verdict, str]:
    change, span = levels.change(level), float(series.steps[-1] - series.steps[0])
    steady = slope.interval(level)
    summary = (
        f"from {levels.first:.4g} to {levels.last:.4g}, a change of {change.value:+.4g} [{change.low:+.4g},"
        f" {change.high:+.4g}]"
    )
    if all(-matters <= end <= matters for end in (change.low, change.high, span * steady.low, span * steady.high)):
        return "flat", f"{summary}: within {matters:.4g} of zero, the change that would matter"
    stricter = (1 + level) / 2
    moved = mean_change(series.values, stricter) if is_lumped(series.values) else levels.change(stricter)
    signs = {interval_sign(moved), interval_sign(slope.interval(stricter))} - {0}
    if signs == {1}:
        return "rising", summary
    if signs == {-1}:
        return "falling", summary
    if signs:
        return "cannot tell", f"{summary}, against a slope of {steady.value:+.4g} a step: it turned on the way"
    hidden = (
        f"over {len(series)} points the noise hides both a change and its absence (one of {matters:.4g} would matter)"
    )
    return "cannot tell", f"{summary}: {hidden}"


_LUMP = 0.25
# Share of the points with one value from which on medians stick to it, or jump to the next value.


def is_lumped(values: FloatArray) -> bool:
    """Say whether many points of a series have one value, as the mean of a few rewards of 0 and 1 has."""
    return bool(tie_sizes(values).max() >= _LUMP * len(values))


def mean_change(values: FloatArray, level: float) -> Interval:
    """Return the mean of the last eighth minus that of the first; noise from differences of neighbours."""
    size, calm = edge_points(len(values)), winsorize(values)
    differences = np.diff(calm)
    error = math.sqrt(float(np.mean(differences**2)) / size)  # half the mean square is the variance, of either end
    change = float(values[-size:].mean() - values[:size].mean())
    reach = t_critical(2 * len(differences) / 3, level) * error
    return Interval(change, change - reach, change + reach, level, "means; noise from differences of neighbours")


def interval_sign(interval: Interval) -> int:
    """Return 1 or -1 for an interval above or below zero, else 0."""
    return int(interval.low > 0) - int(interval.high < 0)


def _trend_of_too_few(series: CleanSeries, relevant: float | None, level: float) -> Trend:
    first, last = (
        float(np.median(part)) if len(part) else math.nan for part in (series.values[:3], series.values[-3:])
    )
    ends = (-math.inf, math.inf, level, "too few points")
    return Trend(
        verdict="cannot tell",
        reason=f"{len(series)} usable points ({series.dropped} were not numbers); at least {MIN_TREND_POINTS} needed",
        start=Interval(first, *ends),
        start_spread=robust_sd(series.values[:3]),
        end=Interval(last, *ends),
        change=Interval(last - first, *ends),
        ratio=None,
        slope=Interval(math.nan, *ends),
        tau=math.nan,
        p_value=1.0,
        relevant_change=_RELEVANT_SHARE * abs(first) if relevant is None else relevant,
        autocorrelation=math.nan,
        points=len(series),
        dropped=series.dropped,
    )
