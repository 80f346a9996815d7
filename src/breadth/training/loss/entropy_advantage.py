"""The entropy-shaped advantage: extra credit for tokens with high entropy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Role, Selection
from breadth.training.records import Batch, not_none


@dataclass(frozen=True)
class EntropyAdvantage(Mechanism[Batch, None]):
    """Give high-entropy tokens more credit if the answer is correct, and less blame if it is wrong.

    ``A += min(scale * H, |A| / cap)`` for both signs of A, before the surrogate (2506.14758). H is the exact entropy
    without its gradient: this is credit assignment, not a maximum-entropy objective. ``cap`` above 1 keeps every sign.
    An advantage of zero stays zero, so zero-variance groups still contribute nothing.

    Source of the defaults: 0.4 and 2 are quoted for the paper, but we had neither its text nor official code:
    **not confirmed**.

    Harm: it does not keep entropy up by itself. In one state where the cap does not bind, the shift is the same for
    every token: a baseline that changes nothing on average. Where it binds, it multiplies the difference between
    correct and wrong by ``1 + (1 - 2q) / cap``, with q the share of correct rollouts: hard problems narrow faster and
    easy ones more slowly.
    """

    paper = Paper("arXiv 2506.14758", "entropy-shaped advantage", "defaults not confirmed by a source")
    neutral: ClassVar[Mapping[str, Any]] = {"scale": 0.0}

    precedes = Role.SURROGATE

    scale: float = 0.4
    """Advantage per nat of entropy; 0.4, not confirmed."""
    cap: float = 2.0
    """The shift is at most \\|A\\| divided by this; 2, not confirmed."""

    def __post_init__(self) -> None:
        require(self, "scale", 0 <= self.scale < math.inf, "a number of 0 or more")
        require(self, "cap", self.cap > 1, "a number above 1")

    @property
    def needs(self) -> frozenset[str]:
        """The entropy of each token, without gradient."""
        return frozenset({"entropy"})

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        """Raise each token's advantage by its entropy."""
        advantages, max_shift = batch.advantages, batch.advantages.abs() / self.cap
        wanted = self.scale * not_none(batch.entropy).detach().clamp(min=0)
        shift = torch.minimum(wanted, max_shift).to(advantages.dtype)
        count, capped = batch.mask.sum(), batch.mask & (wanted > max_shift) & (max_shift > 0)
        stats = {"shift": Mean(shift.sum(), count), "capped": Mean(capped.sum(), count)}
        return Effect(replace(batch, advantages=advantages + shift), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report a scale of 0 or an infinite cap: no advantage is shifted."""
        if self.scale == 0 or math.isinf(self.cap):
            return NoEffect(
                "entropy-advantage",
                "its scale is 0 or its cap infinite, so no advantage is shifted.",
                "Set scale above 0 and a finite cap.",
            )
        return None
