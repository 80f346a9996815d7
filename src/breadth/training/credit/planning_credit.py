"""Planning credit (HICRA): more credit for planning tokens than for tokens that execute the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Role, Selection
from breadth.training.ops import group_mean, masked_values
from breadth.training.records import Rollouts, not_none


@dataclass(frozen=True)
class PlanningCredit(Mechanism[Rollouts, None]):
    """Add credit to planning tokens: they gain more from a success and lose less from a failure.

    It comes after the estimator.

    ``A + alpha * |A|`` on tokens inside a strategic gram, ``A`` elsewhere (HICRA, 2509.03646): times 1 + alpha above
    zero, times 1 - alpha below, so no sign flips. Find the grams with `breadth.training.credit.strategic_grams`.
    The paper's A is not divided by the group's deviation: ``GroupAdvantage(scale="none")``.

    ``form="code"`` is the rule that a third party reports of the authors' code, which we have not seen. It acts only in
    responses that are correct and longer than the mean of their group. There it also applies ``A * (1 + alpha)`` to
    tokens with an entropy above the 70th percentile of the generation; a token that is both counts as strategic. Its
    gain may come from entropy and length: try both forms.

    The advantages of a group no longer sum to zero: ``bias`` is the mean credit added per token. The paper reports
    gains on models that already execute reliably; Llama-3.1-8B lost 0.6 to 1.4 points.

    Harm: it rewards the phrases themselves; check that responses do not fill up with them.
    """

    paper = Paper(
        "arXiv 2509.03646",
        "HICRA",
        "grams (`training.credit.strategic_grams`) clustered by wording unless embeddings are given; the form reported"
        " for the authors' code is available by name",
    )
    neutral: ClassVar[Mapping[str, Any]] = {"alpha": 0.0}

    follows = Role.ESTIMATOR

    alpha: float = 0.2
    """Credit added, as a share of the advantage's size; 0.2 in the paper."""
    form: Literal["paper", "code"] = "paper"
    """The paper's rule, or the one reported of its code."""

    PERCENTILE = 0.7
    """Quantile of the generation's entropies above which tokens get credit in the code form."""

    def __post_init__(self) -> None:
        require(self, "alpha", 0 <= self.alpha < 1, "a number from 0 to below 1")
        require(self, "form", self.form in ("paper", "code"), "'paper' or 'code'")

    @property
    def needs(self) -> frozenset[str]:
        """Which tokens plan and which count; for the code form also their entropy and which answers are correct."""
        return frozenset({"planning", "mask"} | ({"entropy", "correct"} if self.form == "code" else set()))

    def survey(self, whole: Rollouts, state: None) -> Selection | None:
        """Find the high-entropy tokens and the eligible responses of the code form."""
        if self.form == "paper":
            return None
        counted = not_none(whole.mask) & whole.is_scored[:, None]
        lengths = whole.lengths.to(whole.rewards)
        longer = lengths > group_mean(lengths, whole.groups, whole.is_scored)
        eligible = longer & (not_none(whole.correct) == 1)
        return Selection(
            {"undecided": above_quantile(not_none(whole.entropy), counted, self.PERCENTILE), "eligible": eligible}
        )

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        """Set the advantages per token."""
        mask, before = not_none(batch.mask), not_none(batch.advantages)
        planning = not_none(batch.planning) & mask
        advantages = (before[:, None] if before.ndim == 1 else before).expand_as(mask)
        added = masked_values(self.alpha * advantages.abs(), planning)
        if selection is not None:
            added = torch.where(selection.tokens["undecided"] & ~planning, self.alpha * advantages, added)
            added = masked_values(added, selection.tokens["eligible"][:, None])
        counted = mask & batch.is_scored[:, None]
        count = counted.sum()
        stats = {
            "bias": Mean(masked_values(added, counted).sum(), count),
            "planning": Mean((planning & counted).sum(), count),
        }
        return Effect(replace(batch, advantages=advantages + added) if self.alpha else batch, stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report groups of one in the code form: no response is longer than its own mean."""
        if regime.group_size == 1 and self.form == "code":
            reason = "with one rollout per problem no response is longer than the mean of its group."
            return NoEffect("planning-credit", reason, "Sample at least two per problem, or use the paper's form.")
        return None


def above_quantile(values: Tensor, mask: Tensor, quantile: float) -> Tensor:
    """Return a mask of the values strictly above a quantile of the masked values (the lower order statistic)."""
    open_values = values[mask]
    if not len(open_values):
        return torch.zeros_like(mask)
    edge = torch.kthvalue(open_values, 1 + int(quantile * (len(open_values) - 1))).values
    return mask & (values > edge)
