"""The MaxRL advantage: rewards divided by the group's own success rate, towards maximum likelihood."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from breadth.base.checks import require
from breadth.base.stats import Mean
from breadth.training.credit.successes import find_successes
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Role, Selection
from breadth.training.ops import group_count, masked_values
from breadth.training.records import Rollouts


@dataclass(frozen=True)
class MaxRL(Mechanism[Rollouts, None]):
    """Learn from the average success, so that a problem solved once in eight pushes as hard as one solved every second time.

    ``A = r / p - 1`` with r = 1 for a success, 0 for a failure, and p the share of successes in the group (2602.02710).
    The mean over N rollouts of A times grad log pi has the gradient of ``-sum_{k <= N} (1 - p)^k / k`` for its
    expectation: between plain RL (N = 1) and the log-likelihood of success (N large).

    That holds only while groups without a success keep their control variate, A = -1 on all of their rollouts (r / p
    counts as 0 there); a group that is dropped instead biases the gradient: .4599 for .53193 at N = 4, p = .3. Success
    is ``correct`` where given; else the rewards must have two levels (any two).

    Harm: one success in N gets A = N - 1, and with it whatever luck or checker fault made it a success. With
    ``control``, a group without one pushes all of its rollouts down; over many draws that cancels, in one batch it is
    noise that grows with the share of such groups (the stat ``all_fail``).
    """

    role = Role.ESTIMATOR

    all_fail: Literal["control", "zero"] = "control"
    """What a group without a success gets: the control variate, or nothing.

    The paper's choice is not known to us; whoever divides by
    (mean + epsilon) gives nothing. Ours is the one whose gradient is the objective's."""

    def __post_init__(self) -> None:
        require(self, "all_fail", self.all_fail in ("control", "zero"), "'control' or 'zero'")

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        """Set the advantages; a rollout whose success is unknown gets none and is not counted."""
        won, known = find_successes(batch)
        count, wins = group_count(batch.groups, known).double(), group_count(batch.groups, won).double()
        values = won * count / wins.clamp(min=1) - 1
        if self.all_fail == "zero":
            values = torch.where(wins > 0, values, torch.zeros_like(values))
        advantages = masked_values(values, known).to(batch.rewards.dtype)
        stats = {
            "all_fail": Mean((known & (wins == 0)).sum(), known.sum()),
            "size": Mean(advantages.abs().sum(), known.sum()),
        }
        return Effect(replace(batch, advantages=advantages), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Tell of groups of one: a success gets nothing, and a failure nothing or -1."""
        if regime.group_size == 1:
            return NoEffect(
                "maxrl",
                "with one rollout per problem no success gets an advantage.",
                "Sample at least two per problem.",
            )
        return None
