"""Which rollouts succeeded: shared by the mechanisms that count successes."""

from __future__ import annotations

import torch
from torch import Tensor

from breadth.base.errors import MechanismError
from breadth.training.ops import masked_values
from breadth.training.records import Rollouts

REWARD_TOLERANCE = 1e-6
"""Relative difference below which two rewards are one level: sums of token rewards differ in the last digits."""


def find_successes(rollouts: Rollouts) -> tuple[Tensor, Tensor]:
    """Return (N,) which rollouts succeeded, and (N,) for which that is known; dropped and unscored ones are unknown.

    Success is ``correct`` if given. Otherwise the rewards must have two levels over the whole generation (0 and 1, -1
    and 1, any two): the higher is success. If all rewards are equal, success is a reward above 0.
    """
    if rollouts.correct is not None:
        known = rollouts.is_scored & torch.isfinite(rollouts.correct)
        marks = masked_values(rollouts.correct, known)
        if not bool(((marks == 0) | (marks == 1)).all()):
            raise MechanismError(
                "correct contains numbers other than 0 and 1.",
                "Give 1 for a correct answer, 0 for a wrong one, NaN if unknown.",
            )
        return known & (marks == 1), known
    known = rollouts.is_scored
    return known & _upper_level(masked_values(rollouts.rewards, known), rollouts.rewards[known]), known


def _upper_level(rewards: Tensor, known: Tensor) -> Tensor:
    """Return which rewards are at the upper of the two levels of the known ones."""
    if not len(known):
        return torch.zeros_like(rewards, dtype=torch.bool)
    low, high = known.min(), known.max()
    slack = REWARD_TOLERANCE * (1 + torch.maximum(low.abs(), high.abs()))
    if bool(high - low <= slack):
        return rewards > 0
    if bool(((known - low > slack) & (high - known > slack)).any()):
        raise MechanismError(
            f"The rewards have more than two levels (from {float(low):g} to {float(high):g}), so success is undefined.",
            "Set the rollouts' correct field: 1 or 0, without any shaping.",
        )
    return high - rewards <= slack
