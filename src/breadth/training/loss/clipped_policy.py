"""The clipped policy loss of PPO and GRPO, with clip-higher and dual clip."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.mechanism import ON_POLICY_REMEDY, Effect, Mechanism, NoEffect, Regime, Role, Selection
from breadth.training.ops import ratio
from breadth.training.records import Batch, not_none


@dataclass(frozen=True)
class ClippedPolicy(Mechanism[Batch, None]):
    """Train tokens by their advantage, but stop once a token's probability has moved far enough.

    ``-min(ratio * A, clip(ratio, 1 - low, 1 + high) * A)`` (PPO, 1707.06347; GRPO, 2402.03300); ``high > low`` is
    clip-higher (DAPO, 2503.14476), which lets rare tokens become more likely. With ``dual``, a token with A < 0 costs
    at most ``-dual * A`` (1912.09729; delta in TRL). Without bounds it is the plain importance-weighted policy
    gradient.

    Harm: the clip removes the gradient of exactly the rare tokens that exploration needs; clip-higher can overshoot
    (+298 % entropy on a 32B model, 2603.11682). On strictly on-policy updates the ratio is 1 and no bound acts.
    """

    paper = Paper("arXiv 1707.06347, 2503.14476", "PPO's clip; DAPO's clip-higher", "the dual clip only on request")

    role = Role.SURROGATE

    low: float = 0.2
    """How far below 1 the ratio may go; 0.2 in PPO, GRPO and DAPO; 1 is no bound."""
    high: float = 0.2
    """How far above 1 the ratio may go; 0.2 in PPO and GRPO, 0.28 in DAPO; inf is no bound."""
    dual: float | None = None
    """Largest ratio where the advantage is negative; 3 in verl, 10 in the GPPO papers' code. None: no bound."""

    def __post_init__(self) -> None:
        require(self, "low", 0 <= self.low <= 1, "a number between 0 and 1")
        require(self, "high", self.high >= 0, "a number of 0 or more")
        require(self, "dual", self.dual is None or self.dual > 1, "a number above 1")

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        """Set the surrogate and mark the tokens that lost their gradient to a bound."""
        moved, advantages = ratio(batch.logprobs, not_none(batch.old_logprobs)), batch.advantages
        low, high = 1 - self.low, 1 + self.high
        losses = torch.maximum(-moved * advantages, -moved.clamp(low, high) * advantages)
        below, above = (moved < low) & (advantages < 0), (moved > high) & (advantages > 0)
        clipped = below | above
        if self.dual is not None:
            capped = (advantages < 0) & (moved > self.dual)
            losses, clipped = torch.where(capped, -self.dual * advantages, losses), clipped | capped
        count = batch.mask.sum()
        stats = {
            "clipped_low": Mean((below & batch.mask).sum(), count),
            "clipped_high": Mean((above & batch.mask).sum(), count),
        }
        return Effect(replace(batch, surrogate=losses, clipped=clipped), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report bounds set on purpose that are never reached on strictly on-policy updates."""
        chosen = ["clip-higher"] * (self.low < self.high < math.inf) + ["dual clip"] * (self.dual is not None)
        if regime.on_policy and chosen:
            never = f"{' and '.join(chosen)} never {'act' if len(chosen) > 1 else 'acts'}"
            reason = f"{never}: every update is strictly on-policy, so the ratio is exactly 1."
            return NoEffect("clipped-policy", reason, ON_POLICY_REMEDY)
        return None
