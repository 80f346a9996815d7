"""Errors of servers in plain words: refusals, broken streams, what to do about them, when to retry."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from breadth.base.errors import ServerError, require

MAX_RETRY_SECONDS = 24 * 3600.0
"""Seconds that a reply can ask for at most; more than a day is a mistake."""


@dataclass(frozen=True)
class Backoff:
    """Waits that double, with jitter: each is a random share, from half to all, of its full length.

    So requests that failed together are not retried together. First wait and factor are those of the openai SDK
    (0.5 s, doubling, at most 8 s).
    """

    first_seconds: float = 0.5
    """Seconds before the second attempt."""
    max_seconds: float = 8.0
    """Seconds at most."""
    seed: int = 0
    """Random seed of the jitter."""

    def __post_init__(self) -> None:
        require(self, "first_seconds", self.first_seconds >= 0, "0 or more seconds")
        require(self, "max_seconds", self.max_seconds >= self.first_seconds, "at least the first wait")

    def wait_seconds(self, attempt: int, request_seed: int = 0) -> float:
        """Return how long to wait after attempt 1, 2, ... of a request failed; the same request waits the same."""
        whole = min(self.max_seconds, self.first_seconds * 2.0 ** min(attempt - 1, 32))
        digest = hashlib.blake2b(f"{self.seed}/{request_seed}/{attempt}".encode(), digest_size=8).digest()
        return whole * (0.5 + int.from_bytes(digest, "big") / 2**65)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds to wait by ``Retry-After`` (seconds or a date) or ``retry-after-ms``; None for none.

    A date is compared with ``now`` (seconds since 1970; the clock's by default). A value that cannot be read is
    ignored.
    """
    milliseconds = parse_seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("Retry-After")
    if value is None:
        return None
    seconds = parse_seconds(value)
    return seconds_until(value, time.time() if now is None else now) if seconds is None else seconds


def parse_seconds(text: str | None) -> float | None:
    """Return a number of seconds, at least 0; None for anything else."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return min(max(value, 0.0), MAX_RETRY_SECONDS) if math.isfinite(value) else None


def seconds_until(text: str, now: float) -> float | None:
    """Return the seconds until an HTTP date, at least 0; None when it is no date.

    A date without a zone is in UTC, as all of HTTP's are.
    """
    try:
        date = parsedate_to_datetime(text)
        moment = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(moment - now, 0.0), MAX_RETRY_SECONDS)


MAX_QUOTE_CHARACTERS = 300
"""Characters quoted of a server's message."""
_PASSING = frozenset({408, 409, 425, 429})
"""Client errors that may pass by themselves."""
_TOO_LONG = re.compile(
    r"context.?(length|size|window)|maximum (model |input |prompt )?length|max_model_len|too long|longer than the"
    r" model",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model\b.*(not exist|not found|unknown|no such|not available|not served)|(not found|unknown).*\bmodel\b",
    re.IGNORECASE,
)


def status_error(url: str, status: int, headers: Mapping[str, str], body: bytes) -> ServerError:
    """Return the error for a reply whose status is not 200."""
    return to_server_error(url, status, message_in(body), wait=retry_after(headers))


def stream_error(url: str, error: Any) -> ServerError:
    """Return the error for an error event inside a stream; its own code decides whether a retry makes sense."""
    code = error.get("code") if isinstance(error, Mapping) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return to_server_error(url, status, message_of(error), wait=None)


def message_in(body: bytes) -> str:
    """Return the message in a reply's body, as one short line."""
    try:
        content = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return quote(body.decode("utf-8", "replace"))
    return message_of(content)


def message_of(error: Any) -> str:
    """Return the message inside an error object, whatever its shape, as one short line."""
    if isinstance(error, Mapping):
        for key in ("error", "message", "detail"):
            if error.get(key):
                inner = message_of(error[key])
                kind = error.get("type") or error.get("code") if key == "message" else None
                return f"{inner} [{quote(str(kind))}]" if kind else inner
    return quote(error if isinstance(error, str) else msgspec.json.encode(error).decode())


def quote(text: str) -> str:
    """Return a server's text as one line of at most 300 characters, without control characters for the terminal."""
    plain = "".join(character if character.isprintable() else " " for character in text[: 4 * MAX_QUOTE_CHARACTERS])
    line = " ".join(plain.split())
    return line if len(line) <= MAX_QUOTE_CHARACTERS else line[: MAX_QUOTE_CHARACTERS - 3] + "..."


def to_server_error(url: str, status: int, message: str, wait: float | None) -> ServerError:
    """Return the error for a status and a message, with a remedy and whether a retry makes sense."""
    no_quota = "insufficient_quota" in message or status == 402
    fatal = no_quota or (status < 500 and status not in _PASSING) or status in (501, 505)
    problem = f"{url} answered with status {status}" + (f": {message}" if message else " and no message.")
    return ServerError(problem, remedy_for(status, message, no_quota), status=status, fatal=fatal, retry_after=wait)


def remedy_for(status: int, message: str, no_quota: bool) -> str:
    """Return what to do about a status, by the message that came with it."""
    if status in (401, 403):
        return (
            "The server wants a key, or another one: give it in OPENAI_API_KEY or BREADTH_KEY (breadth serve:"
            " BREADTH_UPSTREAM_KEY)."
        )
    if no_quota:
        return "The account behind the key has nothing left: raise its limit, or use another key."
    if status in (400, 413, 422) and _TOO_LONG.search(message):
        return (
            "The prompt does not fit the model's context with what it may write: shorten it, or lower max_tokens, or"
            " serve more context."
        )
    if status == 404 and not _NO_MODEL.search(message):
        return "Nothing is served under this path: check the address, which is the part before /v1."
    if _NO_MODEL.search(message):
        return "The server does not serve this model: choose one of those under /v1/models."
    if status == 429:
        return "The server is asked too much: sample less at a time, or try again later."
    if 300 <= status < 400:
        return "The server sends the request elsewhere, where the key does not follow: give the address it points to."
    if status >= 500 or status in _PASSING:
        return "The server is overloaded or broken: look at its log, or try again later."
    return "The server cannot take this request as it is: check the settings it names, or choose its own dialect."
