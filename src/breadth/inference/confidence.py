"""How sure a completion was of itself, from the log-probs of its tokens: the statistics of DeepConf, and self-certainty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from breadth.base.checks import require
from breadth.base.errors import MeasureError
from breadth.inference.records import Candidate, Sampling
from breadth.measure.finite import FloatArray, finite, numbers

MEASURES = ("lowest", "bottom", "tail", "mean")
FLOOR = -50.0
"""Log-probs below this are clipped to it. Servers send masked tokens as minus infinity, as -9999 or as the least float there is; a raw
log-prob among the first 20 hardly falls this low, and one token must not outweigh the other thousands of a window."""
_BOTTOM = 0.1


@dataclass(frozen=True)
class Gauge:
    """How the confidence of a whole completion is read from its tokens.

    With C the confidence of a token (see `token_confidence`) and G the mean of C over each ``window`` tokens in a row, overlapping:
    lowest = the least G; bottom = the mean of the lowest tenth of all G, at least one; tail = the mean of C over the last ``window``
    tokens; mean = the mean of C over all tokens. A completion shorter than the window has one G, its mean (arXiv 2508.15260).

    Window and 20 log-probs are the paper's. Lowest is the default because it is what a running completion can be halted by, so that one
    gate serves both strategies; in the paper's averages it is within 0.2 points of the best (84.4 to 84.6, the mean 83.9).
    Harm: at its default window all four are the plain mean for completions under 2,048 tokens.
    """

    measure: Literal["lowest", "bottom", "tail", "mean"] = "lowest"
    """Which of the four."""
    window: int = 2048
    """Tokens of a group, and of the tail."""
    top_logprobs: int = 20
    """Log-probs at each token that its confidence averages."""

    def __post_init__(self) -> None:
        require(self, "measure", self.measure in MEASURES, "one of " + ", ".join(MEASURES))
        require(self, "window", self.window >= 1, "at least one token")
        require(self, "top_logprobs", self.top_logprobs >= 1, "at least one log-prob; 20 is usual")

    def of(self, candidate: Candidate) -> float:
        """Return the confidence of a candidate; NaN when none of its tokens has one. Tokens without one are passed over."""
        if candidate.confidences is None:
            return math.nan
        known = _known(candidate.confidences)
        # Rounded, so that completions that were just as sure stay equal whatever their length.
        return round(self._summary(known), 9) if known.size else math.nan

    def asked(self, sampling: Sampling) -> Sampling:
        """Return a way to draw that brings the log-probs it needs."""
        return replace(sampling, top_logprobs=self.top_logprobs)

    def _summary(self, known: FloatArray) -> float:
        if self.measure in ("mean", "tail"):
            return float(known.mean() if self.measure == "mean" else known[-self.window :].mean())
        groups = group_confidences(known, self.window)
        lowest = 1 if self.measure == "lowest" else max(1, int(len(groups) * _BOTTOM))
        return float(np.partition(groups, lowest - 1)[:lowest].mean())


def token_confidence(top_logprobs: Sequence[float], k: int) -> tuple[float, bool]:
    """Return minus the mean of the k largest log-probs at a token, and whether any was clipped; high where the model is sure.

    Only the k largest count, for some servers add the sampled token when it is not among them. Log-probs below -50, and those
    missing from a list shorter than k, are taken for masked tokens and count as -50: left out, a distribution cut down to one
    token would look like the least sure of all. Clipping says that the server sends processed log-probs or fewer than k; give what it
    really sends as ``k``. NaN for an empty list.
    """
    known = [value for value in top_logprobs if value == value]
    if not known or k < 1:
        return math.nan, False
    largest = sorted(known, reverse=True)[:k]
    clipped = len(largest) < k or largest[-1] < FLOOR
    if clipped:
        largest = [max(value, FLOOR) for value in largest] + [FLOOR] * (k - len(largest))
    return -math.fsum(largest) / k, clipped


def group_confidences(confidences: npt.ArrayLike, window: int) -> FloatArray:
    """Return the mean over each ``window`` tokens in a row, from the first full window to the last; one group when there are fewer.

    Tokens without a confidence (NaN, infinite) are passed over. Computed from running sums, in time linear in the tokens.
    """
    if window < 1:
        raise MeasureError(f"A window of {window} tokens.", "Use at least one token; 2048 is DeepConf's.")
    known = _known(confidences)
    if not known.size:
        return known
    size = min(window, len(known))
    # Sums of differences from the mean stay small, so nothing is lost over long completions.
    middle = known.mean()
    sums = np.concatenate([[0.0], np.cumsum(known - middle)])
    return np.asarray(middle + (sums[size:] - sums[:-size]) / size)


def keep_threshold(scores: npt.ArrayLike, keep: float) -> float:
    """Return the score that the best ``keep`` share of scores reach: their percentile 100 (1 - keep), linearly interpolated.

    This is DeepConf's formula and public code; its text also calls it the least score of the best traces, which is a little higher (of
    5, 6, ..., 14 the best nine tenths begin at 6, the percentile is 5.9).
    """
    # Rounded, for 1 - 0.7 is a hair over 0.3 and would leave out a score that lies on the threshold.
    return float(np.percentile(finite(scores, "scores"), round(100 * (1 - keep), 9)))


def borda_weights(scores: npt.ArrayLike, power: float = 0.5) -> FloatArray:
    """Return the weight of each score by its rank: (N - rank) ** power with ranks from 0; equal scores share the mean of their weights.

    Voting by rank leaves only the order of a confidence to trust, not its scale (arXiv 2502.18581; its code's power is 0.5). Power 0
    is the plain vote; a large one lets the best score decide.
    """
    values = finite(scores, "scores")
    if power < 0:
        raise MeasureError(f"The power of rank weights is {power}.", "Use 0 (plain vote) or more; 0.5 is usual.")
    by_rank = np.arange(1, len(values) + 1, dtype=np.float64) ** power
    _, level, counts = np.unique(values, return_inverse=True, return_counts=True)
    totals = np.bincount(np.sort(level), weights=by_rank)
    return np.asarray((totals / counts)[level])


def self_certainty(logprobs: npt.ArrayLike) -> float:
    """Return how far the next-token distributions are from uniform: mean KL(uniform || p) over the rows of a tokens x vocabulary matrix.

    -(1 / nV) sum ln(V p), 0 for uniform, larger = surer (arXiv 2502.18581). It takes every token of the vocabulary: from a server's
    top 20 it cannot be had, and cutting the sum there gives DeepConf's statistic instead. Log-probs below -50 count as -50.
    """
    table = numbers(logprobs, "logprobs")
    if table.ndim != 2 or not table.size or np.isnan(table).any():
        raise MeasureError(f"Log-probs of shape {table.shape}, or NaN among them.", "Give one row a token, one column a vocabulary entry.")
    clipped = np.maximum(table, FLOOR)
    return float(-clipped.mean() - math.log(table.shape[1]))


def _known(confidences: npt.ArrayLike) -> FloatArray:
    values = numbers(confidences, "confidences").ravel()
    return values[np.isfinite(values)]
