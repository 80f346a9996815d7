"""Majority votes: maj@k counted exactly from the samples there are, and the winners of plain and weighted votes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from breadth.base.errors import MeasureError
from breadth.measure.contests import MOST_INDEPENDENT_DRAWS, Standing, drawn_winning_chances, independent_winning_chances
from breadth.measure.coverage import draw_sizes, whole_numbers

Floats: TypeAlias = NDArray[np.float64]
"""Numbers in double precision."""
Ints: TypeAlias = NDArray[np.int64]
"""Counts and positions."""

TIE = 1e-12
"""Weights this close to the largest, relative to it, are tied with it: sums of floats do not come out equal."""


def maj_at_k(counts: ArrayLike, correct: ArrayLike, k: ArrayLike | None = None, unparsable: int = 0) -> Floats:
    """Return the accuracy to expect of a plurality vote over ``k`` of a problem's samples, exactly.

    ``counts[i]`` samples gave answer class i, and ``correct[i]`` says whether that class is right (a share between 0 and
    1 for a class whose members were graded differently). All draws of k samples without replacement count alike; ties
    are shared equally among the tied classes; the ``unparsable`` samples may be drawn but never vote, and a draw of
    nothing else scores 0. Without ``k``: every k from 1 to the number of samples. The method, polynomial in the number
    of samples, is that of `breadth.measure.contests`. maj@1 is the accuracy of a single sample.

    At k = n the value is the outcome of that one vote: keep k below n/2 when the spread between problems is used. Votes
    of unlike models, or of samples that saw one another, are not draws from one distribution, whatever this returns.
    """
    sizes = np.atleast_1d(whole_numbers(counts, "counts"))
    values = _class_values(correct, sizes.shape)
    silent = int(whole_numbers(unparsable, "unparsable"))
    total = int(sizes.sum()) + silent
    if total < 1 or min(silent, int(sizes.min(initial=0))) < 0:
        raise MeasureError(
            f"counts {sizes.tolist()!s:.80} with {silent} unparsable are no vote.", "Give counts from 0 up, at least one sample."
        )
    draws = draw_sizes(np.arange(1, total + 1) if k is None else k, total)
    cast, value = sizes[sizes > 0], values[sizes > 0]
    standings = [standing for standing, right in zip(_standings(cast, silent), value, strict=True) if right > 0]
    curve = value[value > 0] @ drawn_winning_chances(standings, draws)
    return curve if k is None or np.ndim(k) else np.asarray(curve[0])


def maj_at_k_by_problem(problems: ArrayLike, classes: ArrayLike, correct: ArrayLike, k: ArrayLike | None = None) -> Floats:
    """Return `maj_at_k` of many problems at once, as [problems, k], from one row per sample; problems in sorted order.

    ``problems`` are ids of any kind, ``classes`` the answer class within the problem (-1: no parsable answer; such a
    sample never votes, even if it was graded correct), ``correct`` the grade of the sample. Votes with equal counts are
    computed once. Without ``k``: every k up to the size of the smallest problem.
    """
    ballots = _Ballots.read(problems, classes, correct)
    draws = draw_sizes(np.arange(1, ballots.totals.min() + 1) if k is None else k, ballots.totals)
    known: dict[Standing, int] = {}
    owners, values, rows = [], [], []
    for problem, value, standing in ballots.right_classes():
        owners.append(problem)
        values.append(value)
        rows.append(known.setdefault(standing, len(known)))
    curves = np.zeros((ballots.totals.size, draws.size))
    if known:
        np.add.at(curves, owners, np.array(values)[:, None] * drawn_winning_chances(list(known), draws)[rows])
    return curves if k is None or np.ndim(k) else curves[:, 0]


def mean_maj_at_k(problems: ArrayLike, classes: ArrayLike, correct: ArrayLike, k: ArrayLike | None = None) -> Floats:
    """Average `maj_at_k_by_problem` over problems, each with equal weight; one number per k."""
    return np.asarray(maj_at_k_by_problem(problems, classes, correct, k).mean(axis=0))


def maj_at_k_from_shares(shares: ArrayLike, correct: ArrayLike, k: ArrayLike) -> Floats:
    """Return the accuracy of a plurality vote over ``k`` independent samples of a known answer distribution, exactly.

    ``shares[i]`` is the chance of answer class i; what they lack to 1 is the chance of no parsable answer. Ties as in
    `maj_at_k`, which comes close to this as the samples grow in number. Condorcet's jury: with shares (.4 right, .3, .3)
    more votes help, with (.4 right, .6) they hurt. For k up to 700.
    """
    chances = np.atleast_1d(np.asarray(shares, dtype=np.float64))
    values = _class_values(correct, chances.shape)
    if not (np.all(chances >= 0) and chances.sum() <= 1 + 1e-9):
        raise MeasureError(f"shares must be 0 or more and sum to at most 1; got {chances.tolist()!s:.80}.", "Divide counts by their sum.")
    draws = draw_sizes(k, np.iinfo(np.int64).max)
    if draws.max() > MOST_INDEPENDENT_DRAWS:
        raise MeasureError(f"k = {draws.max()} is too large to count exactly.", f"Ask for k up to {MOST_INDEPENDENT_DRAWS}.")
    curve = np.zeros(draws.size)
    for own in np.flatnonzero(values * chances).tolist():
        curve += values[own] * independent_winning_chances(chances, own, draws)
    return curve if np.ndim(k) else np.asarray(curve[0])


@dataclass(frozen=True)
class VoteCount:
    """The outcome of one vote."""

    winners: tuple[int, ...]
    """Classes with the largest weight, ascending: several when tied, none when nobody cast a vote of any weight."""
    shares: Mapping[int, float]
    """Class -> its share of all weight cast."""


def plurality(classes: ArrayLike) -> VoteCount:
    """Count one vote per sample; class -1 (no parsable answer) does not vote. Self-consistency, arXiv 2203.11171."""
    return weighted_vote(classes, np.ones(np.shape(classes)))


def weighted_vote(classes: ArrayLike, weights: ArrayLike) -> VoteCount:
    """Count a vote in which each sample has a weight: a verifier's score, a confidence; class -1 does not vote.

    With a reward model's scores as weights this is weighted best-of-n. Weights must not be negative: an unbounded score
    goes through a sigmoid or a rank first, or a class would lose by being chosen more often.
    """
    labels, weight = checked_ballots(classes, weights)
    winners, place = np.unique(labels[labels >= 0], return_inverse=True)
    sums = np.bincount(place, weight[labels >= 0], minlength=winners.size)
    if not sums.sum() > 0:
        return VoteCount((), dict.fromkeys(winners.tolist(), 0.0))
    top = winners[sums >= sums.max() * (1 - TIE)]
    return VoteCount(tuple(top.tolist()), dict(zip(winners.tolist(), (sums / sums.sum()).tolist(), strict=True)))


def best_of_n(scores: ArrayLike) -> tuple[int, ...]:
    """Return the samples with the highest score, several when tied; a sample without a score (NaN) cannot be best.

    With an imperfect score the choice gets worse beyond some n: the score's errors are then what is maximised.
    """
    values = np.atleast_1d(np.asarray(scores, dtype=np.float64))
    if values.ndim > 1 or np.all(np.isnan(values)):
        raise MeasureError(f"Got scores of shape {values.shape} with no usable number among them.", "Give one score per sample.")
    return tuple(np.flatnonzero(values == np.nanmax(values)).tolist())


@dataclass(frozen=True)
class _Ballots:
    """Samples counted per (problem, class), the problem's largest class first."""

    totals: Ints
    """Samples per problem."""
    problem: Ints
    """Which problem each class belongs to, ascending."""
    counts: Ints
    """Samples per class."""
    values: Floats
    """Share of the class's samples that are correct: 0 or 1 when the classes agree with the grader."""

    @classmethod
    def read(cls, problems: ArrayLike, classes: ArrayLike, correct: ArrayLike) -> _Ballots:
        """Count the columns."""
        ids, grades = np.asarray(problems), np.asarray(correct, dtype=np.float64)
        labels, _ = checked_ballots(classes, np.ones(np.shape(classes)))
        if not ids.shape == labels.shape == grades.shape or labels.size == 0 or not np.all((grades >= 0) & (grades <= 1)):
            raise MeasureError(
                f"Got {ids.shape} problems, {labels.shape} classes and {grades.shape} grades; need one of each a sample, grades in [0, 1].",
                "Give three columns of equal length with at least one row, and drop samples that were not graded.",
            )
        names, problem = np.unique(ids, return_inverse=True)
        voting = labels >= 0
        width = int(labels.max()) + 1
        codes, place, counts = np.unique(problem[voting] * width + labels[voting], return_inverse=True, return_counts=True)
        values = np.bincount(place, grades[voting], minlength=codes.size) / counts
        order = np.lexsort((-counts, codes // max(width, 1)))
        return cls(np.bincount(problem, minlength=names.size), codes[order] // max(width, 1), counts[order], values[order])

    def right_classes(self) -> Iterator[tuple[int, float, Standing]]:
        """Yield every class with a correct sample: its problem, its value, how it stands in the vote."""
        bounds = np.searchsorted(self.problem, np.arange(self.totals.size + 1)).tolist()
        for problem in np.unique(self.problem[self.values > 0]).tolist():
            begin, end = bounds[problem : problem + 2]
            standings = _standings(self.counts[begin:end], int(self.totals[problem] - self.counts[begin:end].sum()))
            for value, standing in zip(self.values[begin:end].tolist(), standings, strict=True):
                if value > 0:
                    yield problem, value, standing


def _standings(sizes: Ints, silent: int) -> list[Standing]:
    """Describe the vote from each class's side, in the order given."""
    ordered = sorted(sizes.tolist(), reverse=True)
    places = [ordered.index(size) for size in sizes.tolist()]
    return [(ordered[place], (*ordered[:place], *ordered[place + 1 :]), silent) for place in places]


def _class_values(correct: ArrayLike, shape: tuple[int, ...]) -> Floats:
    values = np.atleast_1d(np.asarray(correct, dtype=np.float64))
    if len(shape) != 1 or values.shape != shape or not np.all((values >= 0) & (values <= 1)):
        raise MeasureError(
            f"Got {shape} classes and {values.shape} verdicts.", "Say for each class whether it is correct: True, False or a share."
        )
    return values


def checked_ballots(classes: ArrayLike, weights: ArrayLike) -> tuple[Ints, Floats]:
    """Return classes and weights as arrays, one of each per sample; refuse classes below -1 and weights that are not finite or negative."""
    labels, weight = whole_numbers(classes, "classes"), np.asarray(weights, dtype=np.float64)
    if labels.ndim != 1 or labels.shape != weight.shape or (labels.size and labels.min() < -1):
        raise MeasureError(
            f"Got classes of shape {labels.shape} and weights of shape {weight.shape}.", "Give one class from -1 up per sample."
        )
    if not np.all((weight >= 0) & np.isfinite(weight)):
        raise MeasureError("Weights must be finite numbers from 0 up.", "Pass unbounded scores through a sigmoid or use their ranks.")
    return labels, weight
