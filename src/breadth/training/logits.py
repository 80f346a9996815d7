"""Log-probabilities, entropies and KL divergences from logits: chunked, in float32, with gradient, without a copy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from breadth.base.errors import MechanismError
from breadth.training.ops import promote_half

LOGITS_PER_CHUNK = 1 << 22
"""Logits processed at a time if no chunk is given: 16 MB per temporary, 27 positions of 152,000 logits (TRL: 128).

Four times the size is a quarter to a half slower on one CPU core, because it no longer fits the cache; not measured on
a GPU.
"""


def entropy_and_logprobs(
    logits: Tensor, tokens: Tensor, temperature: float = 1.0, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return (logprobs, entropy), each (...), of the sampled tokens (...) under the logits (..., vocabulary), in nats.

    With z = logits / temperature and p = softmax(z): ``log p[token]`` and ``H = -sum p log p``; the gradient of H is
    ``-p * (log p + H)`` by z. Half-precision logits are converted to float32 first: the entropy in bfloat16 is off
    by tenths of a nat. ``chunk`` positions are converted at a time, and again in the backward pass. So the only
    allocation of the logits' size is their gradient, in their own type. The logits may be a slice of a larger tensor.

    A logit of -inf (a masked vocabulary) has no probability and no gradient. A token outside the vocabulary, such as a
    label of -100, gets NaN. Positions without an upstream gradient get a gradient of zero, whatever their logits hold.
    """
    _check(logits, tokens.shape, temperature, chunk)
    flat, shape = _flatten(logits), tokens.shape
    logprobs, entropy = _EntropyAndLogprobs.apply(flat, tokens.reshape(flat.shape[:-1]), temperature, chunk)
    return logprobs.reshape(shape), entropy.reshape(shape)


def kl_divergence(old_logits: Tensor, logits: Tensor, temperature: float = 1.0, chunk: int | None = None) -> Tensor:
    """Return (...) KL(old || current) of each position, ``sum p_old * (log p_old - log p)``.

    Only the current logits get a gradient: ``p - p_old`` by logits / temperature. Memory, precision and -inf are as in
    :func:`entropy_and_logprobs`. The divergence is infinite where the current policy forbids a token that the old one
    allowed.
    """
    _check(logits, old_logits.shape[:-1], temperature, chunk)
    if old_logits.shape[-1] != logits.shape[-1]:
        raise MechanismError(
            f"The old logits have a vocabulary of {old_logits.shape[-1]}, the current ones of {logits.shape[-1]}.",
            "Take both from models with the same vocabulary.",
        )
    # Both need the same shape: if one cannot be flattened without a copy, neither is.
    contiguous = old_logits.is_contiguous() and logits.is_contiguous()
    old, now = (_flatten(old_logits), _flatten(logits)) if contiguous else (_as_2d(old_logits), _as_2d(logits))
    return _Divergence.apply(old.detach(), now, temperature, chunk).reshape(logits.shape[:-1])


class _EntropyAndLogprobs(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, tokens: Tensor, temperature: float, chunk: int | None
    ) -> tuple[Tensor, Tensor]:
        known = (tokens >= 0) & (tokens < logits.shape[-1])
        places = torch.where(known, tokens, torch.zeros_like(tokens)).to(torch.int64)
        logprobs = torch.empty(tokens.shape, dtype=_wide_dtype(logits), device=logits.device)
        entropy = torch.empty_like(logprobs)
        for chunk_index in _chunks(logits, chunk):
            every = _log_softmax(logits[chunk_index], temperature)
            logprobs[chunk_index] = every.gather(-1, places[chunk_index][..., None])[..., 0]
            entropy[chunk_index] = every.exp().mul_(_clamp_finite(every)).sum(-1).neg_()
        ctx.save_for_backward(logits, places, entropy)
        ctx.temperature, ctx.chunk = temperature, chunk
        return logprobs.masked_fill_(~known, float("nan")), entropy

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch is untyped here
    def backward(ctx: Any, by_logprob: Tensor, by_entropy: Tensor) -> tuple[Tensor, None, None, None]:
        logits, places, entropy = ctx.saved_tensors
        gradient = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
        for chunk_index in _chunks(logits, ctx.chunk):
            every, token = _log_softmax(logits[chunk_index], ctx.temperature), places[chunk_index][..., None]
            moved, spread = by_logprob[chunk_index][..., None], by_entropy[chunk_index][..., None]
            picked = moved.masked_fill(every.gather(-1, token) == -torch.inf, 0.0)
            chance = every.exp()
            part = (
                _clamp_finite(every)
                .add_(entropy[chunk_index][..., None])
                .mul_(-spread)
                .sub_(moved)
                .mul_(chance)
                .scatter_add_(-1, token, picked)
            )
            gradient[chunk_index] = part.masked_fill_((moved == 0) & (spread == 0), 0.0).div_(ctx.temperature)
        return gradient, None, None, None


class _Divergence(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    @staticmethod
    def forward(ctx: Any, old: Tensor, logits: Tensor, temperature: float, chunk: int | None) -> Tensor:
        result = torch.empty(logits.shape[:-1], dtype=_wide_dtype(logits), device=logits.device)
        for chunk_index in _chunks(logits, chunk):
            then, now = _log_softmax(old[chunk_index], temperature), _log_softmax(logits[chunk_index], temperature)
            old_probability = then.exp()
            terms = torch.where(old_probability == 0, torch.zeros_like(now), old_probability * (then - now))
            result[chunk_index] = terms.sum(-1)
        ctx.save_for_backward(old, logits)
        ctx.temperature, ctx.chunk = temperature, chunk
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch is untyped here
    def backward(ctx: Any, by_divergence: Tensor) -> tuple[None, Tensor, None, None]:
        old, logits = ctx.saved_tensors
        gradient = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
        for chunk_index in _chunks(logits, ctx.chunk):
            now = _log_softmax(logits[chunk_index], ctx.temperature)
            part = (
                now.exp()
                .sub_(_log_softmax(old[chunk_index], ctx.temperature).exp_())
                .mul_(by_divergence[chunk_index][..., None])
            )
            silent = (by_divergence[chunk_index][..., None] == 0) | (now == -torch.inf)
            gradient[chunk_index] = part.masked_fill_(silent, 0.0).div_(ctx.temperature)
        return None, gradient, None, None


def _check(logits: Tensor, positions: Any, temperature: float, chunk: int | None) -> None:
    if logits.ndim < 1 or logits.shape[-1] < 1 or not logits.is_floating_point() or logits.shape[:-1] != positions:
        raise MechanismError(
            f"Got logits of shape {tuple(logits.shape)} and type {logits.dtype} for positions of shape"
            f" {tuple(positions)}.",
            "Pass floating-point logits: the positions' shape plus the vocabulary as last dimension.",
        )
    if not temperature > 0:
        raise MechanismError(
            f"The temperature is {temperature}; it must be above 0.", "Pass the temperature the tokens were sampled at."
        )
    if chunk is not None and chunk < 1:
        raise MechanismError(
            f"The chunk is {chunk} positions; it must be 1 or more.",
            "Leave it out, or pass the number of positions per chunk.",
        )


def _flatten(logits: Tensor) -> Tensor:
    """Return (positions, vocabulary) if that needs no copy, else the logits with their own rows."""
    return logits.reshape(-1, logits.shape[-1]) if logits.is_contiguous() else _as_2d(logits)


def _as_2d(logits: Tensor) -> Tensor:
    return logits[None] if logits.ndim == 1 else logits


def _chunks(logits: Tensor, chunk: int | None) -> Iterator[tuple[Any, ...]]:
    """Yield the index of each chunk: some positions of one row."""
    *rows, width, vocabulary = logits.shape
    size = chunk if chunk is not None else max(1, LOGITS_PER_CHUNK // vocabulary)
    for row in product(*map(range, rows)):
        for start in range(0, width, size):
            yield (*row, slice(start, start + size))


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    wide = promote_half(logits)
    return torch.log_softmax(wide if temperature == 1 else wide / temperature, -1)


def _clamp_finite(logprobs: Tensor) -> Tensor:
    """Clamp log-probabilities in place so that 0 * log 0 is 0; exp(-1e4) is 0 in every type."""
    return logprobs.clamp_(min=-1e4)


def _wide_dtype(logits: Tensor) -> torch.dtype:
    return torch.promote_types(logits.dtype, torch.float32)
