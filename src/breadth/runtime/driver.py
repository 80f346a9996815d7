"""The driver: runs a strategy on one task or many with a sampler, within a budget, and sums up the results."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from breadth.base.errors import ServerError, SettingsError, StrategyError
from breadth.inference.allocation.allocator import Allocator, Grant, Progress
from breadth.inference.budget import Budget, Spend
from breadth.inference.records import Answer, Ask, Candidate, Task
from breadth.inference.stopping.beta_lead import BetaLead
from breadth.inference.strategies.adaptive_vote import majority_with_confidence
from breadth.inference.strategy import STRATEGIES, Strategy
from breadth.inference.voting import Poll, best_scored
from breadth.runtime.journal import Journal, JournalEvent
from breadth.runtime.ledger import Ledger
from breadth.runtime.sampler import Sampler
from breadth.runtime.solve_context import JudgeFunction, SolveContext, cancel_all, gather_or_cancel, new_trace_id
from breadth.runtime.strategy_run import StrategyRun


@dataclass(frozen=True)
class SolveResult:
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
    budget_exhausted: bool
    """Whether the budget ran out on the way."""
    trace: str
    """Id of this solve, in logs and records."""

    @classmethod
    def from_context(cls, solving: SolveContext, answer: Answer, seconds: float, trace: str) -> SolveResult:
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
            solving.budget_exhausted,
            trace,
        )


@dataclass
class Driver:
    """Solves tasks with one sampler; several may be solved at once, all charged to one ledger."""

    sampler: Sampler
    """Where draws come from."""
    ledger: Ledger = field(default_factory=Ledger)
    """The account of everything this driver does."""
    judges: Mapping[str, JudgeFunction] = field(default_factory=dict)
    """Judges that strategies may call, by name."""
    journal: Journal = field(default_factory=Journal)
    """Where replies are written down and taken up again from; by default nowhere."""

    async def solve(self, strategy: Strategy, task: Task, *, budget: Budget = Budget()) -> SolveResult:  # noqa: B008 - frozen
        """Run a strategy on a task; it never spends more than ``budget`` and the driver's own ledger allow."""
        self.check(strategy)
        self.journal.begin_task(task.name, self.fingerprint(strategy, task))
        ledger = Ledger(budget, parent=self.ledger)
        solving = SolveContext(task, self.sampler, ledger, self.judges, self.journal)
        begun = time.monotonic()
        answer = await StrategyRun(solving).drive(strategy(task))
        solving.finish()
        return SolveResult.from_context(solving, answer, time.monotonic() - begun, new_trace_id())

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


TASK_CONCURRENCY = 4
"""Tasks solved side by side, unless told otherwise."""


async def solve_all(
    driver: Driver,
    strategy: Strategy,
    tasks: Sequence[Task],
    *,
    budget: Budget = Budget(),  # noqa: B008 - frozen
    concurrency: int = TASK_CONCURRENCY,
) -> AsyncIterator[SolveResult]:
    """Solve tasks under one strategy, ``at_once`` side by side, each within ``budget``; yields them as they end."""
    check_unique_names(tasks)
    if concurrency < 1:
        raise SettingsError(f"{concurrency} tasks are to be solved at once; need at least one.", "Set it to 1 or more.")
    waiting = iter(tasks)
    running: set[asyncio.Task[SolveResult]] = set()
    try:
        while True:
            while len(running) < concurrency and (task := next(waiting, None)) is not None:
                running.add(asyncio.create_task(driver.solve(strategy, task, budget=budget)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for solved in sorted(
                done, key=lambda ended: ended.exception() is not None
            ):  # what is whole is not lost to what broke
                yield solved.result()
    finally:
        await cancel_all(list(running))


async def allocate(
    driver: Driver, allocator: Allocator, tasks: Sequence[Task], *, judge: str | None = None
) -> list[SolveResult]:
    """Spread the driver's budget over tasks as an allocator says, round by round; answers come by vote, or by the judge's score."""
    check_unique_names(tasks)
    shares = {task.name: Share.begin(driver, task, allocator, judge) for task in tasks}
    allocation = allocator([task.name for task in tasks])
    granted = next(allocation, None)
    try:
        while granted is not None:
            await gather_or_cancel(shares[grant.task].sample(grant) for grant in granted)
            if driver.ledger.time_left is not None and driver.ledger.time_left <= 0:
                break
            try:
                granted = allocation.send({name: share.progress for name, share in shares.items()})
            except StopIteration:
                break
    finally:
        allocation.close()
    return [share.result() for share in shares.values()]


@dataclass
class Share:
    """One task's part of a budget that is spread over many."""

    context: SolveContext
    """Its draws."""
    judge: str | None
    """Who judges its candidates."""
    poll: Poll
    """Its vote."""
    recorded: dict[str, JournalEvent] = field(default_factory=dict)
    """What an earlier attempt has drawn for it, by place."""
    granted: int = 0
    """Draws granted: each has a place of its own, whatever became of it."""
    ended: int = 0
    """Draws ended."""
    started_at: float = field(default_factory=time.monotonic)
    """When it was begun, on the monotonic clock."""

    @classmethod
    def begin(cls, driver: Driver, task: Task, allocator: Allocator, judge: str | None) -> Share:
        """Open the account of one task."""
        driver.journal.begin_task(task.name, driver.fingerprint(allocator, task))
        solving = SolveContext(task, driver.sampler, Ledger(parent=driver.ledger), driver.judges, driver.journal)
        recorded = {
            event.draw_id: event
            for event in driver.journal.take_events(task.name, "")
            if event.kind in ("arrived", "failed")
        }
        return cls(solving, judge, Poll(task), recorded)

    async def sample(self, grant: Grant) -> None:
        """Draw what was granted, side by side, and take it in, in order of the draws."""
        places = [str(self.granted + number) for number in range(grant.draws)]
        self.granted += grant.draws
        drawn = [
            candidate
            for candidate in await gather_or_cancel(map(self._sample_or_replay, places))
            if candidate is not None
        ]
        if self.judge is not None:
            drawn = await gather_or_cancel(self.context.judge(candidate, self.judge) for candidate in drawn)
        self.poll.add(drawn)

    async def _sample_or_replay(self, place: str) -> Candidate | None:
        known = self.recorded.pop(place, None)
        candidate = (
            await self.context.sample(Ask(), place, "") if known is None else self.context.replay_event(known, Ask())
        )
        refused = (
            known is None and candidate is None and (self.context.budget_exhausted or self.context.is_hopeless(Ask()))
        )
        self.ended += not refused
        return candidate

    @property
    def progress(self) -> Progress:
        """What the allocator is told."""
        judged = [
            candidate for candidate in self.poll.seen if candidate.score is not None or candidate.solved is not None
        ]
        scores = [candidate.score for candidate in judged if candidate.score is not None]
        solved = sum(candidate.solved is True for candidate in judged)
        tokens = sum(candidate.tokens for candidate in self.context.arrived)
        return Progress(self.ended, len(judged), solved, max(scores, default=None), self.poll.state, tokens)

    def result(self) -> SolveResult:
        """Return what came of the task."""
        answer = best_scored(self.poll) if self.judge else majority_with_confidence(self.poll, BetaLead(), "allocated")
        answer = answer if self.poll.seen else Answer()
        return SolveResult.from_context(
            self.context, replace(answer, stopped="allocated"), time.monotonic() - self.started_at, new_trace_id()
        )


def check_unique_names(tasks: Sequence[Task]) -> None:
    """Refuse tasks that share a name: their records could not be told apart."""
    names = [task.name for task in tasks]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise StrategyError(f"Two tasks are called '{twice}'.", "Give every task a name (an id) of its own.")


MAX_VOTES_LISTED = 20
"""Answers listed at most; a vote of forty different ones tells nothing by its tail."""


def summarize_result(solved: SolveResult, strategy: Strategy) -> dict[str, Any]:
    """Return confidence, cost, votes, failures and notes; the answer's text is not in it."""
    answer, spend = solved.answer, solved.spend
    weight = sum(answer.votes.values())
    return {
        "trace": solved.trace,
        "strategy": strategy_name(strategy),
        "answer": answer.answer,
        "confidence": answer.confidence,
        "basis": answer.basis,
        "votes": [
            {"answer": key, "votes": votes, "share": votes / weight if weight else 0.0}
            for key, votes in list(answer.votes.items())[:MAX_VOTES_LISTED]
        ],
        "tied": list(answer.tied),
        "stopped": answer.stopped,
        "drawn": solved.started,
        "arrived": len(solved.arrived),
        "failed": solved.failed,
        "discarded": solved.discarded,
        "unread": answer.unread,
        "independent": answer.independent,
        "cost": {
            "calls": spend.calls,
            "input_tokens": spend.input_tokens,
            "cached_tokens": spend.cached_tokens,
            "output_tokens": spend.output_tokens,
            "seconds": round(solved.seconds, 3),
            "money": spend.money,
        },
        "budget_spent": solved.budget_exhausted,
        "errors": [{"problem": problem, "times": times} for problem, times in solved.errors.items()],
        "notes": [*answer.notes, *server_notes(solved)],
        "figures": dict(answer.figures),
    }


def server_notes(solved: SolveResult) -> list[str]:
    """Say what the server did otherwise than asked, as far as a client can see: caps passed over, events sent twice."""
    passed = sum("cap_ignored" in candidate.message for candidate in solved.arrived)
    twice = sum("repeated_events" in candidate.message for candidate in solved.arrived)
    whole = len(solved.arrived)
    notes = {
        f"The server wrote more tokens than allowed in {passed} of {whole} completions: it does not keep to caps.": (
            passed
        ),
        f"The server sent events twice in {twice} of {whole} completions; they were dropped.": twice,
    }
    return [note for note, times in notes.items() if times]


def strategy_name(strategy: Strategy) -> str:
    """Return a strategy's name in the catalogue, or its class's name when it is in none."""
    return STRATEGIES.name_of(type(strategy)) or type(strategy).__name__
