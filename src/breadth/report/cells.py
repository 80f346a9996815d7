"""What one place in a table may hold: text, a number, a number with its interval, or the reason there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar, runtime_checkable

from breadth.base.errors import MeasureError
from breadth.base.spelling import suggestion

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
    """One sentence: why there is none, or what would switch it on."""


Cell: TypeAlias = str | float | IntervalLike | Missing | None
"""Text, a number (a bool is shown as yes or no), an interval, or nothing (``None`` when there is no reason to give)."""


def tidy(value: Any) -> Cell:
    """Return the value as a cell: numpy scalars become Python numbers, anything that is no cell is refused."""
    if value is None or isinstance(value, str | int | float | Missing | IntervalLike):
        return value
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        return tidy(value.item())
    raise MeasureError(
        f"A {type(value).__name__} cannot be shown in one place of a report.",
        "Give text, a number, something with value, low and high, Missing(reason) or None.",
    )


def floats(values: Sequence[float]) -> tuple[float, ...]:
    """Return numbers from any sequence or array as a tuple of Python floats."""
    return tuple(float(value) for value in values)


def member(family: type[_Word], value: str, plural: str) -> _Word:
    """Return the member of an enumeration with this value; a word that is none of them gets the nearest spelling."""
    words = [member.value for member in family]
    if value not in words:
        raise MeasureError(f"'{value}' is none of the {plural}.", suggestion(value, words, plural))
    return family(value)


def is_interval(cell: Cell) -> TypeGuard[IntervalLike]:
    """Tell whether the cell is a number with its interval."""
    # By elimination: asking a protocol costs microseconds, and tables have many cells.
    return cell is not None and not isinstance(cell, str | int | float | Missing)


def is_number(cell: Cell) -> bool:
    """Tell whether the cell is shown as a number, alone or with an interval."""
    return not isinstance(cell, str | bool | Missing) and cell is not None


def interval_origin(cell: Cell) -> str:
    """Say how an interval was made, e.g. ``95% interval, wilson``; empty for anything else."""
    if not is_interval(cell):
        return ""
    level, method = getattr(cell, "level", None), getattr(cell, "method", "")
    words = f"{level * 100:g}% interval" if isinstance(level, float) else "interval"
    return f"{words}, {method}" if method else words
