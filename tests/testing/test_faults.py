"""Faults: what each spoils, and which requests it strikes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from breadth.testing.fake_replies import Reply
from breadth.testing.faults import (
    Cut,
    CutShort,
    DuplicatedChunks,
    EmptyText,
    ErrorInStream,
    Fault,
    Hang,
    MalformedJson,
    NIgnored,
    NoLogprobs,
    NoUsage,
    Scheduled,
    Slow,
    Status,
    WrongContentType,
    active_faults,
    every,
    first,
)

EVENTS = [b"data: 0\n\n", b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n"]


def test_schedules_count_from_the_first_request() -> None:
    faults = (every(3, Status(500)), first(2, Hang()), Scheduled(Cut(), lambda number: number == 5))
    struck = [[type(fault).__name__ for fault in active_faults(faults, number)] for number in range(6)]
    assert struck == [["Hang"], ["Hang"], ["Status"], [], [], ["Status", "Cut"]]
    assert active_faults((Slow(),), 99) == (Slow(),)


def test_no_fault_changes_nothing() -> None:
    fault = Fault()
    reply, request = Reply.from_text("a"), {"n": 2}
    assert not fault.hangs()
    assert fault.response() is None
    assert fault.reply(reply) is reply
    assert fault.request(request) is request
    assert list(fault.stream(iter(EVENTS))) == EVENTS
    assert fault.body(b"x") == b"x"


def test_a_status_is_an_error_in_the_openai_shape_or_a_page() -> None:
    shaped = Status(429, retry_after=1.5).response()
    assert (shaped.status, shaped.retry_after, shaped.content_type) == (429, 1.5, "application/json")
    assert json.loads(shaped.body)["error"]["code"] == 429
    assert Status(502, shaped=False).response().content_type == "text/html"
    assert WrongContentType().response().status == 200


def collected(stream: Iterator[bytes]) -> list[bytes]:
    sent = []
    with pytest.raises(CutShort):
        for one in stream:
            sent.append(one)  # noqa: PERF402 - what came before the exception is wanted
    return sent


def test_a_cut_sends_what_came_before() -> None:
    assert collected(Cut(after=2).stream(iter(EVENTS))) == EVENTS[:2]
    assert collected(Cut(after=0).stream(iter(EVENTS))) == []
    assert Cut().body(b"1234") == b"12"


def test_malformed_json_breaks_one_event() -> None:
    sent = list(MalformedJson(after=1).stream(iter(EVENTS)))
    assert sent[:1] + sent[2:] == EVENTS[:1] + EVENTS[2:]
    with pytest.raises(json.JSONDecodeError):
        json.loads(sent[1].removeprefix(b"data: "))
    with pytest.raises(json.JSONDecodeError):
        json.loads(MalformedJson().body(b'{"a": 1}'))


def test_an_error_in_the_stream_ends_it() -> None:
    sent = list(ErrorInStream(after=1).stream(iter(EVENTS)))
    assert sent[0] == EVENTS[0]
    assert json.loads(sent[1].removeprefix(b"data: "))["error"]["code"] == 500
    assert len(sent) == 2


def test_chunks_are_sent_twice() -> None:
    assert list(DuplicatedChunks().stream(iter(EVENTS[:2]))) == [EVENTS[0], EVENTS[0], EVENTS[1], EVENTS[1]]


def test_requests_are_misunderstood() -> None:
    request = {"n": 3, "logprobs": True, "top_logprobs": 5, "stream": True}
    assert NIgnored().request(request) == {"logprobs": True, "top_logprobs": 5, "stream": True}
    assert NoLogprobs().request(request) == {"n": 3, "stream": True}


def test_replies_are_spoilt() -> None:
    reply = Reply.from_text("a b", reasoning="t")
    assert EmptyText().reply(reply).text == ""
    assert not NoUsage().reply(reply).usage
    assert (Slow(0.5).reply(reply).delay, Slow(0.5).reply(reply).wait) == (0.5, 0.5)
