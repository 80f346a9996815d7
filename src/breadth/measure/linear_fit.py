"""Straight lines through noisy series: least squares with autocorrelated noise, and robust slopes of Theil and Sen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.measure.intervals import Interval, check_level
from breadth.measure.series import (
    CleanSeries,
    Noise,
    clean_series,
    estimate_noise,
    noise_from_residuals,
    sorted_medians,
    subsample,
)
from breadth.measure.validate import FloatArray


@dataclass(frozen=True)
class Line:
    """A line through points given in step order; its errors are those of first-order autoregressive noise around it."""

    slope: float
    """Rise of y per unit of x."""
    intercept: float
    """y at x = 0."""
    x: FloatArray
    """Where the points were, in step order."""
    noise: Noise
    """Noise around the line."""

    def predict(self, x: FloatArray) -> FloatArray:
        """Read the line at each x."""
        return np.asarray(self.intercept + self.slope * x, dtype=np.float64)

    def value_at(self, x: float, level: float) -> Interval:
        """Read the line at one x, with its interval; unbounded with fewer than four points."""
        away = self.x - self.x.mean()
        weights = 1 / len(away) + (x - self.x.mean()) * away / float(away @ away)
        return self._interval(self.intercept + self.slope * x, self.noise.weighted_sd(weights), level)

    def slope_interval(self, level: float) -> Interval:
        """Give the slope with its interval; unbounded with fewer than four points."""
        away = self.x - self.x.mean()
        return self._interval(self.slope, self.noise.weighted_sd(away / float(away @ away)), level)

    def mean_error(self, x: FloatArray, y: FloatArray, level: float) -> Interval:
        """Average how far later points lie above the line, with the interval that the line's and their own noise make."""
        line = self.value_at(float(x.mean()), level)
        own = self.noise.quantile(level) * self.noise.weighted_sd(np.full(len(x), 1 / len(x)))
        miss, reach = float(np.mean(y - self.predict(x))), math.hypot(line.high - line.value, own)
        return Interval(miss, miss - reach, miss + reach, level, line.method)

    def _interval(self, value: float, error: float, level: float) -> Interval:
        if len(self.x) < 4:
            return Interval(value, -math.inf, math.inf, level, f"too few points ({len(self.x)})")
        reach = self.noise.quantile(level) * error
        return Interval(
            value,
            value - reach,
            value + reach,
            level,
            f"least squares, noise autocorrelated by {self.noise.autocorrelation:.2f}",
        )


def is_varying(x: FloatArray) -> bool:
    """Tell whether values differ by more than rounding, so that a line over them has a slope."""
    return len(x) > 1 and float(np.ptp(x)) > 1e-12 * float(np.max(np.abs(x)))


def fit_line(x: FloatArray, y: FloatArray) -> Line:
    """Fit ``y = intercept + slope x`` by least squares to points in step order."""
    if not is_varying(x):
        raise MeasureError(f"x is the same at all {len(x)} points.", "A line needs at least two different values of x.")
    away = x - x.mean()
    slope = float(away @ y) / float(away @ away)
    intercept = float(y.mean() - slope * x.mean())
    curve = intercept + slope * x
    return Line(slope, intercept, x, noise_from_residuals(y - curve, 2, curve))


def residual_sum_of_squares(y: FloatArray, columns: list[FloatArray]) -> float:
    """Sum the squares that least squares on a constant and these columns leaves of y."""
    basis = np.linalg.qr(np.column_stack([np.ones(len(y)), *columns]))[0]
    away = y - basis @ (basis.T @ y)
    return float(away @ away)


MIN_TREND_POINTS = 8
"""Fewest points a trend is read from: with fewer, two independent halves of three points each cannot be set apart."""
_MOST_POINTS = 600
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
        """Give the Theil-Sen slope, the median over all pairs, with its interval; unbounded when there are too few points."""
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
    """Measure the slope of a noisy series so that neither spikes nor autocorrelation decide.

    Slope: median of pairwise slopes (Theil 1950, Sen 1968). Test and interval: Mann-Kendall's S with ties, its variance
    inflated for autocorrelation as by Hamed and Rao (1998), ``1 + 2 / (n (n-1) (n-2)) sum_k (n-k)(n-k-1)(n-k-2) r_k``,
    but with the rank autocorrelations ``r_k = 6/pi asin(rho^k / 2)`` of the estimated first-order noise: on short
    series the single empirical ones are too noisy to sum. Student's t replaces the normal quantile. Misleads on a curve
    that turns: it averages over the ways up and down.
    """
    return theil_sen_slope(clean_series(steps, values))


def theil_sen_slope(series: CleanSeries) -> RobustSlope:
    """As `robust_slope`, of a series that is already clean."""
    series = subsample(series, _MOST_POINTS)
    if len(series) < MIN_TREND_POINTS or len(np.unique(series.steps)) < MIN_TREND_POINTS // 2:
        return RobustSlope(math.nan, 1.0, len(series), np.zeros(0), 0.0, None)
    noise = estimate_noise(series.values)
    rise, run = _pairs(series)
    slopes, score, deviation = np.sort(rise / run), float(np.sign(rise).sum()), _score_sd(series, noise)
    group = _group_sizes(series.values)
    untied = (len(series) * (len(series) - 1) - float(np.sum(group * (group - 1)))) / 2
    if (
        untied == 0 or deviation == 0
    ):  # all values are equal; where steps repeat, rounding may leave a deviation all the same
        return RobustSlope(0.0, 1.0, len(series), slopes, 0.0, noise)
    p_value = noise.p_value(max(abs(score) - 1, 0) / deviation)
    return RobustSlope(score / math.sqrt(len(rise) * untied), p_value, len(series), slopes, deviation, noise)


def steps_until(steps: npt.ArrayLike, values: npt.ArrayLike, target: float, *, level: float = 0.95) -> Interval | None:
    """Estimate how many steps after the last one a series reaches ``target`` if its recent trend goes on.

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
    if _crossed(series, target):
        return Interval(0.0, 0.0, 0.0, level, "already there")
    forecasts = [_continued(recent, target, level)]
    if target > 0 and recent.values.min() > 0:
        forecasts.append(_continued(recent, target, level, exponential=True))
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


def _crossed(series: CleanSeries, target: float) -> bool:
    eighth = max(3, len(series) // 8)
    start, now = float(np.median(series.values[:eighth])), float(np.median(series.values[-eighth:]))
    return (start - target) * (now - target) <= 0


def _continued(recent: CleanSeries, target: float, level: float, exponential: bool = False) -> _Forecast:
    seen = CleanSeries(recent.steps, np.log(recent.values), 0) if exponential else recent
    goal = math.log(target) if exponential else target
    slope = theil_sen_slope(seen).interval(level)
    line = slope.value * seen.steps
    line += np.median(seen.values - line)
    misfit = float(np.median(np.abs(recent.values - (np.exp(line) if exponential else line))))
    method = f"{'exponential' if exponential else 'straight'} continuation of the last {len(recent)} points"
    low, high = sorted(_meeting(seen, rate, goal) for rate in (slope.low, slope.high))
    return _Forecast(misfit, Interval(_meeting(seen, slope.value, goal), low, high, level, method))


def _meeting(seen: CleanSeries, rate: float, goal: float) -> float:
    # Steps from the last one until a line of this slope through the middle of the points is at the goal.
    direction = math.copysign(1.0, goal - float(np.median(seen.values)))
    if not rate * direction > 0:
        return math.inf
    if math.isinf(rate):
        return 0.0
    now = float(np.median(seen.values + rate * (seen.steps[-1] - seen.steps)))
    return max((goal - now) / rate, 0.0)


def _pairs(series: CleanSeries) -> tuple[FloatArray, FloatArray]:
    lags = range(1, len(series))
    run, rise = (np.concatenate([of[lag:] - of[:-lag] for lag in lags]) for of in (series.steps, series.values))
    return rise[run > 0], run[run > 0]


def _score_sd(series: CleanSeries, noise: Noise) -> float:
    # Kendall's variance of the score with ties on both sides, times the inflation by autocorrelation.
    n, t, u = len(series), _group_sizes(series.steps), _group_sizes(series.values)
    plain = n * (n - 1) * (2 * n + 5) - np.sum(t * (t - 1) * (2 * t + 5)) - np.sum(u * (u - 1) * (2 * u + 5))
    twos = np.sum(t * (t - 1)) * np.sum(u * (u - 1)) / (2 * n * (n - 1))
    threes = np.sum(t * (t - 1) * (t - 2)) * np.sum(u * (u - 1) * (u - 2)) / (9 * n * (n - 1) * (n - 2))
    lag = np.arange(1, n)
    ranks = 6 / math.pi * np.arcsin(noise.autocorrelation**lag / 2)
    inflation = 1 + 2 * np.sum((n - lag) * (n - lag - 1) * (n - lag - 2) * ranks) / (n * (n - 1) * (n - 2))
    return math.sqrt(max(float(plain / 18 + twos + threes), 0.0) * float(inflation))


def _group_sizes(values: FloatArray) -> FloatArray:
    return np.unique(values, return_counts=True)[1].astype(np.float64)
