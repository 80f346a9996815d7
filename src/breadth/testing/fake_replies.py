"""What the fake server says: replies made of tokens, and how they look in the OpenAI schema."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import orjson

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True)
class ReplyToken:
    """One token of a reply."""

    text: str
    """What it adds to the text."""
    logprob: float = -0.1
    """Its log-prob."""
    others: tuple[tuple[str, float], ...] = ()
    """Alternatives with their log-probs; when there are none, alternatives that share out the rest of the probability
    are made up.
    """

    def ranked(self, top: int) -> list[tuple[str, float]]:
        """Return the ``top`` likeliest tokens at this place, itself among the choices, likeliest first."""
        return sorted([(self.text, self.logprob), *(self.others or self._made_up(top))], key=lambda pair: -pair[1])[
            :top
        ]

    def _made_up(self, count: int) -> Iterator[tuple[str, float]]:
        # Each takes half of what is left, so the probabilities never add up to more than 1.
        rest = math.log(max(-math.expm1(self.logprob), 1e-9))
        return ((f"~{number}", rest - number * math.log(2)) for number in range(1, count))


@dataclass(frozen=True)
class Reply:
    """One completion the fake server gives: ``Reply.of("the answer is 4")``, or token by token."""

    tokens: tuple[ReplyToken, ...] = ()
    """The reply; none is an empty text."""
    reasoning: tuple[ReplyToken, ...] = ()
    """Thinking, sent before the reply in a field of its own (chat only)."""
    finish: str = "stop"
    """Reason given for the end; a request that allows fewer tokens gets ``length``."""
    wait: float = 0.0
    """Seconds before the first token."""
    delay: float = 0.0
    """Seconds from one token to the next."""
    prompt_tokens: int = 10
    """Tokens it says it read."""
    cached_tokens: int = 0
    """Tokens it says it had in its cache."""
    usage: bool = True
    """Whether it says what was used."""
    reasoning_field: str = "reasoning_content"
    """Name of the thinking field: llama.cpp, SGLang and older vLLM say ``reasoning_content``, newer vLLM ``reasoning``.
    """

    @classmethod
    def of(cls, text: str, reasoning: str = "", logprob: float = -0.1, **fields: Any) -> Reply:
        """Make a reply from texts, one token a word, all equally likely."""
        return cls(split_tokens(text, logprob), split_tokens(reasoning, logprob), **fields)

    @property
    def text(self) -> str:
        """The reply as one text."""
        return "".join(token.text for token in self.tokens)

    def within(self, request: dict[str, Any]) -> Reply:
        """Return the reply as a request allows it: at most ``max_tokens``, and ended before the first stop text."""
        limit = request.get("max_completion_tokens") or request.get("max_tokens")
        reply = self._before(request.get("stop") or ())
        if limit is None or len(reply.reasoning) + len(reply.tokens) <= limit:
            return reply
        thought = reply.reasoning[:limit]
        return replace(reply, reasoning=thought, tokens=reply.tokens[: limit - len(thought)], finish="length")

    def _before(self, stop: str | list[str] | tuple[str, ...]) -> Reply:
        text = self.text
        ends = [text.find(word) for word in ([stop] if isinstance(stop, str) else stop)]
        end = min((end for end in ends if end >= 0), default=len(text))
        return self if end == len(text) else replace(self, tokens=_cut(self.tokens, end), finish="stop")


def split_tokens(text: str, logprob: float = -0.1) -> tuple[ReplyToken, ...]:
    """Cut a text into tokens, one a word with the space before it; joined they are the text again."""
    return tuple(ReplyToken(piece, logprob) for piece in re.findall(r"\s*\S+|\s+$", text))


def whole_body(replies: list[Reply], request: dict[str, Any], path: str, name: str, model: str) -> dict[str, Any]:
    """Return the body of a reply that is not streamed."""
    choice = _chat_choice if path == CHAT else _text_choice
    body = {
        "id": name,
        "object": "chat.completion" if path == CHAT else "text_completion",
        "created": 0,
        "model": model,
        "choices": [choice(reply, index, _top(request)) for index, reply in enumerate(replies)],
    }
    return body | ({"usage": _usage(replies)} if all(reply.usage for reply in replies) else {})


def stream_events(replies: list[Reply], request: dict[str, Any], path: str, name: str, model: str) -> Iterator[bytes]:
    """Yield the server-sent events of a stream: one a token, several choices in turn, then the ends, the usage where asked for, [DONE]."""
    kind = "chat.completion.chunk" if path == CHAT else "text_completion"
    head = {"id": name, "object": kind, "created": 0, "model": model}
    pieces = _chat_pieces if path == CHAT else _text_pieces
    lanes = [pieces(reply, index, _top(request)) for index, reply in enumerate(replies)]
    for row in zip_longest(*lanes):
        yield from (event(head | {"choices": [choice]}) for choice in row if choice is not None)
    if (request.get("stream_options") or {}).get("include_usage") and all(reply.usage for reply in replies):
        yield event(head | {"choices": [], "usage": _usage(replies)})
    yield b"data: [DONE]\n\n"


def event(content: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + orjson.dumps(content) + b"\n\n"


def error_body(message: str, status: int, kind: str = "server_error") -> dict[str, Any]:
    """Return an error in the OpenAI shape."""
    return {"error": {"message": message, "type": kind, "param": None, "code": status}}


def _top(request: dict[str, Any]) -> int | None:
    """Return the number of alternatives a request asks for; None when it asks for no log-probs."""
    asked = request.get("logprobs")
    if asked is None or asked is False:
        return None
    return int(request.get("top_logprobs") or 0) if asked is True else int(asked)


def _usage(replies: list[Reply]) -> dict[str, Any]:
    written = sum(len(reply.reasoning) + len(reply.tokens) for reply in replies)
    return {
        "prompt_tokens": replies[0].prompt_tokens,
        "completion_tokens": written,
        "total_tokens": replies[0].prompt_tokens + written,
        "prompt_tokens_details": {"cached_tokens": replies[0].cached_tokens},
    }


def _chat_choice(reply: Reply, index: int, top: int | None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.reasoning:
        message[reply.reasoning_field] = "".join(token.text for token in reply.reasoning)
    content = (
        None if top is None else {"content": [_chat_logprob(token, top) for token in (*reply.reasoning, *reply.tokens)]}
    )
    return {"index": index, "message": message, "logprobs": content, "finish_reason": reply.finish}


def _chat_pieces(reply: Reply, index: int, top: int | None) -> Iterator[dict[str, Any]]:
    yield {"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    told = [(reply.reasoning_field, token) for token in reply.reasoning] + [
        ("content", token) for token in reply.tokens
    ]
    for field, token in told:
        logprobs = {} if top is None else {"logprobs": {"content": [_chat_logprob(token, top)]}}
        yield {"index": index, "delta": {field: token.text}, "finish_reason": None} | logprobs
    yield {"index": index, "delta": {}, "finish_reason": reply.finish}


def _chat_logprob(token: ReplyToken, top: int) -> dict[str, Any]:
    return _entry(token.text, token.logprob) | {"top_logprobs": [_entry(*pair) for pair in token.ranked(top)]}


def _entry(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def _text_choice(reply: Reply, index: int, top: int | None) -> dict[str, Any]:
    return {
        "index": index,
        "text": reply.text,
        "logprobs": _text_logprobs(reply.tokens, top, 0),
        "finish_reason": reply.finish,
    }


def _text_pieces(reply: Reply, index: int, top: int | None) -> Iterator[dict[str, Any]]:
    offset = 0
    for token in reply.tokens:
        yield {
            "index": index,
            "text": token.text,
            "logprobs": _text_logprobs((token,), top, offset),
            "finish_reason": None,
        }
        offset += len(token.text)
    yield {"index": index, "text": "", "logprobs": None, "finish_reason": reply.finish}


def _text_logprobs(tokens: tuple[ReplyToken, ...], top: int | None, offset: int) -> dict[str, Any] | None:
    """Return log-probs in the older shape that completions have: parallel lists."""
    if top is None:
        return None
    offsets = [offset]
    for token in tokens:
        offsets.append(offsets[-1] + len(token.text))
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [dict(token.ranked(top)) for token in tokens],
        "text_offset": offsets[:-1],
    }


def _cut(tokens: tuple[ReplyToken, ...], end: int) -> tuple[ReplyToken, ...]:
    """Return the tokens of the first ``end`` characters, the last one shortened where need be."""
    kept: list[ReplyToken] = []
    for token in tokens:
        if end <= 0:
            break
        kept.append(replace(token, text=token.text[:end]))
        end -= len(token.text)
    return tuple(kept)
