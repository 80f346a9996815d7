"""Many tasks: one policy on each, a few at once; or one budget spread over all of them by an allocator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from breadth.base.errors import SettingsError, StrategyError
from breadth.inference.allocation.allocator import Allocator, Grant, Progress
from breadth.inference.budget import Budget
from breadth.inference.records import Answer, Ask, Candidate, Task
from breadth.inference.stopping.beta_lead import BetaLead
from breadth.inference.strategies.adaptive_vote import decided_answer
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, best_scored
from breadth.runtime.driver import Driver, Solved
from breadth.runtime.journal import Event
from breadth.runtime.ledger import Ledger
from breadth.runtime.solving import Solving, cancelled, together, trace_id

AT_ONCE = 4
"""Tasks solved side by side, unless told otherwise."""


async def solve_all(
    driver: Driver,
    strategy: Strategy,
    tasks: Sequence[Task],
    *,
    budget: Budget = Budget(),  # noqa: B008 - frozen
    at_once: int = AT_ONCE,
) -> AsyncIterator[Solved]:
    """Solve tasks under one strategy, ``at_once`` side by side, each within ``budget``; yields them as they end."""
    unique_names(tasks)
    if at_once < 1:
        raise SettingsError(f"{at_once} tasks are to be solved at once; need at least one.", "Set it to 1 or more.")
    waiting = iter(tasks)
    running: set[asyncio.Task[Solved]] = set()
    try:
        while True:
            while len(running) < at_once and (task := next(waiting, None)) is not None:
                running.add(asyncio.create_task(driver.solve(strategy, task, budget=budget)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for solved in sorted(done, key=lambda ended: ended.exception() is not None):  # what is whole is not lost to what broke
                yield solved.result()
    finally:
        await cancelled(list(running))


async def allocate(driver: Driver, allocator: Allocator, tasks: Sequence[Task], *, judge: str | None = None) -> list[Solved]:
    """Spread the driver's budget over tasks as an allocator says, round by round; answers come by vote, or by the judge's score."""
    unique_names(tasks)
    shares = {task.name: Share.begin(driver, task, allocator, judge) for task in tasks}
    allocation = allocator([task.name for task in tasks])
    granted = next(allocation, None)
    try:
        while granted is not None:
            await together(shares[grant.task].draw(grant) for grant in granted)
            if driver.ledger.time_left is not None and driver.ledger.time_left <= 0:
                break
            try:
                granted = allocation.send({name: share.progress for name, share in shares.items()})
            except StopIteration:
                break
    finally:
        allocation.close()
    return [share.solved() for share in shares.values()]


@dataclass
class Share:
    """One task's part of a budget that is spread over many."""

    solving: Solving
    """Its draws."""
    judge: str | None
    """Who judges its candidates."""
    poll: Poll
    """Its vote."""
    recorded: dict[str, Event] = field(default_factory=dict)
    """What an earlier attempt has drawn for it, by place."""
    granted: int = 0
    """Draws granted: each has a place of its own, whatever became of it."""
    draws: int = 0
    """Draws ended."""
    begun: float = field(default_factory=time.monotonic)
    """When it was begun, on the monotonic clock."""

    @classmethod
    def begin(cls, driver: Driver, task: Task, allocator: Allocator, judge: str | None) -> Share:
        """Open the account of one task."""
        driver.journal.begin(task.name, driver.fingerprint(allocator, task))
        solving = Solving(task, driver.sampler, Ledger(parent=driver.ledger), driver.judges, driver.journal)
        recorded = {event.place: event for event in driver.journal.events(task.name, "") if event.kind in ("arrived", "failed")}
        return cls(solving, judge, Poll(task), recorded)

    async def draw(self, grant: Grant) -> None:
        """Draw what was granted, side by side, and take it in, in order of the draws."""
        places = [str(self.granted + number) for number in range(grant.draws)]
        self.granted += grant.draws
        drawn = [candidate for candidate in await together(map(self._one, places)) if candidate is not None]
        if self.judge is not None:
            drawn = await together(self.solving.judge(candidate, self.judge) for candidate in drawn)
        self.poll.add(drawn)

    async def _one(self, place: str) -> Candidate | None:
        known = self.recorded.pop(place, None)
        candidate = await self.solving.draw(Ask(), place, "") if known is None else self.solving.take_up(known, Ask())
        refused = known is None and candidate is None and (self.solving.spent or self.solving.hopeless(Ask()))
        self.draws += not refused
        return candidate

    @property
    def progress(self) -> Progress:
        """What the allocator is told."""
        judged = [candidate for candidate in self.poll.seen if candidate.score is not None or candidate.solved is not None]
        scores = [candidate.score for candidate in judged if candidate.score is not None]
        solved = sum(candidate.solved is True for candidate in judged)
        tokens = sum(candidate.tokens for candidate in self.solving.arrived)
        return Progress(self.draws, len(judged), solved, max(scores, default=None), self.poll.standing, tokens)

    def solved(self) -> Solved:
        """Return what came of the task."""
        answer = best_scored(self.poll) if self.judge else decided_answer(self.poll, BetaLead(), "allocated")
        answer = answer if self.poll.seen else Answer()
        return Solved.of(self.solving, replace(answer, stopped="allocated"), time.monotonic() - self.begun, trace_id())


def unique_names(tasks: Sequence[Task]) -> None:
    """Refuse tasks that share a name: their records could not be told apart."""
    names = [task.name for task in tasks]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise StrategyError(f"Two tasks are called '{twice}'.", "Give every task a name (an id) of its own.")
