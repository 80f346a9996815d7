"""What the entropy mechanisms share: which entropy a controller reads, its price in the loss, and a histogram of entropies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from breadth.base.errors import MechanismError
from breadth.base.stats import Mean
from breadth.training.ops import masked_values
from breadth.training.records import Batch, not_none

EntropySource: TypeAlias = Literal["sampled", "exact"]
"""Which entropy a controller reads.

``sampled``: the mean of -old_logprobs over the trained tokens: needs no logits, and is right on average for the policy
that sampled, at its temperature and without top-p or top-k; it does not move between the updates of one generation.
``exact``: the mean of the current policy's entropies. The two differ in one batch, so a chain says which it reads
instead of taking what is there: the same chain does the same in every trainer.
"""


ENTROPY_GRADIENT = "entropy.gradient"
"""What a mechanism needs beyond the entropy when its loss pays for it: the entropy with its gradient."""


def fields_for(reads: EntropySource) -> frozenset[str]:
    """Return the optional fields of a batch that a reading needs."""
    return frozenset({"entropy"}) if reads == "exact" else frozenset()


def mean_entropy(batch: Batch, reads: EntropySource) -> Mean:
    """Return the mean entropy per trained token, in nats, as a stat that adds up."""
    values = not_none(batch.entropy) if reads == "exact" else -not_none(batch.old_logprobs)
    return Mean(masked_values(values.detach(), batch.mask).sum(), batch.mask.sum())


def entropy_bonus_terms(batch: Batch, coefficient: float) -> tuple[Tensor, ...]:
    """Return the loss term that pays ``coefficient`` for one nat of entropy on each token; none at all when it is zero.

    An entropy without a gradient would make the payment do nothing, so it is refused.
    """
    if coefficient == 0:
        return ()
    entropy = not_none(batch.entropy)
    if batch.logprobs.requires_grad and not entropy.requires_grad:
        raise MechanismError(
            "The entropies of the batch carry no gradient, so paying for entropy would change nothing.",
            "Compute them with gradient, e.g. by breadth.training.logits.entropy_and_logprobs.",
        )
    return (-coefficient * entropy,)


ENTROPY_BINS = 512
"""Bins between SMALLEST and LARGEST: 3 % wide each, so a quantile read off them is right to 3 %; tail means are exact
but for one bin.
"""
MIN_ENTROPY, MAX_ENTROPY = 1e-6, 16.0
"""Range of entropies in nats; below is as good as deterministic, above is more than any vocabulary allows (ln 8.9e6).
"""


@dataclass(frozen=True)
class EntropyHistogram:
    """Entropies counted in logarithmic bins, each with the sum of what fell into it."""

    counts: Any
    """(BINS,) how many values fell into each bin, from low to high."""
    totals: Any
    """(BINS,) their sums."""

    @classmethod
    def from_tokens(cls, entropy: Tensor, mask: Tensor) -> EntropyHistogram:
        """Count the entropies inside the mask.

        They are rounded to float32 and summed in float64, so that the mean of equal entropies is exactly that entropy,
        however many.
        """
        values = torch.where(mask, entropy.detach(), torch.zeros_like(entropy)).float().double().flatten()
        edges = torch.logspace(
            _log10(MIN_ENTROPY), _log10(MAX_ENTROPY), ENTROPY_BINS - 1, device=values.device, dtype=values.dtype
        )
        place = torch.bucketize(values, edges)
        counts = values.new_zeros(ENTROPY_BINS).index_add(0, place, mask.flatten().to(values.dtype))
        totals = values.new_zeros(ENTROPY_BINS).index_add(0, place, values)
        return cls(counts, totals)

    def __add__(self, other: EntropyHistogram) -> EntropyHistogram:
        if isinstance(self.counts, Tensor):
            return EntropyHistogram(self.counts + other.counts, self.totals + other.totals)
        return EntropyHistogram(_summed(self.counts, other.counts), _summed(self.totals, other.totals))

    def plain(self) -> EntropyHistogram:
        """Return it with lists for tensors."""
        return EntropyHistogram(self.counts.tolist(), self.totals.tolist()) if isinstance(self.counts, Tensor) else self

    @property
    def value(self) -> list[float]:
        """The counts as plain numbers."""
        return list(map(float, self.plain().counts))

    def top_share(self, share: float) -> tuple[float, float]:
        """Return (threshold, mean) of the largest ``share`` of the values; (inf, nan) when there are none.

        The bin that the share cuts through counts in part, at its own mean.
        """
        plain = self.plain()
        wanted = share * sum(plain.counts)
        total, taken = 0.0, 0.0
        if wanted <= 0:
            return float("inf"), float("nan")
        for count, amount in zip(reversed(plain.counts), reversed(plain.totals), strict=True):
            part = min(count, wanted - taken)
            if count > 0:
                total, taken, edge = total + amount * part / count, taken + part, amount / count
            if taken >= wanted * (1 - 1e-9):
                break
        return edge, total / taken


def _summed(left: Sequence[float], right: Sequence[float]) -> list[float]:
    return [one + other for one, other in zip(left, right, strict=True)]


def _log10(value: float) -> float:
    return float(torch.tensor(value).log10())
