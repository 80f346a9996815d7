"""Sample a fixed number and take the majority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.records import Ask, Candidate, Run, Task
from breadth.inference.stopping.rule import Never
from breadth.inference.strategies.adaptive_vote import majority_with_confidence
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll


@dataclass(frozen=True)
class Vote(Strategy):
    """Sample n completions at once and take the most frequent answer (self-consistency, arXiv 2203.11171).

    Eight is the low end of what is usual (8 to 64; the paper shows 40): the first few votes bring most of the gain.
    Harm: on a question where a wrong answer is the likeliest one, more votes make the wrong answer more certain. Easy
    questions get as many samples as hard ones; `AdaptiveVote` stops when the vote is decided.
    """

    paper = Paper("arXiv 2203.11171", "self-consistency", "by equivalence class; an unparsable answer never votes")
    example: ClassVar[Mapping[str, Any]] = {"n": 4}

    n: int = 8
    """Completions to sample."""

    def __post_init__(self) -> None:
        require(self, "n", self.n >= 1, "at least one sample")

    def __call__(self, task: Task) -> Run:
        """Sample and count votes."""
        poll = Poll(task)
        drawn: list[Candidate] = yield Ask(self.n)
        poll.add(drawn)
        return majority_with_confidence(poll, Never(), "most" if len(drawn) >= self.n else "budget")
