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
from breadth.runtime.dialect import CHAT
from breadth.runtime.driver import Solved, summary
from breadth.runtime.proxy.body import Call
from breadth.runtime.proxy.faults import Refusal, refusal_of, unanswered, unnamed
from breadth.runtime.proxy.proxy import Note, Proxy, fresh_seed, start_stream
from breadth.runtime.proxy.routing import Chosen
from breadth.runtime.samplers.wire import DONE, event

PIECE = 64
"""Characters of one event when a text that is already there is streamed."""


def whole_body(path: str, solved: Solved, about: dict[str, Any]) -> dict[str, Any]:
    """Return the reply of a request that is not streamed."""
    choice = _chat_choice(solved) if path == CHAT else {"index": 0, "text": solved.answer.text, "logprobs": None}
    choice["finish_reason"] = finish_reason(solved)
    kind = "chat.completion" if path == CHAT else "text_completion"
    return _head(path, solved, kind) | {"choices": [choice], "usage": usage(solved.spend), "breadth": about}


def stream_events(path: str, solved: Solved, about: dict[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    """Yield the events of a streamed reply: the text in pieces, its end, the usage where it was asked for.

    The object ``breadth`` comes with the last event, so that a client which asked for no usage never meets an event
    without choices.
    """
    head = _head(path, solved, "chat.completion.chunk" if path == CHAT else "text_completion")
    for choice in _pieces(path, solved):
        yield event(head | {"choices": [{"index": 0, "logprobs": None, "finish_reason": None} | choice]})
    end: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish_reason(solved)}
    end["delta" if path == CHAT else "text"] = {} if path == CHAT else ""
    if with_usage:
        yield event(head | {"choices": [end]})
        yield event(head | {"choices": [], "usage": usage(solved.spend), "breadth": about})
    else:
        yield event(head | {"choices": [end], "breadth": about})
    yield DONE


def usage(spend: Spend) -> dict[str, Any]:
    """Return what all draws used together, aborted ones included."""
    return {
        "prompt_tokens": spend.input_tokens,
        "completion_tokens": spend.output_tokens,
        "total_tokens": spend.input_tokens + spend.output_tokens,
        "prompt_tokens_details": {"cached_tokens": spend.cached_tokens},
    }


def about_answer(solved: Solved, strategy: Strategy, policy: str, upstreams: Sequence[str] = ()) -> dict[str, Any]:
    """Return the object ``breadth``: confidence, votes, cost, failures, notes, trace; without the upstreams' addresses."""
    about = summary(solved, strategy)
    errors = [error | {"problem": unnamed(error["problem"], upstreams)} for error in about["errors"]]
    return about | {"policy": policy, "errors": errors}


def finish_reason(solved: Solved) -> str:
    """Return why the chosen completion ended, in the schema's words; one ended by a halt rule counts as stopped."""
    finish = solved.answer.chosen.finish if solved.answer.chosen else "stop"
    return "stop" if finish == "halt" else finish


def _head(path: str, solved: Solved, kind: str) -> dict[str, Any]:
    name = ("chatcmpl-" if path == CHAT else "cmpl-") + solved.trace
    chosen = solved.answer.chosen
    return {
        "id": name,
        "object": kind,
        "created": int(time.time()),
        "model": (chosen.model if chosen else "") or solved.task.model,
    }


def _chat_choice(solved: Solved) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": solved.answer.text}
    chosen = solved.answer.chosen
    if chosen is not None:
        message |= {"reasoning_content": chosen.reasoning} if chosen.reasoning else {}
        message |= {"tool_calls": list(chosen.tool_calls)} if chosen.tool_calls else {}
        message |= {"refusal": chosen.message["refusal"]} if chosen.message.get("refusal") else {}
    return {"index": 0, "message": message, "logprobs": None}


def _pieces(path: str, solved: Solved) -> Iterator[dict[str, Any]]:
    if path != CHAT:
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
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


HEARTBEAT = b": drawing\n\n"
"""A comment, which clients of server-sent events leave out."""


@dataclass(frozen=True)
class Answering:
    """One request being answered by its policy."""

    proxy: Proxy
    """Whose it is."""
    call: Call
    """What was asked."""
    chosen: Chosen
    """Policy that answers."""
    model: str
    """Model to ask."""
    note: Note
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
        sampling = self.call.sampling(policy.sampling)
        return self.call.task(sampling, policy.reading, model=self.model, system=policy.system, seed=fresh_seed())

    async def _solve(self, task: Task) -> Solved:
        """Run the policy; a request for which nothing arrived is refused with the reason."""
        strategy, budget = self.chosen.policy.strategy, self.proxy.budget(self.call, self.chosen)
        solved = replace(await self.proxy.driver.solve(strategy, task, budget=budget), trace=self.note.trace)
        self.note.solved = solved
        if solved.answer.chosen is None:
            raise unanswered(solved, budget.seconds, self.proxy.upstreams)
        self.proxy.metrics.decided(solved, getattr(strategy, "most", None))
        return solved

    async def _streamed(self, request: web.Request, task: Task) -> web.StreamResponse:
        """Reply as a stream: comments while drawing, then the text. A client that leaves ends the draws with it."""
        solving = asyncio.create_task(self._solve(task))
        try:
            while not (await asyncio.wait({solving}, timeout=self.proxy.limits.heartbeat))[0]:
                await (await self._stream(request)).write(HEARTBEAT)
            solved = solving.result()
            response = await self._stream(request)
            events = stream_events(self.call.path, solved, self._about(solved), with_usage=self.call.wants_usage)
            await response.write(b"".join(events))
        except (Refusal, BreadthError) as error:
            if self.note.stream is None:
                raise
            response = self.note.stream
            refusal = error if isinstance(error, Refusal) else refusal_of(error, self.proxy.upstreams)
            self.note.status = refusal.status
            await response.write(refusal.event)
        finally:
            solving.cancel()
            await asyncio.gather(solving, return_exceptions=True)
        return response

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        return await start_stream(request, self.note) if self.note.stream is None else self.note.stream

    def _about(self, solved: Solved) -> dict[str, Any]:
        return about_answer(solved, self.chosen.policy.strategy, self.chosen.label, self.proxy.upstreams)
