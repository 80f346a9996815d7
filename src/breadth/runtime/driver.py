"""The driver: runs a strategy on one task or many with a sampler, within a budget, and summarizes the results."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from breadth.base.errors import ServerError, SettingsError, StrategyError
from breadth.inference.allocation import Allocator, Grant, Progress
from breadth.inference.catalogue import STRATEGIES
from breadth.inference.records import Answer, Ask, Budget, Candidate, Spend, Task
from breadth.inference.stopping.posterior import BetaLead
from breadth.inference.strategies.adaptive_vote import majority_with_confidence
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, best_scored
from breadth.runtime.journal import Journal, JournalEvent
from breadth.runtime.ledger import Ledger
from breadth.runtime.sampler import Sampler
from breadth.runtime.solve_context import JudgeFunction, SolveContext, cancel_all, gather_or_cancel, new_trace_id
from breadth.runtime.strategy_run import StrategyRun


@dataclass(frozen=True)
class SolveResult:
    """The result of one task."""

    task: Task
    """The task."""
    answer: Answer
    """The strategy's answer; without a candidate when nothing arrived."""
    spend: Spend
    """What it used, including samples that failed or were cancelled."""
    arrived: tuple[Candidate, ...]
    """Every candidate that arrived, delivered to the strategy or not."""
    started: int
    """Samples started."""
    failed: int
    """Samples that failed for good, each after its retries."""
    discarded: int
    """Samples cancelled in flight, because the answer was decided or the time was up."""
    errors: Mapping[str, int]
    """Reason of a failure -> how often."""
    last_error: ServerError | None
    """The latest failure, where there was one."""
    seconds: float
    """Wall-clock seconds from start to answer."""
    budget_exhausted: bool
    """Whether the budget ran out."""
    trace: str
    """Id of this solve, in logs and records."""

    def __repr__(self) -> str:
        answer = "without an answer" if self.answer.answer is None else repr(self.answer.answer)
        sure = "" if self.answer.confidence is None else f", confidence {self.answer.confidence:.3f}"
        return f"<SolveResult {answer}{sure}, samples {self.started:,}, tokens {self.spend.output_tokens:,}>"

    @classmethod
    def from_context(cls, context: SolveContext, answer: Answer, seconds: float, trace: str) -> SolveResult:
        """Summarize a task that has been solved."""
        return cls(
            context.task,
            answer,
            context.ledger.spent,
            tuple(context.arrived),
            context.started,
            context.failed,
            context.discarded,
            dict(context.errors),
            context.last_error,
            seconds,
            context.budget_exhausted,
            trace,
        )


@dataclass
class Driver:
    """Solves tasks with one sampler; several may be solved at once, all charged to one ledger."""

    sampler: Sampler
    """Where samples come from."""
    ledger: Ledger = field(default_factory=Ledger)
    """The account of everything this driver does."""
    judges: Mapping[str, JudgeFunction] = field(default_factory=dict)
    """Judges that strategies may call, by name."""
    journal: Journal = field(default_factory=Journal)
    """Records outcomes for a later resume; by default nowhere."""

    async def solve(self, strategy: Strategy, task: Task, *, budget: Budget = Budget()) -> SolveResult:  # noqa: B008 - frozen
        """Run a strategy on a task; it never spends more than ``budget`` and the driver's own ledger allow."""
        self.check(strategy)
        if self.journal.folder is not None:
            self.journal.begin_task(task.name, self.fingerprint(strategy, task))
        ledger = Ledger(budget, parent=self.ledger)
        context = SolveContext(task, self.sampler, ledger, self.judges, self.journal)
        started_at = time.monotonic()
        answer = await StrategyRun(context).drive(strategy(task))
        context.finish()
        return SolveResult.from_context(context, answer, time.monotonic() - started_at, new_trace_id())

    def check(self, strategy: Strategy) -> None:
        """Refuse a strategy that needs what the sampler does not support."""
        offers = self.sampler.offers | ({"judge"} if self.judges else set())
        missing = sorted(strategy.needs - offers)
        if missing:
            raise StrategyError(
                f"{type(strategy).__name__} needs {', '.join(missing)}, which this server or sampler does not offer.",
                "Choose another strategy, such as adaptive-vote, or a server that offers it.",
            )

    @staticmethod
    def fingerprint(plan: Strategy | Allocator, task: Task) -> str:
        """Return a hash of all settings of a run: only a run with the same hash may be resumed."""
        settings = (plan, task.prompt, task.model, task.sampling, task.reading, task.seed, task.options, task.halt)
        return hashlib.blake2b(
            "\0".join(map(repr, settings)).encode("utf-8", "surrogatepass"), digest_size=12
        ).hexdigest()


TASK_CONCURRENCY = 4
"""Tasks solved in parallel by default."""


async def solve_all(
    driver: Driver,
    strategy: Strategy,
    tasks: Sequence[Task],
    *,
    budget: Budget = Budget(),  # noqa: B008 - frozen
    concurrency: int = TASK_CONCURRENCY,
) -> AsyncIterator[SolveResult]:
    """Solve tasks with one strategy, ``concurrency`` at a time, each within ``budget``; yields them as they end."""
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
            for ended in sorted(done, key=lambda task: task.exception() is not None):  # results before errors
                yield ended.result()
    finally:
        await cancel_all(list(running))


async def allocate(
    driver: Driver, allocator: Allocator, tasks: Sequence[Task], *, judge: str | None = None
) -> list[SolveResult]:
    """Spread the driver's budget over tasks by an allocator, in rounds; answers come by vote, or a judge's score."""
    check_unique_names(tasks)
    shares = {task.name: Share.begin(driver, task, allocator, judge) for task in tasks}
    allocation = allocator([task.name for task in tasks])
    granted = next(allocation, None)
    try:
        while granted is not None:
            await gather_or_cancel(shares[grant.task].sample(grant) for grant in granted)
            if driver.ledger.is_out_of_time:
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
    """Its samples."""
    judge: str | None
    """Judge of its candidates."""
    poll: Poll
    """Its vote."""
    recorded: dict[str, JournalEvent] = field(default_factory=dict)
    """Outcomes of an earlier attempt, by draw id."""
    granted: int = 0
    """Samples granted; each has its own draw id, whatever its outcome."""
    ended: int = 0
    """Samples ended."""
    started_at: float = field(default_factory=time.monotonic)
    """When it was started, on the monotonic clock."""

    @classmethod
    def begin(cls, driver: Driver, task: Task, allocator: Allocator, judge: str | None) -> Share:
        """Open the account of one task."""
        driver.journal.begin_task(task.name, driver.fingerprint(allocator, task))
        context = SolveContext(task, driver.sampler, Ledger(parent=driver.ledger), driver.judges, driver.journal)
        recorded = {
            event.draw_id: event
            for event in driver.journal.take_events(task.name, "")
            if event.kind in ("arrived", "failed")
        }
        return cls(context, judge, Poll(task), recorded)

    async def sample(self, grant: Grant) -> None:
        """Sample what was granted, in parallel, and add it to the vote in the order of the draw ids."""
        draw_ids = [str(self.granted + number) for number in range(grant.draws)]
        self.granted += grant.draws
        candidates = [
            candidate
            for candidate in await gather_or_cancel(map(self.sample_or_replay, draw_ids))
            if candidate is not None
        ]
        if self.judge is not None:
            candidates = await gather_or_cancel(self.context.judge(candidate, self.judge) for candidate in candidates)
        self.poll.add(candidates)

    async def sample_or_replay(self, draw_id: str) -> Candidate | None:
        """Sample one candidate, or take it from an earlier attempt."""
        known = self.recorded.pop(draw_id, None)
        candidate = (
            await self.context.sample(Ask(), draw_id, "") if known is None else self.context.replay_event(known, Ask())
        )
        refused = (
            known is None and candidate is None and (self.context.budget_exhausted or self.context.is_hopeless(Ask()))
        )
        self.ended += not refused
        return candidate

    @property
    def progress(self) -> Progress:
        """What the allocator is sent."""
        scored = [
            candidate for candidate in self.poll.seen if candidate.score is not None or candidate.solved is not None
        ]
        scores = [candidate.score for candidate in scored if candidate.score is not None]
        solved = sum(candidate.solved is True for candidate in scored)
        tokens = sum(candidate.tokens for candidate in self.context.arrived)
        return Progress(self.ended, len(scored), solved, max(scores, default=None), self.poll.state, tokens)

    def result(self) -> SolveResult:
        """Return the result of the task."""
        answer = best_scored(self.poll) if self.judge else majority_with_confidence(self.poll, BetaLead(), "allocated")
        answer = answer if self.poll.seen else Answer()
        return SolveResult.from_context(
            self.context, replace(answer, stopped="allocated"), time.monotonic() - self.started_at, new_trace_id()
        )


def check_unique_names(tasks: Sequence[Task]) -> None:
    """Refuse tasks that share a name: their records could not be separated."""
    names = [task.name for task in tasks]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise StrategyError(f"Two tasks are called '{twice}'.", "Give every task a name (an id) of its own.")


MAX_VOTES_LISTED = 20
"""Answers listed at most: the tail of a vote over forty different ones is of no use."""


def summarize_result(result: SolveResult, strategy: Strategy) -> dict[str, Any]:
    """Return confidence, cost, votes, failures and notes; the answer's text is not in it."""
    answer, spend = result.answer, result.spend
    weight = sum(answer.votes.values())
    return {
        "trace": result.trace,
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
        "drawn": result.started,
        "arrived": len(result.arrived),
        "failed": result.failed,
        "discarded": result.discarded,
        "unread": answer.unread,
        "independent": answer.independent,
        "cost": {
            "calls": spend.calls,
            "input_tokens": spend.input_tokens,
            "cached_tokens": spend.cached_tokens,
            "output_tokens": spend.output_tokens,
            "seconds": round(result.seconds, 3),
            "money": spend.money,
        },
        "budget_spent": result.budget_exhausted,
        "errors": [{"problem": problem, "times": times} for problem, times in result.errors.items()],
        "notes": [*answer.notes, *server_notes(result)],
        "figures": dict(answer.figures),
    }


def server_notes(result: SolveResult) -> list[str]:
    """Return what the server did against the request, as far as a client can see: caps ignored, events sent twice."""
    ignored = sum("cap_ignored" in candidate.message for candidate in result.arrived)
    twice = sum("repeated_events" in candidate.message for candidate in result.arrived)
    whole = len(result.arrived)
    notes = {
        f"The server wrote more tokens than allowed in {ignored} of {whole} completions: it does not keep to caps.": (
            ignored
        ),
        f"The server sent events twice in {twice} of {whole} completions; they were dropped.": twice,
    }
    return [note for note, times in notes.items() if times]


def strategy_name(strategy: Strategy) -> str:
    """Return a strategy's name in the catalogue, or its class's name when it is in none."""
    return STRATEGIES.name_of(type(strategy)) or type(strategy).__name__
