"""Cells of a report (text, a number, an interval, or the reason there is none) and their formatting."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar, runtime_checkable

from breadth.base.errors import MeasureError, suggestion
from breadth.report.plaintext import one_line

_Word = TypeVar("_Word", bound=StrEnum)


@runtime_checkable
class IntervalLike(Protocol):
    """A number with the range it may lie in; ``level`` and ``method`` are shown too where the record has them."""

    @property
    def value(self) -> float:
        """The point estimate."""
        ...

    @property
    def low(self) -> float:
        """Lower end."""
        ...

    @property
    def high(self) -> float:
        """Upper end."""
        ...


@dataclass(frozen=True)
class Missing:
    """No value, and why; shown as ``n/a`` with the reason as a footnote."""

    reason: str
    """One sentence: why there is none, or which setting would log it."""


Cell: TypeAlias = str | float | IntervalLike | Missing | None
"""Text, a number (a bool is shown as yes or no), an interval, or nothing (``None`` when there is no reason to give)."""


def to_cell(value: Any) -> Cell:
    """Return the value as a cell: numpy scalars become Python numbers, other types are refused."""
    if value is None or isinstance(value, str | int | float | Missing | IntervalLike):
        return value
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        return to_cell(value.item())
    raise MeasureError(
        f"A {type(value).__name__} cannot be shown in a cell of a report.",
        "Give text, a number, something with value, low and high, Missing(reason) or None.",
    )


def floats(values: Sequence[float]) -> tuple[float, ...]:
    """Return numbers from any sequence or array as a tuple of Python floats."""
    return tuple(float(value) for value in values)


def enum_member(family: type[_Word], value: str, plural: str) -> _Word:
    """Return the member of an enumeration with this value; the error for any other names the nearest spelling."""
    words = [member.value for member in family]
    if value not in words:
        raise MeasureError(f"'{value}' is none of the {plural}.", suggestion(value, words, plural))
    return family(value)


def is_interval(cell: Cell) -> TypeGuard[IntervalLike]:
    """Whether the cell is a number with its interval."""
    # By elimination: a protocol check costs microseconds, and tables have many cells.
    return cell is not None and not isinstance(cell, str | int | float | Missing)


def is_number(cell: Cell) -> bool:
    """Whether the cell is shown as a number, alone or with an interval."""
    return not isinstance(cell, str | bool | Missing) and cell is not None


def interval_origin(cell: Cell) -> str:
    """Describe how an interval was made, e.g. ``95% interval, wilson``; empty for anything else."""
    if not is_interval(cell):
        return ""
    level, method = getattr(cell, "level", None), getattr(cell, "method", "")
    words = f"{level * 100:g}% interval" if isinstance(level, float) else "interval"
    return f"{words}, {method}" if method else words


PERCENT = "%"
"""The unit of a fraction to be shown as a percentage: 0.42 is shown as 42%. No other unit rescales a number."""

NO_VALUE = "n/a"
"""Shown where there is no value."""

SIGNIFICANT_DIGITS = 3
"""Digits of a number without an interval: enough to compare, not more than it deserves."""

MIN_DECIMAL, MAX_DECIMAL, MAX_DECIMALS = 1e-4, 1e15, 6
MAX_FACTOR = 1_000_000
"""Factor from which on its size says nothing more."""
MIN_PERCENT = 0.01
"""Smallest percentage written out; a smaller one is shown as less than it."""
NON_FINITE = ("NaN", "∞", "-∞")


def format_number(value: float, unit: str = "", decimals: int | None = None, *, bare: bool = False) -> str:
    """Format a number: ``0.423``, ``12,345``, ``42%``, ``NaN``; ``bare`` leaves the unit to a heading.

    Without ``decimals`` a float gets three significant digits and no trailing zeros; whole numbers keep all their
    digits.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    scaled = scale_to_unit(value, unit)
    if unit == PERCENT and decimals is None and 0 < abs(scaled) < MIN_PERCENT:
        digits = f"<{MIN_PERCENT}" if scaled > 0 else "0"
    else:
        digits = format_digits(scaled, decimals)
    if bare or not unit or digits in NON_FINITE:
        return digits
    return digits + unit if unit == PERCENT else f"{digits} {one_line(unit)}"


def format_interval(cell: IntervalLike, unit: str = "", decimals: int | None = None, *, bare: bool = False) -> str:
    """Format a number with its interval: ``0.42 nats (0.38 to 0.47)``, ``42% (38% to 47%)``.

    Without ``decimals`` the digits follow the half width (``interval_decimals``). An interval whose ends are both NaN
    is written as ``no interval``, and so is one from zero, or a number below, to infinity: it says nothing.
    """
    value, low, high = (float(part) for part in (cell.value, cell.low, cell.high))
    if (math.isnan(low) and math.isnan(high)) or (-math.inf < low <= 0 and math.isinf(high)):
        return f"{format_number(value, unit, decimals, bare=bare)} (no interval)"
    digits = interval_decimals(cell, unit) if decimals is None else decimals
    ends = [format_number(end, unit, digits, bare=bare or unit != PERCENT) for end in (low, high)]
    return f"{format_number(value, unit, digits, bare=bare)} ({ends[0]} to {ends[1]})"


def format_pair(start: float, end: float, between: str = " to ") -> str:
    """Format two numbers with the decimals of the larger: ``0.0001 to 0.00352``, not ``9.77e-05 to 0.00352``."""
    largest = max(abs(start), abs(end))
    if not MIN_DECIMAL <= largest < MAX_DECIMAL:
        return between.join(format_number(float(value)) for value in (start, end))
    decimals = max(0, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(largest)))
    return between.join(trim_zeros(format_fixed(float(value), decimals)) for value in (start, end))


def format_factor(value: float) -> str:
    """Format a factor for a sentence with two digits: ``2.5``, ``34``, ``1,300``, ``more than a million``."""
    if value > MAX_FACTOR:
        return "more than a million"
    return f"{value:.2g}" if value < 99.5 else f"{float(f'{value:.2g}'):,.0f}"


def interval_decimals(cell: IntervalLike, unit: str = "") -> int | None:
    """Return the decimals of an interval: two significant digits of its half width if these are below 35, else one.

    That is the rounding rule of the Particle Data Group (Review of Particle Physics, introduction, "Rounding"). None
    means three digits for each number: the interval has no width that its decimals could show, or its numbers are too
    small or too large to write out.
    """
    finite = [scale_to_unit(float(part), unit) for part in (cell.value, cell.low, cell.high) if math.isfinite(part)]
    width = max(finite, default=0.0) - min(finite, default=0.0)
    half = width / 2 if len(finite) == 3 else width
    largest = max(map(abs, finite), default=0.0)
    if not 0 < half < math.inf or not MIN_DECIMAL <= largest < MAX_DECIMAL:
        return None
    exponent = math.floor(math.log10(half))
    decimals = (1 if half / 10.0**exponent < 3.55 else 0) - exponent
    return decimals if decimals <= MAX_DECIMALS else None


def format_cell(cell: Cell, unit: str = "", decimals: int | None = None, *, bare: bool = False) -> str:
    """Format any cell on one line; None and ``Missing`` become ``n/a``."""
    if cell is None or isinstance(cell, Missing):
        return NO_VALUE
    if isinstance(cell, str):
        return one_line(cell)
    if isinstance(cell, int | float):
        return format_number(cell, unit, decimals, bare=bare)
    return format_interval(cell, unit, decimals, bare=bare)


def shared_decimals(cells: Iterable[Cell], unit: str = "") -> int | None:
    """Return the decimals that align a column, or None if its numbers differ too much in size.

    Intervals with a width decide: the finest of them, unless they differ by more than one digit.
    """
    listed = list(cells)
    ranges = {
        interval_decimals(cell, unit) for cell in listed if is_interval(cell) and 0 < cell.high - cell.low < math.inf
    }
    if ranges:
        known = [decimals for decimals in ranges if decimals is not None]
        return max(known) if len(known) == len(ranges) and max(known) - min(known) <= 1 else None
    return number_decimals([cell for cell in listed if isinstance(cell, float) and math.isfinite(cell)], unit)


def data_unit(unit: str) -> str:
    """Return the unit of the stored number: a percentage is stored as a fraction."""
    return "fraction" if unit == PERCENT else unit


def typeset_minus(text: str) -> str:
    """Return a formatted number with a real minus sign, for the page; the terminal keeps the hyphen for pasting."""
    return re.sub(r"(?<!\w)-(?=[\d∞])", "−", text)


def number_decimals(values: Sequence[float], unit: str) -> int | None:
    """Return the decimals that align numbers without intervals, or None if they differ too much in size."""
    lone = [scale_to_unit(value, unit) for value in values]
    if not lone or any(value and not MIN_DECIMAL <= abs(value) < MAX_DECIMAL for value in lone):
        return None
    decimals = max(len(format_digits(value, None).partition(".")[2]) for value in lone)
    largest = max(len(f"{abs(value):.0f}") for value in lone)
    return decimals if decimals + largest <= 2 * SIGNIFICANT_DIGITS + 1 else None


def scale_to_unit(value: float, unit: str) -> float:
    """Return a number in its unit: a fraction as percent."""
    return value * 100 if unit == PERCENT else value


def format_digits(value: float, decimals: int | None) -> str:
    """Format the digits of a number without its unit."""
    if isinstance(value, int):
        return f"{value:,}"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value and not MIN_DECIMAL <= abs(value) < MAX_DECIMAL and decimals is None:
        mantissa, _, exponent = f"{value:.{SIGNIFICANT_DIGITS - 1}e}".partition("e")
        return f"{trim_zeros(mantissa)}e{int(exponent)}"
    if decimals is not None:
        return format_fixed(value, decimals)
    significant = max(0, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(value)))) if value else 0
    return trim_zeros(format_fixed(value, significant))


def format_fixed(value: float, decimals: int) -> str:
    """Format a number with fixed decimals, without the sign of a negative zero."""
    text = f"{round(value, decimals):,.{max(decimals, 0)}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text


def trim_zeros(text: str) -> str:
    """Remove trailing zeros after the point."""
    return text.rstrip("0").rstrip(".") if "." in text else text
