"""An upstream's stream on its way to a client."""

from __future__ import annotations

from typing import Any, cast

import orjson
import pytest

from breadth.base.errors import ServerError
from breadth.runtime.proxy.relay import Flow
from breadth.runtime.proxy.stream import Passage, charge
from breadth.runtime.sampler import Meter
from breadth.runtime.samplers.endpoints import Endpoint
from breadth.runtime.samplers.sse import Events

TEXT = b'{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}],"odd":  1}'
END = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
USAGE = b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":4}}}'


def flow(marked: bool = True) -> Flow:
    return Flow(Endpoint("http://up"), cast("Any", None), Events(), [], marked)


def told(raw: bytes) -> list[Any]:
    lines = [line.removeprefix(b"data: ") for line in raw.split(b"\n\n") if line]
    return [line.decode() if line == b"[DONE]" else orjson.loads(line) for line in lines]


def test_events_pass_byte_for_byte_and_the_last_carries_our_object() -> None:
    meter = Meter()
    passage = Passage(meter, with_usage=True)
    assert passage.take(flow(), [TEXT, TEXT]) == (b"data: " + TEXT + b"\n\n") * 2
    assert meter.tokens == 2
    assert told(passage.take(flow(), [END, USAGE])) == [orjson.loads(END)]
    assert (meter.tokens, meter.prompt_tokens, meter.cached_tokens) == (7, 9, 4)
    last, done = told(passage.end(flow(), {"trace": "t"}))
    assert (last, done) == (orjson.loads(USAGE) | {"breadth": {"trace": "t"}}, "[DONE]")


def test_a_client_that_asked_for_no_usage_gets_no_event_without_choices() -> None:
    passage = Passage(Meter(), with_usage=False)
    assert told(passage.take(flow(), [TEXT, END, USAGE])) == [orjson.loads(TEXT)]
    assert told(passage.end(flow(), {})) == [orjson.loads(END) | {"breadth": {}}, "[DONE]"]


def test_several_choices_each_keep_their_end() -> None:
    second = END.replace(b'"index":0', b'"index":1')
    passage = Passage(Meter(), with_usage=False)
    assert told(passage.take(flow(), [END, TEXT, second])) == [orjson.loads(TEXT), orjson.loads(END)]
    assert told(passage.end(flow(), {}))[0]["choices"][0]["index"] == 1


def test_a_stream_that_ends_in_the_middle_is_an_error() -> None:
    passage = Passage(Meter(), with_usage=False)
    passage.take(flow(), [TEXT])
    with pytest.raises(ServerError, match="middle"):
        passage.end(flow(marked=False), {})
    passage.take(flow(), [END])
    assert b"[DONE]" in passage.end(flow(marked=False), {})


@pytest.mark.parametrize("event", [b"{", b"[]", b'{"error":{"message":"died"}}', b'{"object":"error","message":"died"}', b'{"choices":3}'])
def test_an_event_that_is_none_is_an_error_and_never_passed_on(event: bytes) -> None:
    with pytest.raises(ServerError, match="http://up"):
        Passage(Meter(), with_usage=False).take(flow(), [event])


@pytest.mark.parametrize(
    "usage", [{}, {"prompt_tokens": None, "completion_tokens": "7"}, {"prompt_tokens": -3, "prompt_tokens_details": None}]
)
def test_a_usage_that_makes_no_sense_counts_nothing(usage: dict[str, Any]) -> None:
    meter = Meter()
    charge(meter, usage)
    assert (meter.prompt_tokens, meter.cached_tokens, meter.tokens) == (0, 0, 0)


def test_a_usage_that_makes_no_sense_leaves_what_was_counted() -> None:
    meter = Meter()
    Passage(meter, with_usage=True).take(flow(), [TEXT, b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":-1}}', TEXT])
    assert (meter.prompt_tokens, meter.tokens) == (9, 2)
    charge(meter, {"prompt_tokens": 9, "completion_tokens": 7.0, "prompt_tokens_details": {"cached_tokens": 99}})
    assert (meter.prompt_tokens, meter.cached_tokens, meter.tokens) == (9, 9, 7)


def test_an_event_of_several_lines_stays_one_event() -> None:
    sent = Passage(Meter(), with_usage=False).take(flow(), [b'{"choices":\n[{"index":0,"delta":{"content":"x"}}]}'])
    assert sent == b'data: {"choices":\ndata: [{"index":0,"delta":{"content":"x"}}]}\n\n'
    assert Events().feed(sent) == [b'{"choices":\n[{"index":0,"delta":{"content":"x"}}]}']


@pytest.mark.parametrize("choices", ["[null]", "[1]", "null", "{}"])
def test_choices_that_are_none_are_an_error(choices: str) -> None:
    with pytest.raises(ServerError, match="without choices"):
        Passage(Meter(), with_usage=False).take(flow(), [b'{"choices":' + choices.encode() + b"}"])
