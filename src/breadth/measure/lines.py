"""Straight lines by least squares whose errors allow for autocorrelated noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from breadth.base.errors import MeasureError
from breadth.measure.finite import FloatArray
from breadth.measure.intervals import Interval
from breadth.measure.noise import Noise, noise_of


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

    def at(self, x: FloatArray) -> FloatArray:
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

    def mean_miss(self, x: FloatArray, y: FloatArray, level: float) -> Interval:
        """Average how far later points lie above the line, with the interval that the line's and their own noise make."""
        line = self.value_at(float(x.mean()), level)
        own = self.noise.quantile(level) * self.noise.weighted_sd(np.full(len(x), 1 / len(x)))
        miss, reach = float(np.mean(y - self.at(x))), math.hypot(line.high - line.value, own)
        return Interval(miss, miss - reach, miss + reach, level, line.method)

    def _interval(self, value: float, error: float, level: float) -> Interval:
        if len(self.x) < 4:
            return Interval(value, -math.inf, math.inf, level, f"too few points ({len(self.x)})")
        reach = self.noise.quantile(level) * error
        return Interval(
            value, value - reach, value + reach, level, f"least squares, noise autocorrelated by {self.noise.autocorrelation:.2f}"
        )


def varies(x: FloatArray) -> bool:
    """Tell whether values differ by more than rounding, so that a line over them has a slope."""
    return len(x) > 1 and float(np.ptp(x)) > 1e-12 * float(np.max(np.abs(x)))


def line_through(x: FloatArray, y: FloatArray) -> Line:
    """Fit ``y = intercept + slope x`` by least squares to points in step order."""
    if not varies(x):
        raise MeasureError(f"x is the same at all {len(x)} points.", "A line needs at least two different values of x.")
    away = x - x.mean()
    slope = float(away @ y) / float(away @ away)
    intercept = float(y.mean() - slope * x.mean())
    curve = intercept + slope * x
    return Line(slope, intercept, x, noise_of(y - curve, 2, curve))


def misfit(y: FloatArray, columns: list[FloatArray]) -> float:
    """Sum the squares that least squares on a constant and these columns leaves of y."""
    basis = np.linalg.qr(np.column_stack([np.ones(len(y)), *columns]))[0]
    away = y - basis @ (basis.T @ y)
    return float(away @ away)
