"""Stop at a stated risk of another answer than the full vote gives, with the fewest samples: the table and the rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.stopping.posterior import BetaLead
from breadth.inference.stopping.rule import StopRule
from breadth.inference.stopping.shapes import CONCENTRATIONS, ShapeLibrary, add_rare_answers
from breadth.inference.stored_votes import Paths, ReplayOrders, StoredVotes
from breadth.inference.voting import VoteState
from breadth.measure.validate import BoolArray, FloatArray, IntArray

PATHS_PER_SHAPE = 2000
"""Simulated votes per shape: states that one question in ten thousand reaches still occur some ten times."""
PATHS_PER_CONCENTRATION = 5000
"""Simulated votes per concentration of the questions unlike any shape."""


@dataclass(frozen=True, eq=False)
class VoteLattice:
    """States of a vote of ``most`` and its transitions; a state is (leader, runner-up, rest), numbered by `index`."""

    most: int
    """Votes of the full vote."""
    visits: FloatArray
    """Weight of the votes that pass through each state."""
    losses: FloatArray
    """Weight of those whose leader is no mode of the full vote; a tie for the lead counts by its share."""
    grows: FloatArray
    """(state, 3): weight of the votes where the leader, the runner-up, one of the rest grows next."""

    @property
    def size(self) -> int:
        """Length of one side of the table."""
        return self.most + 1

    @cached_property
    def loss(self) -> FloatArray:
        """Chance that the leader is no mode of the full vote; 1 at states never reached, 0 where it cannot lose."""
        met = np.divide(self.losses, self.visits, out=np.ones_like(self.losses), where=self.visits > 0)
        leader, runner_up, rest = np.unravel_index(np.arange(len(met)), (self.size,) * 3)
        safe = leader - runner_up >= self.most - (leader + runner_up + rest)
        return np.asarray(np.where(safe & (leader > 0), 0.0, met))

    @cached_property
    def layers(self) -> list[tuple[IntArray, IntArray, FloatArray]]:
        """Per number of votes from 1 on: the states reached, their successors, and the transition chances."""
        met = np.flatnonzero(self.visits)
        total = np.add.reduce(np.unravel_index(met, (self.size,) * 3))
        steps = np.array([self.size**2, self.size, 1])
        layers = []
        for votes in range(1, self.most + 1):
            here = met[total == votes]
            weight = self.grows[here]
            chance = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
            layers.append((here, here[:, None] + steps, chance))
        return layers

    def index(self, leader: IntArray, runner_up: IntArray, rest: IntArray) -> IntArray:
        """Return the index of a state."""
        return np.asarray((leader * self.size + runner_up) * self.size + rest)


@lru_cache(maxsize=8)
def simulate_lattice(library: ShapeLibrary, most: int) -> VoteLattice:
    """Simulate votes of a library's shapes and, with chance 1 / (questions + 1), of questions unlike them.

    The random numbers are always the same. Two seconds for 64 shapes and 40 votes, once per process.
    """
    cells = (most + 1) ** 3
    visits, losses, grows = np.zeros(cells), np.zeros(cells), np.zeros((cells, 3))
    for votes, weight in simulate_votes(library, most):
        paths = ReplayOrders(votes, np.arange(most)[np.newaxis, np.newaxis])
        counts = (paths.paths.leader, paths.paths.runner_up, paths.paths.rest)
        leader, runner_up, rest = (np.asarray(part, dtype=np.int64) for part in counts)
        here = (leader * (most + 1) + runner_up) * (most + 1) + rest
        each = weight / len(here)
        visits += each * np.bincount(here.ravel(), minlength=cells)
        losses += each * np.bincount(here.ravel(), (1 - paths.agreement).ravel(), minlength=cells)
        step = here[:, 1:] - here[:, :-1]
        for kind, size in enumerate(((most + 1) ** 2, most + 1, 1)):
            grows[:, kind] += each * np.bincount(here[:, :-1][step == size], minlength=cells)
    return VoteLattice(most, visits, losses, grows)


def simulate_votes(library: ShapeLibrary, most: int) -> Iterator[tuple[StoredVotes, float]]:
    """Yield simulated votes of each shape and each concentration, with their weight."""
    rng = np.random.default_rng(0)
    known, total = library.questions / (library.questions + 1), sum(library.weights)
    for shape, weight in zip(library.shapes, library.weights, strict=True):
        shares = add_rare_answers(shape)
        edges = np.cumsum(shares[shares > 0])
        votes = np.searchsorted(edges[:-1], rng.random((PATHS_PER_SHAPE, most)), side="right")
        yield StoredVotes.from_classes(votes), known * weight / total
    novelty = library.novelty or (1.0,) * len(CONCENTRATIONS)
    for concentration, weight in zip(CONCENTRATIONS, novelty, strict=True):
        yield (
            StoredVotes.from_classes(simulate_restaurant(concentration, most, rng)),
            (1 - known) * weight / sum(novelty),
        )


def simulate_restaurant(concentration: float, most: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Simulate votes of a Chinese-restaurant process: the next repeats a random earlier one, or is new."""
    votes = np.zeros((PATHS_PER_CONCENTRATION, most), dtype=np.int32)
    answers = np.ones(PATHS_PER_CONCENTRATION, dtype=np.int32)
    rows = np.arange(PATHS_PER_CONCENTRATION)
    for draw in range(1, most):
        new = rng.random(PATHS_PER_CONCENTRATION) * (concentration + draw) < concentration
        votes[:, draw] = np.where(new, answers, votes[rows, rng.integers(0, draw, PATHS_PER_CONCENTRATION)])
        answers += new
    return votes


MAX_PRICE = 1e6
"""Most votes that one disagreement may be worth; at this price only certain leads stop."""
BISECTION_STEPS = 30
"""Bisection steps of the search for the price: it is then exact to a hundred-millionth."""


@dataclass(frozen=True, eq=False)
class StopTable:
    """Where to stop: a strict table, and a lax one for a share of the questions, so the risk is met exactly."""

    lattice: VoteLattice
    """Simulated chances behind the tables."""
    strict: BoolArray
    """Whether to stop at each state, with at most the stated risk."""
    lax: BoolArray
    """The next cheaper choice, with at least the stated risk."""
    share: float
    """Share of questions for which the lax table is used."""
    risk: float
    """Expected disagreement under the model."""
    votes: float
    """Expected votes under the model."""


@lru_cache(maxsize=64)
def optimal_stop_table(library: ShapeLibrary, most: int, risk: float) -> StopTable:
    """Return the table for a stated risk.

    For a price of one disagreement in votes the best table follows by backward induction: stop where the chance that
    the leader is no mode of the full vote, times the price, is below the cost of one vote and what follows it. The
    price is bisected until the expected disagreement is the stated risk. Between two prices the disagreement jumps
    where a frequent state (2 to 0, say) changes sides; the two tables around the jump are then mixed over questions, as
    optimal rules under a constraint are.
    """
    lattice = simulate_lattice(library, most)
    low, high = 0.0, np.log(MAX_PRICE)
    lax, strict = optimal_stops(lattice, 1.0), optimal_stops(lattice, MAX_PRICE)
    for _ in range(BISECTION_STEPS):
        middle = (low + high) / 2
        stops = optimal_stops(lattice, float(np.exp(middle)))
        if expected_outcome(lattice, stops)[0] > risk:
            low, lax = middle, stops
        else:
            high, strict = middle, stops
    (most_risk, few), (least_risk, many) = expected_outcome(lattice, lax), expected_outcome(lattice, strict)
    share = float(np.clip((risk - least_risk) / (most_risk - least_risk), 0, 1)) if most_risk > least_risk else 0.0
    met, votes = least_risk + share * (most_risk - least_risk), many + share * (few - many)
    return StopTable(lattice, strict, lax, share, met, votes)


def optimal_stops(lattice: VoteLattice, price: float) -> BoolArray:
    """Return where to stop when one disagreement is worth ``price`` votes; states never reached continue."""
    cost = price * lattice.loss
    stops = lattice.loss == 0
    for here, onward, chance in reversed(lattice.layers[:-1]):
        cost_to_continue = 1 + np.sum(chance * cost[onward], axis=1)
        # A state reached only at the end of a path has no successor, and no layer after it.
        better = cost_to_continue < cost[here]
        cost[here] = np.where(better, cost_to_continue, cost[here])
        stops[here] = ~better
    stops[lattice.layers[-1][0]] = True
    return np.asarray(stops)


def expected_outcome(lattice: VoteLattice, stops: BoolArray) -> tuple[float, float]:
    """Return the expected disagreement and votes of a table under the model."""
    mass = np.zeros(len(lattice.loss))
    mass[lattice.layers[0][0]] = 1.0
    risk = votes = 0.0
    for count, (here, onward, chance) in enumerate(lattice.layers, start=1):
        ends = stops[here]
        risk += float(mass[here[ends]] @ lattice.loss[here[ends]])
        votes += count * float(mass[here[ends]].sum())
        moving = here[~ends]
        np.add.at(mass, onward[~ends].ravel(), (mass[moving][:, None] * chance[~ends]).ravel())
    return risk, votes


@dataclass(frozen=True)
class Risk(StopRule):
    """State how often the answer may differ from that of the full vote of ``most``; meet it with the fewest votes.

    Over questions like those of the library the answer is no mode of the full vote with probability ``risk``, on
    average: hard questions more, easy ones less. The rule is a table over (leader, runner-up, rest): optimal stopping
    by backward induction, with the price of a disagreement set so that the model's disagreement is the stated one. The
    model is the library's shapes (maximum likelihood from stored votes) and, with chance 1 / (questions + 1), a
    question unlike them; that share keeps thirty questions from promising what they cannot show. Where stopping at one
    frequent state (2 to 0, say) is too much and continuing too little, the task's uniform number decides (`randomize`),
    so the risk is met and not undercut at a cost; a strategy that does not randomize continues. Ours; closest are the
    optimal Bayesian rule (arXiv 2602.05395, see `Shapes`), which bounds the chance question by question and knows no
    last vote, and the Lagrangian allocation of arXiv 2604.14853. On stored votes, library from other questions, a
    stated 1, 2 and 5 % became 1.02, 2.08 and 4.92 % on GSM8K, and 1.06, 2.10 and 5.37 % on MedQA, which was held out
    while the method was chosen: expect a little more than stated.
    Without a library it is `BetaLead` with threshold 1 - risk, which on stored votes undercuts the risk and costs more;
    the basis says so.
    The default of 2 % is about what eight votes lose against forty on GSM8K. Harm: questions harder than the library's
    get a higher risk than stated; the full vote may be wrong itself. Give the strategy the same ``most``. A vote that
    cannot be read is not counted.
    """

    paper = Paper(
        "ours",
        "a stated risk",
        "optimal stopping on a finite horizon, with the cost of a disagreement set so that the stated risk is met",
    )

    risk: float = 0.02
    """Share of questions that may end with another answer than the full vote gives."""
    library: ShapeLibrary = ShapeLibrary()
    """Answer shapes of past questions; fitted from stored votes, kept in a file."""
    most: int = 40
    """Votes of the full vote."""

    by_counts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(self, "risk", 0 < self.risk < 0.5, "a share between 0 and 0.5")
        require(self, "most", 2 <= self.most <= 128, "a number of votes from 2 to 128")

    def is_decided(self, state: VoteState) -> bool:
        """Look up the state in the table."""
        if self.library.empty:
            return self._fallback.is_decided(state)
        return bool(self.stops[self.state_index(state)])

    def posterior(self, state: VoteState) -> float | None:
        """Return the chance that the leader is a mode of the full vote; None without votes."""
        if self.library.empty or not state.total:
            return self._fallback.posterior(state)
        loss = self.table.lattice.loss[self.state_index(state)]
        return 1 - float(loss) if loss < 1 else self._fallback.posterior(state)

    @property
    def basis(self) -> str:
        """Short description of the posterior."""
        if self.library.empty:
            return f"no library of past questions: {self._fallback.basis}"
        return (
            f"chance to be the answer of the full vote of {self.most}, by a library of {self.library.questions}"
            " questions"
        )

    def is_decided_along(self, paths: Paths) -> BoolArray:
        """Look up all states at once."""
        if self.library.empty:
            return self._fallback.is_decided_along(paths)
        return np.asarray(self.stops[self.state_index(paths)])

    def prepare(self) -> None:
        """Compute the table."""
        if not self.library.empty:
            _ = self.table

    def randomize(self, uniform: float) -> Risk:
        """Return the lax rule for its share of the tasks, the strict one for the others."""
        lax = not self.library.empty and uniform < self.table.share
        return LaxRisk(self.risk, self.library, self.most) if lax else self

    @property
    def stops(self) -> BoolArray:
        """Whether to stop at each state."""
        return self.table.strict

    @property
    def table(self) -> StopTable:
        """Where it stops, with the expected disagreement and votes. Needs a library.

        Computed once per process, in about two seconds.
        """
        return optimal_stop_table(self.library, self.most, self.risk)

    @property
    def _fallback(self) -> BetaLead:
        return BetaLead(1 - self.risk)

    def state_index(self, votes: VoteState | Paths) -> IntArray:
        """Return the index of each state in the table; beyond the full vote that of the last cell, which stops."""
        size = self.most + 1
        index = (votes.leader * size + votes.runner_up) * size + votes.rest
        return np.where(votes.total > self.most, -1, index)


@dataclass(frozen=True)
class LaxRisk(Risk):
    """The same risk for tasks on the lax side of the randomization: it stops where the next cheaper table does."""

    def randomize(self, uniform: float) -> Risk:
        """Return itself: it is randomized already."""
        del uniform
        return self

    @property
    def stops(self) -> BoolArray:
        """Whether to stop at each state."""
        return self.table.lax
