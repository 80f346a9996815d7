"""A histogram of entropies that adds up over micro-batches and ranks, and the quantiles and tail means read off it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

BINS = 512
"""Bins between SMALLEST and LARGEST: 3 % wide each, so a quantile read off them is right to 3 %; tail means are exact but for one bin."""
SMALLEST, LARGEST = 1e-6, 16.0
"""Range of entropies in nats; below is as good as deterministic, above is more than any vocabulary allows (ln 8.9e6)."""


@dataclass(frozen=True)
class EntropyHistogram:
    """Entropies counted in logarithmic bins, each with the sum of what fell into it."""

    counts: Any
    """(BINS,) how many values fell into each bin, from low to high."""
    totals: Any
    """(BINS,) their sums."""

    @classmethod
    def of(cls, entropy: Tensor, mask: Tensor) -> EntropyHistogram:
        """Count the entropies inside the mask.

        They are rounded to float32 and summed in float64, so that the mean of equal entropies is exactly that entropy, however many.
        """
        values = torch.where(mask, entropy.detach(), torch.zeros_like(entropy)).float().double().flatten()
        edges = torch.logspace(_log10(SMALLEST), _log10(LARGEST), BINS - 1, device=values.device, dtype=values.dtype)
        place = torch.bucketize(values, edges)
        counts = values.new_zeros(BINS).index_add(0, place, mask.flatten().to(values.dtype))
        totals = values.new_zeros(BINS).index_add(0, place, values)
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

    def top(self, share: float) -> tuple[float, float]:
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
