"""The gradient-preserving policy losses of GPPO and CE-GPPO: clipped tokens keep a bounded gradient."""

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
from breadth.training.ops import ratio
from breadth.training.records import Batch, not_none


@dataclass(frozen=True)
class GradientPreserving(Mechanism[Batch, None]):
    """Keep training a token whose probability has moved too far, with the gradient of the clip's edge.

    With ``edge(x) = x / ratio.detach() * ratio``, which has the value x and a gradient::

        ratio < 1 - low  and A < 0:   -below * edge(1 - low)  * A
        ratio > 1 + high and A > 0:   -above * edge(1 + high) * A
        otherwise:                    -ratio * A

    ``below = above = 1`` is GPPO (Klear-Reasoner, 2508.07629), whose value is that of clip-higher.
    ``below = 0.75, above = 1`` is CE-GPPO (2509.20712): training on rare wrong tokens lowers the entropy, on rare right
    tokens it raises it. So a smaller ``below`` or a larger ``above`` keeps more entropy.
    At 0 and 0 the gradient is that of the clipped policy loss.

    Defaults: GPPO's, with the bounds of its paper.

    Harm: with ``below = 1`` wrong tokens that a clip would have spared are driven towards zero, which costs entropy.
    The released CE-GPPO scripts use 0.5 for 1.5B models, and ``high = 0.2``. On strictly on-policy updates it
    is the plain policy gradient.
    """

    paper = Paper(
        "arXiv 2508.07629, 2509.20712",
        "GPPO and CE-GPPO",
        "without dual clip by default, which drops gradients in their code",
    )
    recipes: ClassVar[Mapping[str, RecipeTable]] = {
        "gppo": RecipeTable(
            ({"kind": "group-advantage"}, {"kind": "gradient-preserving"}),
            "2508.07629",
            "The paper adds a language-model loss on right rollouts.",
        ),
        "ce_gppo": RecipeTable(
            (
                {"kind": "group-advantage"},
                {"kind": "gradient-preserving", "high": 0.2, "below": 0.75, "dual": 10.0},
            ),
            "2509.20712",
            "The released 7B settings; below=0.5 for 1.5B. The scripts also drop and refill flat groups.",
        ),
    }

    role = Role.SURROGATE

    low: float = 0.2
    """How far below 1 the ratio may go before its gradient is bounded; 0.2 in both papers."""
    high: float = 0.28
    """How far above 1 the ratio may go before its gradient is bounded; 0.28 in GPPO, 0.2 in the released CE-GPPO
    scripts.
    """
    below: float = 1.0
    """Factor of the gradient of rare wrong tokens, at the lower edge; 1 in GPPO; in CE-GPPO 0.75 for 7B, 0.5 for 1.5B.
    """
    above: float = 1.0
    """Factor of the gradient of right tokens that grew, at the upper edge; 1 in both papers."""
    dual: float | None = None
    """Largest ratio where the advantage is negative; 10 in both papers' code, where it does drop gradients. None: no
    bound.
    """

    def __post_init__(self) -> None:
        require(self, "low", 0 <= self.low <= 1, "a number between 0 and 1")
        for field in ("high", "below", "above"):
            require(self, field, getattr(self, field) >= 0, "a number of 0 or more")
        require(self, "dual", self.dual is None or self.dual > 1, "a number above 1")

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        """Set the surrogate and mark the tokens that lost their gradient to a factor of 0 or the dual bound."""
        moved, advantages = ratio(batch.logprobs, not_none(batch.old_logprobs)), batch.advantages
        low, high = 1 - self.low, 1 + self.high
        below, above = (moved < low) & (advantages < 0), (moved > high) & (advantages > 0)
        unit = moved / moved.detach()
        pushed = torch.where(below, self.below * low * unit, torch.where(above, self.above * high * unit, moved))
        losses, clipped = -pushed * advantages, (below & (self.below == 0)) | (above & (self.above == 0))
        if self.dual is not None:
            capped = (advantages < 0) & (moved > self.dual)
            losses, clipped = torch.where(capped, -self.dual * advantages, losses), clipped | capped
        count = batch.mask.sum()
        stats = {
            "bounded_low": Mean((below & batch.mask).sum(), count),
            "bounded_high": Mean((above & batch.mask).sum(), count),
        }
        return Effect(replace(batch, surrogate=losses, clipped=clipped), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report strictly on-policy updates, where no edge is ever reached."""
        if regime.on_policy:
            reason = "no token ever reaches an edge: every update is strictly on-policy, so the ratio is exactly 1."
            return NoEffect("gradient-preserving", reason, ON_POLICY_REMEDY)
        return None
