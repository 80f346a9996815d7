"""Statistics that add up: partial results of micro-batches and ranks sum to the result of the whole batch.

A mean of means is wrong whenever the parts differ in size; a total and a count are right however the batch was cut.
Values may be floats or tensors of any framework with ``+`` and ``maximum``; nothing is moved off its device until
``value`` is read.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeAlias

Number: TypeAlias = Any
"""A float, or a zero-dimensional tensor."""


class Stat(Protocol):
    """A partial result: parts add up with ``+`` in any order, and ``value`` reads the result."""

    def __add__(self, other: Self, /) -> Self: ...

    @property
    def value(self) -> Any:
        """The result as plain numbers."""
        ...


@dataclass(frozen=True)
class Mean:
    """A mean kept as total and count."""

    total: Number = 0.0
    """Sum of the values."""
    count: Number = 0.0
    """How many values (or how much weight) the sum holds."""

    def __add__(self, other: Mean) -> Mean:
        return Mean(self.total + other.total, self.count + other.count)

    @property
    def value(self) -> float:
        """The mean; NaN when nothing was counted."""
        count = float(self.count)
        return float(self.total) / count if count else math.nan


@dataclass(frozen=True)
class Max:
    """The largest value seen; a NaN anywhere stays visible."""

    largest: Number = -math.inf
    """The largest value so far."""

    def __add__(self, other: Max) -> Max:
        return Max(larger(self.largest, other.largest))

    @property
    def value(self) -> float:
        """The largest value; minus infinity when there was none."""
        return float(self.largest)


@dataclass(frozen=True)
class Counts:
    """How often each label occurred."""

    by_label: Mapping[Hashable, Number] = field(default_factory=dict)
    """Label -> count."""

    def __add__(self, other: Counts) -> Counts:
        merged = dict(self.by_label)
        for label, count in other.by_label.items():
            merged[label] = merged[label] + count if label in merged else count
        return Counts(merged)

    @property
    def value(self) -> dict[Hashable, float]:
        """Label -> count, as plain floats."""
        return {label: float(count) for label, count in self.by_label.items()}


def add_up(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum named stats over micro-batches or ranks; a name missing from a part counts as nothing there."""
    merged: dict[str, Any] = {}
    for part in parts:
        for name, stat in part.items():
            merged[name] = merged[name] + stat if name in merged else stat
    return merged


def larger(left: Number, right: Number) -> Number:
    """Return the larger of two numbers or tensors; NaN when either is NaN."""
    tensor, other = (left, right) if hasattr(left, "maximum") else (right, left)
    if not hasattr(tensor, "maximum"):
        return math.nan if math.isnan(left) or math.isnan(right) else max(left, right)
    return tensor.maximum(other if hasattr(other, "maximum") else tensor.new_tensor(other))
