"""One completion assembled from its stream: text, thinking, tool calls, log-probs, confidences, cost; then checked."""

from __future__ import annotations

import math
from array import array
from collections.abc import MutableSequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from breadth.base.errors import ServerError
from breadth.inference.confidence import LOGPROB_FLOOR, token_confidence
from breadth.inference.halting import Watcher
from breadth.inference.records import Candidate, Finish
from breadth.runtime.sampler import Meter, SampleRequest
from breadth.runtime.samplers.server_errors import stream_error
from breadth.runtime.wire import (
    CHUNK_DECODER,
    DONE_DATA,
    Choice,
    Chunk,
    Delta,
    TokenLogprob,
    ToolDelta,
    Usage,
    to_chat_logprobs,
)


class CompletionBuilder:
    """Collects the events of a stream and holds the completion they add up to.

    Tokens are counted as they come: the log-prob entries of an event, or one for an event that brings text. That is a
    little too low (characters of several tokens, the end token and tokens swallowed by a stop text have no event of
    their own), so the server's own count replaces it as soon as it is sent.
    """

    def __init__(
        self,
        meter: Meter,
        *,
        url: str = "The server",
        prompt_tokens: int = 0,
        top: int = 0,
        watcher: Watcher | None = None,
        max_tokens: float = math.inf,
    ) -> None:
        self.meter = meter
        """Kept up to date with every event."""
        self.content: list[str] = []
        """Pieces of the reply."""
        self.reasoning: list[str] = []
        """Pieces of the thinking."""
        self.logprobs = array("f")
        """Log-prob of each token; NaN where none was sent."""
        self.confidences = array("f")
        """Confidence of each token; NaN where there is none."""
        self.tools: list[ToolDelta] = []
        """Pieces of tool calls."""
        self.refusals: list[str] = []
        """Pieces of a refusal."""
        self.usage: Usage | None = None
        """The server's own count."""
        self.model = ""
        """Model that writes."""
        self.finish: str | None = None
        """Why it ended, as the server names it."""
        self.done = False
        """Whether the end mark was seen."""
        self.halted = False
        """Whether the watcher ended it."""
        self.counted = 0
        """Tokens counted in the stream."""
        self.thinking = 0
        """Of those, the tokens sent as thinking."""
        self.clipped = 0
        """Tokens with a log-prob below the floor or too few of them: signs of processed log-probs."""
        self.repeats = 0
        """Events dropped because they were sent twice."""
        self._url, self._top, self._watcher, self._max_tokens = url, top, watcher, max_tokens
        self._last = b""
        self._suspects: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self._before = (meter.tokens, meter.prompt_tokens, meter.cached_tokens)
        meter.prompt_tokens += prompt_tokens

    @property
    def own_usage(self) -> Meter:
        """What this completion alone has used so far."""
        tokens, prompt, cached = self._before
        return Meter(
            1, self.meter.prompt_tokens - prompt, self.meter.cached_tokens - cached, self.meter.tokens - tokens
        )

    @property
    def has_confidences(self) -> bool:
        """Whether any token has a confidence."""
        return any(value == value for value in self.confidences)

    def add_events(self, events: list[bytes]) -> bool:
        """Add events; True when the stream is over: its end mark came, the watcher ended it, or it is far too long."""
        decode, following = CHUNK_DECODER.decode, iter(events)
        for event in following:
            if event == DONE_DATA:
                self.done = True
                break
            try:
                chunk = decode(event)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ServerError(
                    f"{self._url} sent an event that cannot be read: {error}.",
                    "Look at its log, and at any proxy in between.",
                ) from error
            if event == self._last:
                self._add_repeat(chunk.choices or [])
            else:
                self._last = event
                if chunk.choices:
                    self._add(chunk.choices[0])
            if chunk.usage is not None or not chunk.choices or not self.model:
                self._add_metadata(chunk)
            if self.halted:
                self.counted += sum(event != DONE_DATA for event in following)  # not read, but written and charged
        if self.usage is None or self.usage.completion_tokens is None:
            self.meter.tokens = self._before[0] + self.counted
        if self.counted > self._max_tokens:
            self.finish = "length"
            return True
        return self.done or self.halted

    def drop_repeats(self) -> None:
        """Drop events that were sent twice, where the server's token count shows it.

        Chunks carry no number of their own, and two equal tokens in a row are normal. So an event counts as a duplicate
        only if it equals the event before it byte for byte, the tokens counted exceed the server's count, and without
        all such events they do not.
        """
        written = None if self.usage is None else self.usage.completion_tokens
        extra = sum(after[-1] - before[-1] for before, after in self._suspects)
        if written is None or not self.counted - extra <= written < self.counted:
            return
        for before, after in reversed(self._suspects):
            for pieces, start, end in zip(self._pieces(), before, after, strict=False):  # the last size is the count
                del pieces[start:end]
        self.repeats = len(self._suspects)
        self.counted -= extra

    def _add(self, choice: Choice) -> None:
        """Add what an event brings to the completion; every token takes this path."""
        if choice.index:
            return
        delta = choice.delta
        text = (choice.text if delta is None else delta.content) or ""
        reasoning = ""
        if text:
            self.content.append(text)
        if delta is not None and (not text or delta.reasoning_content or delta.reasoning or delta.tool_calls):
            reasoning = self._add_rare(delta)
        entries = None
        if choice.logprobs is not None:
            entries = choice.logprobs.content or to_chat_logprobs(choice.logprobs)
        if entries is not None and len(entries) == 1:
            tokens = 1
            self._add_token(entries[0], text or reasoning)
        else:
            tokens = self._add_tokens(entries or [], text or reasoning, delta)
        self.counted += tokens
        if reasoning:
            self.thinking += tokens
        if choice.finish_reason is not None:
            self.finish = choice.finish_reason

    def _add_token(self, entry: TokenLogprob, text: str) -> None:
        """Add the log-probs of a token and show them to the watcher."""
        tops: list[Any] = [alternative.logprob for alternative in entry.top_logprobs or ()]
        try:
            confidence = (
                -sum(tops) / len(tops)
                if len(tops) == self._top and min(tops) >= LOGPROB_FLOOR
                else self._confidence(tops)
            )
        except (TypeError, ValueError):  # null, for minus infinity; or none at all
            confidence = self._confidence(tops)
        logprob = entry.logprob
        if logprob is None:
            logprob = math.nan
        self.logprobs.append(logprob)
        self.confidences.append(confidence)
        if self._watcher is not None and self._watcher.push(text, logprob, confidence):
            self.halted = True

    def _add_tokens(self, entries: list[TokenLogprob], text: str, delta: Delta | None) -> int:
        """Add an event of several tokens, or of one without log-probs, and return how many there are."""
        if entries:
            pieces = [entry.token or "" for entry in entries]
            if "".join(pieces) != text:  # all of the text goes to the last token
                pieces = [""] * (len(pieces) - 1) + [text]
            for entry, piece in zip(entries, pieces, strict=True):
                self._add_token(entry, piece)
            return len(entries)
        if not text and (delta is None or not delta.tool_calls):
            return 0
        if self._watcher is not None:
            self.halted = self._watcher.push(text, math.nan, math.nan)
        return 1

    def _confidence(self, tops: list[Any]) -> float:
        """Return the confidence from log-probs that are too few, too many or partly minus infinity (null)."""
        value, clipped = token_confidence([-math.inf if logprob is None else logprob for logprob in tops], self._top)
        self.clipped += clipped
        return value

    def _add_rare(self, delta: Delta) -> str:
        """Add the parts that few events have, and return the thinking among them."""
        reasoning = delta.reasoning_content or delta.reasoning or ""
        if reasoning:
            self.reasoning.append(reasoning)
        if delta.tool_calls:
            self.tools += delta.tool_calls
        if delta.refusal:
            self.refusals.append(delta.refusal)
        return reasoning

    def _add_repeat(self, choices: list[Choice]) -> None:
        """Add an event that equals the one before it, and remember what it added; the next is no repeat of this."""
        before = self._sizes()
        for choice in choices[:1]:
            self._add(choice)
        self._suspects.append((before, self._sizes()))
        self._last = b""

    def _pieces(self) -> tuple[MutableSequence[Any], ...]:
        return self.content, self.reasoning, self.logprobs, self.confidences, self.tools

    def _sizes(self) -> tuple[int, ...]:
        return (*map(len, self._pieces()), self.counted)

    def _add_metadata(self, chunk: Chunk) -> None:
        """Read what an event brings besides text: usage, the model's name, an error."""
        if chunk.error is not None or chunk.object == "error":
            raise stream_error(self._url, chunk.error if chunk.error is not None else chunk.message)
        self.model = chunk.model or self.model
        if chunk.usage is not None:
            self._settle(chunk.usage)

    def _settle(self, usage: Usage) -> None:
        """Replace our own counts by the server's."""
        self.usage = usage
        tokens, prompt, cached = self._before
        if usage.completion_tokens is not None:
            self.meter.tokens = tokens + usage.completion_tokens
        if usage.prompt_tokens is not None:
            self.meter.prompt_tokens = prompt + usage.prompt_tokens
        if usage.prompt_tokens_details is not None:
            self.meter.cached_tokens = cached + min(
                usage.prompt_tokens_details.cached_tokens or 0, self.meter.prompt_tokens - prompt
            )


FINISH_REASONS: dict[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
"""A server's finish reason -> ours. Any other counts as ``stop`` and is kept in the candidate's message."""
FAILED_REASONS = frozenset({"abort", "error", "cancelled", "insufficient_system_resource"})
"""Finish reasons of completions that a server gave up."""
THINKING_SLACK = 16
"""Tokens of the text that a server inserts when a thinking cap is reached: they may come on top of the cap."""
_OPEN, _CLOSE = "<think>", "</think>"


def build_candidate(builder: CompletionBuilder, request: SampleRequest, *, url: str, seconds: float) -> Candidate:
    """Return the candidate of a stream that has ended; raises ServerError when the completion is not whole.

    A completion is whole when it has a finish reason, or when its stream closed with the end mark. In the latter case
    it counts as ended by itself, or as cut when it has all the tokens it was allowed.
    """
    builder.drop_repeats()
    finish = read_finish(builder, request, url)
    text, reasoning = "".join(builder.content), "".join(builder.reasoning)
    thinking = builder.thinking
    if not reasoning and not request.prefix:
        reasoning, text, thinking = split_thinking(builder.content)
    used = builder.own_usage
    details = None if builder.usage is None else builder.usage.completion_tokens_details
    thinking = (details.reasoning_tokens if details is not None else None) or thinking
    return Candidate(
        text=text,
        reasoning=reasoning,
        finish=finish,
        prefix=request.prefix,
        prompt_tokens=used.prompt_tokens,
        cached_tokens=used.cached_tokens,
        tokens=used.tokens,
        thinking_tokens=thinking,
        logprobs=(as_float32(builder.logprobs) if builder.logprobs else None),
        confidences=(as_float32(builder.confidences) if builder.confidences else None)
        if builder.has_confidences
        else None,
        model=builder.model or request.model,
        seed=request.seed,
        seconds=seconds,
        tool_calls=join_tool_calls(builder.tools),
        message=completion_remarks(builder, request, used.tokens, thinking),
    )


def split_thinking(pieces: list[str]) -> tuple[str, str, int]:
    """Return thinking, reply and the number of pieces that are thinking, for a reply that begins with ``<think>``.

    Only a block at the very beginning of the whole reply is thinking; one that never closes is the whole reply.
    """
    whole = "".join(pieces)
    start = len(whole) - len(whole.lstrip())
    if not whole.startswith(_OPEN, start):
        return "", whole, 0
    end = whole.find(_CLOSE, start)
    if end < 0:
        return whole[start + len(_OPEN) :].strip("\n"), "", len(pieces)
    read = count = 0
    while read < end + len(_CLOSE):
        read += len(pieces[count])
        count += 1
    return whole[start + len(_OPEN) : end].strip("\n"), whole[end + len(_CLOSE) :].lstrip("\n"), count


def join_tool_calls(deltas: list[ToolDelta]) -> tuple[dict[str, Any], ...]:
    """Join tool calls from their pieces; a piece without an index belongs to the last call, unless its id is new."""
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        last = max(calls, default=-1)
        fresh = delta.id is not None and (last < 0 or delta.id != calls[last]["id"])
        number = delta.index if delta.index is not None else last + 1 if fresh or last < 0 else last
        call = calls.setdefault(number, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call["id"] = delta.id or call["id"]
        call["type"] = delta.type or call["type"]
        if delta.function is not None:
            call["function"]["name"] = delta.function.name or call["function"]["name"]
            call["function"]["arguments"] += delta.function.arguments or ""
    return tuple(calls[number] for number in sorted(calls))


def read_finish(builder: CompletionBuilder, request: SampleRequest, url: str) -> Finish:
    """Return why a completion ended; raises ServerError when it broke off."""
    if builder.halted:
        return "halt"
    reason = builder.finish
    if reason in FAILED_REASONS or (reason is None and not builder.done):
        how = (
            f"gave the completion up ({reason})"
            if reason
            else "broke its stream off, with neither a reason for the end nor an end mark,"
        )
        raise ServerError(
            f"{url} {how} after {builder.counted} tokens.",
            "Look at the server's log, and at any proxy in between; nothing of the completion is used.",
        )
    if reason is None:
        return "length" if builder.counted >= request.sampling.max_tokens else "stop"
    return FINISH_REASONS.get(reason, "stop")


def completion_remarks(
    builder: CompletionBuilder, request: SampleRequest, written: int, thinking: int
) -> dict[str, Any]:
    """Return what is unusual about a completion: caps ignored, an unknown finish reason, a refusal, repeats."""
    remarks: dict[str, Any] = {}
    cap, thinking_cap = request.sampling.max_tokens, request.sampling.thinking_tokens
    if written > cap:
        remarks["cap_ignored"] = {"tokens": written, "cap": cap}
    elif thinking_cap is not None and thinking > thinking_cap + THINKING_SLACK:
        remarks["cap_ignored"] = {"thinking_tokens": thinking, "cap": thinking_cap}
    if builder.finish not in FINISH_REASONS and not builder.halted:
        remarks["finish_reason"] = builder.finish
    if builder.refusals:
        remarks["refusal"] = "".join(builder.refusals)
    if builder.clipped:
        remarks["clipped_logprobs"] = builder.clipped
    if builder.repeats:
        remarks["repeated_events"] = builder.repeats
    return remarks


def as_float32(values: array[float]) -> NDArray[np.float32]:
    """Return values collected token by token as an array, without a copy."""
    return np.frombuffer(values, dtype=np.float32) if values else np.zeros(0, np.float32)
