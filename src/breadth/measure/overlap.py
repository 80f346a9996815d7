"""Why more thinking helps and then hurts: a spread of answers sweeping over the spread of rewards."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.measure.finite import FloatArray, numbers


def expected_reward(gap: float, reward_spread: float, policy_spread: npt.ArrayLike) -> FloatArray:
    """Mean reward of answers spread normally around a point that lies ``gap`` from the centre of a normal-shaped reward.

    exp(-d^2 / 2V) / sqrt(2 pi V) with V = reward_spread^2 + policy_spread^2 (Ghosal et al., arXiv 2506.04210). Spread first
    reaches the reward (coverage), then thins out (dilution): a rise and fall that says nothing about better reasoning.
    A picture of one scalar answer, not a law to fit blindly.
    """
    spreads = numbers(policy_spread, "policy_spread")
    if not (math.isfinite(gap) and math.isfinite(reward_spread) and np.all(np.isfinite(spreads))):
        raise MeasureError("Gap and spreads must be finite numbers.", "Drop NaN and infinite values first.")
    if reward_spread < 0 or np.any(spreads < 0) or np.any(reward_spread + spreads == 0):
        raise MeasureError("Spreads must not be negative, nor both be 0.", "Give standard deviations, at least one of them positive.")
    variance = reward_spread**2 + spreads**2
    return np.asarray(np.exp(-(gap**2) / (2 * variance)) / np.sqrt(2 * math.pi * variance))


def best_policy_spread(gap: float, reward_spread: float) -> float:
    """Find the spread of answers with the largest mean reward: sqrt(gap^2 - reward_spread^2), or 0 when the gap is no larger.

    At 0 any added variance can only hurt.
    """
    if not (math.isfinite(gap) and math.isfinite(reward_spread)) or reward_spread < 0:
        raise MeasureError(f"Gap {gap} and reward spread {reward_spread}.", "Give finite numbers, the spread not negative.")
    return math.sqrt(max(0.0, gap**2 - reward_spread**2))
