"""Masked arithmetic, ratios, groups and selections over tokens: the one place where each is written."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to this: exp(20) = 4.9e8 is far outside every clip and still finite in float32; verl clamps
there too.
"""


def promote_half(values: Tensor) -> Tensor:
    """Return half-precision values as float32; exponentials in bfloat16 bias the ratio upwards (2603.11682)."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def masked_values(values: Tensor, mask: Tensor) -> Tensor:
    """Return the values with zeros outside the mask; garbage there, NaN included, neither shows nor gets a gradient."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the mask; 0 when the mask is empty."""
    return masked_values(values, mask).sum() / mask.sum().clamp(min=1)


def log_ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """Return log(current / old) of each token, clamped to a finite range; no gradient flows where the clamp acts."""
    return (logprobs - old_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """Return the probability ratio current / old of each token."""
    return log_ratio(logprobs, old_logprobs).exp()


def sequence_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return (B,) the mean of each row over its mask; 0 for an empty row."""
    return masked_values(values, mask).sum(-1) / mask.sum(-1).clamp(min=1)


@dataclass(frozen=True)
class TokenKeys:
    """A uniform number in [0, 1) for each token, decided by seed, step, row and column alone; worked out only where asked for.

    The same token gets the same number however the batch is cut and whoever holds it, so a draw of the n smallest is
    the same uniform draw without replacement on every rank. (Two rounds of the splitmix64 mixer.)
    """

    rows: Tensor
    """(B,) number of each sequence in the whole generation."""
    seed: int
    """Seed of the draws."""
    step: int
    """Optimizer step."""

    def uniform_at(self, places: Tensor, columns: Tensor) -> Tensor:
        """Return the keys of the tokens at these places among the sequences, in these columns."""
        return _uniform(_row_keys(self.rows, self.seed, self.step)[places] + columns)


def sample_tokens(candidates: Tensor, count: int, keys: TokenKeys) -> Tensor:
    """Return a mask of ``count`` of the given tokens, drawn uniformly without replacement: those with the smallest keys."""
    places, columns = candidates.nonzero(as_tuple=True)
    if count >= len(places):
        return candidates.clone()
    drawn = torch.topk(keys.uniform_at(places, columns), max(count, 0), largest=False, sorted=False).indices
    return _mask_at(places[drawn] * candidates.shape[1] + columns[drawn], candidates)


def select_largest(scores: Tensor, candidates: Tensor, count: int, keys: TokenKeys) -> Tensor:
    """Return a mask of the ``count`` largest scores among the given tokens; equal scores are drawn by their keys.

    Linear in the number of tokens. When there are fewer tokens than ``count``, all are picked.
    """
    if count <= 0:
        return torch.zeros_like(candidates)
    if count >= int(candidates.count_nonzero()):
        return candidates.clone()
    open_scores = torch.where(candidates, scores, -torch.inf).flatten()
    top = torch.topk(open_scores, count + 1, sorted=False)  # one more, whose score is the first that may not be picked
    edge = top.values.min()
    above = top.indices[top.values > edge]
    picked = _mask_at(above, candidates)
    return (
        picked
        if len(above) == count
        else picked | sample_tokens(candidates & (scores == edge), count - len(above), keys)
    )


def share_to_count(share: float, total: int) -> int:
    """Return how many of ``total`` tokens a share selects: at least one, unless the share or the total is zero."""
    return max(1, int(share * total)) if share > 0 and total > 0 else 0


def group_sum(values: Tensor, groups: Tensor, mask: Tensor) -> Tensor:
    """Return (N,) for each member the sum over its group of the values among those marked."""
    _, place = torch.unique(groups, return_inverse=True)
    totals = torch.zeros(int(place.max()) + 1 if len(place) else 0, dtype=values.dtype, device=values.device)
    return totals.index_add(0, place, masked_values(values, mask))[place]


def group_count(groups: Tensor, mask: Tensor) -> Tensor:
    """Return (N,) for each member how many of its group are marked, as float32."""
    return group_sum(mask.float(), groups, mask)


def group_mean(values: Tensor, groups: Tensor, mask: Tensor) -> Tensor:
    """Return (N,) for each member the mean of its group over those marked; 0 for a group with none."""
    count = group_sum(mask.to(values.dtype), groups, mask)
    return group_sum(values, groups, mask) / count.clamp(min=1)


def _mask_at(places: Tensor, like: Tensor) -> Tensor:
    """Return a mask of this shape that is True at the flat places."""
    return torch.zeros_like(like).flatten().index_fill_(0, places, True).view_as(like)


def _row_keys(rows: Tensor, seed: int, step: int) -> Tensor:
    start = _splitmix64(torch.tensor([_as_signed64(seed * 0x9E3779B97F4A7C15 + step)], device=rows.device))
    return _splitmix64(start + rows.to(torch.int64))


def _uniform(values: Tensor) -> Tensor:
    """Return a number in [0, 1) for each integer, from the upper 53 bits of its mix."""
    return ((_splitmix64(values) >> 11) & ((1 << 53) - 1)).to(torch.float64) / float(1 << 53)


def _splitmix64(values: Tensor) -> Tensor:
    values = values ^ (values >> 30).bitwise_and_(0x3FFFFFFFF)
    values *= _as_signed64(0xBF58476D1CE4E5B9)
    values ^= (values >> 27).bitwise_and_(0x1FFFFFFFFF)
    values *= _as_signed64(0x94D049BB133111EB)
    values ^= (values >> 31).bitwise_and_(0x1FFFFFFFF)
    return values


def _as_signed64(number: int) -> int:
    """Return a 64-bit pattern as the signed integer that has it."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number
