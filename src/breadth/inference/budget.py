"""What is spent, what it costs and the ceilings on it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from breadth.base.checks import require


@dataclass(frozen=True)
class Spend:
    """What was used; adds up."""

    calls: int = 0
    """Requests made, failed ones included."""
    input_tokens: int = 0
    """Tokens read, cached ones included."""
    cached_tokens: int = 0
    """Of those, the ones the server had in its cache."""
    output_tokens: int = 0
    """Tokens written, those of aborted draws included."""
    seconds: float = 0.0
    """Seconds of draws, added up over draws side by side."""
    money: float = 0.0
    """What it cost by the prices given."""

    def __add__(self, other: Spend) -> Spend:
        return Spend(*(getattr(self, spec.name) + getattr(other, spec.name) for spec in fields(Spend)))


@dataclass(frozen=True)
class Prices:
    """Money for a million tokens, in whatever currency; all zero unless given."""

    input: float = 0.0
    """Tokens read."""
    cached: float = 0.0
    """Tokens read from the server's cache."""
    output: float = 0.0
    """Tokens written."""

    def cost_of(self, spend: Spend) -> float:
        """Return what a spend costs."""
        fresh = spend.input_tokens - spend.cached_tokens
        return (fresh * self.input + spend.cached_tokens * self.cached + spend.output_tokens * self.output) / 1e6


@dataclass(frozen=True)
class Budget:
    """Hard ceilings; None is no ceiling."""

    calls: int | None = None
    """Draws, failed ones included."""
    input_tokens: int | None = None
    """Tokens read."""
    output_tokens: int | None = None
    """Tokens written."""
    seconds: float | None = None
    """Seconds on the clock from the start."""
    money: float | None = None
    """Money, by the prices of the ledger."""

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            require(self, spec.name, value is None or value >= 0, "0 or more, or no ceiling at all")
