"""Majority votes: maj@k counted exactly from the samples there are, and the winners of plain and weighted votes.

Counting means: the chance that one class wins a draw of k votes, ties shared equally.

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from breadth.base.errors import MeasureError
from breadth.measure.pass_at_k import as_sample_sizes
from breadth.measure.validate import FloatArray, IntArray, as_integers

ClassVote: TypeAlias = tuple[int, tuple[int, ...], int]
"""A vote as one class sees it: its own count, its rivals' counts by falling size, the samples that never vote."""

MAX_INDEPENDENT_SAMPLES = 700
"""Largest k of `independent_winning_chances`: the numbers it adds grow to e^k."""
_BATCH_CELLS = 1 << 15
"""Numbers per array of one batch (256 KB): the arrays of a batch stay in the processor's cache."""
_MAX_WEIGHT = 1e300
"""More ways to draw than this come too close to overflow."""


def win_probabilities(standings: Sequence[ClassVote], draws: IntArray) -> FloatArray:
    """Return [standings, draws]: the chance to win when that many of the samples are drawn without replacement."""
    chances = np.empty((len(standings), draws.size))
    for batch in _batches(standings, int(draws.max())):
        chances[batch] = _batch_probabilities([standings[index] for index in batch], draws)
    return chances


def independent_win_probabilities(shares: FloatArray, own: int, draws: IntArray) -> FloatArray:
    """Return [draws]: the chance of class number ``own`` to win that many independent draws, given each class's share.

    What the shares lack to 1 is drawn but never votes.
    """
    most, classes = int(draws.max()), shares.size
    kinds = np.append(shares, max(0.0, 1.0 - float(shares.sum())))
    # The scale ``most`` makes the weight of all draws, most^k / k!, rise from 1 to at most e^700: it stays in range.
    series = running_products(kinds[:, None] * most / np.arange(1, most + 1))
    everything = running_products(most / np.arange(1, most + 1)[None, :])
    rivals = np.delete(np.arange(classes), own)[None, :]
    contest = _Contests(series, np.full(classes + 1, most), np.array([own]), rivals, np.full((1, most), classes))
    chances: FloatArray = np.minimum(win_weights(contest) / everything, 1.0)[0, draws]
    return chances


@dataclass(frozen=True)
class _Contests:
    """Several votes, each seen from one class.

    Series are rows of one table, named by row, so equal ones are stored once.
    """

    series: FloatArray
    """[kinds, most + 1] ways to draw j votes, for j = 0 .. most."""
    reach: IntArray
    """[kinds] the most votes the series can give."""
    own: IntArray
    """[contests] series of the class that is to win."""
    rivals: IntArray
    """[contests, rivals] series of the others, by falling reach; padded with one of reach 0."""
    rest: IntArray
    """[contests, levels] series of all that cannot hold m votes, for m = 1 .. levels: silent samples, smaller rivals.
    """


@dataclass(frozen=True)
class _Rows:
    """One row per contest, winning number of votes and node of the integral, by rising number of votes."""

    contest: IntArray
    level: IntArray
    node: FloatArray
    weight: FloatArray

    def keep_up_to(self, level: int) -> _Rows:
        """Keep the rows with at most this winning number of votes."""
        end = int(np.searchsorted(self.level, level, side="right"))
        return _Rows(self.contest[:end], self.level[:end], self.node[:end], self.weight[:end])


def _batches(standings: Sequence[ClassVote], most: int) -> Iterator[list[int]]:
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


def _batch_probabilities(standings: Sequence[ClassVote], draws: IntArray) -> FloatArray:
    most, width = int(draws.max()), max(len(rivals) for _, rivals, _ in standings)
    own = np.array([standing[0] for standing in standings])
    rivals = np.array([[*others, *[0] * (width - len(others))] for _, others, _ in standings], dtype=np.int64).reshape(
        own.size, width
    )
    silent = np.array([standing[2] for standing in standings])
    levels = np.arange(1, min(most, int(own.max())) + 1)
    # Of a rival with fewer than m samples every draw is allowed at level m, so it joins the silent ones: C(a+b, j).
    rest = silent[:, None] + np.where(rivals[:, :, None] < levels, rivals[:, :, None], 0).sum(axis=1)
    kinds, names = np.unique(np.concatenate([own, rivals.ravel(), rest.ravel()]), return_inverse=True)
    parts = np.split(names, np.cumsum([own.size, rivals.size]))
    contests = _Contests(
        binomials(kinds, most), kinds, parts[0], parts[1].reshape(rivals.shape), parts[2].reshape(rest.shape)
    )
    everything = binomials(own + rivals.sum(axis=1) + silent, most)[:, draws]
    if not everything.max() < _MAX_WEIGHT:
        raise MeasureError(
            f"Exact counting of k = {most} of {int((own + rivals.sum(axis=1) + silent).max())} samples goes beyond"
            " floating point.",
            "Ask for smaller k (128 of 10,000 and all of 1,000 samples are possible), or use maj_at_k_from_shares with"
            f" each class's share of the samples: it counts k up to {MAX_INDEPENDENT_SAMPLES} independent samples.",
        )
    # Rounding may lift a certain win a hair above 1.
    return np.minimum(win_weights(contests)[:, draws] / everything, 1.0)


def binomials(counts: IntArray, most: int) -> FloatArray:
    """Binomial coefficients C(count, j) as [counts, most + 1] floats; too large ones become infinite or NaN."""
    taken = np.arange(most)
    with np.errstate(over="ignore", invalid="ignore"):
        return running_products(np.maximum(counts[:, None] - taken, 0) / (taken + 1))


def running_products(factors: FloatArray) -> FloatArray:
    """Return the running products of each row, starting from 1."""
    return np.concatenate([np.ones((len(factors), 1)), np.cumprod(factors, axis=1)], axis=1)


def win_weights(contests: _Contests) -> FloatArray:
    """[contests, most + 1] weight of the draws of k votes that the own class wins, for k = 0 .. most."""
    rows = _rows(contests)
    product = contests.series[contests.rest[rows.contest, rows.level - 1]]
    for rank in range(contests.rivals.shape[1]):
        active = rows.keep_up_to(int(contests.reach[contests.rivals[:, rank]].max()))
        size = active.level.size
        if size == 0:
            break
        product[:size] = _times_rival(product[:size], contests, active, rank)
    product *= (rows.weight * contests.series[contests.own[rows.contest], rows.level])[:, None]
    return _sum_rows(product, rows, contests.own.size)


def _rows(contests: _Contests) -> _Rows:
    own, rivals = contests.reach[contests.own], contests.reach[contests.rivals]
    levels = np.arange(1, contests.rest.shape[1] + 1)
    tied = np.count_nonzero(rivals[:, :, None] >= levels, axis=1)
    # q nodes integrate degree 2q - 1 exactly; where the own class cannot have m votes there is nothing to add.
    sizes = np.where(levels <= own[:, None], tied // 2 + 1, 0).T.ravel()
    pair = np.repeat(np.arange(sizes.size), sizes)
    within = np.arange(pair.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    nodes, weights = gauss_legendre_table(int(sizes.max()))
    level, contest = np.divmod(pair, own.size)
    return _Rows(contest, level + 1, nodes[sizes[pair], within], weights[sizes[pair], within])


@lru_cache(maxsize=8)
def gauss_legendre_table(most: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on [0, 1]; row q holds the rule with q nodes."""
    nodes, weights = np.zeros((most + 1, most)), np.zeros((most + 1, most))
    for count in range(1, most + 1):
        nodes[count, :count], weights[count, :count] = _rule(count)
    return nodes, weights


@lru_cache(maxsize=1024)
def _rule(count: int) -> tuple[FloatArray, FloatArray]:
    node, weight = np.polynomial.legendre.leggauss(count)
    return (node + 1) / 2, weight / 2


def _times_rival(product: FloatArray, contests: _Contests, rows: _Rows, rank: int) -> FloatArray:
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


def _sum_rows(product: FloatArray, rows: _Rows, contest_count: int) -> FloatArray:
    """Sum the rows of each contest, shifted by the votes its own class has in them."""
    columns = product.shape[1]
    pairs, starts = np.unique(rows.level * contest_count + rows.contest, return_index=True)
    sums = np.add.reduceat(product, starts, axis=0)
    levels, contest = np.divmod(pairs, contest_count)
    result = np.zeros((contest_count, columns))
    for level in np.unique(levels).tolist():
        begin, end = np.searchsorted(levels, [level, level + 1])
        result[contest[begin:end], level:] += sums[begin:end, : columns - level]
    return result


TIE_TOLERANCE = 1e-12
"""Weights this close to the largest, relative to it, are tied with it: sums of floats do not come out equal."""


def maj_at_k(counts: ArrayLike, correct: ArrayLike, k: ArrayLike | None = None, unparsable: int = 0) -> FloatArray:
    """Return the accuracy to expect of a plurality vote over ``k`` of a problem's samples, exactly.

    ``counts[i]`` samples gave answer class i, and ``correct[i]`` says whether that class is right (a share between 0
    and 1 for a class whose members were graded differently). All draws of k samples without replacement count alike;
    ties are shared equally among the tied classes; the ``unparsable`` samples may be drawn but never vote, and a draw
    of nothing else scores 0. Without ``k``: every k from 1 to the number of samples. The method, polynomial in the
    number of samples, is that of `breadth.measure.vote_counting`. maj@1 is the accuracy of a single sample.

    At k = n the value is the outcome of that one vote: keep k below n/2 when the spread between problems is used. Votes
    of unlike models, or of samples that saw one another, are not draws from one distribution: the
    result does not apply to them.
    """
    sizes = np.atleast_1d(as_integers(counts, "counts"))
    values = check_class_values(correct, sizes.shape)
    silent = int(as_integers(unparsable, "unparsable"))
    total = int(sizes.sum()) + silent
    if total < 1 or min([silent, *sizes.ravel().tolist()]) < 0:
        raise MeasureError(
            f"counts {sizes.tolist()!s:.80} with {silent} unparsable are no vote.",
            "Give counts from 0 up, at least one sample.",
        )
    draws = as_sample_sizes(np.arange(1, total + 1) if k is None else k, total)
    cast, value = sizes[sizes > 0], values[sizes > 0]
    standings = [standing for standing, right in zip(class_votes(cast, silent), value, strict=True) if right > 0]
    curve = value[value > 0] @ win_probabilities(standings, draws)
    return curve if k is None or np.ndim(k) else np.asarray(curve[0])


def maj_at_k_by_problem(
    problems: ArrayLike, classes: ArrayLike, correct: ArrayLike, k: ArrayLike | None = None
) -> FloatArray:
    """Return `maj_at_k` of many problems at once, as [problems, k], from one row per sample; problems in sorted order.

    ``problems`` are ids of any kind, ``classes`` the answer class within the problem (-1: no parsable answer; such a
    sample never votes, even if it was graded correct), ``correct`` the grade of the sample. Votes with equal counts are
    computed once. Without ``k``: every k up to the size of the smallest problem.
    """
    ballots = _Ballots.read(problems, classes, correct)
    draws = as_sample_sizes(np.arange(1, ballots.totals.min() + 1) if k is None else k, ballots.totals)
    known: dict[ClassVote, int] = {}
    owners, values, rows = [], [], []
    for problem, value, standing in ballots.right_classes():
        owners.append(problem)
        values.append(value)
        rows.append(known.setdefault(standing, len(known)))
    curves = np.zeros((ballots.totals.size, draws.size))
    if known:
        np.add.at(curves, owners, np.array(values)[:, None] * win_probabilities(list(known), draws)[rows])
    return curves if k is None or np.ndim(k) else curves[:, 0]


def mean_maj_at_k(
    problems: ArrayLike, classes: ArrayLike, correct: ArrayLike, k: ArrayLike | None = None
) -> FloatArray:
    """Average `maj_at_k_by_problem` over problems, each with equal weight; one number per k."""
    return np.asarray(maj_at_k_by_problem(problems, classes, correct, k).mean(axis=0))


def maj_at_k_from_shares(shares: ArrayLike, correct: ArrayLike, k: ArrayLike) -> FloatArray:
    """Return the accuracy of a plurality vote over ``k`` independent samples of a known answer distribution, exactly.

    ``shares[i]`` is the chance of answer class i; what they lack to 1 is the chance of no parsable answer. Ties as in
    `maj_at_k`, which comes close to this as the samples grow in number. Condorcet's jury: with shares (.4 right, .3,
    .3) more votes help, with (.4 right, .6) they hurt. For k up to 700.
    """
    chances = np.atleast_1d(np.asarray(shares, dtype=np.float64))
    values = check_class_values(correct, chances.shape)
    if not (np.all(chances >= 0) and chances.sum() <= 1 + 1e-9):
        raise MeasureError(
            f"shares must be 0 or more and sum to at most 1; got {chances.tolist()!s:.80}.",
            "Divide counts by their sum.",
        )
    draws = as_sample_sizes(k, np.iinfo(np.int64).max)
    if draws.max() > MAX_INDEPENDENT_SAMPLES:
        raise MeasureError(
            f"k = {draws.max()} is too large to count exactly.", f"Ask for k up to {MAX_INDEPENDENT_SAMPLES}."
        )
    curve = np.zeros(draws.size)
    for own in np.flatnonzero(values * chances).tolist():
        curve += values[own] * independent_win_probabilities(chances, own, draws)
    return curve if np.ndim(k) else np.asarray(curve[0])


@dataclass(frozen=True)
class VoteResult:
    """The outcome of one vote."""

    winners: tuple[int, ...]
    """Classes with the largest weight, ascending: several when tied, none when no vote had any weight."""
    shares: Mapping[int, float]
    """Class -> its share of all weight cast."""


def plurality(classes: ArrayLike) -> VoteResult:
    """Count one vote per sample; class -1 (no parsable answer) does not vote. Self-consistency, arXiv 2203.11171."""
    return weighted_vote(classes, np.ones(np.shape(classes)))


def weighted_vote(classes: ArrayLike, weights: ArrayLike) -> VoteResult:
    """Count a vote in which each sample has a weight: a verifier's score, a confidence; class -1 does not vote.

    With a reward model's scores as weights this is weighted best-of-n. Weights must not be negative: an unbounded score
    goes through a sigmoid or a rank first, or a class would lose by being chosen more often.
    """
    labels, weight = as_ballots(classes, weights)
    winners, place = np.unique(labels[labels >= 0], return_inverse=True)
    sums = np.bincount(place, weight[labels >= 0], minlength=winners.size)
    if not sums.sum() > 0:
        return VoteResult((), dict.fromkeys(winners.tolist(), 0.0))
    top = winners[sums >= sums.max() * (1 - TIE_TOLERANCE)]
    return VoteResult(tuple(top.tolist()), dict(zip(winners.tolist(), (sums / sums.sum()).tolist(), strict=True)))


@dataclass(frozen=True)
class _Ballots:
    """Samples counted per (problem, class), the problem's largest class first."""

    totals: IntArray
    """Samples per problem."""
    problem: IntArray
    """Which problem each class belongs to, ascending."""
    counts: IntArray
    """Samples per class."""
    values: FloatArray
    """Share of the class's samples that are correct: 0 or 1 when the classes agree with the grader."""

    @classmethod
    def read(cls, problems: ArrayLike, classes: ArrayLike, correct: ArrayLike) -> _Ballots:
        """Count the columns."""
        ids, grades = np.asarray(problems), np.asarray(correct, dtype=np.float64)
        labels, _ = as_ballots(classes, np.ones(np.shape(classes)))
        if (
            not ids.shape == labels.shape == grades.shape
            or labels.size == 0
            or not np.all((grades >= 0) & (grades <= 1))
        ):
            raise MeasureError(
                f"Got {ids.shape} problems, {labels.shape} classes and {grades.shape} grades; need one of each a"
                " sample, grades in [0, 1].",
                "Give three columns of equal length with at least one row, and drop samples that were not graded.",
            )
        names, problem = np.unique(ids, return_inverse=True)
        voting = labels >= 0
        width = int(labels.max()) + 1
        codes, place, counts = np.unique(
            problem[voting] * width + labels[voting], return_inverse=True, return_counts=True
        )
        values = np.bincount(place, grades[voting], minlength=codes.size) / counts
        order = np.lexsort((-counts, codes // max(width, 1)))
        return cls(
            np.bincount(problem, minlength=names.size), codes[order] // max(width, 1), counts[order], values[order]
        )

    def right_classes(self) -> Iterator[tuple[int, float, ClassVote]]:
        """Yield every class with a correct sample: its problem, its value, its counts in the vote."""
        for problem in np.unique(self.problem[self.values > 0]).tolist():
            begin, end = np.searchsorted(self.problem, [problem, problem + 1]).tolist()
            standings = class_votes(self.counts[begin:end], int(self.totals[problem] - self.counts[begin:end].sum()))
            for value, standing in zip(self.values[begin:end].tolist(), standings, strict=True):
                if value > 0:
                    yield problem, value, standing


def class_votes(sizes: IntArray, silent: int) -> list[ClassVote]:
    """Describe the vote from each class's side, in the order given."""
    ordered = sorted(sizes.tolist(), reverse=True)
    places = [ordered.index(size) for size in sizes.tolist()]
    return [(ordered[place], (*ordered[:place], *ordered[place + 1 :]), silent) for place in places]


def check_class_values(correct: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Return one value in [0, 1] per class; refuse another shape."""
    values = np.atleast_1d(np.asarray(correct, dtype=np.float64))
    if len(shape) != 1 or values.shape != shape or not np.all((values >= 0) & (values <= 1)):
        raise MeasureError(
            f"Got {shape} classes and {values.shape} verdicts.",
            "Say for each class whether it is correct: True, False or a share.",
        )
    return values


def as_ballots(classes: ArrayLike, weights: ArrayLike) -> tuple[IntArray, FloatArray]:
    """Return classes and weights as arrays, one of each per sample; refuse classes below -1 and bad weights."""
    labels, weight = as_integers(classes, "classes"), np.asarray(weights, dtype=np.float64)
    if labels.ndim != 1 or labels.shape != weight.shape or (labels.size and labels.min() < -1):
        raise MeasureError(
            f"Got classes of shape {labels.shape} and weights of shape {weight.shape}.",
            "Give one class from -1 up per sample.",
        )
    if not np.all((weight >= 0) & np.isfinite(weight)):
        raise MeasureError(
            "Weights must be finite numbers from 0 up.", "Pass unbounded scores through a sigmoid or use their ranks."
        )
    return labels, weight
