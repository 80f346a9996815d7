"""Sample a fixed number and let a judge choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.records import Answer, Ask, Candidate, Judge, Run, Task
from breadth.inference.stopping.rule import Never
from breadth.inference.strategies.adaptive_vote import majority_with_confidence
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, best_scored, judge_score, weighted_best


@dataclass(frozen=True)
class BestOfN(Strategy):
    """Sample n completions, have a judge score them, take the best answer by summed score or the best completion.

    Weighted adds the scores of completions that agree, argmax over answers of the sum of r (arXiv 2408.03314), and is
    the default: the highest single score of many is where the judge errs most, and that regret grows like the root of n
    times the judge's error (Huang et al. 2025). Eight as in `Vote`. Only completions with a readable answer are scored,
    unless none has one. A judge that only reports solved or not counts as 1 or 0. When the judge fails on all, the
    plain vote decides and a note says so. Harm: with a weak judge and a large n it is worse than the plain vote,
    unweighted first.
    """

    paper = Paper("arXiv 2408.03314", "weighted best-of-N")
    example: ClassVar[Mapping[str, Any]] = {"n": 3}

    needs: ClassVar[frozenset[str]] = frozenset({"judge"})

    n: int = 8
    """Completions to sample."""
    weighted: bool = True
    """Whether completions with the same answer add up their scores; scores must then not be negative."""
    judge: str = "default"
    """Name of the judge."""

    def __post_init__(self) -> None:
        require(self, "n", self.n >= 1, "at least one sample")
        require(self, "judge", bool(self.judge), "the name of a judge")

    def __call__(self, task: Task) -> Run:
        """Sample, have them scored, choose."""
        drawn: list[Candidate] = yield Ask(self.n)
        stopped = "most" if len(drawn) >= self.n else "budget"
        readable = [candidate for candidate in drawn if candidate.key is not None]
        scored: list[Candidate] = (yield Judge(tuple(readable or drawn), self.judge)) if drawn else []
        verdicts = iter(scored)
        poll = Poll(task)
        poll.add(
            next(verdicts, candidate) if candidate.key is not None or not readable else candidate for candidate in drawn
        )
        return replace(self.choose(poll), stopped=stopped)

    def choose(self, poll: Poll) -> Answer:
        """Return the best by the judge's scores, or the plain vote where the judge scored nothing."""
        failed = sum(judge_score(candidate) is None for candidate in poll.seen if candidate.key is not None)
        if failed and failed == len(poll.arrivals):
            answer = majority_with_confidence(poll, Never(), "")
            return replace(answer, notes=(*answer.notes, "The judge scored no completion: the plain vote decided."))
        answer = (weighted_best if self.weighted and poll.arrivals else best_scored)(poll, judge_score)
        note = (
            f"The judge scored {len(poll.arrivals) - failed} of {len(poll.arrivals)} completions; the others could not"
            " win."
        )
        return replace(answer, notes=(*answer.notes, note)) if failed else answer
