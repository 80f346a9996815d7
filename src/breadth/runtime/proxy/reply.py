"""What the proxy answers with: the OpenAI shape, the usage of all draws added up, and the object ``breadth``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from breadth.inference.budget import Spend
from breadth.inference.strategy import Strategy
from breadth.runtime.dialect import CHAT
from breadth.runtime.driver import Solved
from breadth.runtime.proxy.faults import unnamed
from breadth.runtime.samplers.sse import DONE, event
from breadth.runtime.summary import summary

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

    The object ``breadth`` comes with the last event, so that a client which asked for no usage never meets an event without choices.
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
    return {"id": name, "object": kind, "created": int(time.time()), "model": (chosen.model if chosen else "") or solved.task.model}


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
        yield {"delta": {"tool_calls": [{"index": place} | dict(call) for place, call in enumerate(message["tool_calls"])]}}


def _cut(text: str) -> Iterator[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))
