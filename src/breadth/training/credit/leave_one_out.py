"""The leave-one-out advantage of RLOO: each reward against the mean of the others of its group."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from breadth.base.stats import Mean
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Role, Selection
from breadth.training.ops import group_count, group_mean, group_sum, masked_values
from breadth.training.records import Rollouts


@dataclass(frozen=True)
class LeaveOneOut(Mechanism[Rollouts, None]):
    """Compare each rollout with the mean of the others, so that its own reward is no part of what it is measured by.

    ``A_i = R_i - mean(R_j, j != i)`` (RLOO, 2402.14740). The baseline does not depend on the rollout, so the gradient
    is unbiased; it is ``n / (n - 1)`` times the group advantage without a standard deviation. There is nothing to set.

    Harm: none of its own; but without a scale, problems of middling difficulty push hardest and rare successes count
    for what they are. A group of one has no others, and a group of equal rewards no differences: neither gives an
    advantage.
    """

    role = Role.ESTIMATOR

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        """Set the advantages; a rollout without a reward gets none and is no part of the others' baseline."""
        among, rewards = (
            batch.is_scored,
            batch.rewards.double(),
        )  # in single precision the mean of equal rewards may be another number
        centred = masked_values(rewards - group_mean(rewards, batch.groups, among), among)
        squares, count = group_sum(centred.square(), batch.groups, among), group_count(batch.groups, among)
        flat = squares <= (1e-7 * (1 + masked_values(rewards, among).abs())).square() * count
        others = centred * count / (count - 1).clamp(min=1)
        advantages = torch.where(among & ~flat, others, torch.zeros_like(others)).to(batch.rewards.dtype)
        stats = {"flat": Mean((flat & among).sum(), among.sum()), "size": Mean(advantages.abs().sum(), among.sum())}
        return Effect(replace(batch, advantages=advantages), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Tell of groups of one, which have no others."""
        if regime.group_size == 1:
            return NoEffect(
                "leave-one-out",
                "with one rollout per problem every advantage is zero.",
                "Sample at least two per problem.",
            )
        return None
