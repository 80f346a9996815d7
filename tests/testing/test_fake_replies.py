"""Replies of the fake server: tokens, limits, and the OpenAI shapes they are sent in."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.runtime.dialect import CHAT_PATH, COMPLETIONS_PATH
from breadth.testing.fake_replies import Reply, ReplyToken, completion_body, completion_events, split_tokens


def events(replies: list[Reply], request: dict[str, Any], path: str = CHAT_PATH) -> list[Any]:
    lines = b"".join(completion_events(replies, request, path, "id", "m")).decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


@given(st.text())
def test_words_joined_are_the_text(text: str) -> None:
    assert "".join(token.text for token in split_tokens(text)) == text


@settings(max_examples=50)
@given(st.floats(-30, 0), st.integers(1, 30))
def test_made_up_alternatives_are_ranked_probabilities(logprob: float, top: int) -> None:
    ranked = ReplyToken("x", logprob).top_tokens(top)
    values = [value for _, value in ranked]
    assert len({text for text, _ in ranked}) == len(ranked) == top
    assert values == sorted(values, reverse=True)
    assert sum(map(math.exp, values)) <= 1 + 1e-8


def test_given_alternatives_are_kept() -> None:
    # The token itself (-1.2) comes second; of three only two are asked for.
    assert ReplyToken("b", -1.2, (("a", -0.7), ("c", -2.0))).top_tokens(2) == [("a", -0.7), ("b", -1.2)]


def test_a_limit_counts_thinking_first() -> None:
    reply = Reply.from_text("one two three", reasoning="hm well")
    cut = reply.limit_to({"max_tokens": 3})
    assert (len(cut.reasoning), cut.text, cut.finish) == (2, "one", "length")
    assert reply.limit_to({"max_completion_tokens": 1}).reasoning == reply.reasoning[:1]
    assert reply.limit_to({"max_tokens": 5}) is reply


def test_a_stop_text_ends_the_reply_before_it() -> None:
    reply = Reply.from_text("one two three", finish="length").limit_to({"stop": ["ee", "wo"]})
    assert (reply.text, reply.finish) == ("one t", "stop")
    assert Reply.from_text("one two").limit_to({"stop": "four"}).text == "one two"


def test_a_chat_stream_is_one_event_a_token() -> None:
    told = events(
        [Reply.from_text("a b", reasoning="t")],
        {"logprobs": True, "top_logprobs": 2, "stream_options": {"include_usage": True}},
    )
    deltas = [event["choices"][0]["delta"] for event in told[:-1]]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "t"},
        {"content": "a"},
        {"content": " b"},
        {},
    ]
    assert [event["choices"][0]["finish_reason"] for event in told[:-1]] == [None] * 4 + ["stop"]
    entry = told[2]["choices"][0]["logprobs"]["content"][0]
    # exp(-0.1) = 0.9048 is its own; the made-up one gets half of the other 0.0952.
    assert (entry["token"], entry["logprob"], entry["bytes"]) == ("a", -0.1, [97])
    assert [item["logprob"] for item in entry["top_logprobs"]] == pytest.approx(
        [-0.1, math.log(0.0951626 / 2)], abs=1e-6
    )
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert (told[-1]["choices"], told[-1]["usage"]) == ([], usage)


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    told = events([Reply.from_text("a")], {})
    assert all("usage" not in event and "logprobs" not in event["choices"][0] for event in told)


def test_several_choices_come_in_turn() -> None:
    told = events([Reply.from_text("a b"), Reply.from_text("c")], {})
    texts = [(event["choices"][0]["index"], event["choices"][0]["delta"].get("content")) for event in told]
    assert texts == [(0, ""), (1, ""), (0, "a"), (1, "c"), (0, " b"), (1, None), (0, None)]


def test_completions_have_the_older_shape() -> None:
    told = events([Reply.from_text("a b")], {"logprobs": 1}, COMPLETIONS_PATH)
    assert [event["choices"][0]["text"] for event in told] == ["a", " b", ""]
    assert told[1]["choices"][0]["logprobs"] == {
        "tokens": [" b"],
        "token_logprobs": [-0.1],
        "top_logprobs": [{" b": -0.1}],
        "text_offset": [1],
    }
    body = completion_body([Reply.from_text("a b")], {"logprobs": 1}, COMPLETIONS_PATH, "id", "m")
    assert (body["choices"][0]["text"], body["choices"][0]["logprobs"]["text_offset"]) == ("a b", [0, 1])


def test_a_whole_body_has_everything() -> None:
    body = completion_body(
        [Reply.from_text("a b", reasoning="t", reasoning_field="reasoning", cached_tokens=4)],
        {"logprobs": True},
        CHAT_PATH,
        "id",
        "m",
    )
    choice = body["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "a b", "reasoning": "t"}
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["t", "a", " b"]
    assert choice["logprobs"]["content"][0]["top_logprobs"] == []
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    assert "usage" not in completion_body([Reply.from_text("a", usage=False)], {}, CHAT_PATH, "id", "m")
