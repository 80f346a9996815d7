"""Shared by the entropy mechanisms: which entropy a controller reads, its loss term, and a histogram of entropies."""

from __future__ import annotations

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

``sampled``: the mean of -old_logprobs over the trained tokens. It needs no logits. It is unbiased for the policy that
sampled, at its temperature and without top-p or top-k. It does not change between the updates of one generation.
``exact``: the mean of the current policy's entropies. The two differ in one batch, so a chain says which it reads. This
way the same chain does the same in every trainer.
"""


ENTROPY_GRADIENT = "entropy.gradient"
"""Named in ``needs`` if the loss needs the entropy with its gradient."""


def fields_for(reads: EntropySource) -> frozenset[str]:
    """Return the optional fields of a batch that an entropy source needs."""
    return frozenset({"entropy"}) if reads == "exact" else frozenset()


def mean_entropy(batch: Batch, reads: EntropySource) -> Mean:
    """Return the mean entropy per trained token, in nats, as an additive stat."""
    values = not_none(batch.entropy) if reads == "exact" else -not_none(batch.old_logprobs)
    return Mean(masked_values(values.detach(), batch.mask).sum(), batch.mask.sum())


def entropy_bonus_terms(batch: Batch, coefficient: float) -> tuple[Tensor, ...]:
    """Return the loss term ``-coefficient * entropy`` of each token; no term if the coefficient is zero.

    An entropy without a gradient is refused: the term would have no effect.
    """
    if coefficient == 0:
        return ()
    entropy = not_none(batch.entropy)
    if batch.logprobs.requires_grad and not entropy.requires_grad:
        raise MechanismError(
            "The entropies of the batch have no gradient, so an entropy bonus would have no effect.",
            "Compute them with gradient, e.g. with breadth.training.logits.entropy_and_logprobs.",
        )
    return (-coefficient * entropy,)


ENTROPY_BINS = 512
"""Bins between MIN_ENTROPY and MAX_ENTROPY, each 3 % wide: quantiles are right to 3 %, tail means exact up to one bin.
"""
MIN_ENTROPY, MAX_ENTROPY = 1e-6, 16.0
"""Range of entropies in nats: below is practically deterministic, above exceeds any vocabulary (ln 8.9e6)."""


@dataclass(frozen=True)
class EntropyHistogram:
    """Entropies counted in logarithmic bins, with the sum per bin."""

    counts: Any
    """(ENTROPY_BINS,) number of values in each bin, from low to high."""
    totals: Any
    """(ENTROPY_BINS,) their sums."""

    @classmethod
    def from_tokens(cls, entropy: Tensor, mask: Tensor) -> EntropyHistogram:
        """Count the entropies inside the mask.

        They are rounded to float32 and summed in float64, so the mean of equal entropies is exactly that entropy.
        """
        values = torch.where(mask, entropy.detach(), torch.zeros_like(entropy)).float().double().flatten()
        edges = torch.logspace(
            _log10(MIN_ENTROPY), _log10(MAX_ENTROPY), ENTROPY_BINS - 1, device=values.device, dtype=values.dtype
        )
        bins = torch.bucketize(values, edges)
        counts = values.new_zeros(ENTROPY_BINS).index_add(0, bins, mask.flatten().to(values.dtype))
        totals = values.new_zeros(ENTROPY_BINS).index_add(0, bins, values)
        return cls(counts, totals)

    def __add__(self, other: EntropyHistogram) -> EntropyHistogram:
        if isinstance(self.counts, Tensor):
            return EntropyHistogram(self.counts + other.counts, self.totals + other.totals)
        counts = [left + right for left, right in zip(self.counts, other.counts, strict=True)]
        totals = [left + right for left, right in zip(self.totals, other.totals, strict=True)]
        return EntropyHistogram(counts, totals)

    def plain(self) -> EntropyHistogram:
        """Return the histogram with lists instead of tensors."""
        return EntropyHistogram(self.counts.tolist(), self.totals.tolist()) if isinstance(self.counts, Tensor) else self

    @property
    def value(self) -> list[float]:
        """The counts as floats."""
        return list(map(float, self.plain().counts))

    def top_share(self, share: float) -> tuple[float, float]:
        """Return (threshold, mean) of the largest ``share`` of the values; (inf, nan) if there are none.

        The last bin counts in part, at its own mean.
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


def _log10(value: float) -> float:
    return float(torch.tensor(value).log10())
