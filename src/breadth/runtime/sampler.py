"""What a sampler is: it draws one completion at a time, can be cancelled, and says what it has used so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from breadth.inference.halting import Halt
from breadth.inference.records import Candidate, Prompt, Sampling


@dataclass(frozen=True)
class SampleRequest:
    """One completion to be drawn, everything about it explicit."""

    prompt: Prompt
    """The chat, or a text to continue."""
    sampling: Sampling = Sampling()
    """How to draw; ``max_tokens`` is what the ledger granted."""
    prefix: str = ""
    """Beginning of the reply that is given; the completion continues it and does not repeat it."""
    model: str = ""
    """Model asked for; empty for the server's only one."""
    halt: Halt | None = None
    """Rule to run on the stream; the completion then ends with finish ``halt``."""
    seed: int = 0
    """Seed for the server, where it takes one."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request, passed on untouched."""
    seconds: float | None = None
    """Seconds it may take in all; a draw that takes longer fails."""


@dataclass
class Meter:
    """What one draw has used so far; the sampler keeps it true while it works, so that an aborted draw is charged right."""

    calls: int = 0
    """Requests made, retries included."""
    prompt_tokens: int = 0
    """Tokens read."""
    cached_tokens: int = 0
    """Of those, from the server's cache."""
    tokens: int = 0
    """Tokens written."""


class Sampler(Protocol):
    """A source of completions."""

    @property
    def offers(self) -> frozenset[str]:
        """What it can do beyond plain text: logprobs, confidences, prefix, seed, halt."""

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Draw one completion; answer, key, place and independence are left for the driver to fill in.

        Raises ServerError when it cannot. Cancelling the coroutine aborts the completion at the source; ``meter`` then
        holds what it used up to there.
        """

    async def close(self) -> None:
        """Let go of connections and memory."""


ALL_OFFERS = frozenset({"logprobs", "confidences", "prefix", "seed", "halt"})
"""All that a sampler can offer."""
