"""Ask once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from breadth.inference.records import Ask, Candidate, Run, Task
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, majority


@dataclass(frozen=True)
class Single(Strategy):
    """Draw one completion and take its answer: what every other strategy must beat.

    It says nothing about how sure the answer is: one draw supports no confidence.
    """

    def __call__(self, task: Task) -> Run:
        """Draw once."""
        poll = Poll(task)
        drawn: list[Candidate] = yield Ask(1)
        poll.add(drawn)
        return replace(majority(poll), stopped="most" if drawn else "budget")
