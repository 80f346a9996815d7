"""The leave-one-out advantage of RLOO: each reward relative to the mean of the rest of its group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from breadth.base.catalogue import Paper
from breadth.base.stats import Mean
from breadth.training.mechanism import UNCLIPPED, Effect, Mechanism, NoEffect, RecipeTable, Regime, Role, Selection
from breadth.training.ops import group_count, group_mean, group_sum, masked_values
from breadth.training.records import Rollouts


@dataclass(frozen=True)
class LeaveOneOut(Mechanism[Rollouts, None]):
    """Compare each rollout with the mean of the others, so that its own reward is not in its baseline.

    ``A_i = R_i - mean(R_j, j != i)`` (RLOO, 2402.14740). The baseline does not depend on the rollout, so the gradient
    is unbiased. It is ``n / (n - 1)`` times the group advantage without a standard deviation. It has no settings.

    Harm: none of its own. But without a scale, problems of medium difficulty get the largest advantages, and rare
    successes are not amplified. A group of one, or with equal rewards, gives no advantage.
    """

    paper = Paper("arXiv 2402.14740", "RLOO")
    recipes: ClassVar[Mapping[str, RecipeTable]] = {
        "rloo": RecipeTable(
            ({"kind": "leave-one-out"}, UNCLIPPED),
            "2402.14740",
            "Sums over the tokens of each response. Strictly on-policy and in full precision it was the strongest row"
            " of 2603.11682.",
            reduction="fixed-length",
        ),
    }

    role = Role.ESTIMATOR

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        """Set the advantages; a rollout without a reward gets none and enters no baseline."""
        scored = batch.is_scored
        rewards = batch.rewards.double()  # in single precision the mean of equal rewards may be another number
        centred = masked_values(rewards - group_mean(rewards, batch.groups, scored), scored)
        squares, count = group_sum(centred.square(), batch.groups, scored), group_count(batch.groups, scored)
        flat = squares <= (1e-7 * (1 + masked_values(rewards, scored).abs())).square() * count
        others = centred * count / (count - 1).clamp(min=1)
        advantages = torch.where(scored & ~flat, others, torch.zeros_like(others)).to(batch.rewards.dtype)
        stats = {"flat": Mean((flat & scored).sum(), scored.sum()), "size": Mean(advantages.abs().sum(), scored.sum())}
        return Effect(replace(batch, advantages=advantages), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report groups of one, whose advantages are zero."""
        if regime.group_size == 1:
            return NoEffect(
                "leave-one-out",
                "with one rollout per problem every advantage is zero.",
                "Sample at least two per problem.",
            )
        return None
