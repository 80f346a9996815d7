"""The fields of a streamed reply that are read, and nothing else: everything undeclared is skipped while decoding."""

from __future__ import annotations

from typing import Any

import msgspec

MOST_TOKENS = 2**40
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
        self.cached_tokens = counted(self.cached_tokens)


class CompletionDetails(msgspec.Struct, gc=False):
    """How the completion was written."""

    reasoning_tokens: Any = None
    """Tokens of thinking."""

    def __post_init__(self) -> None:
        self.reasoning_tokens = counted(self.reasoning_tokens)


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
        self.prompt_tokens, self.completion_tokens = counted(self.prompt_tokens), counted(self.completion_tokens)


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


class Models(msgspec.Struct, gc=False):
    """The list of a server's models."""

    data: list[Model] = []
    """One entry a model."""


CHUNKS = msgspec.json.Decoder(Chunk)
"""Decodes one event."""
MODELS = msgspec.json.Decoder(Models)
"""Decodes the list of models."""


def counted(told: Any) -> int | None:
    """Return a count of tokens as a server told it; None for what cannot be one: less than nothing, beyond all measure, no number."""
    return int(told) if isinstance(told, (int, float)) and 0 <= told <= MOST_TOKENS else None


def in_chat_form(logprobs: Logprobs) -> list[TokenLogprob]:
    """Return log-probs of the older form, that of plain completions, in the form of chats."""
    values = logprobs.token_logprobs or []
    texts = logprobs.tokens or [""] * len(values)
    tops = logprobs.top_logprobs or [None] * len(values)
    return [
        TokenLogprob(text, value, [Alternative(one) for one in (top or {}).values()])
        for text, value, top in zip(texts, values, tops, strict=False)
    ]
