"""A library of answer shapes, and the rule that stops by the exact posterior over it (on two counts and the rest)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np

from breadth.base import settings
from breadth.base.catalogue import Paper
from breadth.base.errors import MeasureError, require
from breadth.inference.stopping.posterior import BetaLead, beta_lead
from breadth.inference.stopping.rule import StopRule
from breadth.inference.stored_votes import Paths, map_combinations
from breadth.inference.voting import VoteState
from breadth.measure.validate import BoolArray, FloatArray, IntArray

CONCENTRATIONS: tuple[float, ...] = tuple(float(value) for value in np.geomspace(0.03, 30, 10))
"""Concentrations of the Chinese-restaurant processes for questions unlike those of a library: 1 to 100 answers."""
_MIN_SHARE = 1e-12
# Share of answers beyond those of a shape: a question with more answers than a shape is unlikely, not impossible.


def shape_likelihoods(counts: Sequence[Sequence[int]], shares: FloatArray) -> FloatArray:
    """Return (questions, shapes): the likelihood of each question's votes, up to a factor per row.

    Counts are matched to shares by size, in all ways where shares are equal. The first two are also swapped, because in
    a close race the more frequent answer is often behind. Other swaps are far less likely and would cost a factorial.
    """
    width = max(shares.shape[1], max(map(len, counts)))
    votes = np.zeros((len(counts), width))
    for row, vector in enumerate(counts):
        votes[row, : len(vector)] = sorted(vector, reverse=True)
    falling = np.zeros((len(shares), width))
    falling[:, : shares.shape[1]] = -np.sort(-shares, axis=1)
    logs = np.log(np.maximum(falling, _MIN_SHARE))
    swaps = np.where(falling[:, 0] > falling[:, 1], (votes[:, :1] - votes[:, 1:2]) * (logs[:, 1] - logs[:, 0]), -np.inf)
    answers = np.count_nonzero(votes, axis=1)
    return scale_rows(votes @ logs.T + np.log1p(np.exp(swaps)) + log_assignments(falling)[:, answers].T)


def log_assignments(falling: FloatArray) -> FloatArray:
    """Return (shapes, answers): the log number of ways to match that many answers to a shape's shares by size."""
    ways = np.zeros((len(falling), falling.shape[1] + 1))
    for row, shares in enumerate(falling):
        alike = np.searchsorted(-shares, -shares, side="right") - np.arange(len(shares))
        ways[row, 1:] = np.cumsum(np.log(np.where(shares > 0, alike, 1)))
    return ways


def novelty_likelihoods(counts: Sequence[Sequence[int]]) -> FloatArray:
    """Return (questions, concentrations): each question's likelihood under each Chinese-restaurant process.

    Up to a factor per row.
    With concentration c and votes n_1 .. n_k of n in all: c^k (n_1 - 1)! ... (n_k - 1)! / (c (c + 1) ... (c + n - 1)).
    """
    grid = np.array(CONCENTRATIONS)
    rows = [
        len(vector) * np.log(grid) - np.log(grid + np.arange(sum(vector))[:, None]).sum(axis=0) for vector in counts
    ]
    return scale_rows(np.array(rows))


def scale_rows(logs: FloatArray) -> FloatArray:
    """Exponentiate log-likelihoods, each row relative to its largest."""
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))


RARE_ANSWERS = 12
"""Number of rare answers that share what a shape's shares lack to one."""
MAX_SHAPES = 64
"""Most shapes in a library: the maximum-likelihood mixture of 1,300 questions has about so many of any weight."""
MAX_COUNT_VECTORS = 400
"""Most distinct vote counts that become candidate shapes; more are thinned evenly."""
UNSEEN_VOTES = (0.05, 0.5, 2.0)
"""Votes added for unseen answers, one candidate shape each: the likelihood decides how much is still unseen."""
EM_STEPS = 200
"""EM steps of the fit; weights move by less than 1e-3 after them."""


@dataclass(frozen=True)
class ShapeLibrary:
    """Answer shapes of past questions: how often their first, second, ... answer is given.

    With an empty library, rules that need one fall back and say so.
    """

    shapes: tuple[tuple[float, ...], ...] = ()
    """Shares of a question's answers, largest first; what they lack to 1 is spread over twelve rare answers."""
    weights: tuple[float, ...] = ()
    """Share of questions of each shape."""
    novelty: tuple[float, ...] = ()
    """For questions unlike any of these: weight of each concentration of a Chinese-restaurant process (0.03 to 30)."""
    questions: int = 0
    """Questions it was fitted from; the next one is unlike them with chance 1 / (questions + 1)."""

    def __post_init__(self) -> None:
        require(self, "weights", len(self.weights) == len(self.shapes), "one weight per shape")
        require(self, "weights", all(weight > 0 for weight in self.weights), "weights above 0")
        require(
            self,
            "shapes",
            all(is_shape(shape) for shape in self.shapes),
            "shares above 0, largest first, with a sum of at most 1",
        )
        grid = len(self.novelty) == len(CONCENTRATIONS) and sum(self.novelty) > 0 <= min(self.novelty)
        require(self, "novelty", grid or not self.novelty, f"{len(CONCENTRATIONS)} weights from 0 up, or none")
        require(self, "questions", self.questions >= 0, "a number of questions")

    def __hash__(self) -> int:
        # Rules look up caches by their library at every vote: hashing all shapes each time would be slow.
        return hash((self.questions, self.weights))

    @property
    def empty(self) -> bool:
        """Whether it has no shapes."""
        return not self.shapes

    @classmethod
    def fit(cls, counts: Iterable[Sequence[int]]) -> ShapeLibrary:
        """Fit a library to stored votes: for each question the votes that each of its answers got, in any order.

        Candidate shapes are the questions' own shares, with 0.05, 0.5 or 2 votes added for unseen answers. Their
        weights are the nonparametric maximum-likelihood mixture, fitted by EM (Kiefer and Wolfowitz 1956); a question
        is scored with its counts matched to the shares by size, and with the first two swapped. That removes the
        sampling noise in the shares of 40 votes and leaves few shapes; the 64 heaviest are kept. Forty votes per
        question and fifty questions make a useful library; with fewer questions the part for unlike questions weighs
        more. Questions without a vote are left out.
        """
        votes = Counter(tuple(sorted((int(n) for n in row if n > 0), reverse=True)) for row in counts)
        votes.pop((), None)
        if not votes:
            raise MeasureError(
                "There is no question with a vote to fit shapes to.",
                "Give the votes of each answer, question by question.",
            )
        vectors, repeats = sorted(votes), np.array([votes[vector] for vector in sorted(votes)], dtype=np.float64)
        thinned = [
            vectors[place]
            for place in np.unique(np.linspace(0, len(vectors) - 1, MAX_COUNT_VECTORS).round().astype(int)).tolist()
        ]
        shapes = sorted({smooth_shares(vector, unseen) for vector in thinned for unseen in UNSEEN_VOTES})
        width = max(map(len, shapes))
        padded = [add_rare_answers(shape + (0.0,) * (width - len(shape))) for shape in shapes]
        likelihoods = shape_likelihoods(vectors, np.array(padded))
        heaviest = np.sort(np.argsort(-fit_mixture(likelihoods, repeats), kind="stable")[:MAX_SHAPES])
        # Fitted again, so questions of dropped shapes go to the shapes most like them.
        weights = fit_mixture(likelihoods[:, heaviest], repeats)
        kept = [
            (shapes[place], float(weight))
            for place, weight in zip(heaviest.tolist(), weights, strict=True)
            if weight > 1e-6
        ]
        novelty = fit_mixture(novelty_likelihoods(vectors), repeats, spare=0.1)
        return cls(
            tuple(shape for shape, _ in kept),
            tuple(round(weight, 8) for _, weight in kept),
            tuple(round(float(weight), 8) for weight in novelty),
            int(repeats.sum()),
        )

    @classmethod
    def load(cls, path: Path) -> ShapeLibrary:
        """Read a library from its TOML file."""
        return settings.load(cls, path)

    def dump(self, path: Path) -> None:
        """Write the library to a TOML file, whole or not at all."""
        settings.dump(self, path)


def add_rare_answers(shape: Sequence[float]) -> FloatArray:
    """Return the shares of all answers of a shape: its own, then the rare ones (0 each where nothing is left)."""
    left = max(0.0, 1.0 - sum(shape))
    return np.array([*shape, *[left / RARE_ANSWERS if left > 1e-9 else 0.0] * RARE_ANSWERS])


def is_shape(shape: Sequence[float]) -> bool:
    """Return whether shares are positive, falling, and add up to at most 1."""
    falling = all(first >= second for first, second in pairwise(shape))
    return bool(shape) and falling and shape[-1] > 0 and sum(shape) <= 1 + 1e-6


def smooth_shares(counts: Sequence[int], unseen: float) -> tuple[float, ...]:
    """Return the shares of counted answers with some votes added for unseen ones."""
    return tuple(round(count / (sum(counts) + unseen), 8) for count in counts)


def fit_mixture(likelihoods: FloatArray, repeats: FloatArray, spare: float = 0.0) -> FloatArray:
    """Return the maximum-likelihood weights of components (columns), questions (rows) counting ``repeats`` times."""
    weights = np.ones(likelihoods.shape[1])
    for _ in range(EM_STEPS):
        shares = likelihoods * weights
        shares *= (repeats / shares.sum(axis=1))[:, None]
        weights = shares.sum(axis=0) + spare
        weights /= weights.sum()
    return weights


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
