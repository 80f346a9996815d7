"""How much each token's update will cost in entropy: the covariance that Clip-Cov and KL-Cov rank tokens by."""

from __future__ import annotations

import torch
from torch import Tensor

from breadth.training.records import Batch
from breadth.training.regime import Inert, Regime


def covariance(batch: Batch) -> Tensor:
    """Return (B, T) ``(log p - mean) * (A - mean)`` of each token of a cleaned batch, the means over its mask; meaningless outside it.

    Large where a likely token is rewarded or a rare one punished: both sharpen the policy. It is a product per token that stands for the
    covariance over actions of 2505.22617, whose sum predicts the fall of entropy. Where the advantage is the same all over a response,
    its mean over tokens is weighted by length and not 0 even though the groups' are.

    The means are taken in float64 and used in float32, so that the order of the sequences does not decide a comparison.
    """
    tokens = batch.mask.count_nonzero().clamp(min=1)
    logprobs, advantages = batch.logprobs.detach(), batch.advantages
    mean_logprob, mean_advantage = (values.sum(dtype=torch.float64) / tokens for values in (logprobs, advantages))
    spread = logprobs.float() - mean_logprob.float()
    return spread.mul_(advantages.float() - mean_advantage.float())


def without_spread(mechanism: str, regime: Regime) -> Inert | None:
    """Say so when one response is all that an update sees: its tokens share one advantage, so no token covaries."""
    if regime.sequences_per_update != 1:
        return None
    reason = "with one response per update all tokens have the same advantage, so every covariance is zero."
    return Inert(
        mechanism, reason, "Put at least two responses of different reward into one optimizer step (gradient accumulation counts)."
    )
