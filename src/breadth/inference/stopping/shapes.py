"""Stop by the exact posterior over a library of answer shapes (optimal Bayesian rule on two counts and the rest)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import combinations_with_replacement
from typing import ClassVar

import numpy as np

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.stopping.beta_lead import BetaLead, beta_lead
from breadth.inference.stopping.rule import StopRule
from breadth.inference.stopping.shape_library import ShapeLibrary, add_rare_answers
from breadth.inference.stored_votes import Paths, map_combinations
from breadth.inference.voting import VoteState
from breadth.measure.validate import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Shapes(StopRule):
    """Stop when the leader is the most frequent answer with posterior probability 1 - ``delta``, given past questions.

    The prior is a library of shapes p1 >= p2 >= ... with weights; the evidence the largest count, the second largest
    and the rest. The posterior is exact: which answer has which count is summed over all assignments (arXiv 2602.05395,
    form L = 3, which is as good as all counts when delta is small and takes far fewer votes than the Beta rule). An
    answer that ties for the largest share of its shape counts as most frequent. The paper weights 40-vote shapes of
    past questions equally; here the library's weights are fitted, see `ShapeLibrary.fit`. Without a library, or at a
    state that no shape can give, it is `BetaLead` with threshold 1 - delta. The default is the 0.95 of
    Adaptive-Consistency.
    Harm: it is only as good as the library resembles the questions. It bounds each question's chance, not the average,
    and knows no last vote; to state an average risk against a full vote use `Risk`.
    """

    paper = Paper(
        "arXiv 2602.05395",
        "optimal Bayesian stopping by answer shapes",
        "the exact form with two counts and a remainder; libraries (`inference.stopping.shape_library`) are fitted from"
        " stored votes",
    )

    delta: float = 0.05
    """Largest chance, when it stops, that the leader is not the most frequent answer."""
    library: ShapeLibrary = ShapeLibrary()
    """Answer shapes of past questions; fitted from stored votes, kept in a file."""

    by_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self, "delta", 0 < self.delta <= 0.5, "a probability above 0 and at most 0.5")

    def is_decided(self, state: VoteState) -> bool:
        """Compare the posterior with 1 - delta."""
        return self.leader_chance(state.leader, state.runner_up, state.rest) >= 1 - self.delta

    def posterior(self, state: VoteState) -> float | None:
        """Return the chance that the leader is the most frequent answer; None without votes."""
        return self.leader_chance(state.leader, state.runner_up, state.rest) if state.total else None

    @property
    def basis(self) -> str:
        """Short description of the posterior."""
        if self.library.empty:
            return f"no library of past questions: {self._fallback.basis}"
        return f"answer shapes of {self.library.questions or len(self.library.shapes)} past questions"

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Compute each state once."""
        chances = map_combinations(self.leader_chance, paths.leader, paths.runner_up, paths.rest)
        return np.asarray(chances >= 1 - self.delta)

    def leader_chance(self, leader: int, runner_up: int, rest: int) -> float:
        """Return the leader's posterior; 0 without votes, by the Beta rule where no shape can give these counts."""
        if not leader:
            return 0.0
        known = None if self.library.empty else leader_posterior(self.library, leader, runner_up, rest)
        return beta_lead(leader, runner_up) if known is None else known

    @property
    def _fallback(self) -> BetaLead:
        return BetaLead(1 - self.delta)


def leader_posterior(library: ShapeLibrary, leader: int, runner_up: int, rest: int) -> float | None:
    """Return the chance that the leader has its question's largest share; None where no shape can give these counts.

    Which answer has which count is unknown, so all assignments are summed: answer i has the leader's count, j the
    runner-up's, and the rest is spread over the others, none above the runner-up. Where several answers have the
    runner-up's count, each of the ways to name two of them is equally likely: a weight 1 / C(c + m, c), with m answers
    of the rest at that count and c of the named two (one, or both in a tie). Written as a series in x, one factor per
    answer, the weight is an integral over y:

        S(i, j) = [x^rest] of the integral over y in (0, 1) of
                  w(y) * product over the others of (sum_{r < n2} (px)^r / r! + y (px)^n2 / n2!)

    with w = 1 for c = 1 and 2 (1 - y) for c = 2; constant factors cancel and are left out. It is a polynomial in y, so
    Gauss-Legendre nodes give it exactly, and all terms are positive.
    """
    if runner_up == 0:
        groups = group_shares(library)
        unanimous = groups.weights[:, None] * groups.sizes * groups.shares**leader
        every, modal = float(unanimous.sum()), float(unanimous[:, 0].sum())
    else:
        # Rounded up to a power of two from 8 on, so states share their series.
        length = max(8, 1 << (rest - 1).bit_length())
        every, modal = assignment_weights(leader_pairs(library, runner_up, length), leader, rest)
    return modal / every if every > 0 else None


@dataclass(frozen=True, eq=False)
class ShareGroups:
    """A library's answers, grouped by equal share within a shape, largest first; padded with empty groups."""

    shares: FloatArray
    """(shapes, groups): the share of each answer of the group."""
    sizes: IntArray
    """(shapes, groups): how many answers have it."""
    weights: FloatArray
    """Weight of each shape."""


@dataclass(frozen=True, eq=False)
class LeaderPairs:
    """All ways to name a leader and a runner-up with ``votes``, one row per shape and pair of groups."""

    votes: int
    """Votes of the runner-up."""
    weights: FloatArray
    """Weight of the shape times the ways to choose one answer of each group."""
    modal: BoolArray
    """Whether the leader has the largest share of its shape."""
    leader: FloatArray
    """Share of the leader."""
    runner_up: FloatArray
    """Share of the runner-up."""
    series: FloatArray
    """(rows, rest): S, up to a constant factor, when the leader has more votes than the runner-up."""
    tied: FloatArray
    """(rows, rest): S, up to a constant factor, when it has as many."""


@lru_cache(maxsize=16)
def group_shares(library: ShapeLibrary) -> ShareGroups:
    """Group the answers of each shape by equal shares."""
    counted = [Counter(share for share in add_rare_answers(shape).tolist() if share > 0) for shape in library.shapes]
    width = max(map(len, counted))
    shares, sizes = np.zeros((len(counted), width)), np.zeros((len(counted), width), dtype=np.int64)
    for row, sizes_of in enumerate(counted):
        falling = sorted(sizes_of, reverse=True)
        shares[row, : len(falling)] = falling
        sizes[row, : len(falling)] = [sizes_of[share] for share in falling]
    return ShareGroups(shares, sizes, np.array(library.weights))


def assignment_weights(pairs: LeaderPairs, leader: int, rest: int) -> tuple[float, float]:
    """Return the weight of all assignments and of those where a most frequent answer leads."""
    series = pairs.tied if leader == pairs.votes else pairs.series
    weight = pairs.weights * pairs.leader**leader * pairs.runner_up**pairs.votes * series[:, rest]
    return float(weight.sum()), float(weight[pairs.modal].sum())


@lru_cache(maxsize=256)
def leader_pairs(library: ShapeLibrary, votes: int, most: int) -> LeaderPairs:
    """Compute the series of every pair of groups up to a rest of ``most``."""
    every = group_shares(library)
    # Gauss-Legendre nodes on (0, 1): exact for polynomials of degree most // votes + 1.
    node, weight = np.polynomial.legendre.leggauss((most // votes + 1) // 2 + 1)
    nodes = (node + 1) / 2
    powers = [group_powers(every, group, votes, most, nodes) for group in range(every.shares.shape[1])]
    rows: list[tuple[FloatArray, ...]] = []
    for first, second in combinations_with_replacement(range(len(powers)), 2):
        ways = every.sizes[:, first] * (every.sizes[:, second] - (first == second))
        taken = Counter([first, second])
        others = reduce(multiply_series, [power[taken[group]] for group, power in enumerate(powers)])
        series, tied = np.tensordot(others, weight, (1, 0)), np.tensordot(others, weight * (1 - nodes), (1, 0))
        orders = [(first, second)] if first == second else [(first, second), (second, first)]
        for leader, runner_up in orders:
            leads = np.full(len(ways), leader == 0)
            shares = every.shares[:, leader], every.shares[:, runner_up]
            rows.append((every.weights * ways, leads, *shares, series, tied))
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
    used = columns[0] > 0
    return LeaderPairs(votes, *(column[used] for column in columns))


def group_powers(every: ShareGroups, group: int, votes: int, most: int, nodes: FloatArray) -> list[FloatArray]:
    """Return the series of all, all but one and all but two answers of a group: (shapes, nodes, rest)."""
    steps = np.arange(most + 1)
    ratio = np.where(steps > 0, every.shares[:, group, None] / np.maximum(steps, 1), 1.0)
    answer = np.where(steps > votes, 0.0, np.cumprod(ratio, axis=1))[:, None, :]
    base = np.where(steps == votes, nodes[:, None] * answer, answer)
    power = np.zeros(base.shape)
    power[:, :, 0] = 1.0
    chosen = [power.copy() for _ in range(3)]
    for lower in range(int(every.sizes[:, group].max())):
        power = multiply_series(power, base)
        for taken, series in enumerate(chosen):
            here = every.sizes[:, group] - taken == lower + 1
            series[here] = power[here]
    return chosen


def multiply_series(first: FloatArray, second: FloatArray) -> FloatArray:
    """Multiply power series along the last axis, up to their length."""
    result = np.zeros(first.shape)
    for step in range(first.shape[2]):
        factor = second[:, :, step, None]
        if factor.any():
            result[:, :, step:] += factor * first[:, :, : first.shape[2] - step]
    return result
