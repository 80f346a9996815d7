"""Clip-Cov: leave a few of the tokens out whose update would cost the most entropy, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass

from breadth.base.checks import require
from breadth.base.stats import Mean
from breadth.training.loss.token_selection import covariance, no_covariance, selection_mask, share_too_small, token_keys
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Role, Selection
from breadth.training.ops import sample_tokens, share_to_count
from breadth.training.records import Batch, not_none


@dataclass(frozen=True)
class ClipCov(Mechanism[Batch, None]):
    """Take the gradient of a few tokens away that would sharpen the policy most.

    Of the tokens with ``lower < covariance < upper`` that the surrogate has not clipped,
    ``max(1, floor(share * tokens))`` are drawn uniformly and their policy loss weighted with 0 (2505.22617). The
    denominator of the loss still counts them. The draw is over the optimizer's whole batch on all ranks, where verl and
    the paper's code draw in each micro-batch. It stands after the surrogate in the chain, because it asks what was
    clipped, and it acts on strictly on-policy updates too.

    Defaults: the paper's scripts for 7B and 32B, which are verl's as well. The scripts run it on top of a clip of [0,
    2]: ``ClippedPolicy(low=1, high=1)``.

    Harm: ``lower`` and ``upper`` are absolute, so they mean another quantile of the tokens whenever the advantages are
    scaled differently: without dividing by the standard deviation there may be no candidate at all (watch
    ``candidates``). Both collapse and a surge of entropy have been reported over long runs on Qwen3 base models.
    """

    follows = Role.SURROGATE

    share: float = 2e-4
    """Share of all tokens to leave out; 2e-4 in the paper and verl; 0 switches it off."""
    lower: float = 1.0
    """A candidate's covariance is above this; 1 in the paper and verl."""
    upper: float = 5.0
    """A candidate's covariance is below this, which spares the outliers; 5 in the paper and verl; inf is no bound."""

    def __post_init__(self) -> None:
        require(self, "share", 0 <= self.share <= 1, "a number between 0 and 1")
        require(self, "lower", self.lower < self.upper, "a number below upper")

    def survey(self, whole: Batch, state: None) -> Selection:
        """Draw the tokens to leave out of the whole batch."""
        cost = covariance(whole)
        candidates = whole.mask & ~not_none(whole.clipped) & (cost > self.lower) & (cost < self.upper)
        chosen = sample_tokens(
            candidates, share_to_count(self.share, int(whole.mask.count_nonzero())), token_keys(whole)
        )
        return Selection({"picked": chosen, "candidates": candidates})

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        """Weigh the drawn tokens with 0."""
        chosen, count = selection_mask(selection), batch.mask.sum()
        stats = {
            "picked": Mean(chosen.sum(), count),
            "candidates": Mean(selection_mask(selection, "candidates").sum(), count),
        }
        return Effect(batch.scale_weights((~chosen).to(batch.logprobs.dtype)), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """One response has no covariance, and a share of too few tokens is less than one."""
        return no_covariance("clip-cov", regime) or share_too_small("clip-cov", self.share, regime)
