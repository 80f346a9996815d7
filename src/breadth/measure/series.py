"""Logged series cleaned for statistics, the autocorrelated noise around their smooth course, and least-squares lines.

Noise is described by its size and autocorrelation around the smooth curve that fits best; a line's errors allow for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from breadth.base.errors import MeasureError
from breadth.measure.intervals import Interval, t_critical, t_sf_two_sided
from breadth.measure.validate import BoolArray, FloatArray, as_floats

_SPIKE_WINDOW = 7
# Points of the running median a spike is measured against: it outvotes spikes of up to three points.
_SPIKE_LIMIT = 4.0
# Robust standard deviations beyond which a point is pulled in; Gaussian noise reaches it once in 16,000 points.
_BREAK_LIMIT = 2.0
# Robust standard deviations of the differences of neighbours by which last points must lie beyond all others.
_END_LIMIT = 3.0
# At the ends a point may leave its neighbours' range by so many ranges: an exponential decline leaves it by two to
# three.
_NORMAL_MAD = 1.482602218505602
# Standard deviation of a normal variable over its median absolute deviation.
_MAX_VALUE = 1e100
# Beyond this squares overflow; a logged value this large is an overflow in the making.
_MIN_SIZE = 1e-90
# A series whose values all are smaller is zero: some of its squares would be.


@dataclass(frozen=True)
class CleanSeries:
    """A series in step order, without the points that are not numbers."""

    steps: FloatArray
    """Steps, ascending; they may have gaps and, after a resume, repeats."""
    values: FloatArray
    """One finite value per step, those of a repeated step in the order they were logged."""
    dropped: int
    """How many points were left out because the value was NaN, infinite or beyond 1e100."""

    def __len__(self) -> int:
        return len(self.values)

    def last(self, count: int) -> CleanSeries:
        """Keep only the last ``count`` points."""
        return CleanSeries(self.steps[-count:], self.values[-count:], self.dropped)


def clean_series(steps: npt.ArrayLike, values: npt.ArrayLike) -> CleanSeries:
    """Sort a series by step (repeats stay, in logged order); drop and count values not finite or beyond 1e100."""
    at, kept = as_floats(steps, "steps"), as_floats(values, "values")
    if at.ndim != 1 or at.shape != kept.shape:
        raise MeasureError(
            f"A series needs one step per value, got steps of shape {at.shape} and values of shape {kept.shape}.",
            "Pass two flat lists of equal length.",
        )
    missing = int(np.count_nonzero(~np.isfinite(at)))
    if missing:
        raise MeasureError(
            f"{missing} of {len(at)} steps are NaN or infinite.",
            "Number the points 0, 1, 2, ... where the log has no steps.",
        )
    good = is_usable(kept)
    order = np.argsort(at[good], kind="stable")
    size = np.abs(kept[good])
    # Squares of smaller values are zero. A series of nearly that size is zero as a whole, or it would jump there.
    lowest = 1 / _MAX_VALUE if size.max(initial=0.0) > _MIN_SIZE else math.inf
    return CleanSeries(at[good][order], np.where(size < lowest, 0.0, kept[good])[order], int(np.count_nonzero(~good)))


def is_usable(values: FloatArray) -> BoolArray:
    """Say which values a series keeps: those that are finite and not beyond 1e100."""
    return np.asarray(np.abs(values) < _MAX_VALUE, dtype=np.bool_)


def subsample(series: CleanSeries, max_points: int) -> CleanSeries:
    """Replace runs of neighbouring points by their medians until at most ``most`` are left."""
    if len(series) <= max_points:
        return series
    group = -(-len(series) // max_points)
    whole = len(series) // group * group
    middles = [np.median(of[:whole].reshape(-1, group), axis=1) for of in (series.steps, series.values)]
    rest = [[np.median(of[whole:])] if whole < len(series) else [] for of in (series.steps, series.values)]
    return CleanSeries(np.append(middles[0], rest[0]), np.append(middles[1], rest[1]), series.dropped)


def robust_sd(values: FloatArray) -> float:
    """Estimate the standard deviation from the median absolute deviation; NaN of nothing.

    Where most values are equal, the mean absolute deviation is used.
    """
    if not len(values):
        return math.nan
    away = np.abs(values - np.median(values))
    return float(_NORMAL_MAD * np.median(away) or math.sqrt(math.pi / 2) * np.mean(away))


def sorted_medians(ordered: FloatArray) -> FloatArray:
    """Return the median of each row of sorted finite numbers; numpy sorts long rows faster than it finds medians."""
    count = ordered.shape[-1]
    return np.asarray((ordered[..., (count - 1) // 2] + ordered[..., count // 2]) / 2, dtype=np.float64)


def winsorize(values: FloatArray) -> FloatArray:
    """Pull spikes in to four robust standard deviations from the running median of seven points.

    Levels, jumps and slopes stay.

    Within three points of either end there is no running median; a point there may leave the range of its inner
    neighbours by at most three times that range, which a smooth curve hardly exceeds. Fewer than seven points are left
    as they are.
    """
    if len(values) < _SPIKE_WINDOW:
        return values
    half, calm = _SPIKE_WINDOW // 2, values.copy()
    middle = sorted_medians(np.sort(sliding_window_view(values, _SPIKE_WINDOW)))
    away = values[half:-half] - middle
    reach = _SPIKE_LIMIT * _NORMAL_MAD * typical_distance(away)
    calm[half:-half] = middle + np.clip(away, -reach, reach)
    calm[:half] = [_clip_to_neighbours(values[:_SPIKE_WINDOW], place) for place in range(half)]
    calm[-half:] = [_clip_to_neighbours(values[-_SPIKE_WINDOW:], place) for place in range(half + 1, _SPIKE_WINDOW)]
    return calm


def count_broken_off(values: FloatArray) -> int:
    """Return how many points at the end lie beyond all others on one side, two at least, by far more than those differ.

    0 where there are none: one point alone is a spike. At most an eighth of the points, three at least.
    """
    for count in range(max(3, len(values) // 8), 1, -1):
        rest, last = values[:-count], values[-count:]
        reach = _BREAK_LIMIT * _NORMAL_MAD * typical_distance(np.diff(rest)) if len(rest) >= _SPIKE_WINDOW else np.inf
        if last.max() < rest.min() - reach or last.min() > rest.max() + reach:
            return count
    return 0


def smooth_by_median(values: FloatArray) -> FloatArray:
    """Return the running median of five points, the ends repeated."""
    padded = np.pad(values, 2, mode="edge")
    return np.asarray(np.median(sliding_window_view(padded, 5), axis=1), dtype=np.float64)


def typical_distance(away: FloatArray) -> float:
    # Smooth stretches lie exactly on their running median; where most points do, the others set the measure.
    """Return the median distance from the running median; of the points off it where most lie exactly on it."""
    distance = np.abs(away)
    off = distance[distance > 1e-9 * distance.max()]
    return float(np.median(distance if 2 * len(off) > len(distance) else off)) if len(off) else 0.0


def _clip_to_neighbours(window: FloatArray, place: int) -> float:
    # Inner four of the six: one of them may be wild itself.
    inner = np.sort(np.delete(window, place))[1:-1]
    low, high = float(inner[0]), float(inner[-1])
    reach = _END_LIMIT * (high - low)
    return min(max(float(window[place]), low - reach), high + reach)


_MAX_AUTOCORRELATION = 0.95
# Beyond this a slow random walk and a trend look alike on a few hundred points.
_MIN_VARIANCE_LEFT = 0.2
# Share of the variance a curve is trusted to leave; below it the correction would divide by nearly nothing.
_MIN_BENT_POINTS = 14
# Fewest points on which a bent curve is tried besides the line; on fewer, noise bends as much as curves do.
_MIN_KNOTTED_POINTS = 24
# Fewest points on which a line with two knots is tried; with four knots half as many again.
_RATES = (2, 4, 8, 16)
# Decay rates tried, per length of the series: from hardly bent to over in its first sixth.
_TURNS, _TURN_WIDTHS = tuple(np.linspace(0.2, 0.8, 13)), (0.02, 0.04, 0.08)
# Middles and widths of the S-shaped passages from one level to another that are tried; what lies between them is had by
# their derivatives.


@dataclass(frozen=True)
class Noise:
    """What is left of a series when a smooth curve is taken out, described as first-order autoregressive noise."""

    curve: FloatArray
    """The smooth curve."""
    residuals: FloatArray
    """The series minus the curve."""
    sd: float
    """Standard deviation of the noise, corrected for what the curve swallowed."""
    autocorrelation: float
    """Correlation of neighbouring points, corrected for the bias of short series; between 0 and 0.95."""

    @property
    def effective_points(self) -> float:
        """How many independent points would say as much about the level: ``n (1 - rho) / (1 + rho)``."""
        return len(self.residuals) * (1 - self.autocorrelation) / (1 + self.autocorrelation)

    @property
    def degrees_of_freedom(self) -> float:
        """Effective points less the two of a line, at least 2; the noise is estimated, so intervals use Student's t."""
        return max(self.effective_points - 2, 2.0)

    @property
    def float_error(self) -> float:
        """What arithmetic alone makes of a series without noise: differences up to this are none."""
        return 1e-9 * float(np.max(np.abs(self.curve)))

    def quantile(self, level: float) -> float:
        """How many standard errors a two-sided interval of this level reaches to each side."""
        return t_critical(self.degrees_of_freedom, level)

    def p_value(self, standard_errors: float) -> float:
        """How often noise alone lands at least so many standard errors from zero, on either side."""
        return t_sf_two_sided(self.degrees_of_freedom, standard_errors)

    def weighted_sd(self, weights: FloatArray) -> float:
        """Give the standard deviation of a weighted sum of neighbouring points."""
        powers = self.autocorrelation ** np.arange(len(weights))
        reach = min(len(weights), int(np.count_nonzero(powers > 1e-12)))
        echo = sum(powers[lag] * float(weights[lag:] @ weights[: len(weights) - lag]) for lag in range(1, reach))
        return self.sd * math.sqrt(max(float(weights @ weights) + 2 * echo, 0.0))


def estimate_noise(values: FloatArray, jumps_at: tuple[int, ...] = ()) -> Noise:
    """Estimate a series' noise around the smooth curve that describes it best, spikes pulled in, known jumps allowed.

    The curves tried are a line, a parabola, exponential approaches and departures, passages from one level to another,
    and lines with knots. The choice is by
    BIC on what each point adds to its predecessor, so autocorrelated noise does not pass for shape. ``jumps_at`` lists
    indices from which on the level may change. Misleads when the noise is a slow random walk, which looks like shape.
    """
    if len(values) < 4:
        raise MeasureError(
            f"Noise and trend cannot be separated on {len(values)} points; at least 4 needed.", "Log more steps."
        )
    return _noise_of(np.asarray(values, dtype=np.float64).tobytes(), jumps_at)


@lru_cache(maxsize=64)
def _noise_of(values: bytes, jumps_at: tuple[int, ...]) -> Noise:
    # Kept, because a trend, its slope and its jumps each ask for the noise of the same series.
    calm = winsorize(np.frombuffer(values, dtype=np.float64))
    fits = [(shape, shape.basis @ (shape.basis.T @ calm)) for shape in _candidate_shapes(len(calm), jumps_at)]
    shape, curve = min(fits, key=lambda fit: shape_bic(calm - fit[1], fit[0]))
    return noise_from_residuals(calm - curve, shape.parameters, curve)


def noise_from_residuals(residuals: FloatArray, parameters: int, curve: FloatArray | None = None) -> Noise:
    """Describe the residuals of a fit with p parameters as first-order autoregressive noise.

    After the fit the raw autocorrelation is too small by about ``(p + (p + 2) rho) / n`` (Marriott and Pope 1954 and
    Kendall 1954 for p = 1) and the raw variance by the share ``p (1 + rho) / (1 - rho) / n``; both are put right.
    Negative autocorrelation counts as none, which errs to the side of wide intervals. Residuals at rounding error count
    as zero.
    """
    n, power = len(residuals), float(residuals @ residuals)
    curve = np.zeros(n) if curve is None else curve
    rounding = 1e-12 * float(np.max(np.abs(curve)) + np.max(np.abs(residuals)))
    if power <= n * rounding**2:
        return Noise(curve, np.zeros(n), 0.0, 0.0)
    raw = float(residuals[1:] @ residuals[:-1]) / power
    corrected = (raw + parameters / n) / max(1 - (parameters + 2) / n, _MIN_VARIANCE_LEFT)
    rho = min(max(corrected, 0.0), _MAX_AUTOCORRELATION)
    left = max(1 - parameters * (1 + rho) / (1 - rho) / n, _MIN_VARIANCE_LEFT)
    return Noise(curve, residuals, math.sqrt(power / n / left), rho)


def resample_windows(noise: Noise, points: int, replicates: int, rng: np.random.Generator) -> FloatArray:
    """Draw windows of noise, one a row, by the moving-block bootstrap, of its corrected size and autocorrelation.

    Block lengths follow the n^(1/3) rule for first-order autoregressive noise (Carlstein 1986). Cutting into blocks and
    fitting a curve both lose autocorrelation, so the draws are scaled by the standard deviation of a window's mean with
    and without that loss; without the scaling the intervals are too narrow on every series under a hundred points.
    """
    if noise.sd == 0:
        return np.zeros((replicates, points))
    n, rho = len(noise.residuals), noise.autocorrelation
    block = min(max(math.ceil((2 * rho**2 / (1 - rho**2) ** 2 * n) ** (1 / 3)), 1), max(n // 4, 1))
    centred = noise.residuals - noise.residuals.mean()
    power = float(centred @ centred)
    raw = max(float(centred[1:] @ centred[:-1]) / power, 0.0)
    lost = power / n * variance_of_mean(raw, points, block)
    blocks = sliding_window_view(centred * noise.sd * math.sqrt(variance_of_mean(rho, points) / lost), block)
    chained = blocks[rng.integers(0, n - block + 1, (replicates, points // block + 2))].reshape(replicates, -1)
    return np.asarray(
        sliding_window_view(chained, points, axis=1)[np.arange(replicates), rng.integers(0, block, replicates)],
        dtype=np.float64,
    )


def variance_of_mean(rho: float, points: int, block: float = math.inf) -> float:
    # Of a mean of neighbouring points, over that of as many independent ones; pairs in different blocks are
    # independent.
    """Return the variance of a mean of neighbouring points over that of as many independent ones."""
    lag = np.arange(1, points)
    return float(1 + 2 * np.sum((1 - lag / points) * np.clip(1 - lag / block, 0, None) * rho**lag))


@dataclass(frozen=True)
class _Shape:
    parameters: int
    bent: bool
    basis: FloatArray


def shape_bic(residuals: FloatArray, shape: _Shape) -> float:
    """Return the extended BIC of a shape, on what each point adds to its predecessor."""
    n, power = len(residuals), float(residuals @ residuals)
    raw = min(max(float(residuals[1:] @ residuals[:-1]) / power, 0.0), _MAX_AUTOCORRELATION) if power else 0.0
    news = residuals[1:] - raw * residuals[:-1]
    # A bent shape was picked among many and pays for that (extended BIC), or short noise would often pass for a bend.
    price = shape.parameters * math.log(n) + (2 * math.log(count_bent_shapes(n)) if shape.bent else 0.0)
    return n * math.log(float(np.mean(news**2)) + 1e-300) + price


def s_curve(distance: FloatArray) -> list[FloatArray]:
    """Return an S-shaped curve, and how it changes when its middle is moved and when it is made wider."""
    level = np.tanh(distance / 2)
    return [level, 1 - level**2, distance * (1 - level**2)]


def count_bent_shapes(n: int) -> int:
    """Count the bent shapes that are tried on so many points."""
    return 1 + 2 * len(_RATES) + (len(_TURNS) * len(_TURN_WIDTHS) if n >= _MIN_KNOTTED_POINTS else 0)


@lru_cache(maxsize=8)
def _candidate_shapes(n: int, jumps_at: tuple[int, ...]) -> tuple[_Shape, ...]:
    t, jumps = np.linspace(0, 1, n), [np.arange(n) >= at for at in jumps_at]
    columns: list[tuple[int, list[FloatArray]]] = [(2, [t])]
    if n >= _MIN_BENT_POINTS:
        columns += [(3, [t, t**2])] + [(3, [np.exp(-rate * side)]) for rate in _RATES for side in (t, 1 - t)]
    if n >= _MIN_KNOTTED_POINTS:
        columns += [(5, s_curve((t - middle) / width)) for middle in _TURNS for width in _TURN_WIDTHS]
        columns += [(4, [t, *(np.maximum(t - knot, 0) for knot in (0.25, 0.5))])]
    if n >= _MIN_KNOTTED_POINTS * 3 // 2:
        columns += [(6, [t, *(np.maximum(t - knot, 0) for knot in (0.125, 0.25, 0.5, 0.75))])]
    bases = ((count, np.linalg.qr(np.column_stack([np.ones(n), *jumps, *made]))[0]) for count, made in columns)
    return tuple(_Shape(count + len(jumps), count > 2, basis) for count, basis in bases)


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
        """Average how far later points lie above the line; its interval allows for their noise and the line's."""
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
    """Say whether values differ by more than rounding: then a line over them has a slope."""
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
