"""One run being driven: its requests become draws side by side, what arrives is sent back, what is left over is cancelled."""

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
    """A draw that has been asked for and not been delivered."""

    ask: Ask
    """The request it belongs to."""
    task: asyncio.Task[None] | None
    """What draws it; None while what an earlier attempt recorded is being taken up: it may be there, or never be
    needed.
    """


@dataclass
class StrategyRun:
    """Drives one run of one task; forked runs have fibers of their own."""

    context: SolveContext
    """What it shares with the other runs of the task."""
    path: str = ""
    """Where it stands among them: empty for the strategy's own run."""
    in_flight: dict[str, InFlight] = field(default_factory=dict)
    """Draws not delivered yet, by place."""
    arrivals: asyncio.Queue[tuple[str, Candidate | Exception | None]] = field(default_factory=asyncio.Queue)
    """What has come, in order; None for a draw that failed or was refused, an exception where something broke on our
    side.
    """
    recorded: deque[JournalEvent] = field(default_factory=deque)
    """What an earlier attempt recorded and has not been taken up yet."""
    deferred: list[str] = field(default_factory=list)
    """Places of draws asked for while recorded outcomes are taken up: begun when the run has to wait for them."""
    delivered: int = 0
    """Candidates sent to the run."""
    failures: int = 0
    """Draws of the run that failed; counted as they are delivered, so that a run taken up again decides as it did
    before.
    """

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
                reply = await self._reply(request, f"{self.path}{number}")
                number += 1
        finally:
            self.context.discard_events(self.recorded)
            await self._cancel()
            run.close()

    async def _reply(self, request: Request, place: str) -> list[Candidate] | list[Answer]:
        if isinstance(request, Ask):
            return await self._ask(request, place)
        if isinstance(request, Fork):
            return await self._fork(request, place)
        if isinstance(request, Judge):
            return await self._judge(request)
        raise StrategyError(f"The strategy yielded {type(request).__name__}.", "Yield Ask, Fork or Judge.")

    async def _ask(self, ask: Ask, place: str) -> list[Candidate]:
        for number in range(ask.n):
            self._start(ask, f"{place}.{number}")
        got: list[Candidate] = []
        while self.in_flight and (ask.wait is None or len(got) < ask.wait):
            candidate = await self._next()
            if candidate is not None:
                got.append(candidate)
        return got

    def _start(self, ask: Ask, place: str) -> None:
        self.in_flight[place] = InFlight(ask, None)
        self.deferred.append(place)
        if not self.context.pending_replays:
            self._begin()

    def _begin(self) -> None:
        """Draw what has been deferred and is still to come."""
        for place in self.deferred:
            if (flight := self.in_flight.get(place)) is not None:
                flight.task = asyncio.create_task(self._fly(flight.ask, place))
        self.deferred.clear()

    async def _fly(self, ask: Ask, place: str) -> None:
        outcome: Candidate | Exception | None
        try:
            outcome = await self.context.sample(ask, place, self.path)
        except Exception as error:  # noqa: BLE001 - handed on: raised where the run is driven
            outcome = error
        self.arrivals.put_nowait((place, outcome))

    async def _next(self) -> Candidate | None:
        """Wait for the next arrival; None for one that failed and is not replaced, or when the time is up."""
        if self.recorded:
            if self.recorded[0].draw_id in self.in_flight:
                event = self.recorded.popleft()
                return self._deliver(event.draw_id, self.context.replay_event(event, self.in_flight[event.draw_id].ask))
            self.context.abandon_events(self.recorded)  # the run has taken another course
            self.recorded.clear()
        self._begin()
        try:
            left = self.context.ledger.time_left
            place, outcome = await self._landing(left)
        except TimeoutError:
            self.context.budget_exhausted = True
            await self._cancel()
            return None
        if isinstance(outcome, Exception):
            raise outcome
        return self._deliver(place, outcome)

    async def _landing(self, left: float | None) -> tuple[str, Candidate | Exception | None]:
        if not self.arrivals.empty():
            return self.arrivals.get_nowait()
        if left is None:
            return await self.arrivals.get()
        async with asyncio.timeout(max(left, 0)):
            return await self.arrivals.get()

    def _deliver(self, place: str, candidate: Candidate | None) -> Candidate | None:
        flight = self.in_flight.pop(place, None)  # none for what arrived although it was cancelled at the deadline
        if candidate is not None:
            self.delivered += 1
            return candidate
        self.failures += 1
        replaced = self.failures <= self.delivered + MAX_EXTRA_FAILURES and not self.context.budget_exhausted
        if flight is not None and replaced and self.context.request_kind(flight.ask) not in self.context.refused_kinds:
            self._start(flight.ask, place + "'")
        return None

    async def _fork(self, fork: Fork, place: str) -> list[Answer]:
        known = next((event for event in self.recorded if event.draw_id == place), None)
        chosen = tuple(range(len(fork.runs)))
        wanted = len(chosen) if fork.wait is None else min(fork.wait, len(chosen))
        if known is not None:
            self.recorded.remove(known)
            for branch in set(chosen).difference(known.branches):
                self.context.discard_events(
                    self.context.journal.take_subtree(self.context.task.name, f"{place}.{branch}/")
                )
            chosen, wanted = known.branches, len(known.branches)
        parts = {
            branch: asyncio.create_task(StrategyRun(self.context, f"{place}.{branch}/").drive(fork.runs[branch]))
            for branch in chosen
        }
        ended = await _first_ended(parts, wanted)
        answers = [parts[branch].result() for branch in ended]
        if known is None and len(ended) < len(fork.runs):
            self.context.journal.append(
                JournalEvent(self.context.task.name, self.path, place, "forked", branches=tuple(ended))
            )
        return answers

    async def _judge(self, judge: Judge) -> list[Candidate]:
        return await gather_or_cancel(self.context.judge(candidate, judge.by) for candidate in judge.candidates)

    async def _cancel(self) -> None:
        tasks = [flight.task for flight in self.in_flight.values() if flight.task is not None]
        self.in_flight.clear()
        await cancel_all(tasks)


async def _first_ended(parts: Mapping[int, asyncio.Task[Answer]], wanted: int) -> list[int]:
    """Wait for the first runs to end, and cancel the others; one that breaks ends the waiting.

    Returns their branches, smallest first.
    """
    ended: list[int] = []
    pending = set(parts.values())
    try:
        while pending and len(ended) < wanted and not any(parts[branch].exception() for branch in ended):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            ended += [branch for branch, part in parts.items() if part in done]
        broken = [branch for branch in ended if parts[branch].exception()]
        return broken or sorted(ended[:wanted])
    finally:
        await cancel_all(list(parts.values()))
