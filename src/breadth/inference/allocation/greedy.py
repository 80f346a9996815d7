"""The next sample goes where it most likely solves a task that is still unsolved (greedy marginal gain)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.allocation.allocator import (
    Allocation,
    Allocator,
    Grant,
    Progress,
    is_settled,
    tasks_with_new_draws,
)
from breadth.inference.stopping.posterior import BetaLead
from breadth.inference.stopping.rule import StopRule


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
        require(self, "wave", self.wave >= 1, "at least one draw")
        require(self, "price", 0 <= self.price < 1, "a chance from 0 to below 1")
        require(self, "score", self.score == self.score, "a number")
        require(self, "most", self.most >= 1, "at least one draw")

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
