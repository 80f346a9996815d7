"""Accuracy against budget: three shapes within [0, 1], the one that predicts best, and the budget to choose.

The budget is the best for a price, or the smallest that is as good as the best for all the data show. No rising curve
is fitted before the hump test of `breadth.measure.paired_tests` has found no fall.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.measure.intervals import (
    BOOTSTRAP_REPLICATES,
    Interval,
    curve_intervals,
    interval_from_resamples,
    resample_counts,
    resample_means,
)
from breadth.measure.paired_tests import (
    HumpTest,
    budgets_and_counts,
    budgets_and_outcomes,
    hump_test,
    hump_test_counts,
)
from breadth.measure.validate import FloatArray, as_finite, as_floats

SHAPES = ("saturating power", "exponential", "log-linear")
"""Names of the shapes, in the order they are tried."""
_GRID = 41
_ZOOMS = 4
# Grid search for the one parameter that is not linear: 41 points, then four times finer around the best; ends within
# 1e-5 of it.


@dataclass(frozen=True)
class SaturatingPower:
    """Accuracy closes in on a ceiling as a power of the budget: ceiling - drop * budget^-exponent."""

    ceiling: float
    """Accuracy with unlimited budget."""
    drop: float
    """Accuracy missing from the ceiling at budget 1."""
    exponent: float
    """How fast the missing part shrinks."""

    def predict(self, budgets: npt.ArrayLike) -> FloatArray:
        """Accuracy at each budget."""
        return np.asarray(self.ceiling - self.drop * check_positive_budgets(budgets) ** -self.exponent)

    extrapolate = predict

    def optimum(self, price: float) -> float:
        """Budget with the largest accuracy minus price times budget: (drop * exponent / price)^(1 / (1 + exponent))."""
        return float((self.drop * self.exponent / check_price(price)) ** (1 / (1 + self.exponent)))


@dataclass(frozen=True)
class SaturatingExponential:
    """Accuracy starts from nothing and closes in on a ceiling exponentially: ceiling * (1 - exp(-budget / scale))."""

    ceiling: float
    """Accuracy with unlimited budget."""
    scale: float
    """Budget at which 63 % of the ceiling is reached."""

    def predict(self, budgets: npt.ArrayLike) -> FloatArray:
        """Accuracy at each budget."""
        return np.asarray(-self.ceiling * np.expm1(-check_positive_budgets(budgets) / self.scale))

    extrapolate = predict

    def optimum(self, price: float) -> float:
        """Budget with the largest accuracy minus price times budget; 0 when even the first unit does not pay."""
        first = self.ceiling / (self.scale * check_price(price))
        return self.scale * math.log(first) if first > 1 else 0.0


@dataclass(frozen=True)
class LogLinear:
    """Accuracy gains the same with every doubling of the budget; used only inside the range it was fitted on."""

    start: float
    """Accuracy at the smallest budget."""
    end: float
    """Accuracy at the largest budget."""
    smallest: float
    """Smallest budget it was fitted on."""
    largest: float
    """Largest budget it was fitted on."""

    @property
    def slope(self) -> float:
        """Accuracy gained when the budget grows by a factor e."""
        return (self.end - self.start) / math.log(self.largest / self.smallest)

    def predict(self, budgets: npt.ArrayLike) -> FloatArray:
        """Accuracy at each budget; refused outside the fitted range."""
        points = check_positive_budgets(budgets)
        slack = 1e-9 * self.largest
        if np.any(points < self.smallest - slack) or np.any(points > self.largest + slack):
            raise MeasureError(
                f"A log-linear curve fitted on budgets {self.smallest:g} to {self.largest:g} was asked for"
                f" {np.max(points):g}.",
                "Stay inside that range, or use a saturating shape.",
            )
        return self.extrapolate(points)

    def extrapolate(self, budgets: npt.ArrayLike) -> FloatArray:
        """Continue the straight line, cut to [0, 1]: only for testing the shape on a held-out budget."""
        return np.clip(self.start + self.slope * np.log(check_positive_budgets(budgets) / self.smallest), 0.0, 1.0)

    def optimum(self, price: float) -> float:
        """Budget with the largest accuracy minus price times budget, slope / price, kept inside the fitted range."""
        return min(max(self.slope / check_price(price), self.smallest), self.largest)


Curve: TypeAlias = SaturatingPower | SaturatingExponential | LogLinear
"""Any of the shapes."""


def fit_shape(shape: str, budgets: FloatArray, accuracies: FloatArray, weights: FloatArray) -> list[Curve]:
    """Fit one shape to each row of accuracies (rows x budgets) by weighted least squares; rising, and within [0, 1].

    Every shape is start * fade(budget) + end * (1 - fade(budget)) with 0 <= start <= end <= 1 and a fade with at most
    one parameter, so start and end have a closed form and the parameter is searched on a grid, for all rows at once.
    """
    first, last = float(budgets[0]), float(budgets[-1])
    if shape == "saturating power":
        start, end, exponent = search_fade(
            lambda g: (budgets / first) ** -g, (0.02, 8.0), accuracies, weights, from_zero=False
        )
        drop = (end - start) * first**exponent
        return [SaturatingPower(*row) for row in zip(end.tolist(), drop.tolist(), exponent.tolist(), strict=True)]
    if shape == "exponential":
        _, end, scale = search_fade(
            lambda t: np.exp(-budgets / t), (first / 10, last * 100), accuracies, weights, from_zero=True
        )
        return [SaturatingExponential(*row) for row in zip(end.tolist(), scale.tolist(), strict=True)]
    fade = 1 - np.log(budgets / first) / math.log(last / first)
    start, end, _ = fit_ends(fade[None, None, :], accuracies, weights, from_zero=False)
    return [LogLinear(*row, first, last) for row in zip(start[:, 0].tolist(), end[:, 0].tolist(), strict=True)]


def search_fade(
    fade: Callable[[FloatArray], FloatArray],
    span: tuple[float, float],
    rows: FloatArray,
    weights: FloatArray,
    *,
    from_zero: bool,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the best start, end and fade parameter of each row, by a zooming grid on the log of the parameter."""
    low = np.full(len(rows), math.log(span[0]))
    high = np.full(len(rows), math.log(span[1]))
    every = np.arange(len(rows))
    for _ in range(_ZOOMS):
        steps = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _GRID)
        start, end, misfit = fit_ends(fade(np.exp(steps)[:, :, None]), rows, weights, from_zero=from_zero)
        best = np.argmin(misfit, axis=1)
        width = (high - low) / (_GRID - 1)
        found = steps[every, best]
        low, high = np.maximum(found - width, math.log(span[0])), np.minimum(found + width, math.log(span[1]))
    return start[every, best], end[every, best], np.exp(found)


def fit_ends(
    fade: FloatArray, rows: FloatArray, weights: FloatArray, *, from_zero: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return start, end and misfit of each row and fade (rows or 1 x fades x budgets), within the allowed triangle."""
    rest, target = 1 - fade, rows[:, None, :] * weights
    aa, ab, bb = ((weights * product).sum(axis=-1) for product in (fade * fade, fade * rest, rest * rest))
    ay, by = (fade * target).sum(axis=-1), (rest * target).sum(axis=-1)

    def misfit(start: FloatArray, end: FloatArray) -> FloatArray:
        return np.asarray(aa * start**2 + 2 * ab * start * end + bb * end**2 - 2 * ay * start - 2 * by * end)

    zero, one = np.zeros_like(ay), np.ones_like(ay)
    corners = [(zero, divide_and_clip(by, bb))]
    if not from_zero:
        level = divide_and_clip(ay + by, aa + 2 * ab + bb)
        corners += [(level, level), (divide_and_clip(ay - ab, aa), one), _solve_unbounded(aa, ab, bb, ay, by)]
    starts, ends = np.stack([start for start, _ in corners]), np.stack([end for _, end in corners])
    misfits = np.where(np.isnan(starts), np.inf, misfit(starts, ends))
    best = np.argmin(misfits, axis=0)[None]
    start, end, least = (np.take_along_axis(values, best, axis=0)[0] for values in (starts, ends, misfits))
    return start, end, least


def _solve_unbounded(
    aa: FloatArray, ab: FloatArray, bb: FloatArray, ay: FloatArray, by: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Solve without bounds; keep what obeys 0 <= start <= end <= 1, else NaN."""
    determinant = aa * bb - ab * ab
    solvable = determinant > 1e-12 * aa * bb
    safe = np.where(solvable, determinant, 1.0)
    start, end = (ay * bb - by * ab) / safe, (by * aa - ay * ab) / safe
    allowed = solvable & (start >= 0) & (start <= end) & (end <= 1)
    return np.where(allowed, start, np.nan), np.where(allowed, end, np.nan)


def divide_and_clip(top: FloatArray, bottom: FloatArray) -> FloatArray:
    """Divide and clip to [0, 1]; 0 where the divisor is not positive."""
    ratio = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
    return np.clip(ratio, 0.0, 1.0)


def check_positive_budgets(budgets: npt.ArrayLike) -> FloatArray:
    """Return budgets as floats, of the shape they came in; refuse any that is not positive."""
    points = as_finite(np.atleast_1d(as_floats(budgets, "budgets")), "budgets")
    if points.min() <= 0:
        raise MeasureError(f"A budget of {points.min():g} was asked for.", "Give positive budgets.")
    return points if np.ndim(budgets) else points[0]


def check_price(price: float) -> float:
    """Return the price of a unit of budget; refuse one that is not positive."""
    if not (math.isfinite(price) and price > 0):
        raise MeasureError(f"The price is {price}.", "Give a positive price per unit of budget, in accuracy.")
    return price


_MIN_BUDGETS = 4
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
        return interval_from_resamples(
            value, draws, problems=self.problems, level=self.level, bounds=(0.0, 1.0), method=self.method
        )

    def optimum(self, price: float) -> Interval:
        """Budget where accuracy minus price times budget is largest on the curve; may lie beyond what was measured."""
        draws = [curve.optimum(price) for curve in self.resampled]
        return interval_from_resamples(
            self.curve.optimum(price),
            draws,
            problems=self.problems,
            level=self.level,
            bounds=(0.0, math.inf),
            method=self.method,
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
    """Standard error of the measured accuracy at the largest budget: errors closer together than this decide nothing.
    """
    hump: HumpTest
    """The test that allowed a rising curve."""

    @property
    def fit(self) -> FittedCurve:
        """The chosen fit."""
        return self.fits[self.chosen]

    @property
    def is_decided(self) -> bool:
        """Whether the data prefer the chosen shape: the runner-up's error is larger by more than a standard error."""
        best, second = sorted(abs(error) for error in self.held_out_errors.values())[:2]
        return second - best > self.held_out_standard_error


def fit_curves(
    budgets: npt.ArrayLike,
    outcomes: npt.ArrayLike,
    *,
    replicates: int = BOOTSTRAP_REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> CurveChoice | HumpTest:
    """Fit accuracy against budget from a problems x budgets table, or return the hump if accuracy falls at the end.

    Least squares weighted by the inverse variance of each budget's mean; intervals refit resampled problems, so they
    know that all budgets share the problems. A shape's choice is not refitted. Needs at least four positive budgets.
    """
    grid, table = budgets_and_outcomes(budgets, outcomes)
    hump = hump_test(grid, table, level=level, seed=seed)
    if hump.is_positive:
        return hump
    draws = resample_means(table, replicates=replicates, seed=seed)
    method = f"cluster bootstrap over {len(table)} problems"
    return _choose_shape(grid, table.mean(axis=0), np.full(len(grid), float(len(table))), draws, level, hump, method)


def fit_curve_counts(
    budgets: npt.ArrayLike,
    correct: npt.ArrayLike,
    trials: npt.ArrayLike,
    *,
    replicates: int = BOOTSTRAP_REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> CurveChoice | HumpTest:
    """Fit accuracy against budget from totals per budget, or return the hump; prefer `fit_curves` with the problems.

    Trials are taken as independent, within and between budgets: repeated samples of few problems make its intervals
    too narrow.
    """
    grid, right, total = budgets_and_counts(budgets, correct, trials)
    hump = hump_test_counts(grid, right, total, level=level, seed=seed)
    if hump.is_positive:
        return hump
    # Smoothed, or a budget with nothing (or everything) right would be drawn without any spread.
    likely = (right + 0.5) / (total + 1)
    draws = np.random.default_rng(seed).binomial(total.astype(np.int64), likely, (replicates, len(grid))) / total
    method = f"binomial draws from totals of {int(total.min())} or more trials"
    return _choose_shape(grid, right / total, total, draws, level, hump, method)


def _choose_shape(
    grid: FloatArray,
    means: FloatArray,
    trials: FloatArray,
    draws: FloatArray,
    level: float,
    hump: HumpTest,
    method: str,
) -> CurveChoice:
    if len(grid) < _MIN_BUDGETS or grid[0] <= 0:
        raise MeasureError(
            f"Budgets are {grid.tolist()}; a curve needs at least {_MIN_BUDGETS}, all positive.",
            "Measure more budgets; count tokens or calls spent, not extra rounds that start at 0.",
        )
    smoothed = (means * trials + 0.5) / (trials + 1)
    variance = smoothed * (1 - smoothed) / trials
    errors, fits = {}, {}
    for shape in SHAPES:
        (early,) = fit_shape(shape, grid[:-1], means[None, :-1], 1 / variance[:-1])
        errors[shape] = float(early.extrapolate(grid[-1]) - means[-1])
        curve, *resampled = fit_shape(shape, grid, np.vstack([means, draws]), 1 / variance)
        fits[shape] = FittedCurve(
            curve, float(grid[0]), float(grid[-1]), int(trials.min()), level, method, tuple(resampled)
        )
    chosen = min(errors, key=lambda shape: abs(errors[shape]))
    return CurveChoice(chosen, fits, errors, float(np.sqrt(variance[-1])), hump)


@dataclass(frozen=True)
class BudgetChoice:
    """A measured budget, how surely it is the one to choose, and what it brings."""

    budget: Interval
    """The budget chosen, and the range of budgets chosen when problems are resampled."""
    accuracy: Interval
    """Accuracy at that budget. Too high by the luck of being chosen; measure it again on other problems before you
    promise it.
    """
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
    budgets: npt.ArrayLike,
    outcomes: npt.ArrayLike,
    price: float,
    *,
    replicates: int = BOOTSTRAP_REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> Optimum:
    """Find the budget with the largest accuracy minus price times budget: on the measured grid first, then on the fit.

    ``outcomes`` is problems x budgets; ``price`` is the accuracy one unit of budget must bring. The measured choice
    needs no shape to be right; the fitted one can name a budget between or beyond. Prefer the measured one when they
    disagree.
    """
    grid, table = budgets_and_outcomes(budgets, outcomes)
    check_price(price)
    draws = resample_means(table, replicates=replicates, seed=seed) - price * grid
    best = int(np.argmax(table.mean(axis=0) - price * grid))
    measured = _budget_choice(grid, table, best, grid[np.argmax(draws, axis=1)], price, level, replicates, seed)
    if len(grid) < 4 or grid[0] <= 0:
        return Optimum(measured, None, False, None)
    basis = fit_curves(grid, table, replicates=replicates, level=level, seed=seed)
    if isinstance(basis, HumpTest):
        return Optimum(measured, None, False, basis)
    fitted = basis.fit.optimum(price)
    return Optimum(measured, fitted, bool(grid[0] <= fitted.value <= grid[-1]), basis)


def one_standard_error_choice(
    budgets: npt.ArrayLike,
    outcomes: npt.ArrayLike,
    *,
    replicates: int = BOOTSTRAP_REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> BudgetChoice:
    """Choose the smallest budget whose accuracy is within one standard error of the best, paired over problems.

    The standard error is that of the difference to the best budget on the same problems, so it shrinks with what the
    two share (the rule of Breiman et al. 1984 for trees, made paired). With few problems it picks small budgets: it is
    not able to tell them from the best.
    """
    grid, table = budgets_and_outcomes(budgets, outcomes)
    if len(table) < 2:
        raise MeasureError(
            "One problem has no standard error.", "Give at least two problems; fifty make the choice steady."
        )
    products = (table[:, :, None] * table[:, None, :]).reshape(len(table), -1)
    chosen = int(first_within_one_error(table.mean(axis=0)[None], products.mean(axis=0)[None], len(table))[0])
    draws = [
        first_within_one_error(counts @ table / len(table), counts @ products / len(table), len(table))
        for counts in resample_counts(len(table), replicates, seed)
    ]
    return _budget_choice(grid, table, chosen, grid[np.concatenate(draws)], 0.0, level, replicates, seed)


def first_within_one_error(means: FloatArray, products: FloatArray, problems: int) -> npt.NDArray[np.intp]:
    """Return, for each row of means (and mean products of columns), the first column within one error of the best."""
    rows, size = means.shape
    moments = products.reshape(rows, size, size)
    best = np.argmax(means, axis=1)
    every = np.arange(rows)
    gap = means[every, best][:, None] - means
    squares = np.diagonal(moments, axis1=1, axis2=2)
    squared_gap = squares[every, best][:, None] + squares - 2 * moments[every, best]
    error = np.sqrt(np.maximum(squared_gap - gap**2, 0.0) / (problems - 1))
    return np.asarray(np.argmax(gap <= error + 1e-12, axis=1))


def _budget_choice(
    grid: FloatArray,
    table: FloatArray,
    index: int,
    draws: FloatArray,
    price: float,
    level: float,
    replicates: int,
    seed: int,
) -> BudgetChoice:
    accuracy = curve_intervals(table[:, [index]], bounds=(0.0, 1.0), replicates=replicates, level=level, seed=seed)[0]
    span = (float(grid[0]), float(grid[-1]))
    value = float(grid[index])
    budget = interval_from_resamples(value, draws, problems=len(table), level=level, bounds=span)
    if len(table) > 1 and np.ptp(draws) == 0:
        # A choice among few budgets may be the same in every resample: that is agreement, not missing spread.
        budget = Interval(
            value,
            value,
            value,
            level,
            f"cluster bootstrap over {len(table)} problems: the same in all {len(draws)} resamples",
        )
    return BudgetChoice(budget, accuracy, accuracy.value - price * value)
