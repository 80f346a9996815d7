"""The group advantage of GRPO: each reward against the mean of its group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from breadth.base.checks import require
from breadth.base.stats import Mean
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Role, Selection
from breadth.training.ops import group_count, group_mean, group_sum, masked_values
from breadth.training.records import Rollouts


@dataclass(frozen=True)
class GroupAdvantage(Mechanism[Rollouts, None]):
    """Compare each rollout with the others of its problem.

    ``A = (R - mean_g) / (std_g + epsilon)`` (GRPO, 2402.03300), or without the division (Dr. GRPO, 2503.20783). The
    sample standard deviation (n - 1) is what TRL and verl compute, the population one (n) what several papers write;
    they differ by sqrt((n-1)/n).

    Harm: dividing by a small deviation amplifies rare successes (one in eight: A = 2.47, 2.65 by the population) and
    with them noise on overly hard problems. A group whose rewards are all equal, or with one rollout, gives no
    advantage at all.
    """

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
        among, rewards = (
            batch.is_scored,
            batch.rewards.double(),
        )  # in single precision the mean of equal rewards may be another number
        centred = masked_values(rewards - group_mean(rewards, batch.groups, among), among)
        squares, count = group_sum(centred.square(), batch.groups, among), group_count(batch.groups, among)
        flat = squares <= (1e-7 * (1 + masked_values(rewards, among).abs())).square() * count
        deviation = (squares / (count - float(self.scale == "sample")).clamp(min=1)).sqrt()
        scaled = centred if self.scale == "none" else centred / (deviation + self.epsilon)
        advantages = torch.where(among & ~flat & (count > 1), scaled, torch.zeros_like(scaled)).to(batch.rewards.dtype)
        stats = {
            "flat": Mean((flat & among).sum(), among.sum()),
            "size": Mean(masked_values(advantages.abs(), among).sum(), among.sum()),
        }
        return Effect(replace(batch, advantages=advantages), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Say that a group of one has nothing to be compared with."""
        if regime.group_size == 1:
            return NoEffect(
                "group-advantage",
                "with one rollout per problem every advantage is zero.",
                "Sample at least two per problem.",
            )
        return None
