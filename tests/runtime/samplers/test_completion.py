"""A stream becomes a candidate only when it ended as a whole one does; thinking, tools and caps are told apart."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from breadth.base.errors import ServerError
from breadth.inference.records import Candidate, Sampling
from breadth.runtime.sampler import Draw, Meter
from breadth.runtime.samplers.assembly import DONE, Assembly
from breadth.runtime.samplers.completion import completed, split_thinking, whole_calls
from breadth.runtime.samplers.wire import FunctionDelta, ToolDelta


def of(
    *pieces: str, finish: str | None = "stop", done: bool = True, told: dict[str, Any] | None = None, draw: Draw | None = None
) -> Candidate:
    events = [orjson.dumps({"choices": [{"delta": {"content": piece}}]}) for piece in pieces]
    events += [orjson.dumps({"choices": [{"delta": {}, "finish_reason": finish}]})] if finish else []
    events += [orjson.dumps({"choices": [], "usage": told})] if told else []
    assembly = Assembly(Meter())
    assembly.take(events + ([DONE] if done else []))
    return completed(assembly, draw or Draw("q"), url="http://u", seconds=1.5)


@pytest.mark.parametrize(
    ("said", "finish"),
    [("stop", "stop"), ("eos_token", "stop"), ("length", "length"), ("tool_calls", "tool_calls"), ("content_filter", "content_filter")],
)
def test_why_it_ended(said: str, finish: str) -> None:
    candidate = of("a", finish=said)
    assert (candidate.finish, candidate.message) == (finish, {})


def test_an_unknown_reason_is_kept() -> None:
    candidate = of("a", finish="repetition")
    assert (candidate.finish, candidate.message) == ("stop", {"finish_reason": "repetition"})


def test_the_end_mark_alone_is_an_end() -> None:
    assert of("a", "b", finish=None).finish == "stop"
    assert of("a", "b", finish=None).message == {"finish_reason": None}
    assert of("a", "b", finish=None, draw=Draw("q", Sampling(max_tokens=2))).finish == "length"


def test_a_reason_alone_is_an_end() -> None:
    assert of("a", done=False).finish == "stop"


def test_neither_is_a_break() -> None:
    with pytest.raises(ServerError, match=r"http://u broke its stream off.* after 2 tokens") as caught:
        of("a", "b", finish=None, done=False)
    assert not caught.value.fatal


@pytest.mark.parametrize("said", ["abort", "error"])
def test_a_completion_given_up_is_none(said: str) -> None:
    with pytest.raises(ServerError, match=said):
        of("a", finish=said)


def test_what_it_cost() -> None:
    candidate = of("a", told={"prompt_tokens": 9, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 2}})
    assert (candidate.prompt_tokens, candidate.tokens, candidate.thinking_tokens, candidate.seconds) == (9, 3, 2, 1.5)
    assert candidate.logprobs is None
    assert candidate.confidences is None


def test_a_cap_that_was_not_honoured_is_noted() -> None:
    draw = Draw("q", Sampling(max_tokens=2))
    assert of("a", told={"completion_tokens": 3}, draw=draw).message["cap_ignored"] == {"tokens": 3, "cap": 2}
    assert of("a", told={"completion_tokens": 2}, draw=draw).message == {}


def test_so_is_a_thinking_cap_beyond_its_slack() -> None:
    draw = Draw("q", Sampling(thinking_tokens=5))
    details = {"completion_tokens": 50, "completion_tokens_details": {"reasoning_tokens": 22}}
    assert of("a", told=details, draw=draw).message["cap_ignored"] == {"thinking_tokens": 22, "cap": 5}
    details["completion_tokens_details"] = {"reasoning_tokens": 21}
    assert of("a", told=details, draw=draw).message == {}


@pytest.mark.parametrize(
    ("pieces", "thinking", "reply", "count"),
    [
        (["4"], "", "4", 0),
        (["<think>", "hm", "</think>", "\n\n", "4"], "hm", "4", 3),
        (["\n<thi", "nk>\nhm\n</thin", "k>4"], "hm", "4", 3),
        (["<think>", "never ends"], "never ends", "", 2),
        (["<think>", "</think>", "4"], "", "4", 2),
        (["so <think>hm</think>4"], "", "so <think>hm</think>4", 0),
        (["<think>a</think>b<think>c</think>"], "a", "b<think>c</think>", 1),
        ([], "", "", 0),
    ],
)
def test_thinking_at_the_beginning_is_split_off(pieces: list[str], thinking: str, reply: str, count: int) -> None:
    assert split_thinking(pieces) == (thinking, reply, count)


def test_after_a_given_beginning_nothing_is_split() -> None:
    candidate = of("<think>", "hm", "</think>", "4", draw=Draw("q", prefix="Well, "))
    assert (candidate.reasoning, candidate.whole) == ("", "Well, <think>hm</think>4")
    candidate = of("<think>", "hm", "</think>", "4")
    assert (candidate.reasoning, candidate.text, candidate.thinking_tokens) == ("hm", "4", 3)


def test_tool_calls_are_put_together() -> None:
    pieces = [
        ToolDelta(0, "call_1", "function", FunctionDelta("add", "")),
        ToolDelta(1, "call_2", "function", FunctionDelta("mul", "{")),
        ToolDelta(0, None, None, FunctionDelta(None, '{"a":')),
        ToolDelta(0, None, None, FunctionDelta(None, "1}")),
        ToolDelta(1, None, None, FunctionDelta(None, "}")),
    ]
    assert whole_calls(pieces) == (
        {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
        {"id": "call_2", "type": "function", "function": {"name": "mul", "arguments": "{}"}},
    )


def test_tool_calls_without_numbers() -> None:
    pieces = [
        ToolDelta(None, "x", None, FunctionDelta("f", "1")),
        ToolDelta(None, None, None, FunctionDelta(None, "2")),
        ToolDelta(None, "y", None, FunctionDelta("g", "3")),
    ]
    assert [call["function"] for call in whole_calls(pieces)] == [{"name": "f", "arguments": "12"}, {"name": "g", "arguments": "3"}]
    assert whole_calls([]) == ()
