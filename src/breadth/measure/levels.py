"""Where a series stood at its start and stands at its end, as exactly as its points were measured, whatever it did in between."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from breadth.measure.finite import FloatArray
from breadth.measure.intervals import Interval
from breadth.measure.series import tame
from breadth.measure.student import student_reach

_METHOD = "medians; noise from differences of neighbours"


def edge(points: int) -> int:
    """Return how many points of either end its level is read from: an eighth, at least three."""
    return max(3, points // 8)


def measured_levels(values: FloatArray, level: float) -> tuple[Interval, Interval, Interval]:
    """Return the level at the start, that at the end and the change between them; needs eight points.

    Levels are medians of the edges. Their noise is half the mean square of differences between neighbours in the nearer quarter of the
    points, at least five (von Neumann 1941), each end its own: a trend and a slow wander hardly add to it, for they are no errors of
    measuring. With k differences it has about 2 k / 3 degrees of freedom. A median of m points has pi / 2 times the variance of their mean.
    """
    size, near, calm = edge(len(values)), max(len(values) // 4, 5), tame(values)
    start, end = _Level.of(values[:size], calm[:near]), _Level.of(values[-size:], calm[-near:])
    change = _Level(end.value - start.value, math.hypot(start.error, end.error), min(start.freedom, end.freedom))
    return start.interval(level), end.interval(level), change.interval(level)


@dataclass(frozen=True)
class _Level:
    value: float
    error: float
    freedom: float

    @classmethod
    def of(cls, part: FloatArray, around: FloatArray) -> _Level:
        differences = np.diff(around)
        variance = float(np.mean(differences**2)) / 2
        return cls(float(np.median(part)), math.sqrt(math.pi / 2 * variance / len(part)), 2 * len(differences) / 3)

    def interval(self, level: float) -> Interval:
        reach = student_reach(self.freedom, level) * self.error
        return Interval(self.value, self.value - reach, self.value + reach, level, _METHOD)
