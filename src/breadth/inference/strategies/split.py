"""Several chains of revisions concurrently: sequential times parallel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.inference.records import Answer, Fork, Run, Task
from breadth.inference.stopping.rule import Never
from breadth.inference.strategies.adaptive_vote import majority_with_confidence
from breadth.inference.strategies.revision import Revision
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, select_best


@dataclass(frozen=True)
class Split(Strategy):
    """Run several independent chains of revisions; take the best of each chain, then the best of these.

    N samples are chains x rounds. The best ratio depends on the question: easy ones favour long chains, harder ones a
    balance, and the hardest gain from neither (arXiv 2408.03314, with a model trained to revise). Chains of one round
    are a plain vote, or best-of-N with a judge; one chain is `Revision`. Four chains of four is our choice, the middle
    of 16; tune it on your tasks. The confidence is that of a vote of chains, each counting once: chains are
    independent, replies of one chain are not. Harm: that of `Revision` for models that were not trained to revise.
    """

    paper = Paper("arXiv 2408.03314", "sequential-parallel split")
    example: ClassVar[Mapping[str, Any]] = {"chains": 2, "revision": {"rounds": 2}}

    chains: int = 4
    """Number of concurrent chains."""
    revision: Revision = Revision()
    """Strategy of each chain."""

    def __post_init__(self) -> None:
        require(self, "chains", self.chains >= 1, "at least one chain")

    def __call__(self, task: Task) -> Run:
        """Run the chains, then choose among their choices."""
        answers: list[Answer] = yield Fork(tuple(self.revision(task) for _ in range(self.chains)))
        poll = Poll(task)
        poll.add(answer.chosen for answer in answers if answer.chosen is not None)
        short = len(poll.seen) < self.chains or any(answer.stopped == "budget" for answer in answers)
        best = self.choose(poll, "budget" if short else "most")
        everything = tuple(candidate for answer in answers for candidate in answer.candidates)
        figures = {
            name: sum(answer.figures.get(name, 0.0) for answer in answers) for name in ("rounds", "changes", "returns")
        }
        return replace(best, candidates=everything, figures={"chains": float(len(poll.seen)), **figures})

    def choose(self, poll: Poll, stopped: str) -> Answer:
        """Return the best by the judge's scores, or by a vote of the chains without a judge."""
        if self.revision.judge:
            return replace(select_best(poll, by=self.revision.judge, weighted=self.revision.weighted), stopped=stopped)
        answer = majority_with_confidence(poll, Never(), stopped)
        return replace(
            answer,
            basis=f"{answer.basis}, each chain one vote" if answer.basis and self.revision.rounds > 1 else answer.basis,
        )
