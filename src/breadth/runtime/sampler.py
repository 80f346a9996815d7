"""The sampler protocol: samples one completion at a time, can be cancelled, and reports what it has used so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from breadth.inference.halting import Halt
from breadth.inference.records import Candidate, Prompt, Sampling

ALL_OFFERS = frozenset({"logprobs", "confidences", "prefix", "seed", "halt"})
"""Everything a sampler can support."""


@dataclass(frozen=True)
class SampleRequest:
    """One completion to sample, everything about it explicit."""

    prompt: Prompt
    """The chat, or a text to continue."""
    sampling: Sampling = Sampling()
    """Temperature and so on; ``max_tokens`` is what the ledger granted."""
    prefix: str = ""
    """Given start of the reply; the completion continues it and does not repeat it."""
    model: str = ""
    """Model asked for; empty for the server's only one."""
    halt: Halt | None = None
    """Rule to run on the stream; the completion then ends with finish ``halt``."""
    seed: int = 0
    """Seed for the server, where it takes one."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request, passed on unchanged."""
    seconds: float | None = None
    """Seconds it may take in all; a sample that takes longer fails."""


@dataclass
class Meter:
    """What one sample has used so far; the sampler updates it as it works, so aborted samples are charged correctly."""

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
        """What it supports beyond plain text: logprobs, confidences, prefix, seed, halt."""

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Sample one completion; the driver fills in answer, key, draw_id and independence.

        Raises ServerError when it cannot. Cancelling the coroutine aborts the completion at the source; ``meter`` then
        holds what it used so far.
        """

    async def close(self) -> None:
        """Release connections and memory."""
