"""Log-probabilities, entropies and divergences from logits: in float32, piece by piece, with gradient and without a second copy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from breadth.base.errors import MechanismError
from breadth.training.ops import promote_half

LOGITS_PER_CHUNK = 1 << 22
"""Logits worked on at a time when no chunk is given: 16 MB a temporary, 27 positions of a vocabulary of 152,000 (TRL takes 128).

Four times the size is a quarter to a half slower on one CPU core, where it falls out of the cache; not measured on a
GPU.
"""


def entropy_and_logprobs(
    logits: Tensor, tokens: Tensor, temperature: float = 1.0, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return (logprobs, entropy), each (...), of the sampled tokens (...) under the logits (..., vocabulary), in nats.

    With z = logits / temperature and p = softmax(z): ``log p[token]`` and ``H = -sum p log p``; the gradient of H is
    ``-p * (log p + H)`` by z. Half-precision logits are widened before anything is computed: the unchunked entropy in
    bfloat16 is off by tenths of a nat. ``chunk`` positions are widened at a time, and again in the backward pass, so
    that nothing of the logits' size is made but their gradient, in their own type. The logits may be a slice of a
    larger tensor.

    A logit of -inf (a masked vocabulary) has no probability and no gradient. A token outside the vocabulary, such as a
    label of -100, gets NaN. Positions without an upstream gradient get a gradient of zero, whatever their logits hold.
    """
    _check(logits, tokens.shape, temperature, chunk)
    flat, shape = _flatten(logits), tokens.shape
    logprobs, entropy = _EntropyAndLogprobs.apply(flat, tokens.reshape(flat.shape[:-1]), temperature, chunk)
    return logprobs.reshape(shape), entropy.reshape(shape)


def kl_divergence(old_logits: Tensor, logits: Tensor, temperature: float = 1.0, chunk: int | None = None) -> Tensor:
    """Return (...) the KL divergence of each position's old distribution from the current one, ``sum p_old * (log p_old - log p)``.

    Its gradient reaches the current logits only, and is ``p - p_old`` by logits / temperature. Memory, precision and
    -inf are as in :func:`entropy_and_logprobs`; the divergence is infinite where the current policy forbids what the
    old one allowed.
    """
    _check(logits, old_logits.shape[:-1], temperature, chunk)
    if old_logits.shape[-1] != logits.shape[-1]:
        raise MechanismError(
            f"The old logits have a vocabulary of {old_logits.shape[-1]}, the current ones of {logits.shape[-1]}.",
            "Take both from models with the same vocabulary.",
        )
    # Both must be flattened alike; one that cannot without a copy keeps the other in its rows too.
    together = old_logits.is_contiguous() and logits.is_contiguous()
    old, now = (_flatten(old_logits), _flatten(logits)) if together else (_as_2d(old_logits), _as_2d(logits))
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
        for piece in _chunks(logits, chunk):
            every = _log_softmax(logits[piece], temperature)
            logprobs[piece] = every.gather(-1, places[piece][..., None])[..., 0]
            entropy[piece] = every.exp().mul_(_clamp_finite(every)).sum(-1).neg_()
        ctx.save_for_backward(logits, places, entropy)
        ctx.temperature, ctx.chunk = temperature, chunk
        return logprobs.masked_fill_(~known, float("nan")), entropy

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch is untyped here
    def backward(ctx: Any, by_logprob: Tensor, by_entropy: Tensor) -> tuple[Tensor, None, None, None]:
        logits, places, entropy = ctx.saved_tensors
        gradient = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
        for piece in _chunks(logits, ctx.chunk):
            every, token = _log_softmax(logits[piece], ctx.temperature), places[piece][..., None]
            moved, spread = by_logprob[piece][..., None], by_entropy[piece][..., None]
            picked = moved.masked_fill(every.gather(-1, token) == -torch.inf, 0.0)
            chance = every.exp()
            part = (
                _clamp_finite(every)
                .add_(entropy[piece][..., None])
                .mul_(-spread)
                .sub_(moved)
                .mul_(chance)
                .scatter_add_(-1, token, picked)
            )
            gradient[piece] = part.masked_fill_((moved == 0) & (spread == 0), 0.0).div_(ctx.temperature)
        return gradient, None, None, None


class _Divergence(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
    @staticmethod
    def forward(ctx: Any, old: Tensor, logits: Tensor, temperature: float, chunk: int | None) -> Tensor:
        result = torch.empty(logits.shape[:-1], dtype=_wide_dtype(logits), device=logits.device)
        for piece in _chunks(logits, chunk):
            then, now = _log_softmax(old[piece], temperature), _log_softmax(logits[piece], temperature)
            possible = then.exp()
            result[piece] = torch.where(possible == 0, torch.zeros_like(now), possible * (then - now)).sum(-1)
        ctx.save_for_backward(old, logits)
        ctx.temperature, ctx.chunk = temperature, chunk
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]  # torch is untyped here
    def backward(ctx: Any, by_divergence: Tensor) -> tuple[None, Tensor, None, None]:
        old, logits = ctx.saved_tensors
        gradient = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
        for piece in _chunks(logits, ctx.chunk):
            now = _log_softmax(logits[piece], ctx.temperature)
            part = (
                now.exp().sub_(_log_softmax(old[piece], ctx.temperature).exp_()).mul_(by_divergence[piece][..., None])
            )
            silent = (by_divergence[piece][..., None] == 0) | (now == -torch.inf)
            gradient[piece] = part.masked_fill_(silent, 0.0).div_(ctx.temperature)
        return None, gradient, None, None


def _check(logits: Tensor, positions: Any, temperature: float, chunk: int | None) -> None:
    if logits.ndim < 1 or logits.shape[-1] < 1 or not logits.is_floating_point() or logits.shape[:-1] != positions:
        raise MechanismError(
            f"Logits of shape {tuple(logits.shape)} and type {logits.dtype} came for positions of shape"
            f" {tuple(positions)}.",
            "Pass floating-point logits of the positions' shape with the vocabulary as one more dimension.",
        )
    if not temperature > 0:
        raise MechanismError(
            f"The temperature is {temperature}; it must be above 0.", "Pass the temperature the tokens were sampled at."
        )
    if chunk is not None and chunk < 1:
        raise MechanismError(
            f"The chunk is {chunk} positions; it must be 1 or more.",
            "Leave it out, or pass how many positions to widen at a time.",
        )


def _flatten(logits: Tensor) -> Tensor:
    """Return (positions, vocabulary) where that takes no copy, else the logits in their own rows."""
    return logits.reshape(-1, logits.shape[-1]) if logits.is_contiguous() else _as_2d(logits)


def _as_2d(logits: Tensor) -> Tensor:
    return logits[None] if logits.ndim == 1 else logits


def _chunks(logits: Tensor, chunk: int | None) -> Iterator[tuple[Any, ...]]:
    """Yield the index of one piece after another: some positions of one row."""
    *rows, width, vocabulary = logits.shape
    size = chunk if chunk is not None else max(1, LOGITS_PER_CHUNK // vocabulary)
    for row in product(*map(range, rows)):
        for start in range(0, width, size):
            yield (*row, slice(start, start + size))


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    wide = promote_half(logits)
    return torch.log_softmax(wide if temperature == 1 else wide / temperature, -1)


def _clamp_finite(logprobs: Tensor) -> Tensor:
    """Make log-probabilities finite in place, so that 0 * log 0 is 0; exp(-1e4) is zero in every type, so nothing else changes."""
    return logprobs.clamp_(min=-1e4)


def _wide_dtype(logits: Tensor) -> torch.dtype:
    return torch.promote_types(logits.dtype, torch.float32)
