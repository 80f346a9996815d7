"""Masked arithmetic, ratios, group sums and token selection, shared by all mechanisms."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to this: exp(20) = 4.9e8 is far outside every clip and still finite in float32. verl uses
the same bound.
"""


def promote_half(values: Tensor) -> Tensor:
    """Return half-precision values as float32; exponentials in bfloat16 bias the ratio upwards (2603.11682)."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def masked_values(values: Tensor, mask: Tensor) -> Tensor:
    """Return the values with zeros outside the mask; NaN there neither shows nor gets a gradient."""
    return torch.where(mask, values, torch.zeros((), dtype=values.dtype, device=values.device))


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean over the mask; 0 if the mask is empty."""
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
    """A uniform number in [0, 1) for each token, determined by seed, step, row and column; computed on demand.

    A token gets the same number on every rank and for every split into micro-batches. So taking the n smallest is the
    same uniform sample without replacement everywhere. (Two rounds of the splitmix64 mixer.)
    """

    rows: Tensor
    """(B,) number of each sequence in the whole generation."""
    seed: int
    """Random seed."""
    step: int
    """Optimizer step."""

    def uniform_at(self, indices: Tensor, columns: Tensor) -> Tensor:
        """Return the numbers of the tokens in these columns of the sequences at these indices."""
        start = _splitmix64(
            torch.tensor([_as_signed64(self.seed * 0x9E3779B97F4A7C15 + self.step)], device=self.rows.device)
        )
        row_keys = _splitmix64(start + self.rows.to(torch.int64))
        mixed = _splitmix64(row_keys[indices] + columns)
        return ((mixed >> 11) & ((1 << 53) - 1)).to(torch.float64) / float(1 << 53)  # its upper 53 bits


def sample_tokens(candidates: Tensor, count: int, keys: TokenKeys) -> Tensor:
    """Return a mask of ``count`` candidates, sampled uniformly without replacement: those with the smallest keys."""
    rows, columns = candidates.nonzero(as_tuple=True)
    if count >= len(rows):
        return candidates.clone()
    chosen = torch.topk(keys.uniform_at(rows, columns), max(count, 0), largest=False, sorted=False).indices
    return _mask_at(rows[chosen] * candidates.shape[1] + columns[chosen], candidates)


def select_largest(scores: Tensor, candidates: Tensor, count: int, keys: TokenKeys) -> Tensor:
    """Return a mask of the ``count`` largest scores among the candidates; ties are broken by their keys.

    Linear in the number of tokens. If there are fewer candidates than ``count``, all are selected.
    """
    if count <= 0:
        return torch.zeros_like(candidates)
    if count >= int(candidates.count_nonzero()):
        return candidates.clone()
    candidate_scores = torch.where(candidates, scores, -torch.inf).flatten()
    top = torch.topk(candidate_scores, count + 1, sorted=False)  # one more: its score is the first not selected
    edge = top.values.min()
    above = top.indices[top.values > edge]
    selected = _mask_at(above, candidates)
    if len(above) == count:
        return selected
    return selected | sample_tokens(candidates & (scores == edge), count - len(above), keys)


def share_to_count(share: float, total: int) -> int:
    """Return how many of ``total`` tokens a share selects: at least one unless share or total is zero."""
    return max(1, int(share * total)) if share > 0 and total > 0 else 0


def group_sum(values: Tensor, groups: Tensor, mask: Tensor) -> Tensor:
    """Return (N,) for each member the sum of the masked values of its group."""
    _, index = torch.unique(groups, return_inverse=True)
    totals = torch.zeros(int(index.max()) + 1 if len(index) else 0, dtype=values.dtype, device=values.device)
    return totals.index_add(0, index, masked_values(values, mask))[index]


def group_count(groups: Tensor, mask: Tensor) -> Tensor:
    """Return (N,) for each member how many of its group are in the mask, as float32."""
    return group_sum(mask.float(), groups, mask)


def group_mean(values: Tensor, groups: Tensor, mask: Tensor) -> Tensor:
    """Return (N,) for each member the masked mean of its group; 0 for a group with none in the mask."""
    count = group_sum(mask.to(values.dtype), groups, mask)
    return group_sum(values, groups, mask) / count.clamp(min=1)


def _mask_at(indices: Tensor, like: Tensor) -> Tensor:
    """Return a mask of this shape that is True at these flat indices."""
    return torch.zeros_like(like).flatten().index_fill_(0, indices, True).view_as(like)


def _splitmix64(values: Tensor) -> Tensor:
    values = values ^ (values >> 30).bitwise_and_(0x3FFFFFFFF)
    values *= _as_signed64(0xBF58476D1CE4E5B9)
    values ^= (values >> 27).bitwise_and_(0x1FFFFFFFFF)
    values *= _as_signed64(0x94D049BB133111EB)
    values ^= (values >> 31).bitwise_and_(0x1FFFFFFFF)
    return values


def _as_signed64(number: int) -> int:
    """Return a 64-bit pattern as a signed integer."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number
