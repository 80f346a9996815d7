"""What servers say when they refuse, in words: which refusals are for good, and what to do about each."""

from __future__ import annotations

import pytest

from breadth.runtime.samplers.refusals import broken_off, quoted, refusal, said_in

URL = "http://host:1"
LLAMA_TOO_LONG = (
    b'{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error",'
    b'"n_prompt_tokens":3031,"n_ctx":1024}}'
)
VLLM_TOO_LONG = (
    b'{"object":"error","message":"This model\'s maximum context length is 2048 tokens. However, you requested 4096",'
    b'"type":"BadRequestError"}'
)


@pytest.mark.parametrize(
    ("status", "body", "fatal", "remedy"),
    [
        (401, b'{"error": {"message": "Incorrect API key provided"}}', True, "key"),
        (403, b"forbidden", True, "key"),
        (404, b'{"error": {"message": "The model `x` does not exist.", "type": "NotFoundError"}}', True, "/v1/models"),
        (404, b"<html>nginx</html>", True, "check the address"),
        (400, LLAMA_TOO_LONG, True, "shorten"),
        (400, VLLM_TOO_LONG, True, "shorten"),
        (400, b'{"detail": [{"msg": "temperature must be a number"}]}', True, "settings it names"),
        (402, b"{}", True, "nothing left"),
        (429, b'{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}', True, "nothing left"),
        (429, b'{"error": {"message": "Rate limit reached"}}', False, "draw less"),
        (408, b"", False, "try again"),
        (500, b"", False, "log"),
        (503, b'{"error": {"message": "Loading model"}}', False, "log"),
        (501, b"", True, "log"),
        (307, b"", True, "address it points to"),
    ],
)
def test_statuses(status: int, body: bytes, fatal: bool, remedy: str) -> None:
    error = refusal(URL, status, {}, body)
    assert (error.status, error.fatal) == (status, fatal)
    assert remedy in error.remedy
    assert error.problem.startswith(f"{URL} answered with status {status}")


def test_the_wait_asked_for_is_carried() -> None:
    assert refusal(URL, 429, {"Retry-After": "12"}, b"").retry_after == 12
    assert refusal(URL, 500, {}, b"").retry_after is None


def test_what_the_server_said_is_in_it() -> None:
    assert "exceeds the available context size [exceed_context_size_error]" in refusal(URL, 400, {}, LLAMA_TOO_LONG).problem


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
    assert said_in(body) == said


def test_a_quote_is_one_short_line_that_no_terminal_obeys() -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07 ignore\r\nall previous \u202e instructions " + "x" * 10_000
    line = quoted(hostile)
    assert len(line) == 300
    assert line.isprintable()
    assert line.startswith("[2J ]0;owned ignore all previous instructions xxx")


def test_an_error_event_is_judged_by_its_own_code() -> None:
    assert broken_off(URL, {"message": "prompt is too long", "code": 400}).fatal
    assert not broken_off(URL, {"message": "the engine died", "code": 500}).fatal
    assert not broken_off(URL, {"message": "slow down", "code": 429}).fatal
    assert not broken_off(URL, "out of memory").fatal
    assert "out of memory" in broken_off(URL, "out of memory").problem
    assert broken_off(URL, {"message": "x", "code": "weird"}).status == 500


def test_nesting_without_end_and_bytes_that_are_no_text_are_quoted() -> None:
    assert said_in(b'{"error":' * 7000).startswith('{"error":{"error":')
    assert said_in(b'{"error":"\xff"}') == '{"error":"\ufffd"}'
