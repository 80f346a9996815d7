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
    Logprobs,
    TokenLogprob,
    ToolDelta,
    Usage,
    to_chat_logprobs,
)


class CompletionBuilder:
    """Takes events in and holds what they add up to.

    Tokens are counted as they come: the log-prob entries of an event, or one for an event that brings text. That is a
    little less than the truth (characters of several tokens, the end token and what a stop text swallowed have no event
    of their own), so the server's own count replaces it as soon as it is sent.
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
        """Kept true all the time."""
        self.content: list[str] = []
        """Pieces of the reply."""
        self.reasoning: list[str] = []
        """Pieces of the thinking."""
        self.logprobs = array("f")
        """Log-prob of each token; NaN where none was sent."""
        self.confidences = array("f")
        """Confidence of each token; NaN where none can be had."""
        self.tools: list[ToolDelta] = []
        """Pieces of tool calls."""
        self.refusals: list[str] = []
        """Pieces of a refusal."""
        self.usage: Usage | None = None
        """The server's own count."""
        self.model = ""
        """Model that writes."""
        self.finish: str | None = None
        """Why it ended, in the server's words."""
        self.done = False
        """Whether the end mark was seen."""
        self.halted = False
        """Whether the watcher ended it."""
        self.counted = 0
        """Tokens counted in the stream."""
        self.thinking = 0
        """Of those, the ones sent as thinking."""
        self.clipped = 0
        """Tokens with a log-prob below the floor or too few of them: signs of processed log-probs."""
        self.repeats = 0
        """Events dropped because they were sent twice."""
        self._url, self._top, self._watcher, self._most = url, top, watcher, max_tokens
        self._last = b""
        self._suspects: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self._before = (meter.tokens, meter.prompt_tokens, meter.cached_tokens)
        meter.prompt_tokens += prompt_tokens

    @property
    def own_usage(self) -> Meter:
        """What this completion alone used so far."""
        tokens, prompt, cached = self._before
        return Meter(
            1, self.meter.prompt_tokens - prompt, self.meter.cached_tokens - cached, self.meter.tokens - tokens
        )

    @property
    def has_confidences(self) -> bool:
        """Whether any token has a confidence."""
        return any(value == value for value in self.confidences)

    def add_events(self, events: list[bytes]) -> bool:
        """Take events in; True when the stream is over for us: its end mark came, the watcher ended it, or it went on past all bounds."""
        decode, coming = CHUNK_DECODER.decode, iter(events)
        for event in coming:
            if event == DONE_DATA:
                self.done = True
                break
            try:
                chunk = decode(event)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ServerError(
                    f"{self._url} sent an event that cannot be read: {error}.",
                    "Look at its log, and at what stands between us.",
                ) from error
            if event == self._last:
                self._add_repeat(chunk.choices or [])
            else:
                self._last = event
                if chunk.choices:
                    self._add(chunk.choices[0])
            if chunk.usage is not None or not chunk.choices or not self.model:
                self._aside(chunk)
            if self.halted:
                self.counted += sum(event != DONE_DATA for event in coming)  # not read, but written and so to be paid
        if self.usage is None or self.usage.completion_tokens is None:
            self.meter.tokens = self._before[0] + self.counted
        if self.counted > self._most:
            self.finish = "length"
            return True
        return self.done or self.halted

    def drop_repeats(self) -> None:
        """Drop events that were sent twice, where that can be told: the server's count is short of ours by just such events.

        Chunks carry no number of their own, and two equal tokens in a row are nothing odd. So an event is taken for a
        duplicate only if it is its forerunner byte for byte, and the tokens counted exceed the server's count, and
        without all such events they do not.
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
        """Take in what an event adds to the completion: the path of every token."""
        if choice.index:
            return
        delta = choice.delta
        text = (choice.text if delta is None else delta.content) or ""
        thought = ""
        if text:
            self.content.append(text)
        if delta is not None and (not text or delta.reasoning_content or delta.reasoning or delta.tool_calls):
            thought = self._add_rare(delta)
        entries = None if choice.logprobs is None else choice.logprobs.content or _entries(choice.logprobs)
        if entries is not None and len(entries) == 1:
            fresh = 1
            self._score(entries[0], text or thought)
        else:
            fresh = self._add_tokens(entries or [], text or thought, delta)
        self.counted += fresh
        if thought:
            self.thinking += fresh
        if choice.finish_reason is not None:
            self.finish = choice.finish_reason

    def _score(self, entry: TokenLogprob, text: str) -> None:
        """Take in the log-probs of a token and show them to the watcher."""
        tops: list[Any] = [one.logprob for one in entry.top_logprobs or ()]
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
        """Take in an event of several tokens, or of one without log-probs, and return how many there are."""
        for entry, piece in zip(entries, _texts(entries, text), strict=True):
            self._score(entry, piece)
        if entries:
            return len(entries)
        if not text and (delta is None or not delta.tool_calls):
            return 0
        if self._watcher is not None:
            self.halted = self._watcher.push(text, math.nan, math.nan)
        return 1

    def _confidence(self, tops: list[Any]) -> float:
        """Return the confidence from log-probs that are too few, too many or partly minus infinity (null)."""
        value, clipped = token_confidence([-math.inf if one is None else one for one in tops], self._top)
        self.clipped += clipped
        return value

    def _add_rare(self, delta: Delta) -> str:
        """Take in what few events bring and return the thinking among it."""
        thought = delta.reasoning_content or delta.reasoning or ""
        if thought:
            self.reasoning.append(thought)
        if delta.tool_calls:
            self.tools += delta.tool_calls
        if delta.refusal:
            self.refusals.append(delta.refusal)
        return thought

    def _add_repeat(self, choices: list[Choice]) -> None:
        """Take in an event that is its forerunner byte for byte, and remember what it added; the next one is no repeat of this."""
        before = self._sizes()
        for choice in choices[:1]:
            self._add(choice)
        self._suspects.append((before, self._sizes()))
        self._last = b""

    def _pieces(self) -> tuple[MutableSequence[Any], ...]:
        return self.content, self.reasoning, self.logprobs, self.confidences, self.tools

    def _sizes(self) -> tuple[int, ...]:
        return (*map(len, self._pieces()), self.counted)

    def _aside(self, chunk: Chunk) -> None:
        """Take in what an event says beside the completion: usage, the model's name, an error."""
        if chunk.error is not None or chunk.object == "error":
            raise stream_error(self._url, chunk.error if chunk.error is not None else chunk.message)
        self.model = chunk.model or self.model
        if chunk.usage is not None:
            self.usage = chunk.usage
            self._settle(chunk.usage)

    def _settle(self, usage: Usage) -> None:
        tokens, prompt, cached = self._before
        if usage.completion_tokens is not None:
            self.meter.tokens = tokens + usage.completion_tokens
        if usage.prompt_tokens is not None:
            self.meter.prompt_tokens = prompt + usage.prompt_tokens
        if usage.prompt_tokens_details is not None:
            self.meter.cached_tokens = cached + min(
                usage.prompt_tokens_details.cached_tokens or 0, self.meter.prompt_tokens - prompt
            )


def _texts(entries: list[TokenLogprob], text: str) -> list[str]:
    """Return the text of each token of an event of several; all of it with the last where the pieces do not add up to it."""
    pieces = [entry.token or "" for entry in entries]
    return pieces if not pieces or "".join(pieces) == text else [""] * (len(pieces) - 1) + [text]


def _entries(logprobs: Logprobs) -> list[TokenLogprob]:
    return to_chat_logprobs(logprobs) if logprobs.token_logprobs else []


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
"""What servers say -> why a completion ended. Any other word counts as ``stop`` and is kept in the candidate's message.
"""
FAILED_REASONS = frozenset({"abort", "error", "cancelled", "insufficient_system_resource"})
"""What servers say when they gave a completion up."""
THINKING_SLACK = 16
"""Tokens of the text that a server forces when a thinking cap is reached: they may come on top of the cap."""
_OPEN, _CLOSE = "<think>", "</think>"


def build_candidate(assembly: CompletionBuilder, request: SampleRequest, *, url: str, seconds: float) -> Candidate:
    """Return the candidate of a stream that has ended; raises ServerError when it did not end as a whole one does.

    Whole is a completion with a reason for its end, or whose stream closed with the end mark; in the latter case it
    counts as ended by itself, or as cut when it has all the tokens it was allowed.
    """
    assembly.drop_repeats()
    finish = _finish(assembly, request, url)
    text, reasoning = "".join(assembly.content), "".join(assembly.reasoning)
    thinking = assembly.thinking
    if not reasoning and not request.prefix:
        reasoning, text, thinking = split_thinking(assembly.content)
    used = assembly.own_usage
    details = None if assembly.usage is None else assembly.usage.completion_tokens_details
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
        logprobs=(as_float32(assembly.logprobs) if assembly.logprobs else None),
        confidences=(as_float32(assembly.confidences) if assembly.confidences else None)
        if assembly.has_confidences
        else None,
        model=assembly.model or request.model,
        seed=request.seed,
        seconds=seconds,
        tool_calls=join_tool_calls(assembly.tools),
        message=_remarks(assembly, request, used.tokens, thinking),
    )


def split_thinking(pieces: list[str]) -> tuple[str, str, int]:
    """Return thinking, reply and the number of pieces that are thinking, for a reply that begins with ``<think>``.

    Only a block at the very beginning of the whole reply is thinking; one that never closes is all there is.
    """
    whole = "".join(pieces)
    start = len(whole) - len(whole.lstrip())
    if not whole.startswith(_OPEN, start):
        return "", whole, 0
    end = whole.find(_CLOSE, start)
    if end < 0:
        return whole[start + len(_OPEN) :].strip("\n"), "", len(pieces)
    reached = count = 0
    while reached < end + len(_CLOSE):
        reached += len(pieces[count])
        count += 1
    return whole[start + len(_OPEN) : end].strip("\n"), whole[end + len(_CLOSE) :].lstrip("\n"), count


def join_tool_calls(deltas: list[ToolDelta]) -> tuple[dict[str, Any], ...]:
    """Return tool calls put together from their pieces; one without a number belongs to the last call, unless it has an id of its own."""
    calls: dict[int, dict[str, Any]] = {}
    for delta in deltas:
        last = max(calls, default=-1)
        fresh = delta.id is not None and (last < 0 or delta.id != calls[last]["id"])
        place = delta.index if delta.index is not None else last + 1 if fresh or last < 0 else last
        call = calls.setdefault(place, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call["id"] = delta.id or call["id"]
        call["type"] = delta.type or call["type"]
        if delta.function is not None:
            call["function"]["name"] = delta.function.name or call["function"]["name"]
            call["function"]["arguments"] += delta.function.arguments or ""
    return tuple(calls[place] for place in sorted(calls))


def _finish(assembly: CompletionBuilder, draw: SampleRequest, url: str) -> Finish:
    if assembly.halted:
        return "halt"
    said = assembly.finish
    if said in FAILED_REASONS or (said is None and not assembly.done):
        how = (
            f"gave the completion up ({said})"
            if said
            else "broke its stream off, with neither a reason for the end nor an end mark,"
        )
        raise ServerError(
            f"{url} {how} after {assembly.counted} tokens.",
            "Look at the server's log, and at what stands between us; nothing of the completion is used.",
        )
    if said is None:
        return "length" if assembly.counted >= draw.sampling.max_tokens else "stop"
    return FINISH_REASONS.get(said, "stop")


def _remarks(assembly: CompletionBuilder, draw: SampleRequest, written: int, thinking: int) -> dict[str, Any]:
    """Return what is odd or worth passing on about a completion."""
    remarks: dict[str, Any] = {}
    cap, thinking_cap = draw.sampling.max_tokens, draw.sampling.thinking_tokens
    if written > cap:
        remarks["cap_ignored"] = {"tokens": written, "cap": cap}
    elif thinking_cap is not None and thinking > thinking_cap + THINKING_SLACK:
        remarks["cap_ignored"] = {"thinking_tokens": thinking, "cap": thinking_cap}
    if assembly.finish not in FINISH_REASONS and not assembly.halted:
        remarks["finish_reason"] = assembly.finish
    if assembly.refusals:
        remarks["refusal"] = "".join(assembly.refusals)
    if assembly.clipped:
        remarks["clipped_logprobs"] = assembly.clipped
    if assembly.repeats:
        remarks["repeated_events"] = assembly.repeats
    return remarks


def as_float32(values: array[float]) -> NDArray[np.float32]:
    """Return what was gathered token by token as an array, without a copy."""
    return np.frombuffer(values, dtype=np.float32) if values else np.zeros(0, np.float32)
