"""Which budget to choose: the best for a price, and the smallest that is as good as the best for all we can tell."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.measure.curves import CurveChoice, fit_curves
from breadth.measure.finite import FloatArray
from breadth.measure.humps import HumpTest, budgets_and_outcomes
from breadth.measure.intervals import REPLICATES, Interval, curve_intervals, interval_from_draws, resampled_counts, resampled_means


@dataclass(frozen=True)
class BudgetChoice:
    """A measured budget, how surely it is the one to choose, and what it brings."""

    budget: Interval
    """The budget chosen, and the range of budgets chosen when problems are resampled."""
    accuracy: Interval
    """Accuracy at that budget. Too high by the luck of being chosen; measure it again on other problems before you promise it."""
    utility: float
    """Accuracy minus price times budget there; the accuracy itself where no price was given."""


@dataclass(frozen=True)
class Optimum:
    """The best budget for a price, on what was measured and on the fitted curve."""

    measured: BudgetChoice
    """The best of the measured budgets."""
    fitted: Interval | None
    """The best budget on the fitted curve; None when there is a hump or too few budgets for a curve."""
    inside: bool
    """Whether the fitted optimum lies within the measured budgets; False also when there is none."""
    basis: CurveChoice | HumpTest | None
    """The fit, or the hump that forbade it, or None when there are too few budgets."""


def optimum(
    budgets: npt.ArrayLike, outcomes: npt.ArrayLike, price: float, *, replicates: int = REPLICATES, level: float = 0.95, seed: int = 0
) -> Optimum:
    """Find the budget with the largest accuracy minus price times budget: on the measured grid first, then on the fit.

    ``outcomes`` is problems x budgets; ``price`` is the accuracy one unit of budget must bring. The measured choice needs no
    shape to be right; the fitted one can name a budget between or beyond. Prefer the measured one when they disagree.
    """
    grid, table = budgets_and_outcomes(budgets, outcomes)
    if not (math.isfinite(price) and price > 0):
        raise MeasureError(f"The price is {price}.", "Give a positive price per unit of budget, in accuracy.")
    draws = resampled_means(table, replicates=replicates, seed=seed) - price * grid
    best = int(np.argmax(table.mean(axis=0) - price * grid))
    measured = _choice(grid, table, best, grid[np.argmax(draws, axis=1)], price, level, replicates, seed)
    if len(grid) < 4 or grid[0] <= 0:
        return Optimum(measured, None, False, None)
    basis = fit_curves(grid, table, replicates=replicates, level=level, seed=seed)
    if isinstance(basis, HumpTest):
        return Optimum(measured, None, False, basis)
    fitted = basis.fit.optimum(price)
    return Optimum(measured, fitted, bool(grid[0] <= fitted.value <= grid[-1]), basis)


def one_standard_error_choice(
    budgets: npt.ArrayLike, outcomes: npt.ArrayLike, *, replicates: int = REPLICATES, level: float = 0.95, seed: int = 0
) -> BudgetChoice:
    """Choose the smallest budget whose accuracy is within one standard error of the best, paired over problems.

    The standard error is that of the difference to the best budget on the same problems, so it shrinks with what the two share
    (the rule of Breiman et al. 1984 for trees, made paired). With few problems it picks small budgets: it is not able
    to tell them from the best.
    """
    grid, table = budgets_and_outcomes(budgets, outcomes)
    if len(table) < 2:
        raise MeasureError("One problem has no standard error.", "Give at least two problems; fifty make the choice steady.")
    products = (table[:, :, None] * table[:, None, :]).reshape(len(table), -1)
    chosen = int(_within_one_error(table.mean(axis=0)[None], products.mean(axis=0)[None], len(table))[0])
    draws = [
        _within_one_error(counts @ table / len(table), counts @ products / len(table), len(table))
        for counts in resampled_counts(len(table), replicates, seed)
    ]
    return _choice(grid, table, chosen, grid[np.concatenate(draws)], 0.0, level, replicates, seed)


def _within_one_error(means: FloatArray, products: FloatArray, problems: int) -> npt.NDArray[np.intp]:
    """For each row of means (and mean products of columns), the first column within one standard error of the best."""
    rows, size = means.shape
    moments = products.reshape(rows, size, size)
    best = np.argmax(means, axis=1)
    every = np.arange(rows)
    gap = means[every, best][:, None] - means
    squares = np.diagonal(moments, axis1=1, axis2=2)
    squared_gap = squares[every, best][:, None] + squares - 2 * moments[every, best]
    error = np.sqrt(np.maximum(squared_gap - gap**2, 0.0) / (problems - 1))
    return np.asarray(np.argmax(gap <= error + 1e-12, axis=1))


def _choice(
    grid: FloatArray, table: FloatArray, index: int, draws: FloatArray, price: float, level: float, replicates: int, seed: int
) -> BudgetChoice:
    accuracy = curve_intervals(table[:, [index]], bounds=(0.0, 1.0), replicates=replicates, level=level, seed=seed)[0]
    span = (float(grid[0]), float(grid[-1]))
    value = float(grid[index])
    budget = interval_from_draws(value, draws, problems=len(table), level=level, bounds=span)
    if len(table) > 1 and np.ptp(draws) == 0:
        # A choice among few budgets may be the same in every resample: that is agreement, not missing spread.
        budget = Interval(
            value, value, value, level, f"cluster bootstrap over {len(table)} problems: the same in all {len(draws)} resamples"
        )
    return BudgetChoice(budget, accuracy, accuracy.value - price * value)
