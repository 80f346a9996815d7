"""The policy loss of CISPO: the importance weight is clipped, but no token loses its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.mechanism import (
    ON_POLICY_REMEDY,
    Effect,
    Mechanism,
    NoEffect,
    RecipeTable,
    Regime,
    Role,
    Selection,
)
from breadth.training.ops import ratio
from breadth.training.records import Batch, not_none


@dataclass(frozen=True)
class Cispo(Mechanism[Batch, None]):
    """Train every token, however far it has moved; only its importance weight is bounded.

    ``-bounded(ratio).detach() * A * log p`` (MiniMax-M1, 2506.13585). The name is used for two
    losses, so the bounds are named::

        "around-one":  clamp(ratio, 1 - low, 1 + high)     the paper, verl
        "cap":         clamp(ratio, max=cap)               ScaleRL (2510.13786), TRL (epsilon_high is the cap itself)

    Unlike the gradient-preserving losses it also bounds a small ratio with A > 0 and a large one with A < 0. The loss
    value is not comparable with that of a ratio loss: it grows with log p.

    Defaults: no lower bound, as in the paper, which does not state ``high``.

    Harm: nothing stops a token that moves the wrong way: with many updates per generation the policy can drift far from
    the old one. On strictly on-policy updates it is the plain policy gradient.
    """

    paper = Paper("arXiv 2506.13585", "CISPO", "both conventions, named: around one (the paper, verl) and a cap (TRL)")
    recipes: ClassVar[Mapping[str, RecipeTable]] = {
        "cispo": RecipeTable(
            ({"kind": "group-advantage"}, {"kind": "cispo"}),
            "2506.13585",
            "The weight is bounded around one; TRL's cap is Cispo(bounds='cap').",
        ),
    }

    role = Role.SURROGATE

    bounds: Literal["around-one", "cap"] = "around-one"
    """Which convention to use: ``low`` and ``high`` belong to the first, ``cap`` to the second."""
    low: float = 1.0
    """How far below 1 the weight may go; 1 is no bound, as in the paper. (around-one)"""
    high: float = 0.28
    """How far above 1 the weight may go; DAPO's bound, which Trinity-RFT uses for CISPO; verl's default is 0.2.
    (around-one)
    """
    cap: float = 5.0
    """Largest weight; 5 in TRL's documentation, after ScaleRL; inf is no bound. (cap)"""

    def __post_init__(self) -> None:
        require(self, "bounds", self.bounds in ("around-one", "cap"), "'around-one' or 'cap'")
        require(self, "low", 0 <= self.low <= 1, "a number between 0 and 1")
        require(self, "high", self.high >= 0, "a number of 0 or more")
        require(self, "cap", self.cap >= 1, "a number of 1 or more")

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        """Set the surrogate; no token loses its gradient."""
        moved = ratio(batch.logprobs.detach(), not_none(batch.old_logprobs))
        low, high = (1 - self.low, 1 + self.high) if self.bounds == "around-one" else (0.0, self.cap)
        losses = -moved.clamp(low, high) * batch.advantages * batch.logprobs
        count = batch.mask.sum()
        stats = {
            "bounded_low": Mean(((moved < low) & batch.mask).sum(), count),
            "bounded_high": Mean(((moved > high) & batch.mask).sum(), count),
        }
        return Effect(replace(batch, surrogate=losses, clipped=torch.zeros_like(batch.mask)), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report strictly on-policy updates, where every weight is 1."""
        if regime.on_policy:
            reason = "no weight ever reaches a bound: every update is strictly on-policy, so the ratio is exactly 1."
            return NoEffect("cispo", reason, ON_POLICY_REMEDY)
        return None
