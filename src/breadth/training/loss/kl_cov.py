"""KL-Cov: a KL penalty on the tokens whose update would cost the most entropy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.loss.token_selection import covariance, no_covariance, selection_mask, share_too_small, token_keys
from breadth.training.mechanism import (
    ON_POLICY_REMEDY,
    UNCLIPPED,
    Effect,
    Mechanism,
    NoEffect,
    RecipeTable,
    Regime,
    Selection,
)
from breadth.training.ops import log_ratio, masked_values, select_largest, share_to_count
from breadth.training.records import Batch, not_none


@dataclass(frozen=True)
class KLCov(Mechanism[Batch, None]):
    """Penalise the drift from the old policy on the few tokens that would sharpen the policy most.

    ``coefficient * D`` is added to the loss of the ``max(1, floor(share * tokens))`` tokens with the largest covariance
    (2505.22617), over the optimizer's whole batch on all ranks; verl and the paper's code select in each
    micro-batch. D is ``|log p - log p_old|`` of the sampled token in both codes, and KL(old || current) over the
    vocabulary in the paper. Their policy loss has no clip: ``ClippedPolicy(low=1, high=inf)``.

    Defaults: the paper's scripts for 7B; verl's are 2e-4 and a coefficient of 0.1, ten times weaker than
    published.

    Harm: the sampled form is not a KL: its gradient is ``coefficient * sign(log p - log p_old)`` however small the
    drift, so it reverses the update wherever ``|A| * ratio < coefficient``. Neither form has a gradient where the
    policies agree, so they do nothing on strictly on-policy updates. Both collapse and a surge of entropy have been
    reported in long runs on Qwen3 base models.
    """

    paper = Paper(
        "arXiv 2505.22617",
        "KL-Cov",
        "selected over the whole batch and all ranks, not per micro-batch; also with the paper's full KL",
    )
    neutral: ClassVar[Mapping[str, Any]] = {"share": 0.0}
    recipes: ClassVar[Mapping[str, RecipeTable]] = {
        "kl_cov": RecipeTable(
            ({"kind": "group-advantage"}, UNCLIPPED, {"kind": "kl-cov"}),
            "2505.22617",
            "No clip, as in the paper's code; no effect on-policy. The scripts also drop and refill flat groups.",
        ),
    }

    share: float = 2e-3
    """Share of all tokens to penalise; 2e-3 for 7B, 2e-4 for 32B in the paper (its scripts write 0.2 and 0.02 percent).

    0 switches it off.
    """
    coefficient: float = 1.0
    """Penalty per nat; 1 in the paper's scripts, 0.1 in verl."""
    divergence: Literal["sampled", "full"] = "sampled"
    """What is penalised: the drift of the sampled token, as in the public code, or the KL over the whole vocabulary, as
    in the paper.
    """

    def __post_init__(self) -> None:
        require(self, "share", 0 <= self.share <= 1, "a number between 0 and 1")
        require(self, "divergence", self.divergence in ("sampled", "full"), "'sampled' or 'full'")
        require(self, "coefficient", self.coefficient >= 0, "a number of 0 or more")

    @property
    def needs(self) -> frozenset[str]:
        """The full form reads the divergence from the old policy; the sampled one nothing beyond the minimum."""
        return frozenset({"old_divergence"} if self.divergence == "full" else ())

    def survey(self, whole: Batch, state: None) -> Selection:
        """Select the tokens with the largest covariance in the whole batch."""
        count = share_to_count(self.share, int(whole.mask.count_nonzero()))
        return Selection({"picked": select_largest(covariance(whole), whole.mask, count, token_keys(whole))})

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        """Penalise the selected tokens for their distance to the old policy."""
        chosen = selection_mask(selection)
        drift = (
            not_none(batch.old_divergence)
            if self.divergence == "full"
            else log_ratio(batch.logprobs, not_none(batch.old_logprobs)).abs()
        )
        distance = masked_values(drift, chosen)
        stats = {
            "picked": Mean(chosen.sum(), batch.mask.sum()),
            "distance": Mean(distance.detach().sum(), chosen.sum()),
        }
        return Effect(batch, (self.coefficient * distance,) if self.coefficient and self.share else (), stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report on-policy updates (no gradient), one response per update, and a share of less than one token."""
        if regime.on_policy:
            reason = (
                "every update is strictly on-policy: the distance to the old policy is exactly 0, and so is its"
                " gradient."
            )
            return NoEffect("kl-cov", reason, f"Use clip-cov, which acts there. {ON_POLICY_REMEDY}")
        return no_covariance("kl-cov", regime) or share_too_small("kl-cov", self.share, regime)
