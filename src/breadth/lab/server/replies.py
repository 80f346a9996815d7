"""What the served reasoner answers with: whole replies and the events of streams, in the OpenAI schema."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

import orjson

from breadth.lab.server.requests import Wanted
from breadth.lab.server.writing import Entry, Piece, Writing
from breadth.runtime.samplers.wire import DONE, event


class Replies:
    """The replies to one request, in the schema of the path it was sent to."""

    def __init__(self, wanted: Wanted, model: str) -> None:
        self._wanted = wanted
        self._stream_kind, whole = (
            ("chat.completion.chunk", "chat.completion") if wanted.chat else ("text_completion", "text_completion")
        )
        name = ("chatcmpl-" if wanted.chat else "cmpl-") + secrets.token_hex(12)
        self._head = {"id": name, "object": whole, "created": int(time.time()), "model": model}
        self._lengths = [len(wanted.before) if not wanted.chat else 0] * wanted.replies

    def whole(self, writings: Sequence[Writing], pieces: Sequence[Sequence[Piece]]) -> bytes:
        """Return the body of a reply that is not streamed."""
        choices = [self._choice(writing, told) for writing, told in zip(writings, pieces, strict=True)]
        return orjson.dumps(self._head | {"choices": choices, "usage": self._usage(writings)})

    def first(self, writing: Writing) -> bytes:
        """Return the event that opens a streamed reply; plain completions have none."""
        if not self._wanted.chat:
            return b""
        return self._event(
            {"index": writing.index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        )

    def piece(self, writing: Writing, piece: Piece) -> bytes:
        """Return the event of one token."""
        added: dict[str, Any] = {"text": piece.shown}
        if self._wanted.chat:
            added = {"delta": {"reasoning_content" if piece.thought else "content": piece.shown}}
        entries = [] if piece.entry is None else [piece.entry]
        return self._event(
            {"index": writing.index, **added, "logprobs": self._logprobs(writing.index, entries), "finish_reason": None}
        )

    def last(self, writing: Writing) -> bytes:
        """Return the event that ends a streamed reply."""
        added: dict[str, Any] = {"delta": {}} if self._wanted.chat else {"text": ""}
        return self._event({"index": writing.index, **added, "logprobs": None, "finish_reason": writing.finish})

    def end(self, writings: Sequence[Writing]) -> bytes:
        """Return what ends a stream: what was used, where that was asked for, and the end mark."""
        used = self._head | {"object": self._stream_kind, "choices": [], "usage": self._usage(writings)}
        return (event(used) if self._wanted.counted else b"") + DONE

    def _event(self, choice: dict[str, Any]) -> bytes:
        return event(self._head | {"object": self._stream_kind, "choices": [choice]})

    def _choice(self, writing: Writing, pieces: Sequence[Piece]) -> dict[str, Any]:
        text = "".join(piece.shown for piece in pieces if not piece.thought)
        entries = [piece.entry for piece in pieces if piece.entry is not None]
        told: dict[str, Any] = {"text": text}
        if self._wanted.chat:
            thought = "".join(piece.shown for piece in pieces if piece.thought)
            told = {
                "message": {"role": "assistant", "content": text} | ({"reasoning_content": thought} if thought else {})
            }
        return {
            "index": writing.index,
            **told,
            "logprobs": self._logprobs(writing.index, entries),
            "finish_reason": writing.finish,
        }

    def _logprobs(self, index: int, entries: Sequence[Entry]) -> dict[str, Any] | None:
        """Return log-probs in the form of chats, or in the older one of plain completions: parallel lists."""
        if self._wanted.alternatives is None or (self._wanted.stream and not entries):
            return None
        if self._wanted.chat:
            return {"content": [_chat_entry(entry) for entry in entries]}
        offsets = []
        for entry in entries:
            offsets.append(self._lengths[index])
            self._lengths[index] += len(entry.text)
        return {
            "tokens": [entry.text for entry in entries],
            "token_logprobs": [entry.logprob for entry in entries],
            "top_logprobs": [dict(entry.top) for entry in entries],
            "text_offset": offsets,
        }

    def _usage(self, writings: Sequence[Writing]) -> dict[str, Any]:
        read, written = len(self._wanted.tokens), sum(writing.tokens for writing in writings)
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "completion_tokens_details": {"reasoning_tokens": sum(writing.thinking for writing in writings)},
        }


def _chat_entry(entry: Entry) -> dict[str, Any]:
    return _named(entry.text, entry.logprob) | {"top_logprobs": [_named(text, logprob) for text, logprob in entry.top]}


def _named(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}
