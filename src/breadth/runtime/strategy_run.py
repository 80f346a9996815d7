"""One run being driven: its requests become draws side by side, what arrives is sent back, what is left over is cancelled."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from breadth.base.errors import StrategyError
from breadth.inference.records import Answer, Ask, Candidate, Fork, Judge, Request, Run
from breadth.runtime.journal import Event
from breadth.runtime.solve_context import PATIENCE, Solving, cancelled, together


@dataclass
class Flight:
    """A draw that has been asked for and not been delivered."""

    ask: Ask
    """The request it belongs to."""
    task: asyncio.Task[None] | None
    """What draws it; None while what an earlier attempt recorded is being taken up: it may be there, or never be
    needed.
    """


@dataclass
class Fiber:
    """Drives one run of one task; forked runs have fibers of their own."""

    solving: Solving
    """What it shares with the other runs of the task."""
    path: str = ""
    """Where it stands among them: empty for the strategy's own run."""
    flights: dict[str, Flight] = field(default_factory=dict)
    """Draws not delivered yet, by place."""
    landed: asyncio.Queue[tuple[str, Candidate | Exception | None]] = field(default_factory=asyncio.Queue)
    """What has come, in order; None for a draw that failed or was refused, an exception where something broke on our
    side.
    """
    recorded: deque[Event] = field(default_factory=deque)
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
        events = self.solving.journal.events(self.solving.task.name, self.path)
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
            self.solving.write_off(self.recorded)
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
        while self.flights and (ask.wait is None or len(got) < ask.wait):
            candidate = await self._next()
            if candidate is not None:
                got.append(candidate)
        return got

    def _start(self, ask: Ask, place: str) -> None:
        self.flights[place] = Flight(ask, None)
        self.deferred.append(place)
        if not self.solving.to_come:
            self._begin()

    def _begin(self) -> None:
        """Draw what has been deferred and is still to come."""
        for place in self.deferred:
            if (flight := self.flights.get(place)) is not None:
                flight.task = asyncio.create_task(self._fly(flight.ask, place))
        self.deferred.clear()

    async def _fly(self, ask: Ask, place: str) -> None:
        outcome: Candidate | Exception | None
        try:
            outcome = await self.solving.draw(ask, place, self.path)
        except Exception as error:  # noqa: BLE001 - handed on: raised where the run is driven
            outcome = error
        self.landed.put_nowait((place, outcome))

    async def _next(self) -> Candidate | None:
        """Wait for the next arrival; None for one that failed and is not replaced, or when the time is up."""
        if self.recorded:
            if self.recorded[0].place in self.flights:
                event = self.recorded.popleft()
                return self._deliver(event.place, self.solving.take_up(event, self.flights[event.place].ask))
            self.solving.abandon(self.recorded)  # the run has taken another course
            self.recorded.clear()
        self._begin()
        try:
            left = self.solving.ledger.time_left
            place, outcome = await self._landing(left)
        except TimeoutError:
            self.solving.spent = True
            await self._cancel()
            return None
        if isinstance(outcome, Exception):
            raise outcome
        return self._deliver(place, outcome)

    async def _landing(self, left: float | None) -> tuple[str, Candidate | Exception | None]:
        if not self.landed.empty():
            return self.landed.get_nowait()
        if left is None:
            return await self.landed.get()
        async with asyncio.timeout(max(left, 0)):
            return await self.landed.get()

    def _deliver(self, place: str, candidate: Candidate | None) -> Candidate | None:
        flight = self.flights.pop(place, None)  # none for what arrived although it was cancelled at the deadline
        if candidate is not None:
            self.delivered += 1
            return candidate
        self.failures += 1
        replaced = self.failures <= self.delivered + PATIENCE and not self.solving.spent
        if flight is not None and replaced and self.solving.kind(flight.ask) not in self.solving.refused:
            self._start(flight.ask, place + "'")
        return None

    async def _fork(self, fork: Fork, place: str) -> list[Answer]:
        known = next((event for event in self.recorded if event.place == place), None)
        chosen = tuple(range(len(fork.runs)))
        wanted = len(chosen) if fork.wait is None else min(fork.wait, len(chosen))
        if known is not None:
            self.recorded.remove(known)
            for branch in set(chosen).difference(known.branches):
                self.solving.write_off(self.solving.journal.below(self.solving.task.name, f"{place}.{branch}/"))
            chosen, wanted = known.branches, len(known.branches)
        parts = {
            branch: asyncio.create_task(Fiber(self.solving, f"{place}.{branch}/").drive(fork.runs[branch]))
            for branch in chosen
        }
        ended = await _first_ended(parts, wanted)
        answers = [parts[branch].result() for branch in ended]
        if known is None and len(ended) < len(fork.runs):
            self.solving.journal.append(
                Event(self.solving.task.name, self.path, place, "forked", branches=tuple(ended))
            )
        return answers

    async def _judge(self, judge: Judge) -> list[Candidate]:
        return await together(self.solving.judge(candidate, judge.by) for candidate in judge.candidates)

    async def _cancel(self) -> None:
        tasks = [flight.task for flight in self.flights.values() if flight.task is not None]
        self.flights.clear()
        await cancelled(tasks)


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
        await cancelled(list(parts.values()))
