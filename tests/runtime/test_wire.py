"""Only declared fields are decoded, from what real servers send; the older form of log-probs becomes the newer one."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import ServerError
from breadth.runtime import wire
from breadth.runtime.wire import (
    CHUNK_DECODER,
    MODELS_DECODER,
    Alternative,
    EventParser,
    Logprobs,
    TokenLogprob,
    to_chat_logprobs,
)


def read(stream: bytes, cuts: list[int]) -> list[bytes]:
    events, found, start = EventParser(), [], 0
    for end in [*sorted(cuts), len(stream)]:
        found += events.feed(stream[start:end])
        start = end
    return found + events.finish()


def test_an_event_is_what_follows_data() -> None:
    assert read(b'data: {"a": 1}\n\ndata: [DONE]\n\n', []) == [b'{"a": 1}', b"[DONE]"]


def test_comments_names_and_empty_events_are_left_out() -> None:
    assert read(b": ping\n\nevent: message\nid: 7\ndata: x\n\n\n\nretry: 3\n\ndata:y\n\n", []) == [b"x", b"y"]


def test_a_ping_right_before_an_event_does_not_hide_it() -> None:
    assert read(b": ping\ndata: x\n\n", []) == [b"x"]


def test_several_data_lines_are_joined() -> None:
    assert read(b"data: one\ndata: two\n\n", []) == [b"one\ntwo"]


def test_only_one_space_is_taken_off() -> None:
    assert read(b"data:  x\n\n", []) == [b" x"]


def test_an_event_without_its_empty_line_at_the_end_is_found() -> None:
    assert read(b"data: x\n\ndata: y", []) == [b"x", b"y"]
    assert read(b"data: x\r\n\r\ndata: y\r", []) == [b"x", b"y"]


def test_nothing_comes_of_nothing() -> None:
    assert read(b"", []) == []
    assert read(b"\n\n\n\n", []) == []


@given(st.lists(st.binary(min_size=1, max_size=12).filter(lambda one: not set(one) & {10, 13}), max_size=6), st.data())
@settings(max_examples=150, deadline=None)
def test_cuts_and_line_ends_change_nothing(data: list[bytes], draw: st.DataObject) -> None:
    end = draw.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    stream = b"".join(b"data: " + one + end + end for one in data)
    cuts = draw.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    assert read(stream, cuts) == data


def test_an_event_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_EVENT_BYTES", 100)
    events = EventParser()
    with pytest.raises(ServerError, match="without ending one event"):
        for _ in range(11):
            events.feed(b"x" * 10)


@pytest.mark.parametrize("cuts", [[], *([place] for place in range(1, 12)), list(range(1, 12))])
def test_a_byte_order_mark_hides_no_event(cuts: list[int]) -> None:
    assert read(b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n", cuts) == [b"a", b"\xef\xbb\xbfb"]
    assert read(b"\xef\xbb\xbfdata: a", cuts) == [b"a"]


def test_a_chunk_of_llama_cpp() -> None:
    chunk = CHUNK_DECODER.decode(
        b'{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"That"},"logprobs":{"content":[{"id":5195,"token":"That",'
        b'"bytes":[84,104,97,116],"logprob":-2.34,"top_logprobs":[{"id":1,"token":"The","bytes":[84],"logprob":-0.5}]}]}}],'
        b'"created":1,"id":"chatcmpl-1","model":"smollm2","object":"chat.completion.chunk","timings":{"x":[1,2]}}'
    )
    assert chunk.choices is not None
    choice = chunk.choices[0]
    assert choice.delta is not None
    assert choice.delta.content == "That"
    assert choice.logprobs is not None
    assert choice.logprobs.content == [TokenLogprob("That", -2.34, [Alternative(-0.5)])]
    assert chunk.model == "smollm2"


def test_nulls_are_borne() -> None:
    chunk = CHUNK_DECODER.decode(
        b'{"choices":[{"index":0,"delta":{"role":"assistant","content":null},"logprobs":null}],"usage":null,"error":null}'
    )
    assert chunk.choices is not None
    assert chunk.choices[0].delta is not None
    assert chunk.choices[0].delta.content is None


@pytest.mark.parametrize(
    "event", [b"", b"{", b"[]", b'{"choices": 3}', b'{"choices":[{"delta":{"content":5}}]}', b"\xff"]
)
def test_what_is_no_chunk(event: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        CHUNK_DECODER.decode(event)


def test_a_list_of_models() -> None:
    assert [
        model.id
        for model in MODELS_DECODER.decode(b'{"object":"list","data":[{"id":"a","object":"model"},{"id":"b"}]}').data
    ] == ["a", "b"]


def test_the_older_form_of_log_probs() -> None:
    older = Logprobs(tokens=["a", "b"], token_logprobs=[None, -1.0], top_logprobs=[None, {"b": -1.0, "c": None}])
    assert to_chat_logprobs(older) == [
        TokenLogprob("a", None, []),
        TokenLogprob("b", -1.0, [Alternative(-1.0), Alternative(None)]),
    ]
    assert to_chat_logprobs(Logprobs(token_logprobs=[-1.0])) == [TokenLogprob("", -1.0, [])]
