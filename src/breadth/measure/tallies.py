"""How often each group of samples gave each answer, and how many answers fewer samples would have shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from breadth.base.errors import MeasureError
from breadth.measure.finite import FloatArray

Ints: TypeAlias = NDArray[np.int64]
"""Whole numbers."""


@dataclass(frozen=True, eq=False)
class Tally:
    """Answers counted per group.

    Kept as one entry for every (group, answer) pair that occurs, so a million samples of any number of answers stay small.
    """

    groups: NDArray[Any]
    """Group ids, sorted."""
    rows: Ints
    """For each sample, the place of its group in ``groups``."""
    samples: Ints
    """Samples per group, parsable or not."""
    owners: Ints
    """For each pair of a group and one of its answers: the place of the group in ``groups``."""
    answers: Ints
    """For each such pair: the class of the answer."""
    counts: Ints
    """For each such pair: how many samples of the group gave that answer."""

    @cached_property
    def parsed(self) -> Ints:
        """Samples with a parsable answer, per group."""
        return self.sums(self.counts).astype(np.int64)

    @cached_property
    def distinct(self) -> Ints:
        """Distinct answers per group."""
        return np.bincount(self.owners, minlength=len(self.groups))

    def sums(self, terms: NDArray[Any]) -> FloatArray:
        """Add up one term per pair within each group."""
        return np.bincount(self.owners, terms.astype(np.float64), len(self.groups)).astype(np.float64)

    def expected_distinct(self, draws: ArrayLike) -> FloatArray:
        """Return, per group, the distinct answers to expect in ``draws`` of its samples, drawn without replacement.

        Rarefaction, exact: ``sum over answers of 1 - C(n - count, draws) / C(n, draws)``. It brings groups of unequal size to a
        common one without throwing samples away. A sample with no parsable answer is drawn like any other and brings
        nothing. ``draws`` is one number or one per group; NaN where a group has fewer samples.
        """
        taken = np.broadcast_to(np.asarray(draws, dtype=np.int64), self.samples.shape)
        if taken.min() < 0:
            raise MeasureError(f"{taken.min()} draws were asked for; the number must be 0 or more.", "Use the smallest group's size.")
        enough = taken <= self.samples
        seen = self._chance_seen(np.where(enough, taken, 0))
        return np.where(enough, self.sums(seen), np.nan)

    def _chance_seen(self, taken: Ints) -> FloatArray:
        total, drawn = self.samples[self.owners], taken[self.owners]
        others = total - self.counts
        log_factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, self.samples.max() + 1)))))
        left = np.maximum(others - drawn, 0)
        log_missed = log_factorial[others] - log_factorial[left] - log_factorial[total] + log_factorial[total - drawn]
        return np.where(others < drawn, 1.0, -np.expm1(np.minimum(log_missed, 0.0)))


def tally(groups: ArrayLike, classes: ArrayLike) -> Tally:
    """Count answers per group from two columns, one row a sample in any order; class -1 is a sample without an answer."""
    names, labels = np.asarray(groups), class_column(classes)
    if names.ndim != 1 or names.shape != labels.shape or not names.size:
        raise MeasureError(
            f"Got groups of shape {names.shape} and classes of shape {labels.shape}; need columns of equal length, not empty.",
            "Give one group id and one answer class per sample.",
        )
    ids, rows = np.unique(names, return_inverse=True)
    known = labels >= 0
    answers, label = np.unique(labels[known], return_inverse=True)
    width = max(len(answers), 1)
    pairs, counts = np.unique(rows[known] * width + label, return_counts=True)
    owners, place = np.divmod(pairs, width)
    return Tally(ids, rows, np.bincount(rows, minlength=len(ids)), owners, answers[place], counts)


def class_column(classes: ArrayLike) -> Ints:
    """Read answer classes, refusing anything but whole numbers from -1 (no parsable answer) up."""
    labels = np.asarray(classes)
    if labels.size and (labels.dtype.kind not in "iu" or labels.min() < -1):
        raise MeasureError(
            f"Answer classes are {labels.dtype}, the smallest {labels.min()}; need whole numbers from -1 (no parsable answer) up.",
            "Make them with answer_classes.",
        )
    return labels.astype(np.int64)
