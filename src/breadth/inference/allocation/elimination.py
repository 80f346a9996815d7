"""Give every open task a few samples per round, and drop each as soon as it is solved (elimination bandit)."""

from __future__ import annotations

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
        require(self, "draws", self.draws >= 1, "at least one draw")
        require(self, "score", self.score == self.score, "a number")
        require(self, "most", self.most >= 1, "at least one draw")

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
