"""A sampler that says what it is told to, at the pace it is told to: for tests, examples and trying strategies out."""

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
"""What comes of a draw: a candidate, the text of one, or an error that is raised."""
Script: TypeAlias = Callable[[SampleRequest, int], ScriptedOutcome] | Sequence[ScriptedOutcome]
"""Says what comes of each draw, told its number in order of asking from 0; or a list, handed out in that order."""
DEFAULT_PROMPT_TOKENS = 10
"""Tokens read that are charged where the script states none."""
_WORD = re.compile(r"\s*\S+|\s+$")


class ScriptedSampler:
    """Keeps to a script as a server would keep to its model: caps, stop texts and halt rules cut what is said, word by word.

    A word with the space before it is a token. What is said takes ``seconds`` in all and is charged as it is said, so a
    draw cancelled half-way has used half.
    """

    def __init__(
        self, script: Script, *, seconds: float | Callable[[int], float] = 0.0, offers: frozenset[str] = ALL_OFFERS
    ) -> None:
        self.requests: list[SampleRequest] = []
        """Everything asked for, in order."""
        self.cancelled = 0
        """Draws that were cancelled on the way."""
        self.in_flight = 0
        """Draws at work."""
        self.max_in_flight = 0
        """Draws at work at once, at most."""
        self.closed = False
        """Whether it was closed."""
        self._script = script
        self._seconds = seconds
        self._offers = offers

    @property
    def offers(self) -> frozenset[str]:
        """What it pretends to be able to do."""
        return self._offers

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Say the next thing; see `Sampler`."""
        number = len(self.requests)
        self.requests.append(request)
        meter.calls += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            async with asyncio.timeout(request.seconds):
                return await self._say(request, number, meter)
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

    async def _say(self, draw: SampleRequest, number: int, meter: Meter) -> Candidate:
        said = self._said(draw, number)
        seconds = self._seconds(number) if callable(self._seconds) else self._seconds
        if isinstance(said, Exception):
            await asyncio.sleep(seconds)
            raise said
        told = cut_to_request(said if isinstance(said, Candidate) else Candidate(said), draw)
        meter.prompt_tokens += told.prompt_tokens
        meter.cached_tokens += told.cached_tokens
        for _ in range(told.tokens if seconds else 0):
            await asyncio.sleep(seconds / told.tokens)
            meter.tokens += 1
        if not seconds:
            await asyncio.sleep(0)
            meter.tokens += told.tokens
        return replace(told, seconds=seconds)

    def _said(self, draw: SampleRequest, number: int) -> ScriptedOutcome:
        if callable(self._script):
            return self._script(draw, number)
        if number >= len(self._script):
            return ServerError(
                f"The script has {len(self._script)} lines, and all have been said.", "Write more lines.", fatal=True
            )
        return self._script[number]


def cut_to_request(said: Candidate, draw: SampleRequest) -> Candidate:
    """Return a candidate as a draw allows it: cut before a stop text, at the cap, or where the halt rule ends it."""
    text, finish = said.text, said.finish
    ends = [place for stop in draw.sampling.stop if (place := text.find(stop)) >= 0]
    if ends:
        text, finish = text[: min(ends)], "stop"
    words: list[str] = _WORD.findall(text)
    whole = len(words)
    if len(words) > draw.sampling.max_tokens:
        words, finish = words[: draw.sampling.max_tokens], "length"
    halted = _halted(words, said, draw)
    if halted:
        words, finish = words[:halted], "halt"
    cut = len(words) < whole or bool(ends)
    return replace(
        said,
        text="".join(words) if cut else said.text,
        finish=finish,
        tokens=len(words) if cut or not said.tokens else min(said.tokens, draw.sampling.max_tokens),
        prompt_tokens=said.prompt_tokens or DEFAULT_PROMPT_TOKENS,
        logprobs=None if said.logprobs is None else said.logprobs[: len(words)] if cut else said.logprobs,
        confidences=None if said.confidences is None else said.confidences[: len(words)] if cut else said.confidences,
        prefix=draw.prefix,
        model=said.model or draw.model,
        seed=draw.seed,
    )


def _halted(words: list[str], said: Candidate, draw: SampleRequest) -> int:
    """Return the number of words after which the halt rule ends a candidate; 0 when it lets it be."""
    watcher = None if draw.halt is None else draw.halt.watch()
    if watcher is None:
        return 0
    for place, word in enumerate(words):
        logprob = _at(said.logprobs, place)
        if watcher.push(word, logprob, _at(said.confidences, place)):
            return place + 1
    return 0


def _at(values: NDArray[np.float32] | None, place: int) -> float:
    return math.nan if values is None or place >= len(values) else float(values[place])
