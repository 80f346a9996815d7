"""What an allocator is: a generator that is sent the progress of every task and yields who gets the next draws."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from breadth.base.catalogue import Catalogue
from breadth.base.checks import require
from breadth.inference.stopping.rule import StopRule
from breadth.inference.voting import VoteState

ALLOCATORS = Catalogue(
    "allocators",
    {
        "elimination": "breadth.inference.allocation.elimination:Elimination",
        "round-robin": "breadth.inference.allocation.round_robin:RoundRobin",
        "greedy": "breadth.inference.allocation.greedy:GreedyMarginal",
    },
)
"""Allocators by name."""


@dataclass(frozen=True)
class Grant:
    """Leave to draw for one task."""

    task: str
    """Name of the task."""
    draws: int = 1
    """Candidates to draw for it."""

    def __post_init__(self) -> None:
        require(self, "draws", self.draws >= 1, "at least one draw")


@dataclass(frozen=True)
class Progress:
    """What has come of one task so far."""

    draws: int = 0
    """Draws that have ended, failed ones included."""
    graded: int = 0
    """Candidates that a judge has looked at; 0 when nobody judges, so that only votes can tell."""
    solved: int = 0
    """Candidates that a judge holds for right."""
    best: float | None = None
    """Highest score a judge gave; None without scores."""
    vote_state: VoteState = VoteState()
    """Where the vote stands."""
    tokens: int = 0
    """Tokens written for it."""

    def __post_init__(self) -> None:
        require(self, "solved", 0 <= self.solved <= self.graded, "at most as many as were judged")
        require(self, "draws", self.draws >= self.graded, "at least as many as were judged")


Round: TypeAlias = tuple[Grant, ...]
"""Grants that are drawn side by side; at most one a task."""
Allocation: TypeAlias = Generator[Round, Mapping[str, Progress], None]
"""An allocator at work: it yields rounds, is sent the progress of every task, and ends when nobody needs more."""


class Allocator(ABC):
    """A frozen dataclass whose fields are the settings; calling it on the names of the tasks gives the allocation.

    The allocation is started with ``next``. After each round, once every draw of it has ended (arrived or failed), it
    is sent the progress of all its tasks by name; what came in a round is the difference. It does no I/O and keeps no
    account of the budget: whoever drives it cuts a round that the budget cannot pay, in its order, and closes the
    allocation when nothing is left. A task for which a round brought no further draw cannot be drawn for any more: it
    gets no more grants. A round is never empty.
    """

    catalogue: ClassVar[Catalogue] = ALLOCATORS

    @abstractmethod
    def __call__(self, tasks: Sequence[str]) -> Allocation:
        """Return the allocation over these tasks; names are unique."""


def is_settled(progress: Progress, *, score: float, stop: StopRule, most: int) -> bool:
    """Say whether a task gets no more: it had its most draws, a judge is content, or, unjudged, its vote is decided.

    A judge is content with a candidate it holds for right, or gave the score. A vote never settles what is judged:
    candidates may agree on an answer that the judge has refused.
    """
    if progress.draws >= most or progress.solved:
        return True
    if progress.graded:
        return progress.best is not None and progress.best >= score
    return stop.is_decided(progress.vote_state)


def tasks_with_new_draws(before: Mapping[str, Progress], now: Mapping[str, Progress], granted: Round) -> list[str]:
    """Return the tasks of a round that got at least one draw, in its order: the others cannot be drawn for any more."""
    return [grant.task for grant in granted if now[grant.task].draws > before.get(grant.task, Progress()).draws]
