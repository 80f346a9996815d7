"""Values that a metric can take: an interval around a share ends at nothing and at all of it."""

from __future__ import annotations

import math
from dataclasses import replace

from breadth.measure.intervals import Interval

BOUNDS = {
    **dict.fromkeys(
        ("starved_groups", "truncated", *(f"clip_fraction{end}" for end in ("", "_low", "_high", "_dual"))), (0.0, 1.0)
    ),
    **dict.fromkeys(("entropy", "reward_std", "length", "length_min", "length_max", "grad_norm"), (0.0, math.inf)),
}
"""Lowest and highest, where they are limited."""


def possible(name: str, interval: Interval) -> Interval:
    """Cut an interval to what the metric can be; one around a value that it cannot be (percent for a share) is left as it is."""
    low, high = BOUNDS.get(name, (-math.inf, math.inf))
    if not low <= interval.value <= high:
        return interval
    return replace(interval, low=max(interval.low, low), high=min(interval.high, high))
