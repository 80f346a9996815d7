"""The wire format: server-sent events, and the fields of a streamed reply that are read."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from breadth.base.errors import ServerError

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""Bytes of one event at most: the log-probs of a whole vocabulary fit several times over."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""The byte order mark, which a stream may begin with."""
DONE_EVENT = b"data: [DONE]\n\n"
"""The event that ends a stream of the OpenAI schema."""


def format_event(content: dict[str, Any]) -> bytes:
    """Return one event."""
    return b"data: " + orjson.dumps(content) + b"\n\n"


class EventParser:
    """Gathers bytes and gives out the data of every event that is complete.

    Comments (the pings of a server that has nothing to say yet), names, ids and events without data are left out;
    several data lines of one event are joined by newlines, as the standard has it; lines may end in CR LF.
    """

    __slots__ = ("_begun", "_rest", "_size")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._size = 0
        self._begun = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the data of the events they complete, in order."""
        if b"\n" not in chunk and b"\r" not in chunk:
            return self._keep(chunk)
        if self._rest:
            chunk = b"".join([*self._rest, chunk])
            self._rest.clear()
            self._size = 0
        if not self._begun:
            self._begun, chunk = True, chunk.removeprefix(BYTE_ORDER_MARK)
        if b"\r" in chunk:
            chunk = self._plain(chunk)
        end = chunk.rfind(b"\n\n")
        if end + 2 < len(chunk):
            self._keep(chunk[end + 2 :] if end >= 0 else chunk)
        return _complete(chunk[:end]) if end >= 0 else []

    def finish(self) -> list[bytes]:
        """Return the data of an event at the end of the stream that lacks its empty line."""
        rest = b"".join(self._rest).removeprefix(BYTE_ORDER_MARK).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._rest.clear()
        return _complete(rest)

    def _plain(self, chunk: bytes) -> bytes:
        """Return the bytes with plain line ends; a CR at the very end may be half of one, and waits."""
        held = b"\r" if chunk.endswith(b"\r") else b""
        chunk = chunk[: len(chunk) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return chunk + held

    def _keep(self, chunk: bytes) -> list[bytes]:
        self._rest.append(chunk)
        self._size += len(chunk)
        if self._size > MAX_EVENT_BYTES:
            raise ServerError(
                f"The server sent more than {MAX_EVENT_BYTES // 2**20} MiB without ending one event of its stream.",
                "Ask for fewer log-probs at each token, or look at what answers under this address.",
            )
        return []


def _complete(chunk: bytes) -> list[bytes]:
    """Return the data of the events in a chunk, which stand apart by empty lines."""
    if chunk[:6] == b"data: ":
        events = chunk[6:].split(b"\n\ndata: ")
        # When no other line ends are left, each event is a single line of data: what servers send nearly always.
        if chunk.count(b"\n") == 2 * (len(events) - 1):
            return list(filter(None, events))
    return [data for block in chunk.split(b"\n\n") if (data := _data(block))]


def _data(block: bytes) -> bytes:
    """Return the data of one event; empty when it has none."""
    lines = [line[5:] for line in block.split(b"\n") if line[:5] == b"data:"]
    return b"\n".join(line[1:] if line[:1] == b" " else line for line in lines)


MAX_TOKEN_COUNT = 2**40
"""A count of tokens beyond this is no count."""


class Alternative(msgspec.Struct, gc=False):
    """One of the likeliest tokens at a place."""

    logprob: float | None = None
    """Its log-prob; none where the server writes minus infinity as null."""


class TokenLogprob(msgspec.Struct, gc=False):
    """A token that was drawn."""

    token: str | None = ""
    """Its text."""
    logprob: float | None = None
    """Its log-prob."""
    top_logprobs: list[Alternative] | None = []
    """The likeliest tokens there."""


class Logprobs(msgspec.Struct, gc=False):
    """Log-probs of one chunk, in the form of chats or in the older one of plain completions."""

    content: list[TokenLogprob] | None = None
    """One entry a token (chats; llama.cpp everywhere)."""
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
    """What is called, with what."""


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
    """Text of a refusal, where the server keeps it apart."""


class Choice(msgspec.Struct, gc=False):
    """What a chunk says about one completion."""

    index: int | None = 0
    """Which completion of the request; only one is asked for."""
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
    """What the request cost, by the server's own count: whole numbers, or none where what it said cannot be one."""

    prompt_tokens: Any = None
    """Tokens read."""
    completion_tokens: Any = None
    """Tokens written."""
    prompt_tokens_details: PromptDetails | None = None
    """Of those read, the cached ones."""
    completion_tokens_details: CompletionDetails | None = None
    """Of those written, the thinking."""

    def __post_init__(self) -> None:
        self.prompt_tokens, self.completion_tokens = (
            valid_count(self.prompt_tokens),
            valid_count(self.completion_tokens),
        )


class Chunk(msgspec.Struct, gc=False):
    """One event of a stream."""

    choices: list[Choice] | None = []
    """What it adds to completions; empty in the event that brings the usage."""
    usage: Usage | None = None
    """What the request cost; in the last event, in all, or never."""
    model: str | None = None
    """Model that writes."""
    error: Any = None
    """What went wrong: such an event stands in a stream that began with status 200."""
    object: str | None = None
    """``error`` in some servers' error events."""
    message: Any = None
    """What such an event says."""


class Model(msgspec.Struct, gc=False):
    """A model that a server lists."""

    id: str
    """Its name."""


class ModelList(msgspec.Struct, gc=False):
    """The list of a server's models."""

    data: list[Model] = []
    """One entry a model."""


CHUNK_DECODER = msgspec.json.Decoder(Chunk)
"""Decodes one event."""
MODELS_DECODER = msgspec.json.Decoder(ModelList)
"""Decodes the list of models."""


def valid_count(told: Any) -> int | None:
    """Return a count of tokens as a server told it; None for what cannot be one: less than nothing, beyond all measure, no number."""
    return int(told) if isinstance(told, (int, float)) and 0 <= told <= MAX_TOKEN_COUNT else None


def to_chat_logprobs(logprobs: Logprobs) -> list[TokenLogprob]:
    """Return log-probs of the older form, that of plain completions, in the form of chats."""
    values = logprobs.token_logprobs or []
    texts = logprobs.tokens or [""] * len(values)
    tops = logprobs.top_logprobs or [None] * len(values)
    return [
        TokenLogprob(text, value, [Alternative(one) for one in (top or {}).values()])
        for text, value, top in zip(texts, values, tops, strict=False)
    ]


CHAT_PATH = "/v1/chat/completions"


COMPLETIONS_PATH = "/v1/completions"


DONE_DATA = b"[DONE]"
"""Data of the event that ends a stream."""
