"""Shared by mechanisms that select tokens in a survey: keys, masks, the covariance, and checks of the share."""

from __future__ import annotations

import torch
from torch import Tensor

from breadth.base.errors import MechanismError
from breadth.training.mechanism import NoEffect, Regime, Selection
from breadth.training.ops import TokenKeys
from breadth.training.records import Batch, not_none


def token_keys(batch: Batch) -> TokenKeys:
    """Return the random numbers by which the tokens of a batch are sampled."""
    return TokenKeys(not_none(batch.rows), batch.seed, batch.step)


def selection_mask(selection: Selection | None, name: str = "picked") -> Tensor:
    """Return a token mask of the survey, for the current micro-batch."""
    if selection is None:
        raise MechanismError(
            "A mechanism that selects tokens in the whole batch was applied without a survey.",
            "Call survey() on the whole batch first, or let an Objective do it: begin(batch), then loss(micro_batch).",
        )
    return selection.tokens[name]


def share_too_small(mechanism: str, share: float, regime: Regime) -> NoEffect | None:
    """Report a share that is less than one token of an update."""
    tokens = regime.tokens_per_update
    if share == 0 or tokens is None or share * tokens >= 1:
        return None
    reason = (
        f"a share of {share:g} of about {tokens:,.0f} tokens per update is less than one token; one is selected anyway."
    )
    return NoEffect(
        mechanism, reason, f"Put at least {1 / share:,.0f} tokens into one optimizer step, or raise the share."
    )


def covariance(batch: Batch) -> Tensor:
    """Return (B, T) ``(log p - mean) * (A - mean)`` of each token; means over the mask, undefined outside it.

    It is large where a likely token is rewarded or a rare one punished: both sharpen the policy. The product per token
    approximates the covariance over actions of 2505.22617, whose sum predicts the fall of entropy. If all tokens of a
    response share the advantage, its mean over tokens is weighted by length and not 0, although the groups' means are.

    Means are computed in float64 and used in float32, so the order of the sequences does not decide a comparison. The
    batch must be clean.
    """
    tokens = batch.mask.count_nonzero().clamp(min=1)
    logprobs, advantages = batch.logprobs.detach(), batch.advantages
    mean_logprob, mean_advantage = (values.sum(dtype=torch.float64) / tokens for values in (logprobs, advantages))
    spread = logprobs.float() - mean_logprob.float()
    return spread.mul_(advantages.float() - mean_advantage.float())


def no_covariance(mechanism: str, regime: Regime) -> NoEffect | None:
    """Report one response per update: its tokens share one advantage, so every covariance is zero."""
    if regime.sequences_per_update != 1:
        return None
    reason = "with one response per update all tokens have the same advantage, so every covariance is zero."
    return NoEffect(
        mechanism,
        reason,
        "Put at least two responses of different reward into one optimizer step (gradient accumulation counts).",
    )
