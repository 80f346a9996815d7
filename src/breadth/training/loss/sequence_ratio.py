"""The sequence-level policy loss of GSPO: one ratio and one clip per response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

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
from breadth.training.ops import log_ratio, sequence_mean
from breadth.training.records import Batch, not_none


@dataclass(frozen=True)
class SequenceRatio(Mechanism[Batch, None]):
    """Measure how far the policy has moved by the whole response, and clip all of its tokens or none.

    With the geometric mean ``s = exp(mean over the response of log(current / old))`` the loss of each token is
    ``-min(s * A, clip(s, 1 - low, 1 + high) * A)``, and its gradient ``-s * A`` where the clip does not act (GSPO,
    2507.18071, in the form the paper calls GSPO-token; verl's loss mode ``gspo``). The paper averages by response:
    ``Reduction(by="sequence-mean")``; by token, long responses count for more. If all tokens of
    a response share the advantage, this is the paper's own objective. Log-ratios of tokens are clamped to +-20.

    Defaults: the paper's experiments, which verl's example script repeats.

    Harm: bounds of this size clip two orders of magnitude more tokens than GRPO's (the paper's own figure); with bounds
    meant for tokens (0.2) it hardly ever clips. A mean over few tokens is noisier, so expect short responses among the
    clipped ones.
    """

    paper = Paper("arXiv 2507.18071", "GSPO", "the token form, equal to the paper's where a response has one advantage")
    recipes: ClassVar[Mapping[str, RecipeTable]] = {
        "gspo": RecipeTable(
            ({"kind": "group-advantage"}, {"kind": "sequence-ratio"}),
            "2507.18071",
            "Needs several updates per generation.",
            reduction="sequence-mean",
        ),
    }

    role = Role.SURROGATE

    low: float = 3e-4
    """How far below 1 a response's ratio may go; 3e-4 in the paper; 1 is no bound."""
    high: float = 4e-4
    """How far above 1 a response's ratio may go; 4e-4 in the paper; inf is no bound."""

    def __post_init__(self) -> None:
        require(self, "low", 0 <= self.low <= 1, "a number between 0 and 1")
        require(self, "high", self.high >= 0, "a number of 0 or more")

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        """Set the surrogate and mark the tokens of clipped responses."""
        logprobs, advantages = batch.logprobs, batch.advantages
        drift = sequence_mean(log_ratio(logprobs.detach(), not_none(batch.old_logprobs)), batch.mask)
        moved = (drift[:, None] + logprobs - logprobs.detach()).exp()
        low, high = 1 - self.low, 1 + self.high
        losses = torch.maximum(-moved * advantages, -moved.clamp(low, high) * advantages)
        below, above = (moved < low) & (advantages < 0), (moved > high) & (advantages > 0)
        count = batch.mask.sum()
        stats = {
            "clipped_low": Mean((below & batch.mask).sum(), count),
            "clipped_high": Mean((above & batch.mask).sum(), count),
        }
        return Effect(replace(batch, surrogate=losses, clipped=below | above), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report strictly on-policy updates, where every ratio is 1."""
        if regime.on_policy:
            reason = (
                "every update is strictly on-policy, so the ratio is exactly 1 and the loss is the plain policy"
                " gradient."
            )
            return NoEffect("sequence-ratio", reason, ON_POLICY_REMEDY)
        return None
