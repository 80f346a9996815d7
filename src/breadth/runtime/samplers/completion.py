"""A finished stream as a candidate: what it ended with, its thinking apart from its reply, its tool calls whole, its caps checked."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from breadth.base.errors import ServerError
from breadth.inference.records import Candidate, Finish
from breadth.runtime.sampler import Draw
from breadth.runtime.samplers.assembly import Assembly
from breadth.runtime.samplers.wire import ToolDelta

FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
"""What servers say -> why a completion ended. Any other word counts as ``stop`` and is kept in the candidate's message."""
FAILURES = frozenset({"abort", "error", "cancelled", "insufficient_system_resource"})
"""What servers say when they gave a completion up."""
THINKING_SLACK = 16
"""Tokens of the text that a server forces when a thinking cap is reached: they may come on top of the cap."""
_OPEN, _CLOSE = "<think>", "</think>"


def completed(assembly: Assembly, draw: Draw, *, url: str, seconds: float) -> Candidate:
    """Return the candidate of a stream that has ended; raises ServerError when it did not end as a whole one does.

    Whole is a completion with a reason for its end, or whose stream closed with the end mark; in the latter case it counts as ended by
    itself, or as cut when it has all the tokens it was allowed.
    """
    assembly.drop_repeats()
    finish = _finish(assembly, draw, url)
    text, reasoning = "".join(assembly.content), "".join(assembly.reasoning)
    thinking = assembly.thinking
    if not reasoning and not draw.prefix:
        reasoning, text, thinking = split_thinking(assembly.content)
    used = assembly.used
    details = None if assembly.usage is None else assembly.usage.completion_tokens_details
    thinking = (details.reasoning_tokens if details is not None else None) or thinking
    return Candidate(
        text=text,
        reasoning=reasoning,
        finish=finish,
        prefix=draw.prefix,
        prompt_tokens=used.prompt_tokens,
        cached_tokens=used.cached_tokens,
        tokens=used.tokens,
        thinking_tokens=thinking,
        logprobs=(floats(assembly.logprobs) if assembly.logprobs else None),
        confidences=(floats(assembly.confidences) if assembly.confidences else None) if assembly.scored else None,
        model=assembly.model or draw.model,
        seed=draw.seed,
        seconds=seconds,
        tool_calls=whole_calls(assembly.tools),
        message=_remarks(assembly, draw, used.tokens, thinking),
    )


def split_thinking(pieces: list[str]) -> tuple[str, str, int]:
    """Return thinking, reply and the number of pieces that are thinking, for a reply that begins with ``<think>``.

    Only a block at the very beginning of the whole reply is thinking; one that never closes is all there is.
    """
    whole = "".join(pieces)
    start = len(whole) - len(whole.lstrip())
    if not whole.startswith(_OPEN, start):
        return "", whole, 0
    end = whole.find(_CLOSE, start)
    if end < 0:
        return whole[start + len(_OPEN) :].strip("\n"), "", len(pieces)
    reached = count = 0
    while reached < end + len(_CLOSE):
        reached += len(pieces[count])
        count += 1
    return whole[start + len(_OPEN) : end].strip("\n"), whole[end + len(_CLOSE) :].lstrip("\n"), count


def whole_calls(deltas: list[ToolDelta]) -> tuple[dict[str, Any], ...]:
    """Return tool calls put together from their pieces; one without a number belongs to the last call, unless it has an id of its own."""
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        last = max(calls, default=-1)
        fresh = delta.id is not None and (last < 0 or delta.id != calls[last]["id"])
        place = delta.index if delta.index is not None else last + 1 if fresh or last < 0 else last
        call = calls.setdefault(place, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call["id"] = delta.id or call["id"]
        call["type"] = delta.type or call["type"]
        if delta.function is not None:
            call["function"]["name"] = delta.function.name or call["function"]["name"]
            call["function"]["arguments"] += delta.function.arguments or ""
    return tuple(calls[place] for place in sorted(calls))


def _finish(assembly: Assembly, draw: Draw, url: str) -> Finish:
    if assembly.halted:
        return "halt"
    said = assembly.finish
    if said in FAILURES or (said is None and not assembly.done):
        how = f"gave the completion up ({said})" if said else "broke its stream off, with neither a reason for the end nor an end mark,"
        raise ServerError(
            f"{url} {how} after {assembly.counted} tokens.",
            "Look at the server's log, and at what stands between us; nothing of the completion is used.",
        )
    if said is None:
        return "length" if assembly.counted >= draw.sampling.max_tokens else "stop"
    return FINISHES.get(said, "stop")


def _remarks(assembly: Assembly, draw: Draw, written: int, thinking: int) -> dict[str, Any]:
    """Return what is odd or worth passing on about a completion."""
    remarks: dict[str, Any] = {}
    cap, thinking_cap = draw.sampling.max_tokens, draw.sampling.thinking_tokens
    if written > cap:
        remarks["cap_ignored"] = {"tokens": written, "cap": cap}
    elif thinking_cap is not None and thinking > thinking_cap + THINKING_SLACK:
        remarks["cap_ignored"] = {"thinking_tokens": thinking, "cap": thinking_cap}
    if assembly.finish not in FINISHES and not assembly.halted:
        remarks["finish_reason"] = assembly.finish
    if assembly.refusals:
        remarks["refusal"] = "".join(assembly.refusals)
    if assembly.clipped:
        remarks["clipped_logprobs"] = assembly.clipped
    if assembly.repeats:
        remarks["repeated_events"] = assembly.repeats
    return remarks


def floats(values: array[float]) -> NDArray[np.float32]:
    """Return what was gathered token by token as an array, without a copy."""
    return np.frombuffer(values, dtype=np.float32) if values else np.zeros(0, np.float32)
