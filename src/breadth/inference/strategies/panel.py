"""A vote over runs of another strategy: early-exiting chains, forced traces, or any other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from breadth.base.errors import require
from breadth.inference.records import Answer, Fork, Run, Task
from breadth.inference.stopping.rule import Never
from breadth.inference.strategies.adaptive_vote import majority_with_confidence
from breadth.inference.strategies.early_exit import EarlyExit
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll


@dataclass(frozen=True)
class Panel(Strategy):
    """Run a strategy several times concurrently and independently, and vote over their answers.

    Each run counts once, however much it samples. Combines what lengthens or shortens a trace (`BudgetForcing`,
    `EarlyExit`) with what averages over traces (a vote). Eight as in `Vote`. The runs answer separately, so their votes
    are independent even where the samples of one run are not.
    Harm: none beyond its cost, which is that of all runs; the runs do not stop early when they agree.
    """

    example: ClassVar[Mapping[str, Any]] = {"strategy": {"kind": "early-exit", "trials": 1}, "runs": 2}

    strategy: Strategy = EarlyExit()
    """Strategy of each run."""
    runs: int = 8
    """Number of concurrent runs."""

    def __post_init__(self) -> None:
        require(self, "runs", self.runs >= 1, "at least one run")

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override] # what the inner strategy needs is known by instance
        """Requirements of the inner strategy."""
        return self.strategy.needs

    def prepare(self) -> None:
        """Prepare the inner strategy."""
        self.strategy.prepare()

    def __call__(self, task: Task) -> Run:
        """Run them and vote."""
        answers: list[Answer] = yield Fork(tuple(self.strategy(task) for _ in range(self.runs)))
        poll = Poll(task)
        poll.add(answer.chosen for answer in answers if answer.chosen is not None)
        short = len(poll.seen) < self.runs or any(answer.stopped == "budget" for answer in answers)
        voted = majority_with_confidence(poll, Never(), "budget" if short else "most")
        return replace(
            voted,
            basis=f"{voted.basis}, each run one vote" if voted.basis else "",
            candidates=tuple(candidate for answer in answers for candidate in answer.candidates),
            notes=tuple(dict.fromkeys(note for answer in (voted, *answers) for note in answer.notes)),
            figures={"runs": float(len(poll.seen))},
        )
