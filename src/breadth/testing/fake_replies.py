"""The replies of the fake server: tokens, and their form in the OpenAI schema."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from breadth.runtime.dialect import CHAT_PATH
from breadth.runtime.wire import DONE_EVENT, chat_logprob_entry, error_body, format_event, reply_head, usage_body


@dataclass(frozen=True)
class ReplyToken:
    """One token of a reply."""

    text: str
    """What it adds to the text."""
    logprob: float = -0.1
    """Its log-prob."""
    others: tuple[tuple[str, float], ...] = ()
    """Alternatives with their log-probs; without any, some are made up that share the rest of the probability."""

    def top_tokens(self, count: int) -> list[tuple[str, float]]:
        """Return the ``count`` most likely tokens at this position, this one among them, most likely first."""
        others = self.others
        if not others:
            # Each takes half of what is left, so the probabilities never add up to more than 1.
            rest = math.log(max(-math.expm1(self.logprob), 1e-9))
            others = tuple((f"~{number}", rest - number * math.log(2)) for number in range(1, count))
        return sorted([(self.text, self.logprob), *others], key=lambda pair: -pair[1])[:count]


@dataclass(frozen=True)
class Reply:
    """One completion of the fake server: ``Reply.from_text("the answer is 4")``, or token by token."""

    tokens: tuple[ReplyToken, ...] = ()
    """The tokens of the text; none for an empty text."""
    reasoning: tuple[ReplyToken, ...] = ()
    """The tokens of the thinking, sent before the text in a field of its own (chat only)."""
    finish: str = "stop"
    """The finish reason; a request that allows fewer tokens gets ``length``."""
    wait: float = 0.0
    """Seconds before the first token."""
    delay: float = 0.0
    """Seconds from one token to the next."""
    prompt_tokens: int = 10
    """Prompt tokens in the usage."""
    cached_tokens: int = 0
    """Cached prompt tokens in the usage."""
    usage: bool = True
    """Whether the usage is sent."""
    reasoning_field: str = "reasoning_content"
    """Name of the thinking field; newer vLLM calls it ``reasoning``, other servers ``reasoning_content``."""

    @classmethod
    def from_text(cls, text: str, reasoning: str = "", logprob: float = -0.1, **fields: Any) -> Reply:
        """Make a reply from texts, one token per word, all equally likely."""
        return cls(split_tokens(text, logprob), split_tokens(reasoning, logprob), **fields)

    @property
    def text(self) -> str:
        """The reply as one text."""
        return "".join(token.text for token in self.tokens)

    def limit_to(self, request: dict[str, Any]) -> Reply:
        """Return the reply as a request allows it: at most ``max_tokens``, ended before the first stop text."""
        limit = request.get("max_completion_tokens") or request.get("max_tokens")
        stop = request.get("stop") or ()
        ends = [self.text.find(word) for word in ([stop] if isinstance(stop, str) else stop)]
        end = min((end for end in ends if end >= 0), default=len(self.text))
        reply = (
            self if end == len(self.text) else replace(self, tokens=truncate_tokens(self.tokens, end), finish="stop")
        )
        if limit is None or len(reply.reasoning) + len(reply.tokens) <= limit:
            return reply
        thought = reply.reasoning[:limit]
        return replace(reply, reasoning=thought, tokens=reply.tokens[: limit - len(thought)], finish="length")


def split_tokens(text: str, logprob: float = -0.1) -> tuple[ReplyToken, ...]:
    """Split a text into tokens, one per word with the space before it; joined they give the text."""
    return tuple(ReplyToken(piece, logprob) for piece in re.findall(r"\s*\S+|\s+$", text))


def completion_body(replies: list[Reply], request: dict[str, Any], path: str, name: str, model: str) -> dict[str, Any]:
    """Return the body of a reply that is not streamed."""
    choice = chat_choice if path == CHAT_PATH else text_choice
    head = fixed_head(path, name, model, stream=False)
    body = head | {"choices": [choice(reply, index, top_logprobs_of(request)) for index, reply in enumerate(replies)]}
    return body | ({"usage": total_usage(replies)} if all(reply.usage for reply in replies) else {})


def completion_events(
    replies: list[Reply], request: dict[str, Any], path: str, name: str, model: str
) -> Iterator[bytes]:
    """Yield the events of a stream: one per token, choices in turn, then ends, usage if requested, [DONE]."""
    head = fixed_head(path, name, model, stream=True)
    chunks = chat_chunks if path == CHAT_PATH else text_chunks
    lanes = [chunks(reply, index, top_logprobs_of(request)) for index, reply in enumerate(replies)]
    for row in zip_longest(*lanes):
        yield from (format_event(head | {"choices": [choice]}) for choice in row if choice is not None)
    if (request.get("stream_options") or {}).get("include_usage") and all(reply.usage for reply in replies):
        yield format_event(head | {"choices": [], "usage": total_usage(replies)})
    yield DONE_EVENT


def fixed_head(path: str, name: str, model: str, *, stream: bool) -> dict[str, Any]:
    """Return the first fields of a reply, with the name as its id and without the time, so that replies compare."""
    return reply_head(path, name, model, stream=stream) | {"id": name, "created": 0}


def error_with_status(message: str, status: int, kind: str = "server_error") -> dict[str, Any]:
    """Return an error in the OpenAI schema with the HTTP status as its code, as vLLM sends it."""
    return {"error": error_body(message, kind)["error"] | {"code": status}}


def top_logprobs_of(request: dict[str, Any]) -> int | None:
    """Return the number of alternatives that a request asks for; None if it asks for no log-probs."""
    asked = request.get("logprobs")
    if asked is None or asked is False:
        return None
    return int(request.get("top_logprobs") or 0) if asked is True else int(asked)


def total_usage(replies: list[Reply]) -> dict[str, Any]:
    """Return the usage of the choices of one request."""
    written = sum(len(reply.reasoning) + len(reply.tokens) for reply in replies)
    return usage_body(replies[0].prompt_tokens, written, cached_tokens=replies[0].cached_tokens)


def chat_choice(reply: Reply, index: int, top: int | None) -> dict[str, Any]:
    """Return a whole choice of a chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.reasoning:
        message[reply.reasoning_field] = "".join(token.text for token in reply.reasoning)
    content = (
        None if top is None else {"content": [chat_logprob(token, top) for token in (*reply.reasoning, *reply.tokens)]}
    )
    return {"index": index, "message": message, "logprobs": content, "finish_reason": reply.finish}


def chat_chunks(reply: Reply, index: int, top: int | None) -> Iterator[dict[str, Any]]:
    """Yield the choices of a streamed chat completion."""
    yield {"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    sent = [(reply.reasoning_field, token) for token in reply.reasoning] + [
        ("content", token) for token in reply.tokens
    ]
    for field, token in sent:
        logprobs = {} if top is None else {"logprobs": {"content": [chat_logprob(token, top)]}}
        yield {"index": index, "delta": {field: token.text}, "finish_reason": None} | logprobs
    yield {"index": index, "delta": {}, "finish_reason": reply.finish}


def chat_logprob(token: ReplyToken, top: int) -> dict[str, Any]:
    """Return the log-prob of a token with its alternatives."""
    return chat_logprob_entry(token.text, token.logprob, token.top_tokens(top))


def text_choice(reply: Reply, index: int, top: int | None) -> dict[str, Any]:
    """Return a whole choice of a text completion."""
    return {
        "index": index,
        "text": reply.text,
        "logprobs": text_logprobs(reply.tokens, top, 0),
        "finish_reason": reply.finish,
    }


def text_chunks(reply: Reply, index: int, top: int | None) -> Iterator[dict[str, Any]]:
    """Yield the choices of a streamed text completion."""
    offset = 0
    for token in reply.tokens:
        yield {
            "index": index,
            "text": token.text,
            "logprobs": text_logprobs((token,), top, offset),
            "finish_reason": None,
        }
        offset += len(token.text)
    yield {"index": index, "text": "", "logprobs": None, "finish_reason": reply.finish}


def text_logprobs(tokens: tuple[ReplyToken, ...], top: int | None, offset: int) -> dict[str, Any] | None:
    """Return log-probs in the older form of text completions: parallel lists."""
    if top is None:
        return None
    offsets = [offset]
    for token in tokens:
        offsets.append(offsets[-1] + len(token.text))
    return {
        "tokens": [token.text for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [dict(token.top_tokens(top)) for token in tokens],
        "text_offset": offsets[:-1],
    }


def truncate_tokens(tokens: tuple[ReplyToken, ...], end: int) -> tuple[ReplyToken, ...]:
    """Return the tokens of the first ``end`` characters, the last one shortened if needed."""
    kept: list[ReplyToken] = []
    for token in tokens:
        if end <= 0:
            break
        kept.append(replace(token, text=token.text[:end]))
        end -= len(token.text)
    return tuple(kept)
