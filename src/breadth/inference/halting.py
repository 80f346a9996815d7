"""Rules that end a completion while it is being written; the sampler runs them on the stream."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import ClassVar, Protocol

from breadth.base.catalogue import Catalogue
from breadth.base.checks import require
from breadth.measure.degeneracy import tail_loop

HALTS = Catalogue(
    "halts",
    {
        "loop": "breadth.inference.halting:Loop",
        "low-confidence": "breadth.inference.halting:LowConfidence",
        "phrase": "breadth.inference.halting:Phrase",
        "closed-brace": "breadth.inference.halting:ClosedBrace",
    },
)
"""Halt rules by name."""


class Watcher(Protocol):
    """A halt rule at work on one completion."""

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        """Take the next token (its text, log-prob and confidence; NaN where the server sends none); True ends the completion."""


class Halt(ABC):
    """A frozen dataclass whose fields are the rule; it starts a fresh watcher for each completion."""

    catalogue: ClassVar[Catalogue] = HALTS

    top_logprobs: int = 0
    """Alternatives at each token it must see; a server that cannot send them cannot run the rule."""

    @abstractmethod
    def watch(self) -> Watcher:
        """Return a watcher for one completion."""


_KEPT = 8192
# Characters looked back on: room for four turns of a loop of 200 tokens at ten characters each.
_PROBE = 24
# A text whose last characters did not occur before is in no loop: a cheap test that spares nearly all of the dear one.


@dataclass(frozen=True)
class Loop(Halt):
    """End a completion whose last ``least`` tokens or more are one passage over and over, at least four times.

    Passages of up to 200 rough tokens (see `breadth.measure.degeneracy.tail_loop`), whatever the server calls a token.
    Looked for every ``every`` tokens, which bounds what a loop wastes. No published rule was found: both numbers are
    ours; honest tables and rows of marks repeat for less than 200 tokens. White space without end is a loop too, from
    four characters a token. Harm: a task whose right answer is one line repeated (a matrix of zeros, a drawing) is cut.
    """

    least: int = 200
    """Rough tokens the loop must have lasted."""
    every: int = 32
    """Tokens from one look to the next."""

    def __post_init__(self) -> None:
        require(self, "least", self.least >= 4, "at least four tokens")
        require(self, "every", self.every >= 1, "at least one token")

    def watch(self) -> Watcher:
        """Return a watcher for one completion."""
        return _Tail(self)


class _Tail:
    """The end of a text as it grows."""

    def __init__(self, rule: Loop) -> None:
        self.rule = rule
        self.text = ""
        self.fresh: list[str] = []

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        """Take the next token; look at the text every so often."""
        del logprob, confidence
        self.fresh.append(text)
        return len(self.fresh) >= self.rule.every and self._looped()

    def _looped(self) -> bool:
        self.text = (self.text + "".join(self.fresh))[-_KEPT:]
        self.fresh.clear()
        if self.text.rfind(self.text[-_PROBE:], 0, -1) < 0:
            return False
        if len(self.text) - len(self.text.rstrip()) >= 4 * self.rule.least:
            return True
        loop = tail_loop(self.text)
        return loop is not None and loop.length >= self.rule.least


_PATIENCE = 16
# Single tokens come without log-probs on some servers; this many in a row mean that none will come any more.
_SLACK = 1e-6
# Thresholds come from confidences kept in single precision: a completion that is just as sure must not fall below by
# rounding.


@dataclass(frozen=True)
class LowConfidence(Halt):
    """End a completion once the mean confidence of its last ``window`` tokens falls below ``threshold`` (DeepConf, arXiv 2508.15260).

    Only full windows count, so nothing shorter is ever ended. Tokens without a confidence are passed over; after 16 of
    them in a row the rule rests for good, for what it knows is no longer about the text at hand. Window and 20
    log-probs are the paper's; the threshold has no default: it belongs to a model and a question.
    """

    threshold: float
    """Least mean confidence."""
    window: int = 2048
    """Tokens it is taken over."""
    top_logprobs: int = 20
    """Log-probs at each token that its confidence averages."""

    def __post_init__(self) -> None:
        require(self, "threshold", math.isfinite(self.threshold), "a finite confidence")
        require(self, "window", self.window >= 1, "at least one token")
        require(self, "top_logprobs", self.top_logprobs >= 1, "at least one log-prob; 20 is usual")

    def watch(self) -> Watcher:
        """Return a watcher for one completion."""
        return _Window((self.threshold - _SLACK * abs(self.threshold)) * self.window, self.window)


class _Window:
    """The confidences of the last tokens and their sum."""

    def __init__(self, least: float, size: int) -> None:
        self.least, self.size = least, size
        self.last: deque[float] = deque()
        self.total = 0.0
        self.missing = 0

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        """Take the next token; True once a full window sums to too little."""
        del text, logprob
        if self.missing >= _PATIENCE:
            return False
        if not math.isfinite(confidence):
            self.missing += 1
            return False
        self.missing = 0
        self.last.append(confidence)
        self.total += confidence
        if len(self.last) > self.size:
            self.total -= self.last.popleft()
        return len(self.last) == self.size and self.total < self.least


@dataclass(frozen=True)
class Phrase(Halt):
    """End a completion when one of some phrases appears.

    Unlike a stop text, the phrase stays in what was drawn, and the completion ends as halted: a server's 'stop' does
    not tell a stop text from the model's own ending.
    """

    texts: tuple[str, ...]
    """Phrases to look for."""
    until: str = ""
    """Once this has appeared the rule sleeps; empty is never. A closing mark, where only thinking is to be watched."""

    def __post_init__(self) -> None:
        require(self, "texts", len(self.texts) > 0 and all(self.texts), "one phrase or more, none empty")

    def watch(self) -> Watcher:
        """Return a watcher for one completion."""
        return _PhraseWatcher(self)


@dataclass
class _PhraseWatcher:
    rule: Phrase
    tail: str = ""
    asleep: bool = False

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        del logprob, confidence
        if self.asleep:
            return False
        self.tail += text
        found = [place for phrase in self.rule.texts if (place := self.tail.find(phrase)) >= 0]
        end = self.tail.find(self.rule.until) if self.rule.until else -1
        self.asleep = end >= 0 and all(end < place for place in found)
        kept = max(map(len, (*self.rule.texts, self.rule.until))) - 1
        self.tail = self.tail[-kept:] if kept else ""
        return bool(found) and not self.asleep


@dataclass(frozen=True)
class ClosedBrace(Halt):
    r"""End a completion when the first brace it opens is closed again: the end of what follows ``\boxed``."""

    def watch(self) -> Watcher:
        """Return a watcher for one completion."""
        return _BraceWatcher()


@dataclass
class _BraceWatcher:
    depth: int = 0

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        del logprob, confidence
        for character in text:
            if character == "{":
                self.depth += 1
            elif character == "}" and self.depth:
                self.depth -= 1
                if not self.depth:
                    return True
        return False
