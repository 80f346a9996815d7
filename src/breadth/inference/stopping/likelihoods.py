"""How likely stored votes are under a shape of answers, or under a Chinese-restaurant process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONCENTRATIONS: tuple[float, ...] = tuple(float(value) for value in np.geomspace(0.03, 30, 10))
"""Concentrations of the restaurant processes that stand for questions unlike those of a library: from one answer to a hundred."""
_LEAST = 1e-12
# Share of an answer that a shape does not have: a question with more answers than a shape is unlikely, not impossible.


def shape_likelihoods(counts: Sequence[Sequence[int]], shares: Floats) -> Floats:
    """Return (questions, shapes): the chance of each question's votes, up to a factor a row.

    Counts are put on shares by size, in all ways where shares are equal; the first two also the other way round, for in a close race
    the more frequent answer is often behind. Other swaps are far less likely and would cost a factorial.
    """
    width = max(shares.shape[1], max(map(len, counts)))
    votes = np.zeros((len(counts), width))
    for row, vector in enumerate(counts):
        votes[row, : len(vector)] = sorted(vector, reverse=True)
    falling = np.zeros((len(shares), width))
    falling[:, : shares.shape[1]] = -np.sort(-shares, axis=1)
    logs = np.log(np.maximum(falling, _LEAST))
    swaps = np.where(falling[:, 0] > falling[:, 1], (votes[:, :1] - votes[:, 1:2]) * (logs[:, 1] - logs[:, 0]), -np.inf)
    answers = np.count_nonzero(votes, axis=1)
    return _scaled(votes @ logs.T + np.log1p(np.exp(swaps)) + _ways(falling)[:, answers].T)


def _ways(falling: Floats) -> Floats:
    """Return (shapes, answers): the log of the number of ways to put that many answers on a shape's shares by size."""
    ways = np.zeros((len(falling), falling.shape[1] + 1))
    for row, shares in enumerate(falling):
        alike = np.searchsorted(-shares, -shares, side="right") - np.arange(len(shares))
        ways[row, 1:] = np.cumsum(np.log(np.where(shares > 0, alike, 1)))
    return ways


def novelty_likelihoods(counts: Sequence[Sequence[int]]) -> Floats:
    """Return (questions, concentrations): the chance of each question's votes under each restaurant process, up to a factor a row.

    With concentration c and votes n_1 .. n_k of n in all: c^k (n_1 - 1)! ... (n_k - 1)! / (c (c + 1) ... (c + n - 1)).
    """
    grid = np.array(CONCENTRATIONS)
    rows = [len(vector) * np.log(grid) - np.log(grid + np.arange(sum(vector))[:, None]).sum(axis=0) for vector in counts]
    return _scaled(np.array(rows))


def _scaled(logs: Floats) -> Floats:
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))
