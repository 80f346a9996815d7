"""Some chains of revisions side by side: sequential times parallel."""

from __future__ import annotations

from dataclasses import dataclass, replace

from breadth.base.checks import require
from breadth.inference.records import Answer, Fork, Run, Task
from breadth.inference.stopping.never import Never
from breadth.inference.strategies.adaptive_vote import majority_with_confidence
from breadth.inference.strategies.revision import Revision
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, select_best


@dataclass(frozen=True)
class Split(Strategy):
    """Run several chains of revisions that know nothing of each other; take the best of each chain, then the best of these.

    Of N draws, chains x rounds; which ratio is best depends on the question: easy ones want long chains, harder ones a
    balance, and the hardest gain from neither (arXiv 2408.03314, with a model trained to revise). Chains of one round
    are a plain vote, or best-of-N with a judge; one chain is `Revision`. Four chains of four is our choice, the middle
    of 16; tune it on your tasks. The confidence is that of a vote of chains, each of which counts once: chains are
    independent, replies of one chain are not. Harm: that of `Revision` for models that were not trained to revise.
    """

    chains: int = 4
    """Chains side by side."""
    revision: Revision = Revision()
    """What each chain does."""

    def __post_init__(self) -> None:
        require(self, "chains", self.chains >= 1, "at least one chain")

    def __call__(self, task: Task) -> Run:
        """Run the chains, then choose among their choices."""
        answers: list[Answer] = yield Fork(tuple(self.revision(task) for _ in range(self.chains)))
        poll = Poll(task)
        poll.add(answer.chosen for answer in answers if answer.chosen is not None)
        best = self._best(
            poll, "budget" if len(poll.seen) < self.chains or any(a.stopped == "budget" for a in answers) else "most"
        )
        everything = tuple(candidate for answer in answers for candidate in answer.candidates)
        figures = {
            name: sum(answer.figures.get(name, 0.0) for answer in answers) for name in ("rounds", "changes", "returns")
        }
        return replace(best, candidates=everything, figures={"chains": float(len(poll.seen)), **figures})

    def _best(self, poll: Poll, stopped: str) -> Answer:
        if self.revision.judge:
            return replace(select_best(poll, by=self.revision.judge, weighted=self.revision.weighted), stopped=stopped)
        answer = majority_with_confidence(poll, Never(), stopped)
        return replace(
            answer,
            basis=f"{answer.basis}, each chain one vote" if answer.basis and self.revision.rounds > 1 else answer.basis,
        )
