"""Axes: limits around data, ticks at round numbers, and where a value stands between the limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_HUGE = 1e150
"""Beyond this differences and squares overflow; such values count as not drawable."""
_TINY = 1e-150
"""Below this everything is drawn as zero, for the same reason."""


@dataclass(frozen=True)
class Scale:
    """Maps values between two limits to places between 0 and 1."""

    low: float
    """Value at place 0."""
    high: float
    """Value at place 1."""
    log: bool = False
    """Space by ratio instead of by difference."""

    def at(self, value: float) -> float:
        """Return the place of a value; outside 0 to 1 when the value is outside the limits."""
        low, high, here = (math.log(part) if self.log else part for part in (self.low, self.high, value))
        return (here - low) / (high - low)


def drawable(value: float) -> bool:
    """Tell whether a value can stand on an axis: finite, and not so large that arithmetic overflows."""
    return math.isfinite(value) and abs(value) < _HUGE


def limits(values: Iterable[float]) -> tuple[float, float]:
    """Return the smallest and largest drawable value; room is made around a single one, and 0 to 1 stands for none or zero."""
    kept = [value for value in values if drawable(value)]
    largest = max(map(abs, kept), default=0.0)
    if largest < _TINY:
        return 0.0, 1.0
    low, high = min(kept), max(kept)
    return (low, high) if high - low > largest * 1e-9 else (low - 0.1 * largest, high + 0.1 * largest)


def value_scale(values: Iterable[float], most: int) -> tuple[Scale, tuple[float, ...]]:
    """Return a scale with a little room around the data, from zero where that is near, and ticks at round numbers."""
    low, high = limits(values)
    room = 0.04 * (high - low)
    low = 0.0 if 0 <= low < 0.5 * high else low - room  # near zero, a reader compares with zero
    return Scale(low, high + room), _ticks(low, high + room, most)


def position_scale(values: Sequence[float], most: int, *, log: bool) -> tuple[Scale, tuple[float, ...]]:
    """Return a scale from the first to the last position, and ticks at round numbers between them."""
    if log:
        return _log_scale([value for value in values if drawable(value) and value > 0], most)
    low, high = limits(values)
    whole = all(float(value).is_integer() for value in values if drawable(value))
    return Scale(low, high), _ticks(low, high, most, whole=whole)


def _ticks(low: float, high: float, most: int, *, whole: bool = False) -> tuple[float, ...]:
    """Return the multiples of a round step between the limits; steps of training, samples and tokens come in whole numbers."""
    step = _round_step(max((high - low) / most, 1.0 if whole else 0.0), (1, 2, 5) if whole else (1, 2, 2.5, 5))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(_clean(index * step, step) for index in range(first, last + 1))


def _round_step(rough: float, factors: Sequence[float]) -> float:
    """Return the smallest of the factors times a power of ten that is at least ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next((factor * power for factor in factors if rough <= factor * power * (1 + 1e-9)), 10 * power)


def _clean(value: float, step: float) -> float:
    """Remove the rounding noise of ``index * step``."""
    decimals = max(0, 2 - math.floor(math.log10(step)))
    return round(value, decimals) if decimals < 300 else value


def _log_scale(values: Sequence[float], most: int) -> tuple[Scale, tuple[float, ...]]:
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    if high <= low * (1 + 1e-9):
        low, high = low / 2, high * 2
    candidates = _powers(2, low, high) if all(_power_of_two(value) for value in values) else _decades(low, high, most)
    stride = math.ceil(len(candidates) / most) if candidates else 1
    return Scale(low, high, log=True), tuple(candidates[::stride]) or (low, high)


def _power_of_two(value: float) -> bool:
    return math.frexp(value)[0] == 0.5


def _powers(base: int, low: float, high: float) -> list[float]:
    first = math.ceil(math.log(low, base) - 1e-9)
    last = math.floor(math.log(high, base) + 1e-9)
    return [float(base) ** exponent for exponent in range(first, last + 1)]


def _decades(low: float, high: float, most: int) -> list[float]:
    """Return 1, 2 and 5 times the powers of ten between the limits, or the powers alone where those suffice."""
    whole = _powers(10, low, high)
    if len(whole) >= min(3, most):
        return whole
    first = math.floor(math.log10(low)) - 1
    spread = [factor * 10.0**exponent for exponent in range(first, first + len(whole) + 4) for factor in (1, 2, 5)]
    return [value for value in spread if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
