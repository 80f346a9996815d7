"""What a mechanism returns: the record the next one sees, loss terms to add, and stats that add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

import torch

R = TypeVar("R")


@dataclass(frozen=True)
class Effect(Generic[R]):
    """What one mechanism did to one record."""

    after: R
    """The record the next mechanism sees."""
    terms: tuple[torch.Tensor, ...] = ()
    """(B, T) losses to add to each token's policy loss; not multiplied by the batch's weights. Loss seat only."""
    stats: Mapping[str, Any] = field(default_factory=dict)
    """Name -> Mean, Max, Counts or another stat that adds up over micro-batches and ranks. Detached."""


@dataclass(frozen=True)
class Selection:
    """What a survey of the whole batch decided, to be handed to each micro-batch as its slice."""

    tokens: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Name -> (N, T) or (N,) decision for each token or sequence of the whole batch."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Name -> one number for the whole batch."""

    def at(self, places: torch.Tensor, width: int) -> Self:
        """Return the slice for the sequences at these places of the whole batch, in their order."""
        return type(self)(
            {name: value[places][..., :width] if value.ndim == 2 else value[places] for name, value in self.tokens.items()}, self.numbers
        )
