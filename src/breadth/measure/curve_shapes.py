"""The shapes a curve of accuracy against budget may take, and their least-squares fit within [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.measure.finite import FloatArray, finite, numbers

SHAPES = ("saturating power", "exponential", "log-linear")
"""Names of the shapes, in the order they are tried."""
_GRID = 41
_ZOOMS = 4
# Grid search for the one parameter that is not linear: 41 points, then four times finer around the best; ends within 1e-5 of it.


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
        return np.asarray(self.ceiling - self.drop * _positive(budgets) ** -self.exponent)

    extrapolate = predict

    def optimum(self, price: float) -> float:
        """Budget with the largest accuracy minus price times budget: (drop * exponent / price)^(1 / (1 + exponent))."""
        return float((self.drop * self.exponent / _checked(price)) ** (1 / (1 + self.exponent)))


@dataclass(frozen=True)
class SaturatingExponential:
    """Accuracy starts from nothing and closes in on a ceiling exponentially: ceiling * (1 - exp(-budget / scale))."""

    ceiling: float
    """Accuracy with unlimited budget."""
    scale: float
    """Budget at which 63 % of the ceiling is reached."""

    def predict(self, budgets: npt.ArrayLike) -> FloatArray:
        """Accuracy at each budget."""
        return np.asarray(-self.ceiling * np.expm1(-_positive(budgets) / self.scale))

    extrapolate = predict

    def optimum(self, price: float) -> float:
        """Budget with the largest accuracy minus price times budget; 0 when even the first unit costs more than it brings."""
        first = self.ceiling / (self.scale * _checked(price))
        return self.scale * math.log(first) if first > 1 else 0.0


@dataclass(frozen=True)
class LogLinear:
    """Accuracy gains the same with every doubling of the budget; true of nothing for long, so it answers inside its range only."""

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
        points = _positive(budgets)
        slack = 1e-9 * self.largest
        if np.any(points < self.smallest - slack) or np.any(points > self.largest + slack):
            raise MeasureError(
                f"A log-linear curve fitted on budgets {self.smallest:g} to {self.largest:g} was asked for {np.max(points):g}.",
                "Stay inside that range, or use a saturating shape.",
            )
        return self.extrapolate(points)

    def extrapolate(self, budgets: npt.ArrayLike) -> FloatArray:
        """Continue the straight line, cut to [0, 1]: only for judging the shape on a held-out budget."""
        return np.clip(self.start + self.slope * np.log(_positive(budgets) / self.smallest), 0.0, 1.0)

    def optimum(self, price: float) -> float:
        """Budget with the largest accuracy minus price times budget, slope / price, kept inside the fitted range."""
        return min(max(self.slope / _checked(price), self.smallest), self.largest)


Curve: TypeAlias = SaturatingPower | SaturatingExponential | LogLinear
"""Any of the shapes."""


def fit_shape(shape: str, budgets: FloatArray, accuracies: FloatArray, weights: FloatArray) -> list[Curve]:
    """Fit one shape to each row of accuracies (rows x budgets) by weighted least squares; rising, and within [0, 1].

    Every shape is start * fade(budget) + end * (1 - fade(budget)) with 0 <= start <= end <= 1 and a fade with at most one
    parameter, so start and end have a closed form and the parameter is searched on a grid, for all rows at once.
    """
    first, last = float(budgets[0]), float(budgets[-1])
    if shape == "saturating power":
        start, end, exponent = _search(lambda g: (budgets / first) ** -g, (0.02, 8.0), accuracies, weights, from_zero=False)
        drop = (end - start) * first**exponent
        return [SaturatingPower(*row) for row in zip(end.tolist(), drop.tolist(), exponent.tolist(), strict=True)]
    if shape == "exponential":
        _, end, scale = _search(lambda t: np.exp(-budgets / t), (first / 10, last * 100), accuracies, weights, from_zero=True)
        return [SaturatingExponential(*row) for row in zip(end.tolist(), scale.tolist(), strict=True)]
    fade = 1 - np.log(budgets / first) / math.log(last / first)
    start, end, _ = _ends(fade[None, None, :], accuracies, weights, from_zero=False)
    return [LogLinear(*row, first, last) for row in zip(start[:, 0].tolist(), end[:, 0].tolist(), strict=True)]


def _search(
    fade: Callable[[FloatArray], FloatArray], span: tuple[float, float], rows: FloatArray, weights: FloatArray, *, from_zero: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Best start, end and fade parameter of each row, by a grid on the log of the parameter that zooms in."""
    low = np.full(len(rows), math.log(span[0]))
    high = np.full(len(rows), math.log(span[1]))
    every = np.arange(len(rows))
    for _ in range(_ZOOMS):
        steps = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _GRID)
        start, end, misfit = _ends(fade(np.exp(steps)[:, :, None]), rows, weights, from_zero=from_zero)
        best = np.argmin(misfit, axis=1)
        width = (high - low) / (_GRID - 1)
        found = steps[every, best]
        low, high = np.maximum(found - width, math.log(span[0])), np.minimum(found + width, math.log(span[1]))
    return start[every, best], end[every, best], np.exp(found)


def _ends(fade: FloatArray, rows: FloatArray, weights: FloatArray, *, from_zero: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Start, end and misfit for each row and each fade (rows or 1 x fades x budgets), minimised over the allowed triangle."""
    rest, target = 1 - fade, rows[:, None, :] * weights
    aa, ab, bb = ((weights * product).sum(axis=-1) for product in (fade * fade, fade * rest, rest * rest))
    ay, by = (fade * target).sum(axis=-1), (rest * target).sum(axis=-1)

    def misfit(start: FloatArray, end: FloatArray) -> FloatArray:
        return np.asarray(aa * start**2 + 2 * ab * start * end + bb * end**2 - 2 * ay * start - 2 * by * end)

    zero, one = np.zeros_like(ay), np.ones_like(ay)
    corners = [(zero, _cut(by, bb))]
    if not from_zero:
        level = _cut(ay + by, aa + 2 * ab + bb)
        corners += [(level, level), (_cut(ay - ab, aa), one), _inside(aa, ab, bb, ay, by)]
    starts, ends = np.stack([start for start, _ in corners]), np.stack([end for _, end in corners])
    misfits = np.where(np.isnan(starts), np.inf, misfit(starts, ends))
    best = np.argmin(misfits, axis=0)[None]
    start, end, least = (np.take_along_axis(values, best, axis=0)[0] for values in (starts, ends, misfits))
    return start, end, least


def _inside(aa: FloatArray, ab: FloatArray, bb: FloatArray, ay: FloatArray, by: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Solve without bounds; keep what obeys 0 <= start <= end <= 1, else NaN."""
    determinant = aa * bb - ab * ab
    solvable = determinant > 1e-12 * aa * bb
    safe = np.where(solvable, determinant, 1.0)
    start, end = (ay * bb - by * ab) / safe, (by * aa - ay * ab) / safe
    allowed = solvable & (start >= 0) & (start <= end) & (end <= 1)
    return np.where(allowed, start, np.nan), np.where(allowed, end, np.nan)


def _cut(top: FloatArray, bottom: FloatArray) -> FloatArray:
    ratio = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
    return np.clip(ratio, 0.0, 1.0)


def _positive(budgets: npt.ArrayLike) -> FloatArray:
    points = finite(np.atleast_1d(numbers(budgets, "budgets")), "budgets")
    if points.min() <= 0:
        raise MeasureError(f"A budget of {points.min():g} was asked for.", "Give positive budgets.")
    return points if np.ndim(budgets) else points[0]


def _checked(price: float) -> float:
    if not (math.isfinite(price) and price > 0):
        raise MeasureError(f"The price is {price}.", "Give a positive price per unit of budget, in accuracy.")
    return price
