"""How far apart two sets of numbers lie, in units of their own spread."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from breadth.base.errors import MeasureError
from breadth.measure.finite import finite
from breadth.measure.intervals import Interval, normal_quantile


def cohens_d(left: ArrayLike, right: ArrayLike, *, level: float = 0.95) -> Interval:
    """Return the difference of means (left less right) over the pooled standard deviation, with its interval.

    ``d = (mean_l - mean_r) / sqrt(((n_l - 1) var_l + (n_r - 1) var_r) / (n_l + n_r - 2))``; the interval is the large-sample normal
    one of Hedges and Olkin, variance ``(n_l + n_r) / (n_l n_r) + d^2 / (2 (n_l + n_r))``. 0.2 is called small and 0.8 large. It assumes
    independent values: give one per problem, not one per sample. With no spread on either side it has no scale:
    0 for equal means, else infinite without ends.
    """
    first, second = finite(left, "left"), finite(right, "right")
    if min(len(first), len(second)) < 2:
        raise MeasureError(f"Got {len(first)} and {len(second)} values; a spread needs two on each side.", "Give more traces of each kind.")
    total = len(first) + len(second)
    gap = float(first.mean() - second.mean())
    pooled = math.sqrt((((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum()) / (total - 2))
    if pooled <= 1e-12 * float(np.abs(np.concatenate([first, second])).max(initial=0.0)):
        return Interval(0.0 if gap == 0 else math.copysign(math.inf, gap), math.nan, math.nan, level, "no spread")
    value = gap / pooled
    reach = normal_quantile(level) * math.sqrt(total / (len(first) * len(second)) + value**2 / (2 * total))
    return Interval(value, value - reach, value + reach, level, "large-sample normal")
