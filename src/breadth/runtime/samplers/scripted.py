"""A sampler that follows a script, at a given pace: for tests, examples and trying strategies out."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from breadth.base.errors import ServerError
from breadth.inference.records import Candidate
from breadth.runtime.sampler import ALL_OFFERS, Meter, SampleRequest

ScriptedOutcome: TypeAlias = Candidate | str | Exception
"""Outcome of a sample: a candidate, the text of one, or an error that is raised."""
Script: TypeAlias = Callable[[SampleRequest, int], ScriptedOutcome] | Sequence[ScriptedOutcome]
"""Gives the outcome of each request and its number, in order from 0; or a list, used in that order."""
DEFAULT_PROMPT_TOKENS = 10
"""Prompt tokens that are charged where the script has none."""
_WORD = re.compile(r"\s*\S+|\s+$")


class ScriptedSampler:
    """Follows a script as a server follows its model: caps, stop texts and halt rules cut a text, word by word.

    A word with the space before it is a token. A text takes ``seconds`` in all and is charged word by word, so a
    sample cancelled half-way has used half.
    """

    def __init__(
        self, script: Script, *, seconds: float | Callable[[int], float] = 0.0, offers: frozenset[str] = ALL_OFFERS
    ) -> None:
        self.requests: list[SampleRequest] = []
        """Every request, in order."""
        self.cancelled = 0
        """Samples that were cancelled on the way."""
        self.in_flight = 0
        """Samples under way."""
        self.max_in_flight = 0
        """Samples under way at once, at most."""
        self.closed = False
        """Whether it was closed."""
        self._script = script
        self._seconds = seconds
        self._offers = offers

    @property
    def offers(self) -> frozenset[str]:
        """What it pretends to support."""
        return self._offers

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Return the next outcome of the script; see `Sampler`."""
        number = len(self.requests)
        self.requests.append(request)
        meter.calls += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            async with asyncio.timeout(request.seconds):
                return await self._play(request, number, meter)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        except TimeoutError as error:
            raise ServerError(f"The script took longer than {request.seconds} s.", "Allow more seconds.") from error
        finally:
            self.in_flight -= 1

    async def close(self) -> None:
        """Note that it was closed."""
        self.closed = True

    async def _play(self, request: SampleRequest, number: int, meter: Meter) -> Candidate:
        outcome = self.outcome_for(request, number)
        seconds = self._seconds(number) if callable(self._seconds) else self._seconds
        if isinstance(outcome, Exception):
            await asyncio.sleep(seconds)
            raise outcome
        candidate = cut_to_request(outcome if isinstance(outcome, Candidate) else Candidate(outcome), request)
        meter.prompt_tokens += candidate.prompt_tokens
        meter.cached_tokens += candidate.cached_tokens
        for _ in range(candidate.tokens if seconds else 0):
            await asyncio.sleep(seconds / candidate.tokens)
            meter.tokens += 1
        if not seconds:
            await asyncio.sleep(0)
            meter.tokens += candidate.tokens
        return replace(candidate, seconds=seconds)

    def outcome_for(self, request: SampleRequest, number: int) -> ScriptedOutcome:
        """Return what the script has for a request."""
        if callable(self._script):
            return self._script(request, number)
        if number >= len(self._script):
            return ServerError(
                f"The script has {len(self._script)} lines, and all have been used.", "Write more lines.", fatal=True
            )
        return self._script[number]


def cut_to_request(candidate: Candidate, request: SampleRequest) -> Candidate:
    """Return a candidate as a request allows it: cut before a stop text, at the cap, or where the halt rule ends it."""
    text, finish = candidate.text, candidate.finish
    ends = [position for stop in request.sampling.stop if (position := text.find(stop)) >= 0]
    if ends:
        text, finish = text[: min(ends)], "stop"
    words: list[str] = _WORD.findall(text)
    whole = len(words)
    if len(words) > request.sampling.max_tokens:
        words, finish = words[: request.sampling.max_tokens], "length"
    length = halt_length(words, candidate, request)
    if length:
        words, finish = words[:length], "halt"
    cut = len(words) < whole or bool(ends)

    def clip(values: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
        return values[: len(words)] if cut and values is not None else values

    return replace(
        candidate,
        text="".join(words) if cut else candidate.text,
        finish=finish,
        tokens=len(words) if cut or not candidate.tokens else min(candidate.tokens, request.sampling.max_tokens),
        prompt_tokens=candidate.prompt_tokens or DEFAULT_PROMPT_TOKENS,
        logprobs=clip(candidate.logprobs),
        confidences=clip(candidate.confidences),
        prefix=request.prefix,
        model=candidate.model or request.model,
        seed=request.seed,
    )


def halt_length(words: list[str], candidate: Candidate, request: SampleRequest) -> int:
    """Return the number of words after which the halt rule ends a candidate; 0 when it does not."""
    watcher = None if request.halt is None else request.halt.watch()
    if watcher is None:
        return 0

    def value_at(values: NDArray[np.float32] | None, number: int) -> float:
        return math.nan if values is None or number >= len(values) else float(values[number])

    for number, word in enumerate(words):
        logprob = value_at(candidate.logprobs, number)
        if watcher.push(word, logprob, value_at(candidate.confidences, number)):
            return number + 1
    return 0
