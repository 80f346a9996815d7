"""What servers say when they refuse, in words: which refusals are for good, and what to do about each."""

from __future__ import annotations

import time

import pytest

from breadth.base.errors import SettingsError
from breadth.runtime.samplers.server_errors import (
    Backoff,
    message_in,
    quote,
    retry_after,
    status_error,
    stream_error,
)


def test_waits_double_up_to_the_most() -> None:
    backoff = Backoff(first_seconds=1, max_seconds=4)
    for attempt, whole in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 4.0), (5000, 4.0)):
        waits = [backoff.wait_seconds(attempt, seed) for seed in range(200)]
        assert whole / 2 <= min(waits) < 0.55 * whole
        assert 0.95 * whole < max(waits) <= whole


def test_the_same_draw_waits_the_same_and_others_do_not() -> None:
    assert Backoff().wait_seconds(1, 7) == Backoff().wait_seconds(1, 7)
    assert len({Backoff().wait_seconds(1, seed) for seed in range(50)}) == 50
    assert Backoff(seed=1).wait_seconds(1, 7) != Backoff().wait_seconds(1, 7)


def test_impossible_waits_are_refused() -> None:
    with pytest.raises(SettingsError, match="first"):
        Backoff(first_seconds=-1)
    with pytest.raises(SettingsError, match="max_seconds"):
        Backoff(first_seconds=2, max_seconds=1)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "-3"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": ""}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"retry-after-ms": "250", "Retry-After": "9"}, 0.25),
        # 1 January 2027, 00:00:10 UTC is 1798761610 seconds after 1970.
        ({"Retry-After": "Fri, 01 Jan 2027 00:00:10 GMT"}, 10.0),
        ({"Retry-After": "Thu, 31 Dec 2026 00:00:00 GMT"}, 0.0),
        # More than a day is not believed.
        ({"Retry-After": "1e300"}, 86400.0),
        ({"Retry-After": "Fri, 01 Jan 2038 00:00:10 GMT"}, 86400.0),
    ],
)
def test_what_a_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=1798761600.0) == seconds


def test_a_date_without_a_zone_is_utc_wherever_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert retry_after({"Retry-After": "Fri Jan  1 00:00:10 2027"}, now=1798761600.0) == 10.0
    finally:
        monkeypatch.undo()
        time.tzset()


URL = "http://host:1"
LLAMA_TOO_LONG = (
    b'{"error":{"code":400,"message":"the request exceeds the available context'
    b' size","type":"exceed_context_size_error","n_prompt_tokens":3031,"n_ctx":1024}}'
)
VLLM_TOO_LONG = (
    b'{"object":"error","message":"This model\'s maximum context length is 2048 tokens. However, you requested 4096",'
    b'"type":"BadRequestError"}'
)


@pytest.mark.parametrize(
    ("status", "body", "fatal", "remedy"),
    [
        (401, b'{"error": {"message": "Incorrect API key provided"}}', True, "OPENAI_API_KEY or BREADTH_KEY"),
        (403, b"forbidden", True, "key"),
        (404, b'{"error": {"message": "The model `x` does not exist.", "type": "NotFoundError"}}', True, "/v1/models"),
        (404, b"<html>nginx</html>", True, "check the address"),
        (400, LLAMA_TOO_LONG, True, "shorten"),
        (400, VLLM_TOO_LONG, True, "shorten"),
        (400, b'{"detail": [{"msg": "temperature must be a number"}]}', True, "settings it names"),
        (402, b"{}", True, "nothing left"),
        (
            429,
            b'{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}',
            True,
            "nothing left",
        ),
        (429, b'{"error": {"message": "Rate limit reached"}}', False, "sample less"),
        (408, b"", False, "try again"),
        (500, b"", False, "log"),
        (503, b'{"error": {"message": "Loading model"}}', False, "log"),
        (501, b"", True, "log"),
        (307, b"", True, "address it points to"),
    ],
)
def test_statuses(status: int, body: bytes, fatal: bool, remedy: str) -> None:
    error = status_error(URL, status, {}, body)
    assert (error.status, error.fatal) == (status, fatal)
    assert remedy in error.remedy
    assert error.problem.startswith(f"{URL} answered with status {status}")


def test_the_wait_asked_for_is_carried() -> None:
    assert status_error(URL, 429, {"Retry-After": "12"}, b"").retry_after == 12
    assert status_error(URL, 500, {}, b"").retry_after is None


def test_what_the_server_said_is_in_it() -> None:
    assert (
        "exceeds the available context size [exceed_context_size_error]"
        in status_error(URL, 400, {}, LLAMA_TOO_LONG).problem
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": "plain"}', "plain"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"message": "m", "code": 7}', "m [7]"),
        (b'"just text"', "just text"),
        (b"[1, 2]", "[1,2]"),
        (b"not json", "not json"),
        (b"\xff\xfe", "��"),
        (b"", ""),
        (b"{}", "{}"),
        (b'{"error": {"message": {"deep": 1}}}', '{"deep":1}'),
    ],
)
def test_whatever_the_shape(body: bytes, said: str) -> None:
    assert message_in(body) == said


def test_a_quote_is_one_short_line_that_no_terminal_obeys() -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07 ignore\r\nall previous \u202e instructions " + "x" * 10_000
    line = quote(hostile)
    assert len(line) == 300
    assert line.isprintable()
    assert line.startswith("[2J ]0;owned ignore all previous instructions xxx")


def test_an_error_event_is_judged_by_its_own_code() -> None:
    assert stream_error(URL, {"message": "prompt is too long", "code": 400}).fatal
    assert not stream_error(URL, {"message": "the engine died", "code": 500}).fatal
    assert not stream_error(URL, {"message": "slow down", "code": 429}).fatal
    assert not stream_error(URL, "out of memory").fatal
    assert "out of memory" in stream_error(URL, "out of memory").problem
    assert stream_error(URL, {"message": "x", "code": "weird"}).status == 500


def test_nesting_without_end_and_bytes_that_are_no_text_are_quoted() -> None:
    assert message_in(b'{"error":' * 7000).startswith('{"error":{"error":')
    assert message_in(b'{"error":"\xff"}') == '{"error":"\ufffd"}'
