"""Requests answered by a policy: sampled, decided, and sent whole or as a stream in the OpenAI format."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from aiohttp import web

from breadth.base.errors import BreadthError
from breadth.inference.records import Spend, Task
from breadth.inference.strategy import Strategy
from breadth.runtime.dialect import CHAT_PATH
from breadth.runtime.driver import SolveResult, summarize_result
from breadth.runtime.proxy.client_request import ClientRequest
from breadth.runtime.proxy.errors import ApiError, hide_upstreams, no_answer_error, to_api_error
from breadth.runtime.proxy.proxy import Proxy, RequestRecord, random_seed, start_stream
from breadth.runtime.proxy.routing import ChosenPolicy
from breadth.runtime.wire import DONE_EVENT, format_event, reply_head, usage_body

EVENT_CHARACTERS = 64
"""Characters of one event when a finished text is streamed."""


def whole_body(path: str, result: SolveResult, extension: dict[str, Any]) -> dict[str, Any]:
    """Return the reply of a request that is not streamed; ``extension`` becomes its object ``breadth``."""
    if path == CHAT_PATH:
        choice: dict[str, Any] = {"index": 0, "message": chat_message(result), "logprobs": None}
    else:
        choice = {"index": 0, "text": result.answer.text, "logprobs": None}
    choice["finish_reason"] = finish_reason(result)
    body = {"choices": [choice], "usage": usage_of(result.spend), "breadth": extension}
    return reply_head(path, result.trace, model_of(result), stream=False) | body


def stream_events(path: str, result: SolveResult, extension: dict[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    """Yield the events of a streamed reply: the text in pieces, its end, the usage where requested.

    The object ``breadth`` comes with the last event, so a client that requested no usage never gets an event without
    choices.
    """
    head = reply_head(path, result.trace, model_of(result), stream=True)
    for choice in stream_choices(path, result):
        yield format_event(head | {"choices": [{"index": 0, "logprobs": None, "finish_reason": None} | choice]})
    end: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish_reason(result)}
    end["delta" if path == CHAT_PATH else "text"] = {} if path == CHAT_PATH else ""
    if with_usage:
        yield format_event(head | {"choices": [end]})
        yield format_event(head | {"choices": [], "usage": usage_of(result.spend), "breadth": extension})
    else:
        yield format_event(head | {"choices": [end], "breadth": extension})
    yield DONE_EVENT


def usage_of(spend: Spend) -> dict[str, Any]:
    """Return what all samples used together, aborted ones included."""
    return usage_body(spend.input_tokens, spend.output_tokens, cached_tokens=spend.cached_tokens)


def breadth_field(
    result: SolveResult, strategy: Strategy, policy: str, upstreams: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the object ``breadth``: confidence, votes, cost, failures, notes, trace; without upstream addresses."""
    summary = summarize_result(result, strategy)
    errors = [error | {"problem": hide_upstreams(error["problem"], upstreams)} for error in summary["errors"]]
    return summary | {"policy": policy, "errors": errors}


def finish_reason(result: SolveResult) -> str:
    """Return why the chosen completion ended, as OpenAI names it; one ended by a halt rule counts as stopped."""
    finish = result.answer.chosen.finish if result.answer.chosen else "stop"
    return "stop" if finish == "halt" else finish


def model_of(result: SolveResult) -> str:
    """Return the model that wrote the chosen completion, or the one that was asked."""
    chosen = result.answer.chosen
    return (chosen.model if chosen else "") or result.task.model


def chat_message(result: SolveResult) -> dict[str, Any]:
    """Return the answer as a message of the assistant."""
    message: dict[str, Any] = {"role": "assistant", "content": result.answer.text}
    chosen = result.answer.chosen
    if chosen is not None:
        message |= {"reasoning_content": chosen.reasoning} if chosen.reasoning else {}
        message |= {"tool_calls": list(chosen.tool_calls)} if chosen.tool_calls else {}
        message |= {"refusal": chosen.message["refusal"]} if chosen.message.get("refusal") else {}
    return message


def stream_choices(path: str, result: SolveResult) -> Iterator[dict[str, Any]]:
    """Yield what each event of a streamed reply adds."""

    def cut(text: str) -> Iterator[str]:
        return (text[start : start + EVENT_CHARACTERS] for start in range(0, len(text), EVENT_CHARACTERS))

    if path != CHAT_PATH:
        yield from ({"text": piece} for piece in cut(result.answer.text))
        return
    message = chat_message(result)
    yield {"delta": {"role": "assistant", "content": ""}}
    yield from ({"delta": {"reasoning_content": piece}} for piece in cut(message.get("reasoning_content", "")))
    yield from ({"delta": {"content": piece}} for piece in cut(result.answer.text))
    if "tool_calls" in message:
        calls = [{"index": number} | dict(call) for number, call in enumerate(message["tool_calls"])]
        yield {"delta": {"tool_calls": calls}}


HEARTBEAT = b": drawing\n\n"
"""A comment, which clients of server-sent events ignore."""


@dataclass(frozen=True)
class PolicyReply:
    """The reply to one request, computed by its policy."""

    proxy: Proxy
    """The proxy that received it."""
    call: ClientRequest
    """The request."""
    chosen: ChosenPolicy
    """Policy that answers."""
    model: str
    """Model to ask."""
    record: RequestRecord
    """What is logged about it afterwards."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Sample, decide and reply."""
        policy = self.chosen.policy
        sampling = self.call.merge_sampling(policy.sampling, self.proxy.max_reply_tokens(self.chosen))
        task = self.call.to_task(
            sampling,
            policy.reading,
            model=self.model,
            system=policy.system,
            seed=random_seed(),
            halt=policy.halt,
        )
        if self.call.stream:
            return await self.answer_streamed(request, task)
        result = await self.solve(task)
        body = whole_body(self.call.path, result, self._extension(result))
        return web.Response(body=orjson.dumps(body), content_type="application/json")

    async def solve(self, task: Task) -> SolveResult:
        """Run the policy; when nothing arrived, raise the reason."""
        strategy, budget = self.chosen.policy.strategy, self.proxy.budget(self.call, self.chosen)
        result = replace(await self.proxy.driver.solve(strategy, task, budget=budget), trace=self.record.trace)
        self.record.result = result
        if result.answer.chosen is None:
            raise no_answer_error(result, budget.seconds, self.proxy.upstreams)
        self.proxy.metrics.count_saved(result, getattr(strategy, "most", None))
        return result

    async def answer_streamed(self, request: web.Request, task: Task) -> web.StreamResponse:
        """Reply as a stream: comments while sampling, then the text. A client that leaves ends the samples."""
        solving = asyncio.create_task(self.solve(task))
        try:
            while not (await asyncio.wait({solving}, timeout=self.proxy.limits.heartbeat_seconds))[0]:
                await (await self._stream(request)).write(HEARTBEAT)
            result = solving.result()
            response = await self._stream(request)
            events = stream_events(self.call.path, result, self._extension(result), with_usage=self.call.wants_usage)
            await response.write(b"".join(events))
        except (ApiError, BreadthError) as error:
            if self.record.stream is None:
                raise
            response = self.record.stream
            reply = error if isinstance(error, ApiError) else to_api_error(error, self.proxy.upstreams)
            self.record.status = reply.status
            await response.write(reply.event)
        finally:
            solving.cancel()
            await asyncio.gather(solving, return_exceptions=True)
        return response

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        return await start_stream(request, self.record) if self.record.stream is None else self.record.stream

    def _extension(self, result: SolveResult) -> dict[str, Any]:
        return breadth_field(result, self.chosen.policy.strategy, self.chosen.label, self.proxy.upstreams)
