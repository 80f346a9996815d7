"""Vote, and stop as soon as the vote is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.records import Answer, Ask, Candidate, Run, Task
from breadth.inference.stopping.posterior import BetaLead
from breadth.inference.stopping.rule import StopRule, samples_to_decide, task_uniform
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, majority


@dataclass(frozen=True)
class AdaptiveVote(Strategy):
    """Keep a few samples in flight; stop as soon as the leading answer is unlikely to be overtaken.

    The stop rule runs after every arrival, not at the end of a wave; samples in flight when it decides are cancelled,
    and charged up to there. No more samples are in flight than could decide the vote if all agreed, so an easy question
    wastes nothing (the idea is ConSol's, arXiv 2503.17587). At most 40 samples and the Beta rule at 0.95 are the
    defaults of Adaptive-Consistency (arXiv 2305.11860); eight in flight, and eight unread before it gives up, are our
    choice.
    Harm: short completions arrive first, so with a width above 1 an early decision favours answers that are quick to
    write.
    """

    paper = Paper(
        "arXiv 2305.11860", "Adaptive-Consistency", "runs after every arrival; never more in flight than could decide"
    )
    example: ClassVar[Mapping[str, Any]] = {"most": 6, "width": 3}

    most: int = 40
    """Most samples."""
    width: int = 8
    """Most samples in flight; 1 samples one after the other and wastes none."""
    stop: StopRule = BetaLead()
    """When the vote is decided."""
    unread: int = 8
    """Give up after this many samples without a readable answer: there is nothing to vote on (a poem, say)."""

    def __post_init__(self) -> None:
        require(self, "most", self.most >= 1, "at least one sample")
        require(self, "width", self.width >= 1, "at least one sample in flight")
        require(self, "unread", self.unread >= 1, "at least one sample")

    def prepare(self) -> None:
        """Prepare the stop rule."""
        self.stop.prepare()

    def __call__(self, task: Task) -> Run:
        """Sample and count votes."""
        stop = self.stop.randomize(task_uniform(task.name, task.seed))
        poll = Poll(task)
        asked = 0
        while True:
            wanted = min(samples_to_decide(stop, poll.state, self.width), self.most - len(poll.seen))
            more = max(0, min(wanted - (asked - len(poll.seen)), self.most - asked))
            asked += more
            arrived: list[Candidate] = yield Ask(more, wait=1)
            poll.add(arrived)
            if stop.is_decided(poll.state):
                return majority_with_confidence(poll, stop, "agreed")
            if not arrived or len(poll.seen) >= self.most:
                return majority_with_confidence(poll, stop, "most" if asked >= self.most else "budget")
            if len(poll.seen) >= self.unread and not poll.arrivals:
                return majority_with_confidence(poll, stop, "unread")


def majority_with_confidence(poll: Poll, stop: StopRule, stopped: str) -> Answer:
    """Return the majority with the stop rule's posterior as confidence, or the Beta posterior where it has none."""
    answer = majority(poll)
    rule = stop if stop.posterior(poll.state) is not None else BetaLead()
    confidence = rule.posterior(poll.state) if answer.votes else None
    return replace(answer, confidence=confidence, basis=rule.basis if confidence is not None else "", stopped=stopped)
