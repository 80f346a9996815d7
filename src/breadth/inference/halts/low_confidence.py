"""End a completion as soon as it has been unsure for a whole window."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from breadth.base.checks import require
from breadth.inference.halting import Halt, Watcher

_PATIENCE = 16
# Single tokens come without log-probs on some servers; this many in a row mean that none will come any more.
_SLACK = 1e-6
# Thresholds come from confidences kept in single precision: a completion that is just as sure must not fall below by rounding.


@dataclass(frozen=True)
class LowConfidence(Halt):
    """End a completion once the mean confidence of its last ``window`` tokens falls below ``threshold`` (DeepConf, arXiv 2508.15260).

    Only full windows count, so nothing shorter is ever ended. Tokens without a confidence are passed over; after 16 of them in a row
    the rule rests for good, for what it knows is no longer about the text at hand. Window and 20 log-probs are the paper's; the
    threshold has no default: it belongs to a model and a question.
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
