"""Replies of the served reasoner: written token by token, streamed from the engine, encoded in the OpenAI schema.

Text is held back while it may be the beginning of a stop text. Tokens reach the event loop in batches.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import orjson

from breadth.lab.server.requests import CompletionRequest
from breadth.lab.task.vocabulary import RoutesTokens
from breadth.runtime.wire import DONE_EVENT, chat_logprob_entry, format_event, reply_head

if TYPE_CHECKING:
    from breadth.lab.sampling.engine import Engine, SampledToken, Ticket


@dataclass(frozen=True)
class ShownLogprob:
    """The log-prob of a token, with the likeliest ones at its place."""

    text: str
    """What the token adds."""
    logprob: float
    """Its log-prob."""
    top: tuple[tuple[str, float], ...]
    """The likeliest tokens there, by text, likeliest first."""


@dataclass(frozen=True)
class ReplyPiece:
    """What a token adds to a reply."""

    raw: str
    """As the model wrote it."""
    shown: str
    """As the client is shown it: without the marks of thinking where that is set apart."""
    thought: bool
    """Whether it belongs to thinking that is set apart."""
    entry: ShownLogprob | None
    """Its log-prob, where asked for; None as well for what a stop text left of a token."""


class ReplyWriter:
    """One reply of a request.

    Thinking is set apart from the answer when ``apart``, else it stays in the text with its marks.
    """

    def __init__(
        self, wanted: CompletionRequest, wording: RoutesTokens, index: int = 0, *, apart: bool = False
    ) -> None:
        self.index = index
        """Which reply of the request it is."""
        self.finish: str | None = None
        """Why it ended; None while it goes on."""
        self.tokens = 0
        """Tokens drawn, the end and those that a stop text swallowed included."""
        self.thinking = 0
        """Of those, the ones between the marks of thinking."""
        self._wording, self._stops, self._alternatives = wording, wanted.sampling.stop, wanted.alternatives
        self._apart = apart and wanted.chat
        self._before, self._fresh = wanted.prefix[-1:], False
        self._thinks = wording.thinks(wanted.tokens)
        self._held: list[ReplyPiece] = []

    def take(self, token: SampledToken) -> list[ReplyPiece]:
        """Record a token and return the pieces that can be shown."""
        if self.finish is not None:
            return []  # sampled before the engine learnt that the reply has ended
        self.tokens += 1
        if token.id != self._wording.end:
            self._held.append(self._piece(token))
        if (end := self._stop_position()) is not None:
            self.finish = "stop"
            return self._release_before(end)
        self.finish = token.last or None
        return self._release(0 if self.finish else self._possible_stop_length())

    def _piece(self, token: SampledToken) -> ReplyPiece:
        """Return what a token adds, and follow the marks of thinking."""
        raw = self._wording.text(token.id, self._before)
        opens = token.id == self._wording.open and not self._thinks
        closes = token.id == self._wording.close and self._thinks
        thought = opens or self._thinks
        self.thinking += thought and not opens and not closes
        shown = raw.lstrip() if self._fresh and self._apart else raw
        piece = ReplyPiece(
            raw, "" if self._apart and (opens or closes) else shown, thought and self._apart, self._entry(token, raw)
        )
        self._thinks, self._fresh, self._before = thought and not closes, opens or closes, raw[-1:]
        return piece

    def _entry(self, token: SampledToken, raw: str) -> ShownLogprob | None:
        if self._alternatives is None:
            return None
        top = tuple(
            (self._wording.text(other, self._before), logprob) for other, logprob in token.top[: self._alternatives]
        )
        return ShownLogprob(raw, token.logprob, top)

    def _stop_position(self) -> int | None:
        """Return where in the text held back the first stop text begins."""
        text = "".join(piece.raw for piece in self._held)
        return min((place for stop in self._stops if (place := text.find(stop)) >= 0), default=None)

    def _possible_stop_length(self) -> int:
        """Return how many characters at the end may be the beginning of a stop text."""
        text = "".join(piece.raw for piece in self._held)
        return max(
            (size for stop in self._stops for size in range(1, len(stop)) if text.endswith(stop[:size])), default=0
        )

    def _release(self, doubtful: int) -> list[ReplyPiece]:
        """Give out the pieces that end before the last so many characters."""
        kept = 0
        while doubtful > 0:
            kept += 1
            doubtful -= len(self._held[-kept].raw)
        out, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        return out

    def _release_before(self, end: int) -> list[ReplyPiece]:
        """Give out the text before a place; of a token that is cut in two, what is left has no log-prob."""
        out: list[ReplyPiece] = []
        for piece in self._held:
            if len(piece.raw) <= end:
                out.append(piece)
            elif end > 0:
                cut = "" if not piece.shown else piece.raw[:end]
                out.append(ReplyPiece(piece.raw[:end], cut, piece.thought, None))
            end -= len(piece.raw)
            if end <= 0:
                break
        return out


AddedPieces: TypeAlias = list[tuple[ReplyWriter, list[ReplyPiece]]]
"""Replies with the pieces that were added to them, in order of arrival."""


class ReplyStream:
    """Samples every reply of a request while the context is open; leaving it cancels what is still running.

    Tokens arrive in the engine's thread. They are queued, and the event loop is woken once for all that have arrived
    since it last looked.
    """

    def __init__(self, engine: Engine, wanted: CompletionRequest, writings: Sequence[ReplyWriter]) -> None:
        self._engine, self._wanted, self._writings = engine, wanted, writings
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[tuple[int, SampledToken | Exception]] = deque()
        self._woken, self._called = asyncio.Event(), False
        self._tickets: list[Ticket] = []

    def __enter__(self) -> Self:
        from breadth.lab.sampling.batch import CompletionJob

        sampling = replace(
            self._wanted.sampling, stop=()
        )  # a stop text may begin and end inside tokens: the writing looks for it
        try:
            for index, seed in enumerate(self._wanted.seeds()):
                note = partial(self._on_token, index)
                self._tickets.append(
                    self._engine.submit(CompletionJob(self._wanted.tokens, sampling, seed), note, note)
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        for ticket in self._tickets:
            ticket.cancel()

    async def batches(self) -> AsyncIterator[AddedPieces]:
        """Yield what is added to the replies until all have ended; raises what the engine failed with."""
        while any(writing.finish is None for writing in self._writings):
            await self._woken.wait()
            self._woken.clear()
            self._called = False
            if added := self._take_arrived():
                yield added

    def _take_arrived(self) -> AddedPieces:
        added: AddedPieces = []
        while self._arrived:
            index, token = self._arrived.popleft()
            if isinstance(token, Exception):
                raise token
            writing = self._writings[index]
            added.append((writing, writing.take(token)))
            if writing.finish is not None:
                self._tickets[index].cancel()  # it may have ended with a stop text, which the engine knows nothing of
        return added

    def _on_token(self, index: int, token: SampledToken | Exception) -> None:
        """Queue a token, or an error, in the engine's thread."""
        self._arrived.append((index, token))
        if not self._called:
            self._called = True
            with suppress(RuntimeError):  # the loop has ended before the engine
                self._loop.call_soon_threadsafe(self._woken.set)


class ReplyEncoder:
    """The replies to one request, in the schema of the path it was sent to."""

    def __init__(self, wanted: CompletionRequest, model: str) -> None:
        self._wanted = wanted
        self._head = reply_head(wanted.path, secrets.token_hex(12), model, stream=wanted.stream)
        self._lengths = [len(wanted.prefix) if not wanted.chat else 0] * wanted.replies

    def whole(self, writings: Sequence[ReplyWriter], pieces: Sequence[Sequence[ReplyPiece]]) -> bytes:
        """Return the body of a reply that is not streamed."""
        choices = [self._choice(writing, added) for writing, added in zip(writings, pieces, strict=True)]
        return orjson.dumps(self._head | {"choices": choices, "usage": self._usage(writings)})

    def first(self, writing: ReplyWriter) -> bytes:
        """Return the event that opens a streamed reply; plain completions have none."""
        if not self._wanted.chat:
            return b""
        return self._event(
            {"index": writing.index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        )

    def piece(self, writing: ReplyWriter, piece: ReplyPiece) -> bytes:
        """Return the event of one token."""
        added: dict[str, Any] = {"text": piece.shown}
        if self._wanted.chat:
            added = {"delta": {"reasoning_content" if piece.thought else "content": piece.shown}}
        entries = [] if piece.entry is None else [piece.entry]
        return self._event(
            {"index": writing.index, **added, "logprobs": self._logprobs(writing.index, entries), "finish_reason": None}
        )

    def last(self, writing: ReplyWriter) -> bytes:
        """Return the event that ends a streamed reply."""
        added: dict[str, Any] = {"delta": {}} if self._wanted.chat else {"text": ""}
        return self._event({"index": writing.index, **added, "logprobs": None, "finish_reason": writing.finish})

    def end(self, writings: Sequence[ReplyWriter]) -> bytes:
        """Return what ends a stream: what was used, where that was asked for, and the end mark."""
        used = self._head | {"choices": [], "usage": self._usage(writings)}
        return (format_event(used) if self._wanted.include_usage else b"") + DONE_EVENT

    def _event(self, choice: dict[str, Any]) -> bytes:
        return format_event(self._head | {"choices": [choice]})

    def _choice(self, writing: ReplyWriter, pieces: Sequence[ReplyPiece]) -> dict[str, Any]:
        text = "".join(piece.shown for piece in pieces if not piece.thought)
        entries = [piece.entry for piece in pieces if piece.entry is not None]
        added: dict[str, Any] = {"text": text}
        if self._wanted.chat:
            thought = "".join(piece.shown for piece in pieces if piece.thought)
            added = {
                "message": {"role": "assistant", "content": text} | ({"reasoning_content": thought} if thought else {})
            }
        return {
            "index": writing.index,
            **added,
            "logprobs": self._logprobs(writing.index, entries),
            "finish_reason": writing.finish,
        }

    def _logprobs(self, index: int, entries: Sequence[ShownLogprob]) -> dict[str, Any] | None:
        """Return log-probs in the form of chats, or in the older one of plain completions: parallel lists."""
        if self._wanted.alternatives is None or (self._wanted.stream and not entries):
            return None
        if self._wanted.chat:
            return {"content": [chat_logprob_entry(entry.text, entry.logprob, entry.top) for entry in entries]}
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

    def _usage(self, writings: Sequence[ReplyWriter]) -> dict[str, Any]:
        read, written = len(self._wanted.tokens), sum(writing.tokens for writing in writings)
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "completion_tokens_details": {"reasoning_tokens": sum(writing.thinking for writing in writings)},
        }
