"""Events come out whole, however their bytes were cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import ServerError
from breadth.runtime.samplers import sse
from breadth.runtime.samplers.sse import Events


def read(stream: bytes, cuts: list[int]) -> list[bytes]:
    events, found, start = Events(), [], 0
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
    monkeypatch.setattr(sse, "LARGEST", 100)
    events = Events()
    with pytest.raises(ServerError, match="without ending one event"):
        for _ in range(11):
            events.feed(b"x" * 10)


@pytest.mark.parametrize("cuts", [[], *([place] for place in range(1, 12)), list(range(1, 12))])
def test_a_byte_order_mark_hides_no_event(cuts: list[int]) -> None:
    assert read(b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n", cuts) == [b"a", b"\xef\xbb\xbfb"]
    assert read(b"\xef\xbb\xbfdata: a", cuts) == [b"a"]
