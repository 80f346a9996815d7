"""The longest stretch up to the end of a series over which it has stood still after a rise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from breadth.doctor.evidence import FEWEST
from breadth.measure.intervals import Interval
from breadth.measure.series import robust_sd
from breadth.measure.trends import trend
from breadth.runs.reader import Series

_FIRST = 32
# The start is the first of so many parts, at least three points: what learns fast has made most of its way in the first
# eighth.


@dataclass(frozen=True)
class Plateau:
    """A level stretch."""

    step: int
    """Where it begins."""
    share: float
    """How much of the run it is."""
    rise: float
    """How far the series had risen by then."""
    change: Interval
    """Over the stretch, by its slope or by its ends."""
    excluded: float
    """The change over the stretch that is excluded, both ways."""


def plateau(series: Series, stretches: Sequence[float], *, clear: float, still: float) -> Plateau | None:
    """Return the first of the stretches (shares of the series, up to its end) that is level; None where none is, or nothing rose before.

    It rose when the level lies more than ``clear`` standard deviations of a single point above the start, and is level
    when a change of ``still`` times that rise is excluded by the interval of its slope, or of its end less its start:
    each can be wide where the other is not, the first for sluggish noise and the second for much of it.
    """
    start = float(np.median(series.values[: max(3, len(series) // _FIRST)]))
    for share in stretches:
        begin = len(series) - int(share * len(series))
        steps, values = series.steps[begin:], series.values[begin:]
        rise = float(np.median(values)) - start if len(values) >= FEWEST else 0.0
        if rise <= 0 or rise <= clear * robust_sd(values):
            continue
        found, span = trend(steps, values, relevant=still * rise), float(steps[-1] - steps[0])
        slope = found.slope
        by_slope = Interval(span * slope.value, span * slope.low, span * slope.high, slope.level, slope.method)
        level = [one for one in (by_slope, found.change) if max(-one.low, one.high) < found.relevant]
        if level and max(abs(by_slope.value), abs(found.change.value)) < found.relevant:
            return Plateau(int(steps[0]), share, rise, level[0], found.relevant)
    return None
