"""Several columns of sums over whole problems, resampled together: ratios and what is made of them, with intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from breadth.measure.finite import FloatArray, finite, same_length
from breadth.measure.intervals import Bounds, Interval, interval_from_draws, resampled_means

Columns: TypeAlias = Mapping[str, FloatArray]
"""Column name -> values."""


@dataclass(frozen=True, eq=False)
class Resamples:
    """Columns summed within each problem, and their means over each resample of the problems.

    Everything made from one such record rests on the same resamples, so a difference is as exact as its parts allow.
    """

    sums: Columns
    """Sum per problem."""
    means: Columns
    """Mean over problems, in each resample."""
    level: float
    """Level of the intervals made from it."""

    def ratio(self, total: str, count: str, bounds: Bounds) -> Interval:
        """Return the sum of one column over the sum of another; NaN anywhere within ``bounds`` when there is no count at all."""
        return self.interval(lambda columns: quotient(columns[total], columns[count]), count, bounds)

    def interval(self, statistic: Callable[[Columns], FloatArray], count: str, bounds: Bounds) -> Interval:
        """Return any function of column means. Problems with nothing in the column ``count`` are no evidence for it."""
        holding = int(np.count_nonzero(self.sums[count]))
        if not holding:
            return Interval(math.nan, *bounds, self.level, "no problems")
        value = float(statistic({name: column.mean(keepdims=True) for name, column in self.sums.items()})[0])
        return interval_from_draws(value, statistic(self.means), problems=holding, level=self.level, bounds=bounds)


def resample(columns: Mapping[str, ArrayLike], clusters: ArrayLike, *, level: float = 0.95, seed: int = 0) -> Resamples:
    """Sum the rows of each problem, then resample problems; ``clusters`` names the problem of each row. No rows is fine."""
    owners = np.asarray(clusters)
    if not owners.size:
        nothing = {name: np.empty(0) for name in columns}
        return Resamples(nothing, nothing, level)
    _, place = np.unique(owners, return_inverse=True)
    sums = {}
    for name, column in columns.items():
        values = finite(column, name)
        same_length(clusters=owners, **{name: values})
        sums[name] = np.bincount(place, values).astype(np.float64)
    means = resampled_means(np.column_stack(list(sums.values())), seed=seed)
    return Resamples(sums, dict(zip(sums, means.T, strict=True)), level)


def quotient(totals: FloatArray, counts: FloatArray) -> FloatArray:
    """Divide, with NaN instead of a warning where the count is 0."""
    divided: FloatArray = np.divide(totals, counts, out=np.full(counts.shape, math.nan), where=counts != 0)
    return divided
