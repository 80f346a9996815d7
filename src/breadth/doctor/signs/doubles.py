"""Steps that stand twice in one log, at two levels: two runs, or two processes that count differently, write into it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from breadth.doctor.evidence import FEWEST
from breadth.runs.reader import Run

APART = 4.0
"""How many times the two values of a step must differ by what neighbouring steps of one level do, both as medians.

Two draws of the same
noise differ by 1.4 times as much, whatever its size (the mean distance of two normal draws over that of neighbouring
minima)."""
LEAST = 0.1
"""Share by which they must differ at all: the change that matters in `breadth.measure.trends`."""


@dataclass(frozen=True)
class TwoLevels:
    """A metric that has two values at the same steps."""

    steps: int
    """Steps that stand twice."""
    low: float
    """Median of the lower values."""
    high: float
    """Median of the higher ones."""


def two_levels(run: Run, name: str) -> TwoLevels | None:
    """Return the two levels of a positive metric; None where steps stand once, or twice because a restart went over them again."""
    values: dict[int, list[float]] = defaultdict(list)
    starts: dict[int, set[int]] = defaultdict(set)
    for point in run.points:
        if (
            point.split == "train"
            and point.source == 0
            and np.isfinite(value := point.values.get(name, np.nan))
            and value > 0
        ):
            values[point.step].append(value)
            starts[point.step].add(point.attempt)
    pairs = np.log([(min(found), max(found)) for _, found in sorted(values.items()) if len(found) > 1])
    begun = {attempt for attempts in starts.values() for attempt in attempts}
    if len(pairs) < FEWEST or len(pairs) * 2 < len(values) or len(begun) * 2 < len(pairs):
        return None
    between, along = np.median(pairs[:, 1] - pairs[:, 0]), np.median(np.abs(np.diff(pairs, axis=0)), axis=0).max()
    if between <= max(APART * along, np.log1p(LEAST)):
        return None
    low, high = np.exp(np.median(pairs, axis=0))
    return TwoLevels(len(pairs), float(low), float(high))
