"""The counting behind exact majority votes: the chance that one class wins a draw of k votes, ties shared equally.

A draw gives every class some number of votes. One class with ``m`` votes wins if no rival has more; with ``t`` rivals
at exactly ``m`` it gets ``1 / (1 + t)`` of the win. Write each class as a series whose coefficient of ``x^j`` is the
number of ways to draw ``j`` of its votes (``C(count, j)`` without replacement, ``(λ share)^j / j!`` with). Then the
wins at ``m`` votes are

    own_m x^m · ∫₀¹ Π_rivals (Σ_{j<m} rival_j x^j + y rival_m x^m) dy,

because ``∫ y^t dy = 1 / (1 + t)``: the integral shares the ties. It is a polynomial in ``y``, so Gauss-Legendre nodes
give it exactly, and every number added or multiplied is positive, so nothing cancels: the result is right to about
1e-14 for 64 votes and to 1e-11 for 1,000 votes in 1,000 classes. The work is polynomial: each node costs at most
votes² operations, and a vote needs fewer nodes than it has votes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from breadth.base.errors import MeasureError

Floats: TypeAlias = NDArray[np.float64]
"""Numbers in double precision."""
Ints: TypeAlias = NDArray[np.int64]
"""Counts and positions."""
Standing: TypeAlias = tuple[int, tuple[int, ...], int]
"""A vote as one class sees it: its own count, its rivals' counts by falling size, the samples that never vote."""

MOST_INDEPENDENT_DRAWS = 700
"""Largest k of `independent_winning_chances`: the numbers it adds grow to e^k."""
_BATCH_CELLS = 1 << 15
"""Numbers per array of one batch (256 KB), so that the arrays of a batch stay in the processor's cache."""
_LARGEST_WEIGHT = 1e300
"""More ways to draw than this come too close to overflow."""


def drawn_winning_chances(standings: Sequence[Standing], draws: Ints) -> Floats:
    """Return [standings, draws]: the chance to win when that many of the samples are drawn without replacement."""
    chances = np.empty((len(standings), draws.size))
    for batch in _batches(standings, int(draws.max())):
        chances[batch] = _drawn_batch([standings[index] for index in batch], draws)
    return chances


def independent_winning_chances(shares: Floats, own: int, draws: Ints) -> Floats:
    """Return [draws]: the chance of class number ``own`` to win that many independent draws, given each class's share.

    What the shares lack to 1 is drawn but never votes.
    """
    most, classes = int(draws.max()), shares.size
    kinds = np.append(shares, max(0.0, 1.0 - float(shares.sum())))
    # The scale ``most`` makes the weight of all draws, most^k / k!, rise from 1 to at most e^700: it stays in range.
    series = _running_products(kinds[:, None] * most / np.arange(1, most + 1))
    everything = _running_products(most / np.arange(1, most + 1)[None, :])
    rivals = np.delete(np.arange(classes), own)[None, :]
    contest = _Contests(series, np.full(classes + 1, most), np.array([own]), rivals, np.full((1, most), classes))
    chances: Floats = np.minimum(_winning_weight(contest) / everything, 1.0)[0, draws]
    return chances


@dataclass(frozen=True)
class _Contests:
    """Several votes, each seen from one class. Series are rows of one table, named by row, so equal ones are stored once."""

    series: Floats
    """[kinds, most + 1] ways to draw j votes, for j = 0 .. most."""
    reach: Ints
    """[kinds] the most votes the series can give."""
    own: Ints
    """[contests] series of the class that is to win."""
    rivals: Ints
    """[contests, rivals] series of the others, by falling reach; padded with one of reach 0."""
    rest: Ints
    """[contests, levels] series of all that cannot hold m votes, for m = 1 .. levels: silent samples, smaller rivals."""


@dataclass(frozen=True)
class _Rows:
    """One row per contest, winning number of votes and node of the integral, by rising number of votes."""

    contest: Ints
    level: Ints
    node: Floats
    weight: Floats

    def up_to(self, level: int) -> _Rows:
        """Keep the rows with at most this winning number of votes."""
        end = int(np.searchsorted(self.level, level, side="right"))
        return _Rows(self.contest[:end], self.level[:end], self.node[:end], self.weight[:end])


def _batches(standings: Sequence[Standing], most: int) -> Iterator[list[int]]:
    """Group alike standings (they waste least when padded to one shape) up to the size of a batch."""
    batch: list[int] = []
    cells = 0
    for index in sorted(range(len(standings)), key=standings.__getitem__):
        own, rivals, _ = standings[index]
        top = min(own, most)
        rows = top + sum(min(rival, top) for rival in rivals) // 2
        if batch and cells + rows * (most + 1) > _BATCH_CELLS:
            yield batch
            batch, cells = [], 0
        batch.append(index)
        cells += rows * (most + 1)
    if batch:
        yield batch


def _drawn_batch(standings: Sequence[Standing], draws: Ints) -> Floats:
    most, width = int(draws.max()), max(len(rivals) for _, rivals, _ in standings)
    own = np.array([standing[0] for standing in standings])
    rivals = np.array([[*others, *[0] * (width - len(others))] for _, others, _ in standings], dtype=np.int64).reshape(own.size, width)
    silent = np.array([standing[2] for standing in standings])
    levels = np.arange(1, min(most, int(own.max())) + 1)
    # Of a rival with fewer than m samples every draw is allowed at level m, so it joins the silent ones: C(a+b, j).
    rest = silent[:, None] + np.where(rivals[:, :, None] < levels, rivals[:, :, None], 0).sum(axis=1)
    kinds, names = np.unique(np.concatenate([own, rivals.ravel(), rest.ravel()]), return_inverse=True)
    parts = np.split(names, np.cumsum([own.size, rivals.size]))
    contests = _Contests(_ways(kinds, most), kinds, parts[0], parts[1].reshape(rivals.shape), parts[2].reshape(rest.shape))
    everything = _ways(own + rivals.sum(axis=1) + silent, most)[:, draws]
    if not everything.max() < _LARGEST_WEIGHT:
        raise MeasureError(
            f"Exact counting of k = {most} of {int((own + rivals.sum(axis=1) + silent).max())} samples goes beyond floating point.",
            "Ask for smaller k (128 of 10,000 and all of 1,000 samples are possible), or use sampled_maj_at_k.",
        )
    # Rounding may lift a certain win a hair above 1.
    return np.minimum(_winning_weight(contests)[:, draws] / everything, 1.0)


def _ways(counts: Ints, most: int) -> Floats:
    """Binomial coefficients C(count, j) as [counts, most + 1] floats; too large ones become infinite or NaN."""
    taken = np.arange(most)
    with np.errstate(over="ignore", invalid="ignore"):
        return _running_products(np.maximum(counts[:, None] - taken, 0) / (taken + 1))


def _running_products(factors: Floats) -> Floats:
    return np.concatenate([np.ones((len(factors), 1)), np.cumprod(factors, axis=1)], axis=1)


def _winning_weight(contests: _Contests) -> Floats:
    """[contests, most + 1] weight of the draws of k votes that the own class wins, for k = 0 .. most."""
    rows = _rows(contests)
    product = contests.series[contests.rest[rows.contest, rows.level - 1]]
    for rank in range(contests.rivals.shape[1]):
        active = rows.up_to(int(contests.reach[contests.rivals[:, rank]].max()))
        size = active.level.size
        if size == 0:
            break
        product[:size] = _times_rival(product[:size], contests, active, rank)
    product *= (rows.weight * contests.series[contests.own[rows.contest], rows.level])[:, None]
    return _gathered(product, rows, contests.own.size)


def _rows(contests: _Contests) -> _Rows:
    own, rivals = contests.reach[contests.own], contests.reach[contests.rivals]
    levels = np.arange(1, contests.rest.shape[1] + 1)
    tied = np.count_nonzero(rivals[:, :, None] >= levels, axis=1)
    # q nodes integrate degree 2q - 1 exactly; where the own class cannot have m votes there is nothing to add.
    sizes = np.where(levels <= own[:, None], tied // 2 + 1, 0).T.ravel()
    pair = np.repeat(np.arange(sizes.size), sizes)
    within = np.arange(pair.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    nodes, weights = _node_table(int(sizes.max()))
    level, contest = np.divmod(pair, own.size)
    return _Rows(contest, level + 1, nodes[sizes[pair], within], weights[sizes[pair], within])


@lru_cache(maxsize=8)
def _node_table(most: int) -> tuple[Floats, Floats]:
    """Nodes and weights on [0, 1]; row q holds the rule with q nodes."""
    nodes, weights = np.zeros((most + 1, most)), np.zeros((most + 1, most))
    for count in range(1, most + 1):
        nodes[count, :count], weights[count, :count] = _rule(count)
    return nodes, weights


@lru_cache(maxsize=1024)
def _rule(count: int) -> tuple[Floats, Floats]:
    node, weight = np.polynomial.legendre.leggauss(count)
    return (node + 1) / 2, weight / 2


def _times_rival(product: Floats, contests: _Contests, rows: _Rows, rank: int) -> Floats:
    """Multiply each row by its rival's series cut at the row's level, with the node on the tie."""
    rival = contests.rivals[rows.contest, rank]
    top = int(rows.level[-1])
    power, level = np.arange(top + 1), rows.level[:, None]
    cut = np.where(power < level, 1.0, np.where(power == level, rows.node[:, None], 0.0))
    # A rival that cannot reach the level is in ``rest`` already: its row stays as it is.
    cut[contests.reach[rival] < rows.level] = 0.0
    factor = contests.series[rival, : top + 1] * cut
    result = product.copy()
    first = np.searchsorted(rows.level, power)
    for votes in range(1, top + 1):
        start = first[votes]
        result[start:, votes:] += factor[start:, votes, None] * product[start:, :-votes]
    return result


def _gathered(product: Floats, rows: _Rows, contest_count: int) -> Floats:
    """Sum the rows of each contest, shifted by the votes its own class has in them."""
    columns = product.shape[1]
    pairs, starts = np.unique(rows.level * contest_count + rows.contest, return_index=True)
    sums = np.add.reduceat(product, starts, axis=0)
    levels, contest = np.divmod(pairs, contest_count)
    result = np.zeros((contest_count, columns))
    for level in range(1, int(levels[-1]) + 1):
        begin, end = np.searchsorted(levels, [level, level + 1])
        result[contest[begin:end], level:] += sums[begin:end, : columns - level]
    return result
