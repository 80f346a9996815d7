"""Requests answered by a policy: drawn, decided, and sent whole or as a stream in the OpenAI schema."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from aiohttp import web

from breadth.base.errors import BreadthError
from breadth.inference.budget import Spend
from breadth.inference.records import Task
from breadth.inference.strategy import Strategy
from breadth.runtime.driver import SolveResult, summarize_result
from breadth.runtime.proxy.client_request import ClientRequest
from breadth.runtime.proxy.errors import ApiError, hide_upstreams, no_answer_error, to_api_error
from breadth.runtime.proxy.proxy import Proxy, RequestRecord, random_seed, start_stream
from breadth.runtime.proxy.routing import ChosenPolicy
from breadth.runtime.wire import CHAT_PATH, DONE_EVENT, format_event

EVENT_CHARACTERS = 64
"""Characters of one event when a text that is already there is streamed."""


def whole_body(path: str, solved: SolveResult, about: dict[str, Any]) -> dict[str, Any]:
    """Return the reply of a request that is not streamed."""
    choice = _chat_choice(solved) if path == CHAT_PATH else {"index": 0, "text": solved.answer.text, "logprobs": None}
    choice["finish_reason"] = finish_reason(solved)
    kind = "chat.completion" if path == CHAT_PATH else "text_completion"
    return _head(path, solved, kind) | {"choices": [choice], "usage": usage_of(solved.spend), "breadth": about}


def stream_events(path: str, solved: SolveResult, about: dict[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    """Yield the events of a streamed reply: the text in pieces, its end, the usage where it was asked for.

    The object ``breadth`` comes with the last event, so that a client which asked for no usage never meets an event
    without choices.
    """
    head = _head(path, solved, "chat.completion.chunk" if path == CHAT_PATH else "text_completion")
    for choice in _pieces(path, solved):
        yield format_event(head | {"choices": [{"index": 0, "logprobs": None, "finish_reason": None} | choice]})
    end: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish_reason(solved)}
    end["delta" if path == CHAT_PATH else "text"] = {} if path == CHAT_PATH else ""
    if with_usage:
        yield format_event(head | {"choices": [end]})
        yield format_event(head | {"choices": [], "usage": usage_of(solved.spend), "breadth": about})
    else:
        yield format_event(head | {"choices": [end], "breadth": about})
    yield DONE_EVENT


def usage_of(spend: Spend) -> dict[str, Any]:
    """Return what all draws used together, aborted ones included."""
    return {
        "prompt_tokens": spend.input_tokens,
        "completion_tokens": spend.output_tokens,
        "total_tokens": spend.input_tokens + spend.output_tokens,
        "prompt_tokens_details": {"cached_tokens": spend.cached_tokens},
    }


def breadth_field(
    solved: SolveResult, strategy: Strategy, policy: str, upstreams: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the object ``breadth``: confidence, votes, cost, failures, notes, trace; without the upstreams' addresses."""
    about = summarize_result(solved, strategy)
    errors = [error | {"problem": hide_upstreams(error["problem"], upstreams)} for error in about["errors"]]
    return about | {"policy": policy, "errors": errors}


def finish_reason(solved: SolveResult) -> str:
    """Return why the chosen completion ended, in the schema's words; one ended by a halt rule counts as stopped."""
    finish = solved.answer.chosen.finish if solved.answer.chosen else "stop"
    return "stop" if finish == "halt" else finish


def _head(path: str, solved: SolveResult, kind: str) -> dict[str, Any]:
    name = ("chatcmpl-" if path == CHAT_PATH else "cmpl-") + solved.trace
    chosen = solved.answer.chosen
    return {
        "id": name,
        "object": kind,
        "created": int(time.time()),
        "model": (chosen.model if chosen else "") or solved.task.model,
    }


def _chat_choice(solved: SolveResult) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": solved.answer.text}
    chosen = solved.answer.chosen
    if chosen is not None:
        message |= {"reasoning_content": chosen.reasoning} if chosen.reasoning else {}
        message |= {"tool_calls": list(chosen.tool_calls)} if chosen.tool_calls else {}
        message |= {"refusal": chosen.message["refusal"]} if chosen.message.get("refusal") else {}
    return {"index": 0, "message": message, "logprobs": None}


def _pieces(path: str, solved: SolveResult) -> Iterator[dict[str, Any]]:
    if path != CHAT_PATH:
        yield from ({"text": piece} for piece in _cut(solved.answer.text))
        return
    message = _chat_choice(solved)["message"]
    yield {"delta": {"role": "assistant", "content": ""}}
    yield from ({"delta": {"reasoning_content": piece}} for piece in _cut(message.get("reasoning_content", "")))
    yield from ({"delta": {"content": piece}} for piece in _cut(solved.answer.text))
    if "tool_calls" in message:
        yield {
            "delta": {"tool_calls": [{"index": place} | dict(call) for place, call in enumerate(message["tool_calls"])]}
        }


def _cut(text: str) -> Iterator[str]:
    return (text[start : start + EVENT_CHARACTERS] for start in range(0, len(text), EVENT_CHARACTERS))


HEARTBEAT = b": drawing\n\n"
"""A comment, which clients of server-sent events leave out."""


@dataclass(frozen=True)
class PolicyReply:
    """One request being answered by its policy."""

    proxy: Proxy
    """Whose it is."""
    call: ClientRequest
    """What was asked."""
    chosen: ChosenPolicy
    """Policy that answers."""
    model: str
    """Model to ask."""
    note: RequestRecord
    """What is told about it afterwards."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Draw, decide and reply."""
        task = self._task()
        if self.call.stream:
            return await self._streamed(request, task)
        solved = await self._solve(task)
        return web.Response(
            body=orjson.dumps(whole_body(self.call.path, solved, self._about(solved))), content_type="application/json"
        )

    def _task(self) -> Task:
        policy = self.chosen.policy
        sampling = self.call.merge_sampling(policy.sampling)
        return self.call.to_task(sampling, policy.reading, model=self.model, system=policy.system, seed=random_seed())

    async def _solve(self, task: Task) -> SolveResult:
        """Run the policy; a request for which nothing arrived is refused with the reason."""
        strategy, budget = self.chosen.policy.strategy, self.proxy.budget(self.call, self.chosen)
        solved = replace(await self.proxy.driver.solve(strategy, task, budget=budget), trace=self.note.trace)
        self.note.result = solved
        if solved.answer.chosen is None:
            raise no_answer_error(solved, budget.seconds, self.proxy.upstreams)
        self.proxy.metrics.count_saved(solved, getattr(strategy, "most", None))
        return solved

    async def _streamed(self, request: web.Request, task: Task) -> web.StreamResponse:
        """Reply as a stream: comments while drawing, then the text. A client that leaves ends the draws with it."""
        solving = asyncio.create_task(self._solve(task))
        try:
            while not (await asyncio.wait({solving}, timeout=self.proxy.limits.heartbeat_seconds))[0]:
                await (await self._stream(request)).write(HEARTBEAT)
            solved = solving.result()
            response = await self._stream(request)
            events = stream_events(self.call.path, solved, self._about(solved), with_usage=self.call.wants_usage)
            await response.write(b"".join(events))
        except (ApiError, BreadthError) as error:
            if self.note.stream is None:
                raise
            response = self.note.stream
            refusal = error if isinstance(error, ApiError) else to_api_error(error, self.proxy.upstreams)
            self.note.status = refusal.status
            await response.write(refusal.event)
        finally:
            solving.cancel()
            await asyncio.gather(solving, return_exceptions=True)
        return response

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        return await start_stream(request, self.note) if self.note.stream is None else self.note.stream

    def _about(self, solved: SolveResult) -> dict[str, Any]:
        return breadth_field(solved, self.chosen.policy.strategy, self.chosen.label, self.proxy.upstreams)
