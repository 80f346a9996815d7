"""What a server says when it refuses or breaks, as an error in plain words with what to do about it.

What a server says is quoted, never obeyed: shortened, on one line, without control characters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from breadth.base.errors import ServerError
from breadth.runtime.samplers.retries import retry_after

LONGEST_QUOTE = 300
"""Characters quoted of what a server says."""
_PASSING = frozenset({408, 409, 425, 429})
"""Client errors that may pass by themselves."""
_TOO_LONG = re.compile(
    r"context.?(length|size|window)|maximum (model |input |prompt )?length|max_model_len|too long|longer than the model", re.IGNORECASE
)
_NO_MODEL = re.compile(
    r"model\b.*(not exist|not found|unknown|no such|not available|not served)|(not found|unknown).*\bmodel\b", re.IGNORECASE
)


def refusal(url: str, status: int, headers: Mapping[str, str], body: bytes) -> ServerError:
    """Return the error for a reply whose status is not 200."""
    return _error(url, status, said_in(body), wait=retry_after(headers))


def broken_off(url: str, error: Any) -> ServerError:
    """Return the error for an error event inside a stream; its own code decides whether trying again makes sense."""
    code = error.get("code") if isinstance(error, Mapping) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return _error(url, status, said_by(error), wait=None)


def said_in(body: bytes) -> str:
    """Return what a reply's body says, as one short line."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return quoted(body.decode("utf-8", "replace"))
    return said_by(found)


def said_by(found: Any) -> str:
    """Return the message inside an error object, whatever its shape, as one short line."""
    if isinstance(found, Mapping):
        for key in ("error", "message", "detail"):
            if found.get(key):
                inner = said_by(found[key])
                kind = found.get("type") or found.get("code") if key == "message" else None
                return f"{inner} [{quoted(str(kind))}]" if kind else inner
    return quoted(found if isinstance(found, str) else msgspec.json.encode(found).decode())


def quoted(text: str) -> str:
    """Return a text of the server's as one line of at most 300 characters that no terminal takes for a command."""
    plain = "".join(character if character.isprintable() else " " for character in text[: 4 * LONGEST_QUOTE])
    line = " ".join(plain.split())
    return line if len(line) <= LONGEST_QUOTE else line[: LONGEST_QUOTE - 3] + "..."


def _error(url: str, status: int, said: str, wait: float | None) -> ServerError:
    spent = "insufficient_quota" in said or status == 402
    fatal = spent or (status < 500 and status not in _PASSING) or status in (501, 505)
    problem = f"{url} answered with status {status}" + (f": {said}" if said else " and said nothing.")
    return ServerError(problem, _remedy(status, said, spent), status=status, fatal=fatal, retry_after=wait)


def _remedy(status: int, said: str, spent: bool) -> str:
    """Return what to do about a status, by what was said."""
    if status in (401, 403):
        return "The server wants a key, or another one: give it with --key or in the environment."
    if spent:
        return "The account behind the key has nothing left: raise its limit, or use another key."
    if status in (400, 413, 422) and _TOO_LONG.search(said):
        return "The prompt does not fit the model's context with what it may write: shorten it, or lower max_tokens, or serve more context."
    if status == 404 and not _NO_MODEL.search(said):
        return "Nothing is served under this path: check the address, which is the part before /v1."
    if _NO_MODEL.search(said):
        return "The server does not serve this model: choose one of those under /v1/models."
    return _later(status)


def _later(status: int) -> str:
    if status == 429:
        return "The server is asked too much: draw less at a time, or try again later."
    if 300 <= status < 400:
        return "The server sends the request elsewhere, where the key does not follow: give the address it points to."
    if status >= 500 or status in _PASSING:
        return "The server is overloaded or broken: look at its log, or try again later."
    return "The server cannot take this request as it is: check the settings it names, or choose its own dialect."
