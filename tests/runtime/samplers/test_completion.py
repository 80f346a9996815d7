"""A stream becomes a candidate only when it ended as a whole one does; thinking, tools and caps are told apart."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import ServerError
from breadth.inference.confidence import token_confidence
from breadth.inference.records import Candidate, Sampling
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.completion import CompletionBuilder, build_candidate, join_tool_calls, split_thinking
from breadth.runtime.wire import DONE_DATA, FunctionDelta, ToolDelta


def chunk(
    text: str | None = None, tops: list[float | None] | None = None, logprob: float = -1.0, **delta: Any
) -> bytes:
    entries = (
        None
        if tops is None
        else {
            "content": [{"token": text or "", "logprob": logprob, "top_logprobs": [{"logprob": one} for one in tops]}]
        }
    )
    choice = {"index": 0, "delta": ({} if text is None else {"content": text}) | delta, "logprobs": entries}
    return orjson.dumps({"choices": [choice], "model": "m"})


def usage(written: int, read: int = 5, cached: int = 2) -> bytes:
    told = {"prompt_tokens": read, "completion_tokens": written, "prompt_tokens_details": {"cached_tokens": cached}}
    return orjson.dumps({"choices": [], "usage": told})


@dataclass
class Watch:
    stop: str = "never"
    seen: list[tuple[str, float, float]] = field(default_factory=list)

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        self.seen.append((text, logprob, confidence))
        return self.stop in text


def test_texts_and_thinking_add_up() -> None:
    assembly = CompletionBuilder(Meter())
    assert not assembly.add_events(
        [chunk(role="assistant"), chunk(reasoning_content="hm"), chunk(reasoning="m"), chunk("4"), chunk("2")]
    )
    assert ("".join(assembly.content), "".join(assembly.reasoning)) == ("42", "hmm")
    assert (assembly.counted, assembly.thinking) == (4, 2)
    assert assembly.add_events([DONE_DATA])


def test_confidence_is_minus_the_mean_of_the_top_k() -> None:
    # Uniform over 20: -ln(1/20) = 2.9957. p1 = .99 and the rest equal: -(ln .99 + 19 ln(.01/19)) / 20 = 7.1726.
    uniform = [math.log(1 / 20)] * 20
    peaked = [math.log(0.99), *[math.log(0.01 / 19)] * 19]
    assembly = CompletionBuilder(Meter(), top=20)
    assembly.add_events([chunk("a", [*uniform]), chunk("b", [*peaked])])
    assert assembly.confidences.tolist() == pytest.approx([2.9957, 7.1726], abs=5e-5)
    assert assembly.logprobs.tolist() == [-1, -1]
    assert assembly.clipped == 0


@given(st.lists(st.floats(-80, 0), min_size=1, max_size=6), st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_confidence_is_that_of_the_inference_room(tops: list[float], top: int) -> None:
    assembly = CompletionBuilder(Meter(), top=top)
    assembly.add_events([chunk("a", [*tops])])
    expected, clipped = token_confidence(tops, top)
    assert assembly.confidences[0] == pytest.approx(expected, rel=1e-6)
    assert assembly.clipped == clipped


def test_a_masked_alternative_counts_as_the_floor() -> None:
    assembly = CompletionBuilder(Meter(), top=2)
    assembly.add_events([chunk("a", [0.0, None])])
    assert assembly.confidences.tolist() == [25]
    assert assembly.clipped == 1


def test_no_alternatives_no_confidence() -> None:
    assembly = CompletionBuilder(Meter(), top=0)
    assembly.add_events([chunk("a", [])])
    assert np.isnan(assembly.confidences.tolist()).all()
    assert not assembly.has_confidences


def test_the_meter_is_true_all_along_and_takes_the_servers_count() -> None:
    meter = Meter(calls=2, prompt_tokens=100, cached_tokens=10, tokens=1000)
    assembly = CompletionBuilder(meter, prompt_tokens=7)
    assert meter.prompt_tokens == 107
    assembly.add_events([chunk("a")])
    assert meter.tokens == 1001
    assembly.add_events([chunk("b"), chunk("c")])
    assert meter.tokens == 1003
    assembly.add_events([usage(4)])
    assert (meter.tokens, meter.prompt_tokens, meter.cached_tokens) == (1004, 105, 12)
    assert assembly.own_usage == Meter(1, 5, 2, 4)


def test_a_count_in_every_event_is_followed() -> None:
    meter = Meter()
    assembly = CompletionBuilder(meter)
    event = orjson.loads(chunk("abc"))
    assembly.add_events([orjson.dumps(event | {"usage": {"completion_tokens": 3}})])
    assert meter.tokens == 3


def test_the_watcher_sees_each_text_once_with_its_numbers() -> None:
    watch = Watch()
    several = orjson.dumps(
        {
            "choices": [
                {
                    "index": 0,
                    "delta": {"content": "ab"},
                    "logprobs": {
                        "content": [{"token": one, "logprob": -1, "top_logprobs": [{"logprob": -2}]} for one in "ab"]
                    },
                }
            ]
        }
    )
    assembly = CompletionBuilder(Meter(), top=1, watcher=watch)
    assembly.add_events([chunk("x", [-2.0]), several, chunk(reasoning="r", tops=[-3.0])])
    assert watch.seen == [("x", -1, 2), ("a", -1, 2), ("b", -1, 2), ("r", -1, 3)]


def test_tokens_that_do_not_spell_the_text_come_with_the_last() -> None:
    watch = Watch()
    event = {
        "choices": [
            {
                "delta": {"content": "é"},
                "logprobs": {"content": [{"token": "?", "logprob": -1}, {"token": "?", "logprob": -2}]},
            }
        ]
    }
    CompletionBuilder(Meter(), top=1, watcher=watch).add_events([orjson.dumps(event)])
    assert [text for text, _, _ in watch.seen] == ["", "é"]


def test_the_watcher_ends_it_and_later_events_are_not_read_but_paid() -> None:
    assembly = CompletionBuilder(Meter(), watcher=Watch(stop="b"))
    assert assembly.add_events([chunk("a"), chunk("b"), chunk("c"), DONE_DATA])
    assert assembly.halted
    assert not assembly.done
    assert "".join(assembly.content) == "ab"
    assert assembly.meter.tokens == 3, "the third had been written when the rule ended it"


def test_other_completions_of_the_request_are_passed_over() -> None:
    event = {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}]}
    assembly = CompletionBuilder(Meter())
    assembly.add_events([orjson.dumps(event)])
    assert (assembly.content, assembly.finish, assembly.counted) == ([], None, 0)


@pytest.mark.parametrize(
    "event", [{"error": {"message": "died"}}, {"error": "died"}, {"object": "error", "message": "died"}]
)
def test_an_error_in_the_stream_is_an_error(event: dict[str, Any]) -> None:
    assembly = CompletionBuilder(Meter(), url="http://u")
    with pytest.raises(ServerError, match=r"http://u .*died"):
        assembly.add_events([chunk("a"), orjson.dumps(event)])
    assert assembly.content == ["a"]


def test_an_event_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(ServerError, match="cannot be read"):
        CompletionBuilder(Meter()).add_events([b'{"choices": [{"delta"'])


def test_events_sent_twice_are_dropped_when_the_count_shows_it() -> None:
    tokens = [chunk("ha", [-1.0]), chunk("ha", [-1.0]), chunk("!", [-1.0])]
    assembly = CompletionBuilder(Meter(), top=1)
    assembly.add_events([one for token in tokens for one in (token, token)] + [usage(3)])
    assembly.drop_repeats()
    assert "".join(assembly.content) == "haha!"
    assert (len(assembly.logprobs), len(assembly.confidences), assembly.counted, assembly.repeats) == (3, 3, 3, 3)


def test_equal_tokens_in_a_row_are_kept() -> None:
    for told in ([usage(3)], [usage(4)], []):
        assembly = CompletionBuilder(Meter())
        assembly.add_events([chunk("ha"), chunk("ha"), chunk("ha"), *told])
        assembly.drop_repeats()
        assert "".join(assembly.content) == "hahaha"
        assert assembly.repeats == 0


def test_a_server_that_cuts_tokens_in_pieces_loses_none() -> None:
    assembly = CompletionBuilder(Meter())
    assembly.add_events([chunk(one) for one in "lollipop"] + [usage(2)])
    assembly.drop_repeats()
    assert "".join(assembly.content) == "lollipop"


def test_tool_calls_sent_twice_are_dropped_too() -> None:
    call = chunk(tool_calls=[{"index": 0, "function": {"arguments": "1"}}])
    assembly = CompletionBuilder(Meter())
    assembly.add_events([call, call, usage(1)])
    assembly.drop_repeats()
    assert len(assembly.tools) == 1


@pytest.mark.parametrize(
    "event", [b'{"choices": [{"text": "\xff"}]}', b'{"choices": [], "x": ' + b"[" * 5000 + b"]" * 5000 + b"}"]
)
def test_bytes_that_are_no_text_and_nesting_without_end_are_errors_too(event: bytes) -> None:
    with pytest.raises(ServerError, match="http://a sent an event that cannot be read"):
        CompletionBuilder(Meter(), url="http://a").add_events([event])


@pytest.mark.parametrize("count", ["-7", "1e30", "9" * 30, '"7"', "null", "[]"])
def test_a_count_that_cannot_be_one_is_not_taken_over(count: str) -> None:
    meter = Meter()
    told = f'{{"choices": [], "usage": {{"prompt_tokens": {count}, "completion_tokens": {count}}}}}'
    CompletionBuilder(meter, prompt_tokens=9).add_events([chunk("a"), chunk("b"), told.encode()])
    assert (meter.prompt_tokens, meter.tokens) == (9, 2)


def test_no_more_can_be_cached_than_was_read() -> None:
    meter = Meter()
    CompletionBuilder(meter).add_events([usage(3, read=5, cached=50)])
    assert (meter.prompt_tokens, meter.cached_tokens) == (5, 5)


def test_nulls_where_lists_and_numbers_belong_are_borne() -> None:
    assembly = CompletionBuilder(Meter(), top=2)
    entry = {"token": None, "logprob": -1.0, "top_logprobs": None}
    choice = {"index": None, "delta": {"content": "4"}, "logprobs": {"content": [entry, entry]}}
    assembly.add_events([orjson.dumps({"choices": None}), orjson.dumps({"choices": [choice]})])
    assert ("".join(assembly.content), assembly.counted, assembly.has_confidences) == ("4", 2, False)


def test_a_completion_without_end_is_cut() -> None:
    assembly = CompletionBuilder(Meter(), max_tokens=3)
    assert not assembly.add_events([chunk(str(number)) for number in range(3)])
    assert assembly.add_events([chunk("on and on")])
    assert assembly.finish == "length"


def of(
    *pieces: str,
    finish: str | None = "stop",
    done: bool = True,
    told: dict[str, Any] | None = None,
    draw: SampleRequest | None = None,
) -> Candidate:
    events = [orjson.dumps({"choices": [{"delta": {"content": piece}}]}) for piece in pieces]
    events += [orjson.dumps({"choices": [{"delta": {}, "finish_reason": finish}]})] if finish else []
    events += [orjson.dumps({"choices": [], "usage": told})] if told else []
    assembly = CompletionBuilder(Meter())
    assembly.add_events(events + ([DONE_DATA] if done else []))
    return build_candidate(assembly, draw or SampleRequest("q"), url="http://u", seconds=1.5)


@pytest.mark.parametrize(
    ("said", "finish"),
    [
        ("stop", "stop"),
        ("eos_token", "stop"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        ("content_filter", "content_filter"),
    ],
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
    assert of("a", "b", finish=None, draw=SampleRequest("q", Sampling(max_tokens=2))).finish == "length"


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
    candidate = of(
        "a", told={"prompt_tokens": 9, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 2}}
    )
    assert (candidate.prompt_tokens, candidate.tokens, candidate.thinking_tokens, candidate.seconds) == (9, 3, 2, 1.5)
    assert candidate.logprobs is None
    assert candidate.confidences is None


def test_a_cap_that_was_not_honoured_is_noted() -> None:
    draw = SampleRequest("q", Sampling(max_tokens=2))
    assert of("a", told={"completion_tokens": 3}, draw=draw).message["cap_ignored"] == {"tokens": 3, "cap": 2}
    assert of("a", told={"completion_tokens": 2}, draw=draw).message == {}


def test_so_is_a_thinking_cap_beyond_its_slack() -> None:
    draw = SampleRequest("q", Sampling(thinking_tokens=5))
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
    candidate = of("<think>", "hm", "</think>", "4", draw=SampleRequest("q", prefix="Well, "))
    assert (candidate.reasoning, candidate.full_text) == ("", "Well, <think>hm</think>4")
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
    assert join_tool_calls(pieces) == (
        {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
        {"id": "call_2", "type": "function", "function": {"name": "mul", "arguments": "{}"}},
    )


def test_tool_calls_without_numbers() -> None:
    pieces = [
        ToolDelta(None, "x", None, FunctionDelta("f", "1")),
        ToolDelta(None, None, None, FunctionDelta(None, "2")),
        ToolDelta(None, "y", None, FunctionDelta("g", "3")),
    ]
    assert [call["function"] for call in join_tool_calls(pieces)] == [
        {"name": "f", "arguments": "12"},
        {"name": "g", "arguments": "3"},
    ]
    assert join_tool_calls([]) == ()
