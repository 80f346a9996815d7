"""Intervals around numbers: Wilson, Clopper-Pearson, the cluster bootstrap over problems, paired comparison."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A number with the range it may lie in and how that range was made."""

    value: float
    """The point estimate."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""
    level: float = 0.95
    """Share of such intervals that hold the true value."""
    method: str = ""
    """How the interval was made, e.g. ``wilson``, ``cluster bootstrap over 200 problems``."""

    def __contains__(self, number: float) -> bool:
        return self.low <= number <= self.high
