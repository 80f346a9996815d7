"""Rules that end a completion while it is being written; the sampler runs them on the stream."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import ClassVar, Protocol

from breadth.base.catalogue import Catalogue
from breadth.base.errors import require
from breadth.inference.catalogue import HALTS
from breadth.measure.degeneracy import tail_loop


class Watcher(Protocol):
    """A halt rule at work on one completion."""

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        """Take the next token's text, log-prob and confidence (NaN if not sent); return True to end the completion."""


class Halt(ABC):
    """A frozen dataclass whose fields are the rule; it starts a fresh watcher for each completion."""

    catalogue: ClassVar[Catalogue] = HALTS

    top_logprobs: int = 0
    """Log-probs per token that the rule needs; a server that cannot send them cannot run it."""

    @abstractmethod
    def watch(self) -> Watcher:
        """Return a watcher for one completion."""


_LOOKBACK_CHARACTERS = 8192
# Room for four turns of a loop of 200 tokens at ten characters each.
_PROBE_CHARACTERS = 24
# A text whose last characters did not occur before is in no loop: a cheap test that nearly always spares the full one.


@dataclass(frozen=True)
class Loop(Halt):
    """End a completion whose last ``least`` tokens or more repeat one passage, at least four times.

    Passages have up to 200 approximate tokens (see `breadth.measure.degeneracy.tail_loop`), independent of the server's
    tokenizer. The check runs every ``every`` tokens, which bounds what a loop wastes. We found no published rule: both
    numbers are ours; legitimate tables and rows of marks repeat for less than 200 tokens. Endless white space is a loop
    too, at four characters per token. Harm: it cuts a task whose right answer is one line repeated (a matrix of zeros,
    a drawing).
    """

    least: int = 200
    """Approximate tokens that the loop must have lasted."""
    every: int = 32
    """Tokens between checks."""

    def __post_init__(self) -> None:
        require(self, "least", self.least >= 4, "at least four tokens")
        require(self, "every", self.every >= 1, "at least one token")

    def watch(self) -> Watcher:
        """Return a watcher for one completion."""
        return _LoopWatcher(self)


class _LoopWatcher:
    """Keeps the end of a growing text and checks it for a loop."""

    def __init__(self, rule: Loop) -> None:
        self.rule = rule
        self.text = ""
        self.fresh: list[str] = []

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        """Take the next token; check the text every so often."""
        del logprob, confidence
        self.fresh.append(text)
        if len(self.fresh) < self.rule.every:
            return False
        self.text = (self.text + "".join(self.fresh))[-_LOOKBACK_CHARACTERS:]
        self.fresh.clear()
        if self.text.rfind(self.text[-_PROBE_CHARACTERS:], 0, -1) < 0:
            return False
        if len(self.text) - len(self.text.rstrip()) >= 4 * self.rule.least:
            return True
        loop = tail_loop(self.text)
        return loop is not None and loop.length >= self.rule.least


_MAX_MISSING = 16
# Some servers send single tokens without log-probs; after this many in a row no more are expected.
_ROUNDING_SLACK = 1e-6
# Thresholds come from single-precision confidences: an equally confident completion must not fall below by rounding.


@dataclass(frozen=True)
class LowConfidence(Halt):
    """End a completion once the mean confidence of its last ``window`` tokens falls below ``threshold`` (DeepConf).

    From arXiv 2508.15260. Only full windows count, so nothing shorter is ever ended. Tokens without a confidence are
    skipped; after 16 of them in a row the rule switches off, because its window no longer describes the current text.
    Window and 20 log-probs are the paper's; the threshold has no default: it depends on model and question.
    """

    threshold: float
    """Minimum mean confidence."""
    window: int = 2048
    """Tokens that the mean is over."""
    top_logprobs: int = 20
    """Log-probs per token that its confidence averages."""

    def __post_init__(self) -> None:
        require(self, "threshold", math.isfinite(self.threshold), "a finite confidence")
        require(self, "window", self.window >= 1, "at least one token")
        require(self, "top_logprobs", self.top_logprobs >= 1, "at least one log-prob; 20 is usual")

    def watch(self) -> Watcher:
        """Return a watcher for one completion."""
        return _ConfidenceWatcher((self.threshold - _ROUNDING_SLACK * abs(self.threshold)) * self.window, self.window)


class _ConfidenceWatcher:
    """Keeps the confidences of the last tokens and their sum."""

    def __init__(self, least: float, size: int) -> None:
        self.least, self.size = least, size
        self.last: deque[float] = deque()
        self.total = 0.0
        self.missing = 0

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        """Take the next token; True once a full window sums to too little."""
        del text, logprob
        if self.missing >= _MAX_MISSING:
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

    Unlike a stop string, the phrase stays in the text, and the completion ends as halted: a server's 'stop' does not
    distinguish a stop string from the model's own end.
    """

    texts: tuple[str, ...]
    """Phrases to look for."""
    until: str = ""
    """Text after which the rule is off; empty for never. Set it to the closing mark to watch only thinking."""

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
