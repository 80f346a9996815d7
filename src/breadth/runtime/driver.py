"""The driver: runs a strategy on a task with a sampler, within a budget, and says what came of it and what it cost."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from breadth.base.errors import ServerError, StrategyError
from breadth.inference.allocation.allocator import Allocator
from breadth.inference.budget import Budget, Spend
from breadth.inference.records import Answer, Candidate, Task
from breadth.inference.strategy import Strategy
from breadth.runtime.fiber import Fiber
from breadth.runtime.journal import Journal
from breadth.runtime.ledger import Ledger
from breadth.runtime.sampler import Sampler
from breadth.runtime.solving import JudgeOf, Solving, trace_id


@dataclass(frozen=True)
class Solved:
    """What came of one task."""

    task: Task
    """What was asked."""
    answer: Answer
    """What the strategy answered; without a candidate when nothing arrived."""
    spend: Spend
    """What it used, draws that failed or were cancelled included."""
    arrived: tuple[Candidate, ...]
    """Every candidate that arrived, delivered to the strategy or not."""
    started: int
    """Draws begun."""
    failed: int
    """Draws that failed for good, each after its retries."""
    discarded: int
    """Draws cancelled in flight, because the answer was decided or the time was up."""
    errors: Mapping[str, int]
    """Why draws failed -> how often."""
    last_error: ServerError | None
    """The latest failure, where there was one."""
    seconds: float
    """From start to answer on the clock."""
    spent: bool
    """Whether the budget ran out on the way."""
    trace: str
    """Id of this solve, in logs and records."""

    @classmethod
    def of(cls, solving: Solving, answer: Answer, seconds: float, trace: str) -> Solved:
        """Sum up a task that has been solved."""
        return cls(
            solving.task,
            answer,
            solving.ledger.spent,
            tuple(solving.arrived),
            solving.started,
            solving.failed,
            solving.discarded,
            dict(solving.errors),
            solving.last_error,
            seconds,
            solving.spent,
            trace,
        )


@dataclass
class Driver:
    """Solves tasks with one sampler; several may be solved at once, all charged to one ledger."""

    sampler: Sampler
    """Where draws come from."""
    ledger: Ledger = field(default_factory=Ledger)
    """The account of everything this driver does."""
    judges: Mapping[str, JudgeOf] = field(default_factory=dict)
    """Judges that strategies may call, by name."""
    journal: Journal = field(default_factory=Journal)
    """Where replies are written down and taken up again from; by default nowhere."""

    async def solve(self, strategy: Strategy, task: Task, *, budget: Budget = Budget()) -> Solved:  # noqa: B008 - frozen
        """Run a strategy on a task; it never spends more than ``budget`` and the driver's own ledger allow."""
        self.check(strategy)
        self.journal.begin(task.name, self.fingerprint(strategy, task))
        ledger = Ledger(budget, parent=self.ledger)
        solving = Solving(task, self.sampler, ledger, self.judges, self.journal)
        begun = time.monotonic()
        answer = await Fiber(solving).drive(strategy(task))
        solving.finish()
        return Solved.of(solving, answer, time.monotonic() - begun, trace_id())

    def check(self, strategy: Strategy) -> None:
        """Refuse a strategy that needs what the sampler does not offer."""
        offers = self.sampler.offers | ({"judge"} if self.judges else set())
        missing = sorted(strategy.needs - offers)
        if missing:
            raise StrategyError(
                f"{type(strategy).__name__} needs {', '.join(missing)}, which this server or sampler does not offer.",
                "Choose another strategy, such as adaptive-vote, or a server that offers it.",
            )

    @staticmethod
    def fingerprint(plan: Strategy | Allocator, task: Task) -> str:
        """Return a hash of everything that decides what is asked: the same run may be taken up again, another may not."""
        asked = (plan, task.prompt, task.model, task.sampling, task.reading, task.seed, task.options, task.halt)
        return hashlib.blake2b("\0".join(map(repr, asked)).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
