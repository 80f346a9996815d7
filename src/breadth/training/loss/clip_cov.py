"""Clip-Cov: drops the gradient of a few random tokens whose update would cost the most entropy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.loss.token_selection import covariance, no_covariance, selection_mask, share_too_small, token_keys
from breadth.training.mechanism import Effect, Mechanism, NoEffect, RecipeTable, Regime, Role, Selection
from breadth.training.ops import sample_tokens, share_to_count
from breadth.training.records import Batch, not_none


@dataclass(frozen=True)
class ClipCov(Mechanism[Batch, None]):
    """Drop the gradient of a few tokens that would sharpen the policy most.

    Of the tokens with ``lower < covariance < upper`` that the surrogate has not clipped,
    ``max(1, floor(share * tokens))`` are sampled uniformly and their policy loss gets weight 0 (2505.22617). The
    denominator of the loss still counts them. They are sampled from the optimizer's whole batch on all ranks; verl and
    the paper's code sample in each micro-batch. It comes after the surrogate, because it reads which tokens were
    clipped. It also acts on strictly on-policy updates.

    Defaults: the paper's scripts for 7B and 32B, as in verl. The scripts combine it with a clip of [0, 2]:
    ``ClippedPolicy(low=1, high=1)``.

    Harm: ``lower`` and ``upper`` are absolute, so they depend on the scale of the advantages. Without dividing by the
    standard deviation there may be no candidate at all (check ``candidates``). Both collapse and a surge of entropy
    have been reported in long runs on Qwen3 base models.
    """

    paper = Paper("arXiv 2505.22617", "Clip-Cov", "sampled over the whole batch and all ranks, not per micro-batch")
    neutral: ClassVar[Mapping[str, Any]] = {"share": 0.0}
    recipes: ClassVar[Mapping[str, RecipeTable]] = {
        "clip_cov": RecipeTable(
            ({"kind": "group-advantage"}, {"kind": "clipped-policy", "low": 1.0, "high": 1.0}, {"kind": "clip-cov"}),
            "2505.22617",
            "On top of a clip of [0, 2], as in the paper's scripts, which also drop and refill flat groups.",
        ),
    }

    follows = Role.SURROGATE

    share: float = 2e-4
    """Share of all tokens to drop; 2e-4 in the paper and verl; 0 switches it off."""
    lower: float = 1.0
    """A candidate's covariance is above this; 1 in the paper and verl."""
    upper: float = 5.0
    """A candidate's covariance is below this, which excludes outliers; 5 in the paper and verl; inf is no bound."""

    def __post_init__(self) -> None:
        require(self, "share", 0 <= self.share <= 1, "a number between 0 and 1")
        require(self, "lower", self.lower < self.upper, "a number below upper")

    def survey(self, whole: Batch, state: None) -> Selection:
        """Sample the tokens to drop from the whole batch."""
        cost = covariance(whole)
        candidates = whole.mask & ~not_none(whole.clipped) & (cost > self.lower) & (cost < self.upper)
        chosen = sample_tokens(
            candidates, share_to_count(self.share, int(whole.mask.count_nonzero())), token_keys(whole)
        )
        return Selection({"picked": chosen, "candidates": candidates})

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        """Give the sampled tokens weight 0."""
        chosen, count = selection_mask(selection), batch.mask.sum()
        stats = {
            "picked": Mean(chosen.sum(), count),
            "candidates": Mean(selection_mask(selection, "candidates").sum(), count),
        }
        return Effect(batch.scale_weights((~chosen).to(batch.logprobs.dtype)), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report one response per update, and a share of less than one token."""
        return no_covariance("clip-cov", regime) or share_too_small("clip-cov", self.share, regime)
