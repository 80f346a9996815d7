"""The OpenAI schema, form by form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from breadth.inference.records import Sampling
from breadth.lab.sampling.engine import Token
from breadth.lab.server.replies import Replies
from breadth.lab.server.requests import Wanted
from breadth.lab.server.writing import Piece, Writing
from breadth.lab.task.vocabulary import build_tokenizer
from breadth.lab.task.wording import Wording
from breadth.runtime.dialect import CHAT, COMPLETIONS
from breadth.runtime.samplers.wire import CHUNKS, DONE

WORDING = Wording(build_tokenizer(7))
NUMBERS = build_tokenizer(7).get_vocab()
CHATTED = Wanted(CHAT, WORDING.tokens(["3", "+"]), "", Sampling(), 1, 0, stream=False, counted=True, alternatives=1)
PLAIN = replace(CHATTED, path=COMPLETIONS, before="3 +")


def written(wanted: Wanted, text: str, *, apart: bool = False) -> tuple[Writing, list[Piece]]:
    writing = Writing(wanted, WORDING, apart=apart)
    pieces: list[Piece] = []
    for word in text.split():
        number = NUMBERS[word]
        pieces += writing.take(Token(number, -0.25, 0.5, ((number, -0.25),), last="stop" if word == "<eos>" else ""))
    return writing, pieces


def whole(wanted: Wanted, text: str, *, apart: bool = False) -> dict[str, Any]:
    writing, pieces = written(wanted, text, apart=apart)
    body: dict[str, Any] = orjson.loads(Replies(wanted, "tiny").whole([writing], [pieces]))
    return body


def test_a_whole_chat() -> None:
    body = whole(CHATTED, "<think> 3 </think> 3 <eos>")
    assert (body["object"], body["model"], body["id"][:9]) == ("chat.completion", "tiny", "chatcmpl-")
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "<think> 3 </think> 3"}
    assert choice["finish_reason"] == "stop"
    assert "".join(entry["token"] for entry in choice["logprobs"]["content"]) == choice["message"]["content"]
    entry = choice["logprobs"]["content"][1]
    assert entry == {
        "token": " 3",
        "logprob": -0.25,
        "bytes": [32, 51],
        "top_logprobs": [{"token": " 3", "logprob": -0.25, "bytes": [32, 51]}],
    }
    # Read 3; written: four words and the end, one of them between the marks.
    assert body["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
        "completion_tokens_details": {"reasoning_tokens": 1},
    }


def test_thinking_set_apart() -> None:
    message = whole(CHATTED, "<think> 3 </think> 4 <eos>", apart=True)["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "4", "reasoning_content": "3"}


def test_a_whole_plain_completion_has_log_probs_in_parallel_lists() -> None:
    body = whole(PLAIN, "4 = <eos>")
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {
            "index": 0,
            "text": " 4 =",
            "logprobs": {
                "tokens": [" 4", " ="],
                "token_logprobs": [-0.25, -0.25],
                "top_logprobs": [{" 4": -0.25}, {" =": -0.25}],
                "text_offset": [3, 5],  # counted from the beginning of the prompt "3 +", as OpenAI does
            },
            "finish_reason": "stop",
        }
    ]


def test_no_log_probs_where_none_were_asked_for() -> None:
    assert whole(replace(CHATTED, alternatives=None), "3 <eos>")["choices"][0]["logprobs"] is None


def test_a_stream_is_read_by_our_own_reader_as_it_was_written() -> None:
    for wanted in (replace(CHATTED, stream=True), replace(PLAIN, stream=True)):
        writing, pieces = written(wanted, "4 = <eos>")
        replies = Replies(wanted, "tiny")
        stream = (
            replies.first(writing) + b"".join(replies.piece(writing, piece) for piece in pieces) + replies.last(writing)
        )
        events = (stream + replies.end([writing])).split(b"\n\n")
        assert events[-2:] == [DONE.strip(), b""]
        chunks = [CHUNKS.decode(event.removeprefix(b"data: ")) for event in events[:-2]]
        choices = [choice for chunk in chunks for choice in chunk.choices or []]
        text = "".join((choice.text if choice.delta is None else choice.delta.content) or "" for choice in choices)
        assert text == ("4 =" if wanted.chat else " 4 =")
        assert [choice.finish_reason for choice in choices][-2:] == [None, "stop"]
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 3


def test_offsets_go_on_from_event_to_event() -> None:
    wanted = replace(PLAIN, stream=True)
    writing, pieces = written(wanted, "4 = <eos>")
    replies = Replies(wanted, "tiny")
    events = [orjson.loads(replies.piece(writing, piece).removeprefix(b"data: ")) for piece in pieces]
    assert [event["choices"][0]["logprobs"]["text_offset"] for event in events] == [[3], [5]]


def test_usage_ends_a_stream_only_where_it_was_asked_for() -> None:
    assert Replies(replace(CHATTED, counted=False, stream=True), "tiny").end([]) == DONE
