"""Replies in the OpenAI shape."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from breadth.inference.budget import Spend
from breadth.inference.records import Answer, Candidate, Finish, Task
from breadth.inference.strategies.vote import Vote
from breadth.runtime.driver import Solved
from breadth.runtime.proxy.reply import about_answer, finish_reason, stream_events, usage, whole_body

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
LONG = "It is four. " * 30


def solved(candidate: Candidate) -> Solved:
    answer = Answer(candidate, confidence=0.9, basis="b", votes={"4": 3.0, "5": 1.0}, candidates=(candidate,) * 4, stopped="most")
    spend = Spend(5, 100, 40, 30, 1.0, 0.25)
    return Solved(Task("?", model="asked"), answer, spend, (candidate,) * 4, 6, 1, 1, {"http://up:1 broke": 1}, None, 2.0, False, "abc")


def test_usage_is_that_of_all_draws() -> None:
    assert usage(solved(Candidate("x")).spend) == {
        "prompt_tokens": 100,
        "completion_tokens": 30,
        "total_tokens": 130,
        "prompt_tokens_details": {"cached_tokens": 40},
    }


def test_the_object_says_how_sure_by_what_votes_at_what_cost_and_hides_the_upstream() -> None:
    about = about_answer(solved(Candidate("x", key="4")), Vote(), "careful", ["http://up:1"])
    assert about["votes"] == [{"answer": "4", "votes": 3.0, "share": 0.75}, {"answer": "5", "votes": 1.0, "share": 0.25}]
    assert (about["confidence"], about["basis"], about["policy"], about["strategy"], about["trace"]) == (0.9, "b", "careful", "vote", "abc")
    assert (about["drawn"], about["arrived"], about["failed"], about["discarded"], about["unread"]) == (6, 4, 1, 1, 0)
    assert about["cost"]["money"] == 0.25
    assert about["errors"] == [{"problem": "The upstream broke", "times": 1}]


def test_a_chat_and_a_text_each_have_their_shape() -> None:
    got = solved(Candidate(" is 4.", prefix="It", model="real", reasoning="hm", finish="length"))
    chat = whole_body(CHAT, got, {})
    assert (chat["id"], chat["object"], chat["model"]) == ("chatcmpl-abc", "chat.completion", "real")
    assert chat["choices"][0]["message"] == {"role": "assistant", "content": "It is 4.", "reasoning_content": "hm"}
    assert chat["choices"][0]["finish_reason"] == "length"
    text = whole_body(TEXT, got, {})
    assert (text["id"], text["object"], text["choices"][0]["text"]) == ("cmpl-abc", "text_completion", "It is 4.")
    assert whole_body(CHAT, solved(Candidate("x")), {})["model"] == "asked"


@pytest.mark.parametrize(
    ("finish", "told"), [("stop", "stop"), ("halt", "stop"), ("length", "length"), ("content_filter", "content_filter")]
)
def test_finish_reasons_are_the_schemas(finish: Finish, told: str) -> None:
    assert finish_reason(solved(Candidate("x", finish=finish))) == told


def events(path: str, *, with_usage: bool) -> list[Any]:
    raw = b"".join(stream_events(path, solved(Candidate(LONG, reasoning="hm")), {"trace": "abc"}, with_usage=with_usage)).decode()
    lines = [line.removeprefix("data: ") for line in raw.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [orjson.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize("with_usage", [True, False])
def test_a_streamed_chat_adds_up_to_the_text(with_usage: bool) -> None:
    told = events(CHAT, with_usage=with_usage)
    deltas = [event["choices"][0]["delta"] for event in told if event["choices"]]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content", "") for delta in deltas) == LONG
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm"
    assert len(deltas) > 5
    assert [event["choices"][0]["finish_reason"] for event in told if event["choices"]] == [None] * (len(deltas) - 1) + ["stop"]
    assert "breadth" in told[-1]
    assert ("usage" in told[-1], told[-1]["choices"] == []) == (with_usage, with_usage)


def test_a_streamed_text_adds_up_too() -> None:
    assert "".join(event["choices"][0]["text"] for event in events(TEXT, with_usage=False)) == LONG
