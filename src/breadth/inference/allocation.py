"""How to spend one budget over many tasks: allocators say after each batch which tasks get how many more samples."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from breadth.base.catalogue import Catalogue, Paper
from breadth.base.errors import require
from breadth.inference.catalogue import ALLOCATORS
from breadth.inference.stopping.posterior import BetaLead
from breadth.inference.stopping.rule import StopRule
from breadth.inference.voting import VoteState


@dataclass(frozen=True)
class Grant:
    """Samples granted to one task."""

    task: str
    """Name of the task."""
    draws: int = 1
    """Number of samples."""

    def __post_init__(self) -> None:
        require(self, "draws", self.draws >= 1, "at least one sample")


@dataclass(frozen=True)
class Progress:
    """Progress of one task so far."""

    draws: int = 0
    """Samples that have ended, failed ones included."""
    graded: int = 0
    """Candidates that a judge has graded; 0 without a judge, when only votes count."""
    solved: int = 0
    """Candidates that a judge accepts as right."""
    best: float | None = None
    """Highest score from a judge; None without scores."""
    vote_state: VoteState = VoteState()
    """State of the vote."""
    tokens: int = 0
    """Output tokens spent on it."""

    def __post_init__(self) -> None:
        require(self, "solved", 0 <= self.solved <= self.graded, "at most as many as were graded")
        require(self, "draws", self.draws >= self.graded, "at least as many as were graded")


Round: TypeAlias = tuple[Grant, ...]
"""Grants that are sampled concurrently; at most one per task."""
Allocation: TypeAlias = Generator[Round, Mapping[str, Progress], None]
"""A running allocator: it yields rounds, is sent the progress of every task, and ends when no task needs more."""


class Allocator(ABC):
    """A frozen dataclass whose fields are the settings; calling it on the names of the tasks gives the allocation.

    The allocation is started with ``next``. After each round, once every sample of it has ended (arrived or failed), it
    is sent the progress of all its tasks by name; what a round brought is the difference. It does no I/O and does not
    track the budget: the driver truncates a round that the budget cannot pay, in its order, and closes the allocation
    when nothing is left. A task for which a round brought no new sample cannot be sampled any more: it gets no more
    grants. A round is never empty.
    """

    catalogue: ClassVar[Catalogue] = ALLOCATORS
    paper: ClassVar[Paper | None] = None
    """Where it comes from."""

    @abstractmethod
    def __call__(self, tasks: Sequence[str]) -> Allocation:
        """Return the allocation over these tasks; names are unique."""


def is_settled(progress: Progress, *, score: float, stop: StopRule, most: int) -> bool:
    """Return whether a task gets no more: it has all its samples, a judge is satisfied, or its vote is decided.

    A judge is satisfied by a candidate that it accepts as right or gives the score. A vote never settles a task that a
    judge grades: candidates may agree on an answer that the judge has rejected.
    """
    if progress.draws >= most or progress.solved:
        return True
    if progress.graded:
        return progress.best is not None and progress.best >= score
    return stop.is_decided(progress.vote_state)


def tasks_with_new_draws(before: Mapping[str, Progress], now: Mapping[str, Progress], granted: Round) -> list[str]:
    """Return the tasks of a round that got at least one sample, in its order; the others cannot be sampled any more."""
    return [grant.task for grant in granted if now[grant.task].draws > before.get(grant.task, Progress()).draws]


@dataclass(frozen=True)
class RoundRobin(Allocator):
    """Keep the open tasks in a queue: the first few get one attempt each, the unsolved go back to its end.

    Without knowing which task is easy, this order solves the most tasks for the attempts made: easy ones fall in the
    first pass, and no hard one blocks the others (reset-and-discard, arXiv 2601.21522; the theorem is for attempts of
    equal cost). Unlike elimination it does not wait for a whole pass: at most ``width`` attempts are in flight, so a
    budget that runs out within a pass has served the front of the queue. Eight in flight is our choice, as for the
    adaptive vote.
    Harm: it never gives up a task, so the rest of a long run goes to tasks that cannot be solved; set ``most``.
    """

    paper = Paper("arXiv 2601.21522", "reset-and-discard")

    width: int = 8
    """Most attempts in flight."""
    score: float = 1.0
    """Score from a judge at which a task is solved."""
    stop: StopRule = BetaLead()
    """When the vote of a task without a judge is decided."""
    most: int = 64
    """Most attempts per task; 64 is the high end of usual votes."""

    def __post_init__(self) -> None:
        require(self, "width", self.width >= 1, "at least one attempt")
        require(self, "score", self.score == self.score, "a number")
        require(self, "most", self.most >= 1, "at least one attempt")

    def __call__(self, tasks: Sequence[str]) -> Allocation:
        """Serve the front of the queue, requeue the unsolved."""
        queue = deque(tasks)
        seen: Mapping[str, Progress] = {}
        while queue:
            granted = tuple(Grant(queue.popleft()) for _ in range(min(self.width, len(queue))))
            now = dict((yield granted))  # a copy: the driver may keep writing into its own
            queue.extend(
                name
                for name in tasks_with_new_draws(seen, now, granted)
                if not is_settled(now[name], score=self.score, stop=self.stop, most=self.most)
            )
            seen = now


@dataclass(frozen=True)
class GreedyMarginal(Allocator):
    """Give each sample to the task with the largest p (1 - p)^n: its gain after n samples in the same round.

    p is the chance that one sample solves the task, (1 - p)^n that n earlier ones do not. The gain falls with every
    sample, so always taking the largest is the best allocation for the given p (arXiv 2410.04707: the same quality for
    up to half the samples). p is the mean of a Beta posterior: ``chances`` (predicted, or measured on an earlier run)
    counts for ``strength`` samples, and each failed sample lowers it. n counts only what the round has granted already,
    because earlier results are in p. ``strength`` 2 is a uniform prior's weight, our choice: a fitted Beta (a, b) is
    chance a / (a + b) with strength a + b. A task without a judge counts as solved once its vote is decided. Harm: a
    chance predicted too low keeps its task without samples where ``strength`` is high; and hard tasks get few samples
    by design.
    """

    paper = Paper("arXiv 2410.04707", "greedy marginal allocation")

    chances: Mapping[str, float] = field(default_factory=dict)
    """Task -> predicted chance that one sample solves it."""
    chance: float = 0.5
    """Predicted chance of tasks that are not listed."""
    strength: float = 2.0
    """Samples that a predicted chance counts for."""
    wave: int = 8
    """Samples per round; eight is our choice. With the whole budget in one wave the allocation is fixed in advance."""
    price: float = 0.0
    """Chance to solve below which a sample is not worth its cost."""
    score: float = 1.0
    """Score from a judge at which a task is solved."""
    stop: StopRule = BetaLead()
    """When the vote of a task without a judge is decided."""
    most: int = 64
    """Most samples per task; 64 is the high end of usual votes."""

    def __post_init__(self) -> None:
        require(self, "chances", all(0 <= chance <= 1 for chance in self.chances.values()), "chances from 0 to 1")
        require(self, "chance", 0 <= self.chance <= 1, "a chance from 0 to 1")
        require(self, "strength", self.strength > 0, "a number of draws above 0")
        require(self, "wave", self.wave >= 1, "at least one sample")
        require(self, "price", 0 <= self.price < 1, "a chance from 0 to below 1")
        require(self, "score", self.score == self.score, "a number")
        require(self, "most", self.most >= 1, "at least one sample")

    def __call__(self, tasks: Sequence[str]) -> Allocation:
        """Grant waves to the largest gains."""
        now: Mapping[str, Progress] = {name: Progress() for name in tasks}
        active = list(tasks)
        while granted := self.next_wave(active, now):
            before, now = now, dict((yield granted))  # a copy: the driver may keep writing into its own
            dead = {grant.task for grant in granted} - set(tasks_with_new_draws(before, now, granted))
            active = [
                name
                for name in active
                if name not in dead and not is_settled(now[name], score=self.score, stop=self.stop, most=self.most)
            ]

    def posterior_chance(self, name: str, progress: Progress) -> float:
        """Return the posterior mean of the chance that one more sample solves a task."""
        prior = self.strength * self.chances.get(name, self.chance)
        return (prior + progress.solved) / (self.strength + progress.draws)

    def next_wave(self, active: Sequence[str], now: Mapping[str, Progress]) -> tuple[Grant, ...]:
        """Return the grants of the next round."""
        chances = {name: self.posterior_chance(name, now[name]) for name in active}
        room = {name: self.most - now[name].draws for name in active}
        counts = greedy_counts(chances, self.wave, room=room, price=self.price)
        return tuple(Grant(name, count) for name, count in counts.items() if count)


def greedy_counts(
    chances: Mapping[str, float], draws: int, *, room: Mapping[str, int] | None = None, price: float = 0.0
) -> dict[str, int]:
    """Return the samples per task when each goes to the largest p (1 - p)^n; of equal gains, the first task's.

    ``room`` caps the samples of a task. A gain of zero, or below the price, gets nothing: fewer samples than available
    may be granted.
    """
    counts = dict.fromkeys(chances, 0)
    heap = [(-chance, place, name) for place, (name, chance) in enumerate(chances.items())]
    heapq.heapify(heap)
    while draws > 0 and heap and (gain := -heap[0][0]) > 0 and gain >= price:
        _, place, name = heapq.heappop(heap)
        if room is None or counts[name] < room[name]:
            counts[name] += 1
            draws -= 1
            heapq.heappush(heap, (-gain * (1 - chances[name]), place, name))
    return counts


@dataclass(frozen=True)
class Elimination(Allocator):
    """Sample all open tasks concurrently; a task leaves when its best score is high enough or its vote is decided.

    Samples that easy tasks do not need go to the hard ones: settling tasks that need about 1/gap samples each costs the
    sum of 1/gap, not the number of tasks times the largest (arXiv 2506.12721: about four times fewer samples at equal
    coverage). One sample per round, because the paper finds small rounds better. A judge's score of 1 means 'solved'
    for judges that report right or wrong. Tasks without a judge leave by self-consistency, with the Beta rule at 0.95
    of Adaptive-Consistency (arXiv 2305.11860). Harm: a judge's threshold that wrong candidates reach drops tasks
    unsolved. A budget mostly ends on tasks that cannot be solved at all, so set ``most``.
    """

    paper = Paper("arXiv 2506.12721", "elimination")

    draws: int = 1
    """Samples per open task and round."""
    score: float = 1.0
    """Score from a judge at which a task is solved."""
    stop: StopRule = BetaLead()
    """When the vote of a task without a judge is decided."""
    most: int = 64
    """Most samples per task; 64 is the high end of usual votes."""

    def __post_init__(self) -> None:
        require(self, "draws", self.draws >= 1, "at least one sample")
        require(self, "score", self.score == self.score, "a number")
        require(self, "most", self.most >= 1, "at least one sample")

    def __call__(self, tasks: Sequence[str]) -> Allocation:
        """Grant rounds to the open tasks."""
        seen: Mapping[str, Progress] = {}
        active = list(tasks)
        while active:
            granted = tuple(
                Grant(name, min(self.draws, self.most - seen.get(name, Progress()).draws)) for name in active
            )
            now = dict((yield granted))  # a copy: the driver may keep writing into its own
            active = [
                name
                for name in tasks_with_new_draws(seen, now, granted)
                if not is_settled(now[name], score=self.score, stop=self.stop, most=self.most)
            ]
            seen = now
