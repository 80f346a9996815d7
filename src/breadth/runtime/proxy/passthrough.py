"""Requests passed through for a single sample: the upstream's own reply, streamed as it comes, its cost charged."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import orjson
from aiohttp import web

from breadth.base.errors import BreadthError, ServerError
from breadth.inference.records import Answer, Budget, Candidate, Spend, Task
from breadth.inference.strategies.single import Single
from breadth.runtime.dialect import CHAT_PATH, ServerDialect
from breadth.runtime.driver import SolveResult
from breadth.runtime.ledger import Ledger, Reservation
from breadth.runtime.proxy.answer import breadth_field
from breadth.runtime.proxy.client_request import MAX_BODY_OBJECTS, SAMPLING_ALIASES, ClientRequest, prepend_system
from breadth.runtime.proxy.errors import budget_error, deadline_error, to_api_error
from breadth.runtime.proxy.proxy import Proxy, RequestRecord, start_stream
from breadth.runtime.proxy.routing import ChosenPolicy
from breadth.runtime.proxy.upstream import EventStream, ReplySize, parse_reply
from breadth.runtime.sampler import Meter
from breadth.runtime.samplers.openai import RUNAWAY_FACTOR
from breadth.runtime.samplers.redaction import EventRedactor, Redactor
from breadth.runtime.solve_context import PROMPT_TOKEN_BYTES, count_bytes, estimate_prompt_tokens
from breadth.runtime.wire import DONE_EVENT, format_event, read_usage, usage_body, valid_count


def upstream_body(
    call: ClientRequest, chosen: ChosenPolicy, model: str, dialect: ServerDialect, cap: int | None = None
) -> dict[str, Any]:
    """Return the body for the upstream; ``cap`` is the most tokens it may write where a budget limits them.

    Sampling fields that the client leaves out are filled in from a policy's file only; a policy given as words
    (``single``) leaves them to the upstream's defaults. Raises StrategyError when thinking is to be capped and the
    upstream has no field for it.
    """
    body: dict[str, Any] = {}
    if chosen.sets_sampling:
        fields = dialect.sampling_fields(chosen.policy.sampling)
        body = {
            name: value
            for name, value in fields.items()
            if SAMPLING_ALIASES.get(name, name) not in call.sampling_fields
        }
    body |= dict(call.fields)
    if model:
        body["model"] = model
    if chosen.policy.system:
        name, prompt = ("messages", call.prompt) if call.path == CHAT_PATH else ("prompt", call.fields["prompt"])
        prompt = prepend_system(prompt, chosen.policy.system)
        body[name] = list(prompt) if name == "messages" else prompt
    if call.options.seed is not None:
        body["seed"] = call.options.seed
    if call.stream:
        body["stream_options"] = {**body.get("stream_options", {}), "include_usage": True}
    if cap is not None:
        body = {name: value for name, value in body.items() if SAMPLING_ALIASES.get(name) != "max_tokens"}
        body |= {"max_tokens": cap}
    tokens = call.cap_thinking(chosen.policy.sampling)
    return body if tokens is None else body | dialect.thinking_fields(tokens)


TOKEN_BYTES = 4
"""Bytes of a usual token. Some servers send a token in several events: those are then counted by their bytes."""
MAX_TOKEN_BYTES = 128
"""Bytes of the longest tokens, such as runs of blanks. Some servers send many tokens in one event."""
EMPTY_EVENTS = 1024
"""Events without text that are relayed at most, and 16 for every token allowed."""
EVENT_SLACK_BYTES = 2**20
"""Bytes of events that are relayed at most, and `EVENT_BYTES` for every token allowed, whatever fields they are in."""
EVENT_BYTES = 2**13
"""Bytes of a token's event: 20 log-probs take two thousand, the sound of a token three thousand."""
LOGPROB_BYTES = 2**8
"""Bytes of one alternative of a token in a reply that is not streamed."""
TOKEN_BRACKETS = 4
"""Opening brackets of a token's text, and three more for its log-prob and for each alternative."""


@dataclass
class ReplyLength:
    """How much text of one reply has come."""

    events: int = 0
    """Events that brought some."""
    size: int = 0
    """Its bytes."""

    @property
    def tokens(self) -> int:
        """Tokens that these are at least, for usual text."""
        return max(min(self.events, math.ceil(self.size / TOKEN_BYTES)), self.size // MAX_TOKEN_BYTES)


class EventRelay:
    """Relays an upstream's events to a client.

    They are passed on byte for byte as they come, without the upstream's key. Only the last one is held back until the
    stream has ended: the object ``breadth`` goes into it. A client that requested no usage gets no event with nothing
    but usage. An upstream that writes more than it may is cut off: the reply then ends with the reason ``length``.
    """

    def __init__(
        self,
        meter: Meter,
        *,
        with_usage: bool,
        max_tokens: int | None = None,
        replies: int = 1,
        redactor: Redactor = Redactor(),  # noqa: B008 - it does not change
    ) -> None:
        self.finished = False
        """Whether a completion gave the reason for its end."""
        self.is_cut = False
        """Whether the upstream wrote more than it may; nothing more is relayed."""
        self._meter = meter
        self._with_usage = with_usage
        self._max_tokens = max_tokens
        self._replies = replies
        self._redactor = EventRedactor(redactor)
        self._lengths: dict[int, ReplyLength] = {}
        self._ended: set[int] = set()
        self._events = 0
        self._size = 0
        self._head: dict[str, Any] = {"object": "chat.completion.chunk"}
        self._held: dict[str, Any] | None = None
        self._has_usage = False

    def relay(self, stream: EventStream, events: list[bytes]) -> bytes:
        """Return the bytes to send for some events; raises ServerError for an error or an unreadable event."""
        output: list[bytes] = []
        for data in events:
            content = parse_reply(data, stream.endpoint.url)
            self._size += len(data)
            self.count(content)
            if self.is_cut:
                break
            output += [self._pass_on(*event) for event in self._redactor.feed(data, content)]
        return b"".join(output)

    def _pass_on(self, data: bytes, content: dict[str, Any]) -> bytes:
        """Return the bytes to send for one event: none for the last one yet."""
        ends = not content["choices"] or any(choice.get("finish_reason") for choice in content["choices"])
        if not ends:
            return b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"
        if not content["choices"] and not self._with_usage:
            return b""
        output = b"" if self._held is None else format_event(self._held)
        self._held = content
        return output

    def finish(self, stream: EventStream, extension: dict[str, Any]) -> bytes:
        """Return the end of the stream; raises ServerError when the upstream broke off before its own."""
        if self.is_cut:
            return self._finish_cut(extension)
        if not self.finished and not stream.saw_done:
            raise ServerError(f"{stream.endpoint.url} ended its stream in the middle.", "Look at the upstream's log.")
        output = b"".join(self._pass_on(*event) for event in self._redactor.finish())
        last = self._held or {"object": "chat.completion.chunk", "choices": []}
        return output + format_event(last | {"breadth": extension}) + DONE_EVENT

    def count(self, content: dict[str, Any]) -> None:
        """Charge an event, and note when the upstream has written more than it may."""
        choices, usage = content["choices"], content.get("usage")
        for choice in choices:
            size = text_size(choice)
            length = self._lengths.setdefault(choice_index(choice), ReplyLength())
            length.events += size > 0
            length.size += size
            if choice.get("finish_reason"):
                self.finished = True
                self._ended.add(choice_index(choice))
        reported = valid_count(usage.get("completion_tokens")) if isinstance(usage, dict) else None
        if isinstance(usage, dict):
            charge_usage(self._meter, usage)
            self._has_usage = self._has_usage or (reported is not None and (self.finished or not choices))
        if not self._has_usage:  # a count in the middle may be that of a server which reports at its end only
            counted = sum(max(length.events, length.tokens) for length in self._lengths.values())
            self._meter.tokens = max(counted, reported or 0)
        self._events += 1
        self._head = {name: content[name] for name in ("id", "object", "created", "model") if name in content}
        self.is_cut = self._is_too_long(reported if any(map(text_size, choices)) else None)

    def _is_too_long(self, reported: int | None) -> bool:
        if self._max_tokens is None:
            return False
        total = self._max_tokens * self._replies
        return (
            len(self._lengths) > self._replies
            or any(length.tokens > self._max_tokens for length in self._lengths.values())
            or (reported or 0) > total
            or self._events > RUNAWAY_FACTOR * total + EMPTY_EVENTS
            or self._size > EVENT_BYTES * total + EVENT_SLACK_BYTES
        )

    def _finish_cut(self, extension: dict[str, Any]) -> bytes:
        nothing: dict[str, Any] = {"text": ""} if self._head.get("object") == "text_completion" else {"delta": {}}
        output = b"" if self._held is None else format_event(self._held)
        ends: list[dict[str, Any]] = [
            {"index": index, "finish_reason": "length"} | nothing
            for index in sorted(self._lengths.keys() - self._ended)[: self._replies]
        ]
        last = self._head | {"choices": ends}
        if self._with_usage:
            output += format_event(last)
            usage = usage_body(self._meter.prompt_tokens, self._meter.tokens, cached_tokens=self._meter.cached_tokens)
            last = self._head | {"choices": [], "usage": usage}
        return output + format_event(last | {"breadth": extension}) + DONE_EVENT


def charge_usage(meter: Meter, table: dict[str, Any]) -> None:
    """Charge what the upstream reports to have used, where its numbers are possible."""
    usage = read_usage(table)
    details = usage.prompt_tokens_details
    meter.prompt_tokens = meter.prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens
    cached = 0 if details is None else details.cached_tokens
    meter.cached_tokens = min(cached or 0, meter.prompt_tokens)
    meter.tokens = meter.tokens if usage.completion_tokens is None else usage.completion_tokens


def choice_index(choice: dict[str, Any]) -> int:
    """Return which of several replies a choice belongs to."""
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def text_size(choice: dict[str, Any]) -> int:
    """Return the bytes of text that a choice adds to its completion, or has; sound is not counted."""
    return sum(nested_text_size(choice.get(name)) for name in ("text", "delta", "message"))


def nested_text_size(value: Any) -> int:
    """Return the bytes of all texts in a value, at any depth."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace"))
    if isinstance(value, dict):
        return sum(nested_text_size(inner) for name, inner in value.items() if name not in ("role", "audio"))
    return sum(map(nested_text_size, value)) if isinstance(value, list) else 0


TEXT_FIELDS = ("text", "content", "reasoning_content", "reasoning", "refusal")
"""Fields of a whole completion that hold what was written."""


def cut_choice(choice: dict[str, Any], max_bytes: int) -> bool:
    """Cut the texts of a whole completion to so many bytes together; say whether they were longer."""
    tables = [table for table in (choice, choice.get("message")) if isinstance(table, dict)]
    texts = [(table, name) for table in tables for name in TEXT_FIELDS if isinstance(table.get(name), str)]
    if sum(text_size({"text": table[name]}) for table, name in texts) <= max_bytes:
        return False
    for table, name in texts:
        kept = table[name].encode("utf-8", "replace")[:max_bytes]
        table[name] = kept.decode("utf-8", "ignore")
        max_bytes -= len(kept)
    choice.pop("logprobs", None)
    choice["finish_reason"] = "length"
    return True


STOPPED = "passed on"


@dataclass
class PassthroughReply:
    """The reply to one request, passed through from the upstream."""

    proxy: Proxy
    """The proxy that received it."""
    call: ClientRequest
    """The request."""
    chosen: ChosenPolicy
    """Policy it names."""
    model: str
    """Model to ask."""
    record: RequestRecord
    """What is logged about it afterwards."""
    meter: Meter = field(default_factory=Meter)
    """What it has used so far."""
    error: ServerError | None = None
    """Why it failed, where it did."""
    is_cut: bool = False
    """Whether the upstream wrote more than it may and was cut off."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Pass the request on and the reply back, within its budget and deadline."""
        budget = self.proxy.budget(self.call, self.chosen)
        ledger = Ledger(budget, parent=self.proxy.ledger)
        try:
            async with asyncio.timeout(budget.seconds), self.reserve(ledger) as reservation:
                body = self._body(budget, reservation)
                if self.call.stream:
                    return await self.answer_streamed(request, body, ledger, reservation)
                return await self.answer_whole(body, ledger, reservation)
        except TimeoutError:
            reply = deadline_error(budget.seconds or 0.0)
        except BreadthError as error:
            reply = to_api_error(self.proxy.redactor.clean_error(error), self.proxy.upstreams)
        if self.record.stream is None:
            raise reply
        self.record.status = reply.status
        await self.record.stream.write(reply.event)
        return self.record.stream

    @asynccontextmanager
    async def reserve(self, ledger: Ledger) -> AsyncIterator[Reservation]:
        """Reserve what the sample may need, and charge what it used, however it ends."""
        ceiling = self.proxy.max_reply_tokens(self.chosen)
        tokens: int = self.call.sampling_fields.get("max_tokens", self.chosen.policy.sampling.max_tokens)
        max_tokens = (ceiling if tokens < 0 else min(max(tokens, 1), ceiling)) * self.call.total_replies
        reservation = await ledger.reserve(self._prompt_tokens, max_tokens)
        if reservation is None:
            raise budget_error()
        started_at, outcome = time.monotonic(), "discarded"
        try:
            yield reservation
            outcome = "arrived"
        except ServerError as error:
            outcome, self.error = "failed", error.with_traceback(None)  # its frames hold us
            raise
        finally:
            if outcome == "discarded" and self.meter.calls and not self.meter.prompt_tokens:
                self.meter.prompt_tokens = reservation.input_tokens  # it was sent; how much was read nobody will say
            used = ledger.settle(reservation, self._spend(time.monotonic() - started_at), whole=outcome == "arrived")
            if self.meter.calls:
                self.proxy.metrics.count_sample(outcome)
            self.record.result = self._result(used, outcome)

    async def answer_whole(self, body: bytes, ledger: Ledger, reservation: Reservation) -> web.Response:
        """Pass on a request that is not streamed; refuse a reply that is far larger than its tokens can be."""
        replies, max_tokens = self.call.total_replies, self._max_tokens(ledger.budget, reservation)
        tokens, top = max_tokens * replies + reservation.input_tokens, self.call.top_logprobs
        most = ReplySize(
            EVENT_SLACK_BYTES + tokens * (EVENT_BYTES + LOGPROB_BYTES * top),
            MAX_BODY_OBJECTS + tokens * (TOKEN_BRACKETS + 3 * (1 + top)),
        )
        client, deadline = self.proxy.upstream_client, loop_deadline(ledger)
        reply = await client.fetch(self.call.path, body, self.meter, deadline, most)
        # What an upstream without usage wrote is estimated.
        self.meter.prompt_tokens = self._prompt_tokens
        self.meter.tokens = sum(math.ceil(text_size(choice) / TOKEN_BYTES) for choice in reply["choices"])
        usage = reply.get("usage")
        if isinstance(usage, dict):
            charge_usage(self.meter, usage)
        cuts = [cut_choice(choice, MAX_TOKEN_BYTES * max_tokens) for choice in reply["choices"]]
        self.is_cut = len(cuts) > replies or any(cuts)
        del reply["choices"][replies:]
        reply["breadth"] = self._extension(ledger)
        return web.Response(body=orjson.dumps(reply), content_type="application/json")

    async def answer_streamed(
        self, request: web.Request, body: bytes, ledger: Ledger, reservation: Reservation
    ) -> web.StreamResponse:
        """Pass on a request that is streamed; a client that leaves pays for what has come from the upstream."""
        relay = EventRelay(
            self.meter,
            with_usage=self.call.wants_usage,
            max_tokens=self._max_tokens(ledger.budget, reservation),
            replies=self.call.total_replies,
            redactor=self.proxy.redactor,
        )
        upstream = self.proxy.upstream_client
        async with upstream.open_stream(self.call.path, body, self.meter, loop_deadline(ledger)) as stream:
            self.meter.prompt_tokens = reservation.input_tokens  # until the upstream counts it
            try:
                response = await start_stream(request, self.record)
                async for events in stream.read():
                    if output := relay.relay(stream, events):
                        await response.write(output)
                    if relay.is_cut:
                        self.is_cut = True
                        break
            except asyncio.CancelledError:
                with suppress(ServerError):
                    relay.relay(stream, stream.take_buffered())
                raise
            await response.write(relay.finish(stream, self._extension(ledger)))
        return response

    @cached_property
    def _prompt_tokens(self) -> int:
        """Tokens of everything that the upstream is sent to read, estimated."""
        prompt = self.call.fields.get("prompt") if self.call.prompt is None else self.call.prompt
        further = [self.chosen.policy.system, self.call.passthrough_fields]
        return estimate_prompt_tokens(prompt) + count_bytes(further) // PROMPT_TOKEN_BYTES

    def _max_tokens(self, budget: Budget, reservation: Reservation) -> int:
        """Return the most tokens of one reply that are relayed: those granted, or the ceiling where none were asked."""
        granted = max(reservation.output_tokens // self.call.total_replies, 1)
        is_asked = "max_tokens" in self.call.sampling_fields or self.chosen.sets_sampling
        if not is_asked and budget.output_tokens is None and budget.money is None:
            granted = self.proxy.max_reply_tokens(self.chosen)
        return granted + (reservation.input_tokens if self.call.fields.get("echo") else 0)

    def _spend(self, seconds: float) -> Spend:
        meter = self.meter
        return Spend(meter.calls, meter.prompt_tokens, meter.cached_tokens, meter.tokens, seconds)

    def _body(self, budget: Budget, reservation: Reservation) -> bytes:
        # A server may not know the name under which the client asks: the policy's own cap goes under the plain one.
        too_long = self.call.exceeds(self.proxy.max_reply_tokens(self.chosen))
        is_capped = (
            too_long or self.chosen.sets_sampling or budget.output_tokens is not None or budget.money is not None
        )
        cap = max(reservation.output_tokens // self.call.total_replies, 1) if is_capped else None
        if cap is not None and self.call.sampling_fields.get("max_tokens") == 0:
            cap = 0
        return orjson.dumps(upstream_body(self.call, self.chosen, self.model, self.proxy.sampler.dialect, cap))

    def _extension(self, ledger: Ledger) -> dict[str, Any]:
        """Return the object ``breadth`` for a sample that has just ended."""
        used = self._spend(ledger.seconds_since_open)
        result = self._result(replace(used, money=ledger.prices.cost_of(used)), "arrived")
        return breadth_field(result, Single(), self.chosen.label, self.proxy.upstreams)

    def _result(self, spend: Spend, outcome: str) -> SolveResult:
        need = "" if self.chosen.is_single else self.call.passthrough_reason
        notes = {
            f"A request with {need} is passed on for a single sample: no policy votes on it.": need,
            "The upstream wrote more tokens than allowed, so the reply is cut: it does not keep to caps.": self.is_cut,
        }
        return SolveResult(
            task=Task(self.call.prompt or "", "request", self.model),
            answer=Answer(stopped=STOPPED, notes=tuple(note for note, holds in notes.items() if holds)),
            spend=spend,
            arrived=(Candidate("", tokens=spend.output_tokens),) if outcome == "arrived" else (),
            started=min(self.meter.calls, 1),
            failed=int(outcome == "failed"),
            discarded=int(outcome == "discarded" and self.meter.calls > 0),
            errors={},
            last_error=self.error,
            seconds=self.record.seconds,
            budget_exhausted=False,
            trace=self.record.trace,
        )


def loop_deadline(ledger: Ledger) -> float | None:
    """Return when the time is up, on the clock of the loop."""
    left = ledger.time_left
    return None if left is None else asyncio.get_running_loop().time() + left
