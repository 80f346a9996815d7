"""The allocator interface: a generator that is sent every task's progress and yields which tasks get more samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from breadth.base.catalogue import Catalogue, Paper
from breadth.base.errors import require
from breadth.inference.catalogue import ALLOCATORS
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
        require(self, "draws", self.draws >= 1, "at least one draw")


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
