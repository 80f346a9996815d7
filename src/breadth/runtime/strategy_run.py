"""One run of a strategy: its requests become samples in parallel, arrivals are sent back, leftovers are cancelled."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from breadth.base.errors import StrategyError
from breadth.inference.records import Answer, Ask, Candidate, Fork, Judge, Request, Run
from breadth.runtime.journal import JournalEvent
from breadth.runtime.solve_context import MAX_EXTRA_FAILURES, SolveContext, cancel_all, gather_or_cancel


@dataclass
class InFlight:
    """A sample that was requested and has not been delivered."""

    ask: Ask
    """The request it belongs to."""
    task: asyncio.Task[None] | None
    """The coroutine that samples it; None while an earlier attempt is replayed: its outcome may be recorded, or never
    be needed.
    """


@dataclass
class StrategyRun:
    """Drives one run of one task; each forked run has a StrategyRun of its own."""

    context: SolveContext
    """What it shares with the other runs of the task."""
    path: str = ""
    """Its position among them: empty for the strategy's own run."""
    in_flight: dict[str, InFlight] = field(default_factory=dict)
    """Samples not delivered yet, by draw id."""
    arrivals: asyncio.Queue[tuple[str, Candidate | Exception | None]] = field(default_factory=asyncio.Queue)
    """Outcomes in order of arrival; None for a sample that failed or was refused, an exception for an error of ours."""
    recorded: deque[JournalEvent] = field(default_factory=deque)
    """Outcomes that an earlier attempt recorded and that have not been replayed yet."""
    deferred: list[str] = field(default_factory=list)
    """Ids of samples requested during a replay: started when the run has to wait for them."""
    delivered: int = 0
    """Candidates sent to the run."""
    failures: int = 0
    """Samples of the run that failed; counted on delivery, so a resumed run decides as it did before."""

    async def drive(self, run: Run) -> Answer:
        """Answer the run's requests until it returns; then cancel what is in flight and wait for its end."""
        events = self.context.journal.take_events(self.context.task.name, self.path)
        self.recorded = deque(event for event in events if event.kind != "discarded")
        number = 0
        reply: list[Candidate] | list[Answer] | None = None
        try:
            while True:
                try:
                    request = run.send(reply)
                except StopIteration as end:
                    answer: Answer = end.value
                    return answer
                reply = await self.reply_to(request, f"{self.path}{number}")
                number += 1
        finally:
            self.context.discard_events(self.recorded)
            await self._cancel_in_flight()
            run.close()

    async def reply_to(self, request: Request, request_id: str) -> list[Candidate] | list[Answer]:
        """Return what a request of the strategy asks for."""
        if isinstance(request, Ask):
            return await self.ask(request, request_id)
        if isinstance(request, Fork):
            return await self.fork(request, request_id)
        if isinstance(request, Judge):
            return await gather_or_cancel(self.context.judge(candidate, request.by) for candidate in request.candidates)
        raise StrategyError(f"The strategy yielded {type(request).__name__}.", "Yield Ask, Fork or Judge.")

    async def ask(self, ask: Ask, request_id: str) -> list[Candidate]:
        """Start the samples of a request, and wait for as many candidates as it waits for."""
        for number in range(ask.n):
            self._start(ask, f"{request_id}.{number}")
        candidates: list[Candidate] = []
        while self.in_flight and (ask.wait is None or len(candidates) < ask.wait):
            candidate = await self._next_candidate()
            if candidate is not None:
                candidates.append(candidate)
        return candidates

    async def fork(self, fork: Fork, request_id: str) -> list[Answer]:
        """Drive forked runs in parallel until enough of them have ended; a resumed fork repeats its choice."""
        known = next((event for event in self.recorded if event.draw_id == request_id), None)
        branches = tuple(range(len(fork.runs)))
        wanted = len(branches) if fork.wait is None else min(fork.wait, len(branches))
        if known is not None:
            self.recorded.remove(known)
            for branch in set(branches).difference(known.branches):
                path = f"{request_id}.{branch}/"
                self.context.discard_events(self.context.journal.take_subtree(self.context.task.name, path))
            branches, wanted = known.branches, len(known.branches)
        runs = {
            branch: asyncio.create_task(StrategyRun(self.context, f"{request_id}.{branch}/").drive(fork.runs[branch]))
            for branch in branches
        }
        ended = await first_to_end(runs, wanted)
        answers = [runs[branch].result() for branch in ended]
        if known is None and len(ended) < len(fork.runs):
            self.context.journal.append(
                JournalEvent(self.context.task.name, self.path, request_id, "forked", branches=tuple(ended))
            )
        return answers

    def _start(self, ask: Ask, draw_id: str) -> None:
        self.in_flight[draw_id] = InFlight(ask, None)
        self.deferred.append(draw_id)
        if not self.context.pending_replays:
            self._start_deferred()

    def _start_deferred(self) -> None:
        """Start the deferred samples that are still wanted."""
        for draw_id in self.deferred:
            if (sample := self.in_flight.get(draw_id)) is not None:
                sample.task = asyncio.create_task(self._sample(sample.ask, draw_id))
        self.deferred.clear()

    async def _sample(self, ask: Ask, draw_id: str) -> None:
        outcome: Candidate | Exception | None
        try:
            outcome = await self.context.sample(ask, draw_id, self.path)
        except Exception as error:  # noqa: BLE001 - passed on: raised where the run is driven
            outcome = error
        self.arrivals.put_nowait((draw_id, outcome))

    async def _next_candidate(self) -> Candidate | None:
        """Wait for the next arrival; None for one that failed and is not replaced, or when the time is up."""
        if self.recorded:
            if self.recorded[0].draw_id in self.in_flight:
                event = self.recorded.popleft()
                candidate = self.context.replay_event(event, self.in_flight[event.draw_id].ask)
                return self._deliver(event.draw_id, candidate)
            self.context.abandon_events(self.recorded)  # the run has taken another course
            self.recorded.clear()
        self._start_deferred()
        try:
            draw_id, outcome = await self._next_arrival(self.context.ledger.time_left)
        except TimeoutError:
            self.context.budget_exhausted = True
            await self._cancel_in_flight()
            return None
        if isinstance(outcome, Exception):
            raise outcome
        return self._deliver(draw_id, outcome)

    async def _next_arrival(self, seconds: float | None) -> tuple[str, Candidate | Exception | None]:
        if not self.arrivals.empty():
            return self.arrivals.get_nowait()
        if seconds is None:
            return await self.arrivals.get()
        async with asyncio.timeout(max(seconds, 0)):
            return await self.arrivals.get()

    def _deliver(self, draw_id: str, candidate: Candidate | None) -> Candidate | None:
        sample = self.in_flight.pop(draw_id, None)  # None if it arrived although it was cancelled at the deadline
        if candidate is not None:
            self.delivered += 1
            return candidate
        self.failures += 1
        replaced = self.failures <= self.delivered + MAX_EXTRA_FAILURES and not self.context.budget_exhausted
        if sample is not None and replaced and self.context.request_kind(sample.ask) not in self.context.refused_kinds:
            self._start(sample.ask, draw_id + "'")
        return None

    async def _cancel_in_flight(self) -> None:
        tasks = [sample.task for sample in self.in_flight.values() if sample.task is not None]
        self.in_flight.clear()
        await cancel_all(tasks)


async def first_to_end(runs: Mapping[int, asyncio.Task[Answer]], wanted: int) -> list[int]:
    """Wait for the first runs to end, and cancel the others; a run that raises ends the wait.

    Returns their branches, smallest first.
    """
    ended: list[int] = []
    pending = set(runs.values())
    try:
        while pending and len(ended) < wanted and not any(runs[branch].exception() for branch in ended):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            ended += [branch for branch, run in runs.items() if run in done]
        broken = [branch for branch in ended if runs[branch].exception()]
        return broken or sorted(ended[:wanted])
    finally:
        await cancel_all(list(runs.values()))
