"""The OpenAI wire format, described once: paths, server-sent events, and the fields read and written.

The samplers read it; the proxy, the lab's server and the fake server write it.
Requests differ by server: see `ServerDialect`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import orjson

from breadth.base.errors import ServerError
from breadth.runtime.dialect import CHAT_PATH

MODELS_PATH = "/v1/models"
MAX_EVENT_BYTES = 32 * 1024 * 1024
"""Bytes of one event at most: the log-probs of a whole vocabulary fit several times over."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""A stream may begin with it."""
DONE_DATA = b"[DONE]"
"""Data of the event that ends a stream."""
DONE_EVENT = b"data: " + DONE_DATA + b"\n\n"
"""The event that ends a stream."""


class EventParser:
    """Collects bytes and returns the data of every complete server-sent event.

    Comments (pings of a server that has nothing to send yet), names, ids and events without data are skipped. Several
    data lines of one event are joined by newlines, as the standard says; lines may end in CR LF.
    """

    __slots__ = ("_rest", "_size", "_started")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the data of the events they complete, in order."""
        if b"\n" not in chunk and b"\r" not in chunk:
            return self._keep(chunk)
        if self._rest:
            chunk = b"".join([*self._rest, chunk])
            self._rest.clear()
            self._size = 0
        if not self._started:
            self._started, chunk = True, chunk.removeprefix(BYTE_ORDER_MARK)
        if b"\r" in chunk:
            held = b"\r" if chunk.endswith(b"\r") else b""  # it may be half of a line end, and waits
            chunk = chunk[: len(chunk) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held
        end = chunk.rfind(b"\n\n")
        if end + 2 < len(chunk):
            self._keep(chunk[end + 2 :] if end >= 0 else chunk)
        return split_events(chunk[:end]) if end >= 0 else []

    def finish(self) -> list[bytes]:
        """Return the data of an event at the end of the stream that lacks its empty line."""
        rest = b"".join(self._rest).removeprefix(BYTE_ORDER_MARK).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._rest.clear()
        return split_events(rest)

    def _keep(self, chunk: bytes) -> list[bytes]:
        self._rest.append(chunk)
        self._size += len(chunk)
        if self._size > MAX_EVENT_BYTES:
            raise ServerError(
                f"The server sent more than {MAX_EVENT_BYTES // 2**20} MiB without ending one event of its stream.",
                "Ask for fewer log-probs at each token, or look at what answers under this address.",
            )
        return []


def split_events(chunk: bytes) -> list[bytes]:
    """Return the data of the events in a chunk, which empty lines separate."""
    if chunk[:6] == b"data: ":
        events = chunk[6:].split(b"\n\ndata: ")
        # When no other line ends are left, each event is a single line of data: what servers send nearly always.
        if chunk.count(b"\n") == 2 * (len(events) - 1):
            return list(filter(None, events))
    found = []
    for block in chunk.split(b"\n\n"):
        lines = [line[5:] for line in block.split(b"\n") if line[:5] == b"data:"]
        found.append(b"\n".join(line[1:] if line[:1] == b" " else line for line in lines))
    return list(filter(None, found))


def format_event(content: Mapping[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + orjson.dumps(content) + b"\n\n"


MAX_TOKEN_COUNT = 2**40
"""A larger count of tokens is not believed."""


class Alternative(msgspec.Struct, gc=False):
    """One of the likeliest tokens at a position."""

    logprob: float | None = None
    """Its log-prob; None where the server writes minus infinity as null."""


class TokenLogprob(msgspec.Struct, gc=False):
    """A token that was sampled."""

    token: str | None = ""
    """Its text."""
    logprob: float | None = None
    """Its log-prob."""
    top_logprobs: list[Alternative] | None = []
    """The likeliest tokens at its position."""


class Logprobs(msgspec.Struct, gc=False):
    """Log-probs of one chunk, in the chat format or in the older one of plain completions."""

    content: list[TokenLogprob] | None = None
    """One entry per token (chats; llama.cpp everywhere)."""
    tokens: list[str] | None = None
    """Texts of the tokens (plain completions)."""
    token_logprobs: list[float | None] | None = None
    """Their log-probs."""
    top_logprobs: list[dict[str, float | None] | None] | None = None
    """Text -> log-prob of the likeliest tokens at each."""


class FunctionDelta(msgspec.Struct, gc=False):
    """A piece of a function call."""

    name: str | None = None
    """Name of the function; comes once."""
    arguments: str | None = None
    """Next piece of its arguments."""


class ToolDelta(msgspec.Struct, gc=False):
    """A piece of a tool call."""

    index: int | None = None
    """Which call of the reply it belongs to."""
    id: str | None = None
    """Id of the call; comes once."""
    type: str | None = None
    """``function``."""
    function: FunctionDelta | None = None
    """The function called, with its arguments."""


class Delta(msgspec.Struct, gc=False):
    """What a chunk adds to a chat reply."""

    content: str | None = None
    """Text of the reply."""
    reasoning_content: str | None = None
    """Thinking (llama.cpp, SGLang, DeepSeek, older vLLM)."""
    reasoning: str | None = None
    """Thinking (newer vLLM, OpenRouter)."""
    tool_calls: list[ToolDelta] | None = None
    """Pieces of tool calls."""
    refusal: str | None = None
    """Text of a refusal, where the server separates it."""


class Choice(msgspec.Struct, gc=False):
    """The part of a chunk that belongs to one completion."""

    index: int | None = 0
    """Which completion of the request; we ask for one only."""
    delta: Delta | None = None
    """What it adds (chats)."""
    text: str | None = None
    """What it adds (plain completions)."""
    logprobs: Logprobs | None = None
    """Log-probs of the tokens it adds."""
    finish_reason: str | None = None
    """Why the completion ended; only in its last chunk."""


class PromptDetails(msgspec.Struct, gc=False):
    """How the prompt was read."""

    cached_tokens: Any = None
    """Tokens of it found in the cache."""

    def __post_init__(self) -> None:
        self.cached_tokens = valid_count(self.cached_tokens)


class CompletionDetails(msgspec.Struct, gc=False):
    """How the completion was written."""

    reasoning_tokens: Any = None
    """Tokens of thinking."""

    def __post_init__(self) -> None:
        self.reasoning_tokens = valid_count(self.reasoning_tokens)


class Usage(msgspec.Struct, gc=False):
    """What the request cost, as the server counts it: whole numbers, or None where its number cannot be a count."""

    prompt_tokens: Any = None
    """Tokens read."""
    completion_tokens: Any = None
    """Tokens written."""
    prompt_tokens_details: PromptDetails | None = None
    """Of those read, the cached ones."""
    completion_tokens_details: CompletionDetails | None = None
    """Of those written, the thinking."""

    def __post_init__(self) -> None:
        self.prompt_tokens = valid_count(self.prompt_tokens)
        self.completion_tokens = valid_count(self.completion_tokens)


class Chunk(msgspec.Struct, gc=False):
    """One event of a stream."""

    choices: list[Choice] | None = []
    """What it adds to completions; empty in the event that brings the usage."""
    usage: Usage | None = None
    """What the request cost; in the last event, in all, or never."""
    model: str | None = None
    """Model that writes."""
    error: Any = None
    """The error, where one happens in a stream that started with status 200."""
    object: str | None = None
    """``error`` in some servers' error events."""
    message: Any = None
    """Message of such an event."""


class Model(msgspec.Struct, gc=False):
    """A model that a server lists."""

    id: str
    """Its name."""


class ModelList(msgspec.Struct, gc=False):
    """The list of a server's models."""

    data: list[Model] = []
    """One entry per model."""


CHUNK_DECODER = msgspec.json.Decoder(Chunk)
"""Decodes one event."""
MODELS_DECODER = msgspec.json.Decoder(ModelList)
"""Decodes the list of models."""


def valid_count(value: Any) -> int | None:
    """Return a token count as a server sent it; None for what cannot be one: negative, absurdly large, no number."""
    return int(value) if isinstance(value, (int, float)) and 0 <= value <= MAX_TOKEN_COUNT else None


def read_usage(table: Mapping[str, Any]) -> Usage:
    """Return the usage of a reply that is passed on as a table; details of another shape are ignored."""
    details = table.get("prompt_tokens_details")
    cached = PromptDetails(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Usage(table.get("prompt_tokens"), table.get("completion_tokens"), cached)


def to_chat_logprobs(logprobs: Logprobs) -> list[TokenLogprob]:
    """Convert log-probs from the older format of plain completions to that of chats."""
    values = logprobs.token_logprobs or []
    texts = logprobs.tokens or [""] * len(values)
    tops = logprobs.top_logprobs or [None] * len(values)
    return [
        TokenLogprob(text, value, [Alternative(logprob) for logprob in (top or {}).values()])
        for text, value, top in zip(texts, values, tops, strict=False)
    ]


def reply_head(path: str, name: str, model: str, *, stream: bool) -> dict[str, Any]:
    """Return the fields that a reply, or each event of a streamed one, begins with; ``name`` makes its id unique."""
    chat = path == CHAT_PATH
    return {
        "id": ("chatcmpl-" if chat else "cmpl-") + name,
        "object": ("chat.completion.chunk" if stream else "chat.completion") if chat else "text_completion",
        "created": int(time.time()),
        "model": model,
    }


def usage_body(prompt_tokens: int, completion_tokens: int, *, cached_tokens: int) -> dict[str, Any]:
    """Return the object ``usage`` of a reply."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def token_entry(text: str, logprob: float) -> dict[str, Any]:
    """Return a token with its log-prob in the format of chats."""
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def chat_logprob_entry(text: str, logprob: float, top: Iterable[tuple[str, float]]) -> dict[str, Any]:
    """Return a sampled token and the likeliest ones at its position in the format of chats."""
    return token_entry(text, logprob) | {"top_logprobs": [token_entry(*pair) for pair in top]}


def error_body(message: str, kind: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return the body of a reply with an error."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def model_list_body(models: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the body of ``/v1/models`` for models and their owners."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": owner} for name, owner in models],
    }
