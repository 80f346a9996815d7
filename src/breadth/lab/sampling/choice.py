"""The next token of many rows at once, each by its own rules and its own chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Choice:
    """What was chosen in each row, and from what."""

    ids: NDArray[np.int64]
    """The tokens."""
    raw: Tensor
    """Log-probs of all tokens before temperature and cuts, in double precision."""
    entropies: NDArray[np.float64]
    """Of the raw distributions, in nats."""


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each number: one round of SplitMix64 (Steele, Lea and Flood 2014)."""
    mix = numbers + GOLDEN
    mix = (mix ^ (mix >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mix = (mix ^ (mix >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mix ^ (mix >> np.uint64(31))


def uniforms(seeds: NDArray[np.uint64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a number from 0 to below 1 for each seed and place: the same whoever else is drawn, and when."""
    mix = mixed(mixed(seeds) + places.astype(np.uint64) * GOLDEN)
    return (mix >> np.uint64(11)).astype(np.float64) * 2.0**-53


def chosen(logits: Tensor, rows: NDArray[Any]) -> Choice:
    """Choose a token for each row of logits: temperature, min-p, top-k, top-p, chance; temperature 0 takes the likeliest.

    ``rows`` has the fields seed, written, temperature, top_p, top_k and min_p. A token is found by inverting the
    cumulative distribution, in the order of the vocabulary, at the row's own `uniforms`; so what is drawn depends on
    the row alone, but for the rounding of logits.
    """
    raw = logits.double().log_softmax(-1)
    likely = raw.exp()
    greedy = rows["temperature"] == 0
    chances = likely
    if not (greedy | (rows["temperature"] == 1)).all():
        chances = (raw / torch.from_numpy(np.where(greedy, 1.0, rows["temperature"]))[:, None]).softmax(-1)
    cut = np.flatnonzero(~greedy & ((rows["top_p"] < 1) | (rows["top_k"] > 0) | (rows["min_p"] > 0)))
    if len(cut):
        places = torch.from_numpy(cut)
        chances = chances.index_copy(0, places, _cut(chances[places], rows[cut]))
    ids = _inverted(chances, torch.from_numpy(uniforms(rows["seed"], rows["written"])))
    if greedy.any():
        ids = torch.where(torch.from_numpy(greedy), raw.argmax(-1), ids)
    return Choice(ids.numpy(), raw, -(likely * raw).sum(-1).numpy())


def _cut(chances: Tensor, rows: NDArray[Any]) -> Tensor:
    """Set to nothing what min-p, top-k and then top-p leave out; the rest need not add up to one."""
    ordered, places = chances.sort(dim=-1, descending=True, stable=True)
    size = ordered.shape[-1]
    last = np.where(rows["top_k"] > 0, np.minimum(rows["top_k"], size), size) - 1
    least = ordered.gather(-1, torch.from_numpy(last)[:, None])
    least = torch.maximum(least, ordered[:, :1] * torch.from_numpy(rows["min_p"].copy())[:, None])
    kept = torch.where(ordered >= least, ordered, 0.0)
    kept = kept / kept.sum(-1, keepdim=True)
    before = kept.cumsum(-1) - kept
    kept = torch.where(before < torch.from_numpy(rows["top_p"].copy())[:, None], kept, 0.0)
    return torch.zeros_like(chances).scatter(-1, places, kept)


def _inverted(chances: Tensor, heights: Tensor) -> Tensor:
    """Return where each row's cumulative sum passes a share of its total; never a token without a chance."""
    sums = chances.cumsum(-1)
    totals = sums[:, -1:]
    found = (sums <= totals * heights[:, None]).sum(-1)
    return torch.minimum(found, (sums < totals).sum(-1))
