"""Requests passed through for a single draw: the upstream's own reply, token by token when streamed, with its cost charged."""

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
from breadth.runtime.dialect import ServerDialect
from breadth.runtime.driver import SolveResult
from breadth.runtime.ledger import Ledger, Reservation
from breadth.runtime.proxy.answer import breadth_field
from breadth.runtime.proxy.client_request import SAMPLING_ALIASES, ClientRequest
from breadth.runtime.proxy.errors import budget_error, deadline_error, to_api_error
from breadth.runtime.proxy.proxy import Proxy, RequestRecord, start_stream
from breadth.runtime.proxy.routing import ChosenPolicy
from breadth.runtime.proxy.upstream import EventStream, parse_reply
from breadth.runtime.sampler import Meter
from breadth.runtime.solve_context import estimate_prompt_tokens
from breadth.runtime.wire import DONE_EVENT, format_event, valid_count


def upstream_body(
    call: ClientRequest, chosen: ChosenPolicy, model: str, dialect: ServerDialect, cap: int | None = None
) -> dict[str, Any]:
    """Return the body for the upstream; ``cap`` is the most tokens it may write where a budget says so.

    How to draw is filled in from a policy's file only: a policy in words (``single``) leaves it to the upstream's own
    defaults.
    """
    body = _drawn_as_filed(call, chosen, dialect) | dict(call.fields)
    if model:
        body["model"] = model
    if chosen.policy.system and isinstance(call.prompt, tuple):
        body["messages"] = [{"role": "system", "content": chosen.policy.system}, *call.prompt]
    if call.options.seed is not None:
        body["seed"] = call.options.seed
    if call.stream:
        body["stream_options"] = {**body.get("stream_options", {}), "include_usage": True}
    if cap is not None:
        body = {name: value for name, value in body.items() if SAMPLING_ALIASES.get(name) != "max_tokens"} | {
            "max_tokens": cap
        }
    return body | _thinking(call, chosen, dialect)


def _drawn_as_filed(call: ClientRequest, chosen: ChosenPolicy, dialect: ServerDialect) -> dict[str, Any]:
    """Return the sampling fields of a policy's file that the client does not set."""
    if not chosen.sets_sampling:
        return {}
    filed = dialect.sampling_fields(chosen.policy.sampling)
    return {
        name: value for name, value in filed.items() if SAMPLING_ALIASES.get(name, name) not in call.sampling_fields
    }


def _thinking(call: ClientRequest, chosen: ChosenPolicy, dialect: ServerDialect) -> dict[str, Any]:
    """Return the fields that cap thinking; raises StrategyError when the upstream has none."""
    wished, filed = call.options.thinking_tokens, chosen.policy.sampling.thinking_tokens
    tokens = filed if wished is None else wished
    return {} if tokens is None else dialect.thinking_fields(tokens)


class EventRelay:
    """An upstream's events on their way to a client.

    They are passed on byte for byte as they come. Only the last one is kept back until the stream has ended, for the
    object ``breadth`` goes into it. A client that asked for no usage gets no event with nothing but usage.
    """

    def __init__(self, meter: Meter, *, with_usage: bool) -> None:
        self.finished = False
        """Whether a completion gave the reason for its end."""
        self._meter = meter
        self._with_usage = with_usage
        self._held: dict[str, Any] | None = None
        self._counted = False

    def relay(self, flow: EventStream, events: list[bytes]) -> bytes:
        """Return what is to be sent for some events; raises ServerError for one that is an error or cannot be read."""
        sent: list[bytes] = []
        for data in events:
            content = parse_reply(data, flow.endpoint.url)
            self._count(content)
            if not _last(content):
                sent.append(b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n")
            elif content["choices"] or self._with_usage:
                if self._held is not None:
                    sent.append(format_event(self._held))
                self._held = content
        return b"".join(sent)

    def finish(self, flow: EventStream, about: dict[str, Any]) -> bytes:
        """Return the end of the stream; raises ServerError when the upstream broke off before its own."""
        if not self.finished and not flow.saw_done:
            raise ServerError(f"{flow.endpoint.url} ended its stream in the middle.", "Look at the upstream's log.")
        last = self._held or {"object": "chat.completion.chunk", "choices": []}
        return format_event(last | {"breadth": about}) + DONE_EVENT

    def _count(self, content: dict[str, Any]) -> None:
        usage = content.get("usage")
        if isinstance(usage, dict):
            self._counted = valid_count(usage.get("completion_tokens")) is not None
            charge_usage(self._meter, usage)
        elif not self._counted:
            self._meter.tokens += sum(map(_brings_text, content["choices"]))
        self.finished = self.finished or any(choice.get("finish_reason") for choice in content["choices"])


def charge_usage(meter: Meter, usage: dict[str, Any]) -> None:
    """Take over what the upstream says it used, where that can be."""
    details = usage.get("prompt_tokens_details")
    meter.prompt_tokens = valid_count(usage.get("prompt_tokens")) or 0
    cached = valid_count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    meter.cached_tokens = min(cached or 0, meter.prompt_tokens)
    written = valid_count(usage.get("completion_tokens"))
    meter.tokens = meter.tokens if written is None else written


def _last(content: dict[str, Any]) -> bool:
    """Say whether an event may be the last one: it ends a completion, or brings nothing but usage."""
    return not content["choices"] or any(choice.get("finish_reason") for choice in content["choices"])


def _brings_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    return bool(choice.get("text")) or (
        isinstance(delta, dict) and any(value for name, value in delta.items() if name != "role")
    )


STOPPED = "passed on"


@dataclass
class PassthroughReply:
    """One request on its way through."""

    proxy: Proxy
    """Whose it is."""
    call: ClientRequest
    """What was asked."""
    chosen: ChosenPolicy
    """Policy it was asked under."""
    model: str
    """Model to ask."""
    note: RequestRecord
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
            refusal = deadline_error(budget.seconds or 0.0)
        except BreadthError as error:
            refusal = to_api_error(error, self.proxy.upstreams)
        if self.note.stream is None:
            raise refusal
        self.note.status = refusal.status
        await self.note.stream.write(refusal.event)
        return self.note.stream

    @asynccontextmanager
    async def _charged(self, ledger: Ledger) -> AsyncIterator[Reservation]:
        """Reserve what the draw may need, and charge what it used, however it ends."""
        reservation = await ledger.reserve(estimate_prompt_tokens(self.call.prompt or "", ""), self._wanted())
        if reservation is None:
            raise budget_error()
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
                self.proxy.metrics.count_sample(outcome)
            self.note.result = self._solved(used, outcome)

    def _used(self, seconds: float) -> Spend:
        meter = self.meter
        return Spend(meter.calls, meter.prompt_tokens, meter.cached_tokens, meter.tokens, seconds)

    def _wanted(self) -> int:
        """Return the tokens it may write at most, as far as that is known."""
        each: int = self.call.sampling_fields.get("max_tokens", self.chosen.policy.sampling.max_tokens)
        return max(each, 1) * self.call.total_replies

    def _body(self, budget: Budget, reservation: Reservation) -> bytes:
        capped = budget.output_tokens is not None or budget.money is not None
        cap = max(reservation.output_tokens // self.call.total_replies, 1) if capped else None
        return orjson.dumps(upstream_body(self.call, self.chosen, self.model, self.proxy.sampler.dialect, cap))

    async def _whole(self, body: bytes, ledger: Ledger) -> web.Response:
        reply = await self.proxy.upstream_client.fetch(self.call.path, body, self.meter, _deadline(ledger))
        usage = reply.get("usage")
        if isinstance(usage, dict):
            charge_usage(self.meter, usage)
        reply["breadth"] = self._about(ledger)
        return web.Response(body=orjson.dumps(reply), content_type="application/json")

    async def _streamed(self, request: web.Request, body: bytes, ledger: Ledger) -> web.StreamResponse:
        passage = EventRelay(self.meter, with_usage=self.call.wants_usage)
        async with self.proxy.upstream_client.open_stream(self.call.path, body, self.meter, _deadline(ledger)) as flow:
            response = await start_stream(request, self.note)
            async for events in flow.read():
                if sent := passage.relay(flow, events):
                    await response.write(sent)
            await response.write(passage.finish(flow, self._about(ledger)))
        return response

    def _about(self, ledger: Ledger) -> dict[str, Any]:
        """Return the object ``breadth`` for a draw that has just ended."""
        used = self._used(ledger.seconds_since_open)
        solved = self._solved(replace(used, money=ledger.prices.cost_of(used)), "arrived")
        return breadth_field(solved, Single(), self.chosen.label, self.proxy.upstreams)

    def _solved(self, spend: Spend, outcome: str) -> SolveResult:
        need = self.call.passthrough_reason
        notes = (
            ()
            if self.chosen.is_single or not need
            else (f"A request with {need} is passed on for a single draw: no policy votes on it.",)
        )
        arrived = (Candidate("", tokens=spend.output_tokens),) if outcome == "arrived" else ()
        failed, discarded = int(outcome == "failed"), int(outcome == "discarded" and self.meter.calls > 0)
        task = Task(self.call.prompt or "", "request", self.model)
        answer = Answer(stopped=STOPPED, notes=notes)
        return SolveResult(
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
