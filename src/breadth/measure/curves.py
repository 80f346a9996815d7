"""Accuracy against budget as a curve: three shapes, fitted within [0, 1] and chosen by how they predict the largest budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.measure.curve_shapes import SHAPES, Curve, fit_shape
from breadth.measure.finite import FloatArray
from breadth.measure.humps import HumpTest, budgets_and_counts, budgets_and_outcomes, hump_test, hump_test_counts
from breadth.measure.intervals import REPLICATES, Interval, interval_from_draws, resampled_means

_FEWEST = 4
# Three budgets must remain when the largest is held out: the saturating power has three parameters.


@dataclass(frozen=True)
class FittedCurve:
    """A curve with the refits that say how far to trust it."""

    curve: Curve
    """The fit to all the data."""
    smallest: float
    """Smallest measured budget."""
    largest: float
    """Largest measured budget; anything read beyond it is extrapolation."""
    problems: int
    """Problems (or, from totals, trials at the least-tried budget) behind it."""
    level: float
    """Level of the intervals it gives."""
    method: str
    """How the refits were made."""
    resampled: tuple[Curve, ...] = field(repr=False)
    """The same shape fitted to each resample."""

    def accuracy(self, budget: float) -> Interval:
        """Accuracy the curve predicts at a budget, with an interval that knows sampling error but not a wrong shape."""
        draws = [float(curve.predict(budget)) for curve in self.resampled]
        value = float(self.curve.predict(budget))
        return interval_from_draws(value, draws, problems=self.problems, level=self.level, bounds=(0.0, 1.0), method=self.method)

    def optimum(self, price: float) -> Interval:
        """Budget where accuracy minus price times budget is largest on the curve; may lie beyond what was measured."""
        draws = [curve.optimum(price) for curve in self.resampled]
        return interval_from_draws(
            self.curve.optimum(price), draws, problems=self.problems, level=self.level, bounds=(0.0, math.inf), method=self.method
        )


@dataclass(frozen=True)
class CurveChoice:
    """The three fitted shapes and which of them predicted the largest budget best when it was held out."""

    chosen: str
    """Name of the shape with the smallest held-out error."""
    fits: Mapping[str, FittedCurve]
    """Shape name -> its fit to all budgets."""
    held_out_errors: Mapping[str, float]
    """Shape name -> predicted minus measured accuracy at the largest budget, fitted without it."""
    held_out_standard_error: float
    """Standard error of the measured accuracy at the largest budget: errors closer together than this are a coin toss."""
    hump: HumpTest
    """The test that allowed a rising curve."""

    @property
    def fit(self) -> FittedCurve:
        """The chosen fit."""
        return self.fits[self.chosen]

    @property
    def decided(self) -> bool:
        """Whether the data prefer the chosen shape: the runner-up's error is larger by more than a standard error."""
        best, second = sorted(abs(error) for error in self.held_out_errors.values())[:2]
        return second - best > self.held_out_standard_error


def fit_curves(
    budgets: npt.ArrayLike, outcomes: npt.ArrayLike, *, replicates: int = REPLICATES, level: float = 0.95, seed: int = 0
) -> CurveChoice | HumpTest:
    """Fit accuracy against budget from a problems x budgets table, or hand back the hump if accuracy falls at the end.

    Least squares weighted by the inverse variance of each budget's mean; intervals refit resampled problems, so they know that
    all budgets share the problems. A shape's choice is not refitted. Needs at least four positive budgets.
    """
    grid, table = budgets_and_outcomes(budgets, outcomes)
    hump = hump_test(grid, table, level=level, seed=seed)
    if hump.positive:
        return hump
    draws = resampled_means(table, replicates=replicates, seed=seed)
    method = f"cluster bootstrap over {len(table)} problems"
    return _choose(grid, table.mean(axis=0), np.full(len(grid), float(len(table))), draws, level, hump, method)


def fit_curve_counts(
    budgets: npt.ArrayLike,
    correct: npt.ArrayLike,
    trials: npt.ArrayLike,
    *,
    replicates: int = REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> CurveChoice | HumpTest:
    """Fit accuracy against budget from totals per budget, or hand back the hump; prefer `fit_curves` when you have the problems.

    Trials are taken as independent, within and between budgets: repeated samples of few problems make it too sure of itself.
    """
    grid, right, total = budgets_and_counts(budgets, correct, trials)
    hump = hump_test_counts(grid, right, total, level=level, seed=seed)
    if hump.positive:
        return hump
    # Smoothed, or a budget with nothing (or everything) right would be drawn without any spread.
    likely = (right + 0.5) / (total + 1)
    draws = np.random.default_rng(seed).binomial(total.astype(np.int64), likely, (replicates, len(grid))) / total
    method = f"binomial draws from totals of {int(total.min())} or more trials"
    return _choose(grid, right / total, total, draws, level, hump, method)


def _choose(
    grid: FloatArray, means: FloatArray, trials: FloatArray, draws: FloatArray, level: float, hump: HumpTest, method: str
) -> CurveChoice:
    if len(grid) < _FEWEST or grid[0] <= 0:
        raise MeasureError(
            f"Budgets are {grid.tolist()}; a curve needs at least {_FEWEST}, all positive.",
            "Measure more budgets; count tokens or calls spent, not extra rounds that start at 0.",
        )
    smoothed = (means * trials + 0.5) / (trials + 1)
    variance = smoothed * (1 - smoothed) / trials
    errors, fits = {}, {}
    for shape in SHAPES:
        errors[shape] = float(_held_out(shape, grid, means, 1 / variance) - means[-1])
        curve, *resampled = fit_shape(shape, grid, np.vstack([means, draws]), 1 / variance)
        fits[shape] = FittedCurve(curve, float(grid[0]), float(grid[-1]), int(trials.min()), level, method, tuple(resampled))
    chosen = min(errors, key=lambda shape: abs(errors[shape]))
    return CurveChoice(chosen, fits, errors, float(np.sqrt(variance[-1])), hump)


def _held_out(shape: str, grid: FloatArray, means: FloatArray, weights: FloatArray) -> FloatArray:
    (curve,) = fit_shape(shape, grid[:-1], means[None, :-1], weights[:-1])
    return curve.extrapolate(grid[-1])
