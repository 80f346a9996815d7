"""One attempt at a time for each open task, solved ones discarded (reset-and-discard)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
