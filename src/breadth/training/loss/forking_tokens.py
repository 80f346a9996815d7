"""Forking tokens, the 80/20 rule: train only on the tokens with the largest entropy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.loss.token_selection import selection_mask, share_too_small, token_keys
from breadth.training.mechanism import CLIP_HIGHER, Effect, Mechanism, NoEffect, RecipeTable, Regime, Selection
from breadth.training.ops import masked_values, select_largest
from breadth.training.records import Batch, not_none


@dataclass(frozen=True)
class ForkingTokens(Mechanism[Batch, None]):
    """Train only on the tokens with the largest entropy; the others follow from them.

    The ``share`` of tokens with the largest entropy keep their policy loss, the others get weight 0
    (2506.01939). The denominator still counts all tokens, as in TRL; dividing by the kept ones would make the step
    about five times as large. Extra terms, e.g. the KL to a reference, act on all tokens. Tokens are ranked
    over the optimizer's whole batch on all ranks; TRL ranks each micro-batch.

    Kept are ``1 + floor(share * (tokens - 1))``: as many as reach the linearly interpolated quantile when all entropies
    differ; ties at the edge are broken at random. A token of entropy 0 is certain and has no gradient: below a share of
    1 it is never kept. So a policy that is certain of most tokens keeps fewer than the share. (There the quantile is 0,
    and TRL, which keeps all tokens that reach it, keeps everything.)

    Defaults: the paper's.

    Harm: the gain grows with the model (+11 points on AIME25 at 32B, none at 8B in the paper), so small models may
    lose. Fewer than one in ten of these tokens plans (2509.03646): it finds uncertainty, not strategy.
    """

    paper = Paper(
        "arXiv 2506.01939",
        "forking tokens, the 80/20 rule",
        "ranked over the whole batch; certain tokens are never kept",
    )
    neutral: ClassVar[Mapping[str, Any]] = {"share": 1.0}
    recipes: ClassVar[Mapping[str, RecipeTable]] = {
        "forking": RecipeTable(
            ({"kind": "group-advantage"}, {"kind": "flat-filter"}, CLIP_HIGHER, {"kind": "forking-tokens"}),
            "2506.01939",
            "On top of DAPO; the gain grows with the model.",
        ),
    }

    share: float = 0.2
    """Share of tokens that keep their policy loss; 0.2 in the paper; 1 switches it off. TRL calls it
    ``top_entropy_quantile``.
    """

    def __post_init__(self) -> None:
        require(self, "share", 0 < self.share <= 1, "a number above 0, at most 1")

    @property
    def needs(self) -> frozenset[str]:
        """The entropy of each token; its gradient is not used."""
        return frozenset({"entropy"})

    def survey(self, whole: Batch, state: None) -> Selection:
        """Select the tokens to keep in the whole batch."""
        if self.share == 1:
            return Selection({"picked": whole.mask})
        entropy = not_none(whole.entropy)
        kept = 1 + int(self.share * (int(whole.mask.count_nonzero()) - 1))
        return Selection({"picked": select_largest(entropy, whole.mask & (entropy > 0), kept, token_keys(whole))})

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        """Give every other token weight 0."""
        kept, entropy = selection_mask(selection), not_none(batch.entropy).detach()
        stats = {
            "kept": Mean(kept.sum(), batch.mask.sum()),
            "kept_entropy": Mean(masked_values(entropy, kept).sum(), kept.sum()),
        }
        return Effect(batch.scale_weights(kept.to(batch.logprobs.dtype)), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report a share of less than one token."""
        return share_too_small("forking-tokens", self.share, regime)
