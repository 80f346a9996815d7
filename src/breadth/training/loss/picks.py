"""What the mechanisms that pick tokens in a survey share: handing the pick on, and judging whether a share picks anything."""

from __future__ import annotations

from torch import Tensor

from breadth.base.errors import MechanismError
from breadth.training.effect import Selection
from breadth.training.ops import TokenKeys
from breadth.training.records import Batch, required
from breadth.training.regime import Inert, Regime


def keys_of(batch: Batch) -> TokenKeys:
    """Return the number by which each token of a batch is drawn."""
    return TokenKeys(required(batch.rows), batch.seed, batch.step)


def picked(selection: Selection | None, name: str = "picked") -> Tensor:
    """Return a mask of tokens that a survey made, for the micro-batch at hand."""
    if selection is None:
        raise MechanismError(
            "A mechanism that picks tokens out of the whole batch was applied without having seen it.",
            "Call survey() on the whole batch first, or let an Objective do it: begin(batch), then loss(micro_batch).",
        )
    return selection.tokens[name]


def too_small(mechanism: str, share: float, regime: Regime) -> Inert | None:
    """Say so when a share of an update's tokens is less than one of them."""
    tokens = regime.tokens_per_update
    if share == 0 or tokens is None or share * tokens >= 1:
        return None
    reason = f"a share of {share:g} of about {tokens:,.0f} tokens per update is less than one; one is picked all the same."
    return Inert(mechanism, reason, f"Put at least {1 / share:,.0f} tokens into one optimizer step, or raise the share.")
