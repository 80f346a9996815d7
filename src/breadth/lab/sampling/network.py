"""The reasoner's forward pass and choice of the next token, for many completions at once.

The weights are copied out of the model once, and one cache holds all rows. Each row has its own sampling settings and
its own random numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from breadth.base.errors import ServerError
from breadth.measure.validate import FloatArray, IntArray

CACHE_STRIDE = 64
"""Positions beyond those asked for by which the cache grows: most completions of the reasoner fit."""
PROBE_TOKENS = 8
"""Tokens over which a network is compared with the model it was taken from."""


class KVCache:
    """Keys and values of all rows: of each row its own positions from 0 on, so rows of any length fit together.

    What lies behind the end of a row is masked, never read; it is finite all the same, for nothing times not-a-number
    is not nothing.
    """

    def __init__(self, layers: int, heads: int, size: int) -> None:
        self.store: Tensor = torch.zeros(layers, 2, 0, heads, 0, size)
        """By layer, key or value, row, head, position, number."""

    def reserve(self, rows: int, positions: int) -> None:
        """Make room for so many rows of so many positions; what is there stays."""
        layers, two, slots, heads, room, size = self.store.shape
        if rows <= slots and positions <= room:
            return
        wider = max(positions + CACHE_STRIDE, room * 3 // 2) if positions > room else room
        more = max(rows, slots * 3 // 2) if rows > slots else slots
        # numpy's zeros are pages that the system has not touched yet, torch's are written
        old, self.store = self.store, torch.from_numpy(np.zeros((layers, two, more, heads, wider, size), np.float32))
        self.store[:, :, :slots, :, :room] = old

    def put(self, rows: Tensor, block: Tensor, which: Tensor) -> None:
        """Write into each row one entry of a block of keys and values that were read together."""
        self.store[:, :, rows, :, : block.shape[4]] = block[:, :, which]

    def move(self, to: Tensor, source: Tensor, positions: int) -> None:
        """Copy rows to the places of others."""
        self.store[:, :, to, :, :positions] = self.store[:, :, source, :, :positions]

    def clear(self, rows: slice) -> None:
        """Forget rows, so that nothing of them can reach the next ones in their place."""
        self.store[:, :, rows] = 0.0

    def release(self) -> None:
        """Let go of the memory."""
        self.store = self.store.new_zeros(*self.store.shape[:2], 0, self.store.shape[3], 0, self.store.shape[5])


@dataclass(frozen=True)
class LlamaBlock:
    """The weights of one layer; queries are scaled and the weights of the norms multiplied in already."""

    joint: Tensor
    """Queries, keys and values in one matrix."""
    out: Tensor
    """What attention gives back to the stream."""
    wide: Tensor
    """Gate and content in one matrix."""
    narrow: Tensor
    """Back to the stream."""
    heads: int
    """Attention heads."""
    epsilon: float
    """Keeps the norms off a division by zero."""

    @classmethod
    def from_layer(cls, layer: Any, heads: int) -> LlamaBlock:
        """Copy the weights of a Llama layer."""
        attention, forward = layer.self_attn, layer.mlp
        scaled = attention.q_proj.weight * attention.head_dim**-0.5
        return cls(
            _copy(torch.cat([scaled, attention.k_proj.weight, attention.v_proj.weight]) * layer.input_layernorm.weight),
            _copy(attention.o_proj.weight),
            _copy(
                torch.cat([forward.gate_proj.weight, forward.up_proj.weight]) * layer.post_attention_layernorm.weight
            ),
            _copy(forward.down_proj.weight),
            heads,
            layer.input_layernorm.variance_epsilon,
        )

    def project(self, stream: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries and keys, turned by their positions, and values; by head."""
        whole = functional.linear(rms_norm(stream, self.epsilon), self.joint).unflatten(-1, (3 * self.heads, -1))
        turned, values = whole.split([2 * self.heads, self.heads], -2)
        turned = turned * cosines + turned.roll(turned.shape[-1] // 2, -1) * sines
        return turned[..., : self.heads, :], turned[..., self.heads :, :], values

    def finish(self, stream: Tensor, seen: Tensor) -> Tensor:
        """Return the stream behind the layer, given what attention saw."""
        stream = stream + functional.linear(seen, self.out)
        gate, content = functional.linear(rms_norm(stream, self.epsilon), self.wide).chunk(2, -1)
        return stream.add_(functional.linear(functional.silu(gate).mul_(content), self.narrow))


class ReasonerNetwork:
    """A Llama's forward pass over its own copy of the weights: what the model learns later does not reach it.

    It is compared with the model when it is made, so a model it does not reproduce is refused, not drawn from wrongly.
    """

    def __init__(self, model: Any) -> None:
        config = model.config
        if config.model_type != "llama" or config.num_key_value_heads != config.num_attention_heads:
            raise model_error(
                f"The model is a {config.model_type} of {config.num_attention_heads} query and"
                f" {config.num_key_value_heads} key heads."
            )
        with torch.inference_mode():
            self.heads: int = config.num_attention_heads
            """Attention heads of a layer."""
            self.context: int = config.max_position_embeddings
            """Positions there are."""
            self.embedding, self.head = (
                _copy(model.model.embed_tokens.weight),
                _copy(model.lm_head.weight * model.model.norm.weight),
            )
            """Token -> stream, and stream -> token."""
            self.blocks = [LlamaBlock.from_layer(layer, self.heads) for layer in model.model.layers]
            """The layers."""
            self.epsilon: float = model.model.norm.variance_epsilon
            """Keeps the norms off a division by zero."""
            cosines, sines = model.model.rotary_emb(self.embedding, torch.arange(self.context)[None])
            half = sines.shape[-1] // 2
            self.cosines, self.sines = cosines[0], torch.cat([-sines[0, :, :half], sines[0, :, half:]], -1)
            """How a position turns queries and keys."""
            self._compare(model)

    def cache(self) -> KVCache:
        """Return an empty cache of the right shape."""
        return KVCache(len(self.blocks), self.heads, self.cosines.shape[-1])

    def prefill(self, ids: Tensor) -> Tensor:
        """Return keys and values of texts from position 0 on, padded on the right; no token attends to the padding."""
        stream, width = self.embedding[ids], ids.shape[1]
        cosines, sines = self.cosines[:width, None], self.sines[:width, None]
        found = []
        for block in self.blocks:
            queries, keys, values = (part.transpose(1, 2) for part in block.project(stream, cosines, sines))
            found.append(torch.stack([keys, values]))
            if len(found) < len(self.blocks):  # behind the last layer nothing is asked for
                seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=1.0)
                stream = block.finish(stream, seen.transpose(1, 2).flatten(2))
        return torch.stack(found)

    def step(self, tokens: Tensor, positions: Tensor, cache: KVCache) -> Tensor:
        """Read one more token a row, at its position, into the cache; return the logits of the next."""
        rows, width, room = len(tokens), int(positions.max()) + 1, cache.store.shape[4]
        index = torch.arange(rows * self.heads) * room + positions.repeat_interleave(self.heads)
        mask = torch.zeros(rows, 1, width).masked_fill_(torch.arange(width) > positions[:, None, None], -math.inf)
        cosines, sines = self.cosines[positions, None], self.sines[positions, None]
        stream = self.embedding[tokens]
        for block, (keys, values) in zip(self.blocks, cache.store, strict=True):
            queries, key, value = block.project(stream, cosines, sines)
            for part, new in ((keys, key), (values, value)):
                part.view(-1, part.shape[-1]).index_copy_(0, index, new.reshape(-1, part.shape[-1]))
            seen = attend(queries, keys[:rows, :, :width], values[:rows, :, :width], mask)
            stream = block.finish(stream, seen)
        return functional.linear(rms_norm(stream, self.epsilon), self.head)

    def _compare(self, model: Any) -> None:
        """Refuse a model whose logits are not ours."""
        ids = torch.arange(PROBE_TOKENS)[None] % len(self.embedding)
        ids = ids[:, : self.context]
        cache = self.cache()
        cache.reserve(1, ids.shape[1])
        cache.put(torch.tensor([0]), self.prefill(ids), torch.tensor([0]))
        ours = self.step(ids[0, -1:], torch.tensor([ids.shape[1] - 1]), cache)
        theirs = model(input_ids=ids).logits[:, -1].float()
        if not torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4, equal_nan=True):
            raise model_error(
                f"Our logits and those of this {type(model).__name__} differ by"
                f" {float((ours - theirs).abs().max()):.2g}."
            )


def model_error(problem: str) -> ServerError:
    """Return the error for a model that the network does not reproduce."""
    remedy = "Draw from a plain Llama in float32 with as many key heads as query heads, or use TransformersSampler."
    return ServerError(problem, remedy, fatal=True)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Return what one query a row and head sees.

    Two batched products beat the fused kernel here: it is made for many queries.
    """
    rows, heads, width, _ = keys.shape
    scores = torch.bmm(queries.reshape(rows * heads, 1, -1), keys.flatten(0, 1).transpose(1, 2))
    shares = scores.view(rows, heads, width).add_(mask).softmax(-1)
    return torch.bmm(shares.view(rows * heads, 1, width), values.flatten(0, 1)).view(rows, -1)


def rms_norm(stream: Tensor, epsilon: float) -> Tensor:
    """Normalize the stream; the weights of the norm are already in the next matrix."""
    return functional.rms_norm(stream, stream.shape[-1:], None, epsilon)


def _copy(weight: Tensor) -> Tensor:
    return weight.detach().float().clone()


GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class TokenChoice:
    """What was chosen in each row, and from what."""

    ids: IntArray
    """The tokens."""
    raw: Tensor
    """Log-probs of all tokens before temperature and cuts, in double precision."""
    entropies: FloatArray
    """Of the raw distributions, in nats."""


def splitmix64(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each number: one round of SplitMix64 (Steele, Lea and Flood 2014)."""
    mix = numbers + GOLDEN
    mix = (mix ^ (mix >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mix = (mix ^ (mix >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mix ^ (mix >> np.uint64(31))


def uniforms(seeds: NDArray[np.uint64], places: IntArray) -> FloatArray:
    """Return a number in [0, 1) for each seed and position, independent of the rest of the batch."""
    mix = splitmix64(splitmix64(seeds) + places.astype(np.uint64) * GOLDEN)
    return (mix >> np.uint64(11)).astype(np.float64) * 2.0**-53


def choose_tokens(logits: Tensor, rows: NDArray[Any]) -> TokenChoice:
    """Sample a token per row of logits by temperature, min-p, top-k and top-p; temperature 0 takes the likeliest.

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
        chances = chances.index_copy(0, places, apply_cutoffs(chances[places], rows[cut]))
    ids = invert_cdf(chances, torch.from_numpy(uniforms(rows["seed"], rows["written"])))
    if greedy.any():
        ids = torch.where(torch.from_numpy(greedy), raw.argmax(-1), ids)
    return TokenChoice(ids.numpy(), raw, -(likely * raw).sum(-1).numpy())


def apply_cutoffs(chances: Tensor, rows: NDArray[Any]) -> Tensor:
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


def invert_cdf(chances: Tensor, heights: Tensor) -> Tensor:
    """Return where each row's cumulative sum passes a share of its total; never a token without a chance."""
    sums = chances.cumsum(-1)
    totals = sums[:, -1:]
    found = (sums <= totals * heights[:, None]).sum(-1)
    return torch.minimum(found, (sums < totals).sum(-1))
