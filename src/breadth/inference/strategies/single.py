"""Ask once: the baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace

from breadth.inference.records import Ask, Candidate, Run, Task
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, majority


@dataclass(frozen=True)
class Single(Strategy):
    """Sample one completion and take its answer: the baseline for every other strategy.

    It gives no confidence: one sample does not support one.
    """

    def __call__(self, task: Task) -> Run:
        """Sample once."""
        poll = Poll(task)
        drawn: list[Candidate] = yield Ask(1)
        poll.add(drawn)
        return replace(majority(poll), stopped="most" if drawn else "budget")
