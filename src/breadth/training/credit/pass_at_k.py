"""The pass@k advantage: rewards a group for solving its problem at least once in k attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.mechanism import CLIP_HIGHER, Effect, Mechanism, NoEffect, RecipeTable, Regime, Role, Selection
from breadth.training.ops import group_count
from breadth.training.records import Rollouts, find_successes


@dataclass(frozen=True)
class PassAtK(Mechanism[Rollouts, None]):
    """Train for one success in k attempts instead of one, so that the policy can keep several approaches.

    With n rollouts, f of them failures, ``miss = C(f, k) / C(n, k)`` and ``rho = 1 - miss`` (Pass@k Training,
    2508.10751)::

        normalised  success: miss / (sqrt(rho * miss) + epsilon)       failure: (miss - C(f-1, k-1) / C(n-1, k-1)) /
        (same) unbiased    k * (value - baseline); value: 1 for a success, 1 - C(f-1, k-1) / C(n-1, k-1) for a failure

    The mean over the group of the unbiased form times grad log pi has the gradient of pass@k for its expectation (PKPO,
    2505.15201; ours is n times its weight, because the loss averages over rollouts). Its baseline is the expected score
    of k - 1 of the others (one, if k = 1). It does not depend on the rollout, so it adds no bias. For k > 1 it lowers
    the variance in every case the tests enumerate, and failures get exactly 0. With k = 1 the normalised form is GRPO
    with the population deviation, the unbiased one leave-one-out.

    Success is ``correct`` if given; else rewards must have two levels (any two). A group with fewer than k scored
    rollouts gets no advantage. In the normalised form a group with fewer than k failures gets none either: solved
    problems stop contributing.

    Harm: pass@1 can fall, as problems interfere (2602.21189), and the signal vanishes as the policy solves more.
    (verl's ``grpo_passk`` is another method, 2503.19595.)
    """

    paper = Paper(
        "arXiv 2508.10751, 2505.15201",
        "pass@k training, PKPO",
        "both forms, any two reward levels; a leave-one-out baseline for the unbiased one",
    )
    recipes: ClassVar[Mapping[str, RecipeTable]] = {
        "passk": RecipeTable(
            ({"kind": "pass-at-k"}, CLIP_HIGHER),
            "2508.10751",
            "The paper continues with pass@1 training; the clip is DAPO's, we do not know the paper's.",
        ),
    }

    role = Role.ESTIMATOR

    k: int = 4
    """Attempts. An argument in the paper's code, without a recommended value; 4 is half of the usual group of 8."""
    form: Literal["normalised", "unbiased"] = "normalised"
    """Form of the advantage; the paper uses the normalised one."""
    epsilon: float = 1e-6
    """Added to the deviation of the normalised form; 1e-6 in the paper's code."""
    baseline: bool = True
    """Whether the unbiased form subtracts its leave-one-out baseline. Ours; without it all-correct groups push with the
    full k.
    """

    def __post_init__(self) -> None:
        require(self, "form", self.form in ("normalised", "unbiased"), "'normalised' or 'unbiased'")
        require(self, "k", self.k >= 1, "1 or more")
        require(self, "epsilon", self.epsilon > 0, "a number above 0")

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        """Set the advantages; a rollout whose success is unknown gets none and is not counted."""
        won, known = find_successes(batch)
        count = group_count(batch.groups, known).double()
        fails = group_count(batch.groups, known & ~won).double()
        miss = all_fail_probability(fails, count, torch.full_like(count, self.k))
        values = (
            self._advantage_normalised(won, fails, count, miss)
            if self.form == "normalised"
            else self._advantage_unbiased(won, fails, count)
        )
        advantages = torch.where(known & (count >= self.min_group_size()), values, torch.zeros_like(values)).to(
            batch.rewards.dtype
        )
        enough, groups = known & (count >= self.k), count.clamp(min=1).reciprocal()
        stats = {
            "pass_at_k": Mean((enough * groups * (1 - miss)).sum(), (enough * groups).sum()),
            "silent": Mean((known & (advantages == 0)).sum(), known.sum()),
        }
        return Effect(replace(batch, advantages=advantages), stats=stats)

    def _advantage_normalised(self, won: Tensor, fails: Tensor, count: Tensor, miss: Tensor) -> Tensor:
        # C(f-1, k-1) / C(n-1, k-1) = miss * n / f, so a failure gets -(n - f) / f of what a success gets.
        success = miss / ((miss * (1 - miss)).sqrt() + self.epsilon)
        return torch.where(won, success, -success * (count - fails) / fails.clamp(min=1)) * (fails < count)

    def _advantage_unbiased(self, won: Tensor, fails: Tensor, count: Tensor) -> Tensor:
        others, failed = count - 1, fails - (~won).double()
        value = 1 - (~won) * all_fail_probability(failed, others, torch.full_like(count, self.k - 1))
        tries = torch.full_like(count, max(self.k - 1, 1)).minimum(others)
        return self.k * (value - float(self.baseline) * (1 - all_fail_probability(failed, others, tries)))

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report groups too small for k; with exactly k rollouts the normalised form is always zero."""
        smallest = self.min_group_size()
        if regime.group_size is not None and regime.group_size < smallest:
            reason = f"k = {self.k} with {regime.group_size} rollouts per problem makes every advantage zero."
            return NoEffect(
                "pass-at-k", reason, f"Sample at least {smallest} per problem, twice k for a good estimate, or lower k."
            )
        return None

    def min_group_size(self) -> int:
        """Return how many rollouts a group needs to get any advantage."""
        return self.k + 1 if self.form == "normalised" else max(self.k, 1 + self.baseline)


def all_fail_probability(fails: Tensor, total: Tensor, tries: Tensor) -> Tensor:
    """Return C(fails, tries) / C(total, tries): the probability that ``tries`` of ``total`` rollouts all fail."""
    probability = torch.ones_like(total)
    for drawn in range(int(tries.max()) if len(tries) else 0):
        factor = (fails - drawn).clamp(min=0) / (total - drawn).clamp(min=1)
        probability = torch.where(tries > drawn, probability * factor, probability)
    return probability
