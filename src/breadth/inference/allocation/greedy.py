"""The next draw goes where it most likely solves a task that is still unsolved (greedy marginal gain)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from breadth.base.checks import require
from breadth.inference.allocation.allocator import (
    Allocation,
    Allocator,
    Grant,
    Progress,
    is_settled,
    tasks_with_new_draws,
)
from breadth.inference.stopping.beta_lead import BetaLead
from breadth.inference.stopping.rule import StopRule


@dataclass(frozen=True)
class GreedyMarginal(Allocator):
    """Give each draw to the task with the largest p (1 - p)^n: the chance p that a draw solves it, and that n drawn before it do not.

    The gain of a further draw falls with every draw, so that taking the largest each time is the best allocation for
    the p given (arXiv 2410.04707: the same quality for up to half the draws). p is the mean of a Beta posterior:
    ``chances`` (predicted, or measured on an earlier run) counts for ``strength`` draws, and each draw that failed
    lowers it; n counts only what the round has granted already, for what has come back is in p. ``strength`` 2 is a
    uniform prior's weight, our choice: a fitted Beta (a, b) is chance a / (a + b) with strength a + b. An unjudged task
    counts as solved once its vote is decided. Harm: a chance predicted too low starves its task for good where
    ``strength`` is high; and hard tasks are starved on purpose.
    """

    chances: Mapping[str, float] = field(default_factory=dict)
    """Task -> predicted chance that one draw solves it."""
    chance: float = 0.5
    """The same for tasks that are not listed."""
    strength: float = 2.0
    """Draws that a predicted chance is worth."""
    wave: int = 8
    """Draws in a round; eight at once is our choice. With the whole budget in one wave the allocation is made
    beforehand.
    """
    price: float = 0.0
    """Chance to solve below which a draw is not worth its cost."""
    score: float = 1.0
    """Score from a judge at which a task is solved."""
    stop: StopRule = BetaLead()
    """When the vote of an unjudged task is decided."""
    most: int = 64
    """Draws of one task at most; 64 is the high end of usual votes."""

    def __post_init__(self) -> None:
        require(self, "chances", all(0 <= chance <= 1 for chance in self.chances.values()), "chances from 0 to 1")
        require(self, "chance", 0 <= self.chance <= 1, "a chance from 0 to 1")
        require(self, "strength", self.strength > 0, "a number of draws above 0")
        require(self, "wave", self.wave >= 1, "at least one draw")
        require(self, "price", 0 <= self.price < 1, "a chance from 0 to below 1")
        require(self, "score", self.score == self.score, "a number")
        require(self, "most", self.most >= 1, "at least one draw")

    def __call__(self, tasks: Sequence[str]) -> Allocation:
        """Grant wave after wave to the largest gains."""
        now: Mapping[str, Progress] = {name: Progress() for name in tasks}
        active = list(tasks)
        while granted := self._wave(active, now):
            before, now = now, dict((yield granted))  # a copy: the driver may keep writing into its own
            dead = {grant.task for grant in granted} - set(tasks_with_new_draws(before, now, granted))
            active = [name for name in active if name not in dead and not self._settled(now[name])]

    def posterior_chance(self, name: str, progress: Progress) -> float:
        """Return the mean of the Beta posterior that one more draw solves a task."""
        prior = self.strength * self.chances.get(name, self.chance)
        return (prior + progress.solved) / (self.strength + progress.draws)

    def _settled(self, progress: Progress) -> bool:
        return is_settled(progress, score=self.score, stop=self.stop, most=self.most)

    def _wave(self, active: Sequence[str], now: Mapping[str, Progress]) -> tuple[Grant, ...]:
        chances = {name: self.posterior_chance(name, now[name]) for name in active}
        room = {name: self.most - now[name].draws for name in active}
        counts = greedy_counts(chances, self.wave, room=room, price=self.price)
        return tuple(Grant(name, count) for name, count in counts.items() if count)


def greedy_counts(
    chances: Mapping[str, float], draws: int, *, room: Mapping[str, int] | None = None, price: float = 0.0
) -> dict[str, int]:
    """Return how many of some draws each task gets when each goes to the largest p (1 - p)^n; of equal gains the first task's.

    ``room`` caps the draws of a task. A gain of zero, or below the price, gets nothing: fewer draws than there are may
    be granted.
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
