"""Requests passed on for a single draw: the upstream's own reply, token by token when streamed, with its cost accounted for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from aiohttp import web

from breadth.base.errors import BreadthError, ServerError
from breadth.inference.budget import Budget, Spend
from breadth.inference.records import Answer, Candidate, Task
from breadth.inference.strategies.single import Single
from breadth.runtime.driver import Solved
from breadth.runtime.ledger import Ledger, Reservation
from breadth.runtime.proxy.body import Call
from breadth.runtime.proxy.faults import late, refusal_of, too_small
from breadth.runtime.proxy.outgoing import outgoing
from breadth.runtime.proxy.policies import Chosen
from breadth.runtime.proxy.proxy import Note, Proxy
from breadth.runtime.proxy.reply import about_answer
from breadth.runtime.proxy.stream import Passage, begun, charge
from breadth.runtime.sampler import Meter
from breadth.runtime.solving import likely_tokens

STOPPED = "passed on"


@dataclass
class Passing:
    """One request on its way through."""

    proxy: Proxy
    """Whose it is."""
    call: Call
    """What was asked."""
    chosen: Chosen
    """Policy it was asked under."""
    model: str
    """Model to ask."""
    note: Note
    """What is told about it afterwards."""
    meter: Meter = field(default_factory=Meter)
    """What it has used so far."""
    error: ServerError | None = None
    """Why it failed, where it did."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Pass the request on and the reply back, within its budget and deadline."""
        budget = self.proxy.budget(self.call, self.chosen)
        ledger = Ledger(budget, parent=self.proxy.ledger)
        try:
            async with asyncio.timeout(budget.seconds), self._charged(ledger) as reservation:
                body = self._body(budget, reservation)
                return await (self._streamed(request, body, ledger) if self.call.stream else self._whole(body, ledger))
        except TimeoutError:
            refusal = late(budget.seconds or 0.0)
        except BreadthError as error:
            refusal = refusal_of(error, self.proxy.upstreams)
        if self.note.stream is None:
            raise refusal
        self.note.status = refusal.status
        await self.note.stream.write(refusal.event)
        return self.note.stream

    @asynccontextmanager
    async def _charged(self, ledger: Ledger) -> AsyncIterator[Reservation]:
        """Reserve what the draw may need, and charge what it used, however it ends."""
        reservation = await ledger.reserve(likely_tokens(self.call.prompt or "", ""), self._wanted())
        if reservation is None:
            raise too_small()
        begun_at, outcome = time.monotonic(), "discarded"
        try:
            yield reservation
            outcome = "arrived"
        except ServerError as error:
            outcome, self.error = "failed", error
            raise
        finally:
            used = ledger.settle(reservation, self._used(time.monotonic() - begun_at), whole=outcome == "arrived")
            if self.meter.calls:
                self.proxy.metrics.drawn(outcome)
            self.note.solved = self._solved(used, outcome)

    def _used(self, seconds: float) -> Spend:
        meter = self.meter
        return Spend(meter.calls, meter.prompt_tokens, meter.cached_tokens, meter.tokens, seconds)

    def _wanted(self) -> int:
        """Return the tokens it may write at most, as far as that is known."""
        each: int = self.call.chosen.get("max_tokens", self.chosen.policy.sampling.max_tokens)
        return max(each, 1) * self.call.replies

    def _body(self, budget: Budget, reservation: Reservation) -> bytes:
        capped = budget.output_tokens is not None or budget.money is not None
        cap = max(reservation.output_tokens // self.call.replies, 1) if capped else None
        return orjson.dumps(outgoing(self.call, self.chosen, self.model, self.proxy.sampler.dialect, cap))

    async def _whole(self, body: bytes, ledger: Ledger) -> web.Response:
        reply = await self.proxy.relay.whole(self.call.path, body, self.meter, _deadline(ledger))
        usage = reply.get("usage")
        if isinstance(usage, dict):
            charge(self.meter, usage)
        reply["breadth"] = self._about(ledger)
        return web.Response(body=orjson.dumps(reply), content_type="application/json")

    async def _streamed(self, request: web.Request, body: bytes, ledger: Ledger) -> web.StreamResponse:
        passage = Passage(self.meter, with_usage=self.call.wants_usage)
        async with self.proxy.relay.flow(self.call.path, body, self.meter, _deadline(ledger)) as flow:
            response = await begun(request, self.note)
            async for events in flow.read():
                if sent := passage.take(flow, events):
                    await response.write(sent)
            await response.write(passage.end(flow, self._about(ledger)))
        return response

    def _about(self, ledger: Ledger) -> dict[str, Any]:
        """Return the object ``breadth`` for a draw that has just ended."""
        used = self._used(ledger.elapsed)
        solved = self._solved(replace(used, money=ledger.prices.of(used)), "arrived")
        return about_answer(solved, Single(), self.chosen.label, self.proxy.upstreams)

    def _solved(self, spend: Spend, outcome: str) -> Solved:
        need = self.call.raw_need
        notes = () if self.chosen.single or not need else (f"A request with {need} is passed on for a single draw: no policy votes on it.",)
        arrived = (Candidate("", tokens=spend.output_tokens),) if outcome == "arrived" else ()
        failed, discarded = int(outcome == "failed"), int(outcome == "discarded" and self.meter.calls > 0)
        task = Task(self.call.prompt or "", "request", self.model)
        answer = Answer(stopped=STOPPED, notes=notes)
        return Solved(
            task,
            answer,
            spend,
            arrived,
            min(self.meter.calls, 1),
            failed,
            discarded,
            {},
            self.error,
            self.note.seconds,
            False,
            self.note.trace,
        )


def _deadline(ledger: Ledger) -> float | None:
    """Return when the time is up, on the clock of the loop."""
    left = ledger.time_left
    return None if left is None else asyncio.get_running_loop().time() + left
