"""What is spent, what it costs, and the limits on it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from breadth.base.errors import require


@dataclass(frozen=True)
class Spend:
    """Usage so far; two of them add up."""

    calls: int = 0
    """Requests made, failed ones included."""
    input_tokens: int = 0
    """Input tokens, cached ones included."""
    cached_tokens: int = 0
    """Input tokens that the server had in its cache."""
    output_tokens: int = 0
    """Output tokens, those of aborted samples included."""
    seconds: float = 0.0
    """Seconds of sampling, summed over concurrent samples."""
    money: float = 0.0
    """Cost at the given prices."""

    def __add__(self, other: Spend) -> Spend:
        return Spend(*(getattr(self, spec.name) + getattr(other, spec.name) for spec in fields(Spend)))


@dataclass(frozen=True)
class Prices:
    """Money per million tokens, in any currency; all zero unless given."""

    input: float = 0.0
    """Price of input tokens."""
    cached: float = 0.0
    """Price of input tokens from the server's cache."""
    output: float = 0.0
    """Price of output tokens."""

    def cost_of(self, spend: Spend) -> float:
        """Return the cost of a spend."""
        fresh = spend.input_tokens - spend.cached_tokens
        return (fresh * self.input + spend.cached_tokens * self.cached + spend.output_tokens * self.output) / 1e6


@dataclass(frozen=True)
class Budget:
    """Hard limits; None is no limit."""

    calls: int | None = None
    """Most requests, failed ones included."""
    input_tokens: int | None = None
    """Most input tokens."""
    output_tokens: int | None = None
    """Most output tokens."""
    seconds: float | None = None
    """Most seconds of wall-clock time from the start."""
    money: float | None = None
    """Most money, at the prices of the ledger."""

    def __post_init__(self) -> None:
        for spec in fields(self):
            value = getattr(self, spec.name)
            require(self, spec.name, value is None or value >= 0, "0 or more, or no limit at all")
