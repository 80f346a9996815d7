"""Rules that end a completion while it is being written, run by the sampler on the stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

from breadth.base.catalogue import Catalogue

HALTS = Catalogue(
    "halts",
    {
        "loop": "breadth.inference.halts.loop:Loop",
        "low-confidence": "breadth.inference.halts.low_confidence:LowConfidence",
        "phrase": "breadth.inference.halts.phrase:Phrase",
        "closed-brace": "breadth.inference.halts.closed_brace:ClosedBrace",
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
