"""The group advantage of GRPO: each reward relative to the mean of its group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.mechanism import Effect, Mechanism, NoEffect, RecipeTable, Regime, Role, Selection
from breadth.training.ops import group_count, group_mean, group_sum, masked_values
from breadth.training.records import Rollouts


@dataclass(frozen=True)
class GroupAdvantage(Mechanism[Rollouts, None]):
    """Compare each rollout with its group.

    ``A = (R - mean_g) / (std_g + epsilon)`` (GRPO, 2402.03300), or without the division (Dr. GRPO, 2503.20783). The
    sample standard deviation (n - 1) is what TRL and verl compute, the population one (n) is in several papers; they
    differ by sqrt((n-1)/n).

    Harm: dividing by a small deviation amplifies rare successes (one in eight: A = 2.47, 2.65 by the population) and
    with them noise on overly hard problems. A group with equal rewards, or with one rollout, gives no advantage.
    """

    paper = Paper(
        "arXiv 2402.03300, 2503.20783",
        "GRPO and Dr. GRPO",
        "sample or population deviation by name; denominators of the whole optimizer batch",
    )
    recipes: ClassVar[Mapping[str, RecipeTable]] = {
        "grpo": RecipeTable(
            ({"kind": "group-advantage"}, {"kind": "clipped-policy"}),
            "2402.03300",
            "The paper adds ReferenceKL(coefficient=0.04, estimator='k3'), which most recent work leaves out.",
            reduction="sequence-mean",
        ),
        "dr_grpo": RecipeTable(
            ({"kind": "group-advantage", "scale": "none"}, {"kind": "clipped-policy"}),
            "2503.20783",
            "The length is the trainer's maximum response length.",
            reduction="fixed-length",
        ),
    }

    role = Role.ESTIMATOR

    scale: Literal["sample", "population", "none"] = "sample"
    """Which standard deviation to divide by."""
    epsilon: float = 1e-6
    """Added to the deviation; 1e-6 in verl and the papers, 1e-4 in TRL."""

    def __post_init__(self) -> None:
        require(self, "scale", self.scale in ("sample", "population", "none"), "'sample', 'population' or 'none'")
        require(self, "epsilon", self.epsilon >= 0, "a number of 0 or more")

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        """Set the advantages; a rollout without a reward gets none."""
        scored = batch.is_scored
        rewards = batch.rewards.double()  # in single precision the mean of equal rewards may be another number
        centred = masked_values(rewards - group_mean(rewards, batch.groups, scored), scored)
        squares, count = group_sum(centred.square(), batch.groups, scored), group_count(batch.groups, scored)
        flat = squares <= (1e-7 * (1 + masked_values(rewards, scored).abs())).square() * count
        deviation = (squares / (count - float(self.scale == "sample")).clamp(min=1)).sqrt()
        scaled = centred if self.scale == "none" else centred / (deviation + self.epsilon)
        advantages = torch.where(scored & ~flat & (count > 1), scaled, torch.zeros_like(scaled)).to(batch.rewards.dtype)
        stats = {
            "flat": Mean((flat & scored).sum(), scored.sum()),
            "size": Mean(masked_values(advantages.abs(), scored).sum(), scored.sum()),
        }
        return Effect(replace(batch, advantages=advantages), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report groups of one, whose advantages are zero."""
        if regime.group_size == 1:
            return NoEffect(
                "group-advantage",
                "with one rollout per problem every advantage is zero.",
                "Sample at least two per problem.",
            )
        return None
