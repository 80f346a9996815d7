"""The MaxRL advantage: rewards divided by the group's success rate, towards maximum likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.mechanism import UNCLIPPED, Effect, Mechanism, NoEffect, RecipeTable, Regime, Role, Selection
from breadth.training.ops import group_count, masked_values
from breadth.training.records import Rollouts, find_successes


@dataclass(frozen=True)
class MaxRL(Mechanism[Rollouts, None]):
    """Divide by the success rate, so that rarely solved problems count as much as often solved ones.

    ``A = r / p - 1`` with r = 1 for a success, 0 for a failure, and p the share of successes in the group (2602.02710).
    The mean over N rollouts of A times grad log pi has the gradient of ``-sum_{k <= N} (1 - p)^k / k`` for its
    expectation: between plain RL (N = 1) and the log-likelihood of success (N large).

    That holds only if groups without a success keep their control variate, A = -1 on all of their rollouts (r / p
    counts as 0 there). Dropping such a group biases the gradient: .4599 for .53193 at N = 4, p = .3. Success is
    ``correct`` if given; else the rewards must have two levels (any two).

    Harm: one success in N gets A = N - 1, even if it was luck or a checker error. With ``control``, a group without a
    success lowers all of its rollouts. That cancels over many samples, but in one batch it is noise that grows with the
    share of such groups (the stat ``all_fail``).
    """

    paper = Paper(
        "arXiv 2602.02710",
        "MaxRL",
        "groups without a success keep their control variate, without which the gradient is biased",
    )
    recipes: ClassVar[Mapping[str, RecipeTable]] = {
        "maxrl": RecipeTable(
            ({"kind": "maxrl"}, UNCLIPPED),
            "2602.02710",
            "Sums over the tokens of each response, which the objective's gradient requires; unbiased on strictly"
            " on-policy updates.",
            reduction="fixed-length",
        ),
    }

    role = Role.ESTIMATOR

    all_fail: Literal["control", "zero"] = "control"
    """What a group without a success gets: the control variate, or nothing.

    We do not know the paper's choice; code that divides by (mean + epsilon) gives nothing. Only the control variate
    gives the objective's gradient.
    """

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
        """Report groups of one: a success gets nothing, and a failure nothing or -1."""
        if regime.group_size == 1:
            return NoEffect(
                "maxrl",
                "with one rollout per problem no success gets an advantage.",
                "Sample at least two per problem.",
            )
        return None
