"""A sampler that hands out completions drawn before: a strategy runs live against a store instead of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from breadth.base.errors import ServerError
from breadth.inference.records import Candidate, Prompt, text_of
from breadth.runtime.sampler import Meter, SampleRequest


class RecordedSampler:
    """Hands out stored candidates of the prompt that is asked for, each once, in stored order or in one drawn by a seed.

    It can only give what was drawn: another prompt, a beginning of the reply that was not given then, more draws than
    are stored and a cap below a stored completion's length are refused in words. A halt rule is run over the stored
    log-probs and confidences, token by token without their texts; a completion it ends keeps the same share of its
    characters as of its tokens.
    """

    def __init__(self, stored: Iterable[tuple[Prompt, Sequence[Candidate]]], *, shuffle: int | None = None) -> None:
        self._stored = {
            prompt_key(prompt): _ordered(list(drawn), shuffle, place) for place, (prompt, drawn) in enumerate(stored)
        }
        self._given = dict.fromkeys(self._stored, 0)
        every = [candidate for drawn in self._stored.values() for candidate in drawn]
        has: dict[str, Callable[[Candidate], bool]] = {
            "logprobs": lambda one: one.logprobs is not None,
            "confidences": lambda one: one.confidences is not None,
        }
        self._offers = frozenset(name for name, held in has.items() if every and all(map(held, every)))

    @property
    def offers(self) -> frozenset[str]:
        """Log-probs and confidences where every stored candidate has them; nothing else."""
        return self._offers

    @property
    def remaining(self) -> int:
        """Candidates not handed out yet."""
        return sum(len(drawn) - self._given[key] for key, drawn in self._stored.items())

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Hand out the next stored candidate; see `Sampler`."""
        await asyncio.sleep(0)
        meter.calls += 1
        key = prompt_key(request.prompt)
        stored = self._stored.get(key, [])
        place = self._given.get(key, 0)
        if place >= len(stored):
            raise _nothing(request, len(stored))
        candidate = stored[place]
        if candidate.prefix != request.prefix:
            raise ServerError(
                "The reply is to continue a given beginning, and none such is stored.",
                "Draw this strategy from a server.",
                fatal=True,
            )
        if candidate.tokens > request.sampling.max_tokens:
            raise ServerError(
                f"The next stored completion has {candidate.tokens} tokens, and {request.sampling.max_tokens} are"
                " allowed.",
                "Allow as many tokens as when the completions were drawn, or a larger budget.",
                fatal=True,
            )
        self._given[key] += 1
        told = _halted(candidate, request)
        meter.prompt_tokens += told.prompt_tokens
        meter.cached_tokens += told.cached_tokens
        meter.tokens += told.tokens
        return told

    async def close(self) -> None:
        """Nothing is held."""


def prompt_key(prompt: Prompt) -> str:
    """Return what tells prompts apart: roles and texts."""
    if isinstance(prompt, str):
        return prompt
    return "\0".join(f"{message.get('role', '')}\0{text_of(message.get('content'))}" for message in prompt)


def _ordered(drawn: list[Candidate], shuffle: int | None, place: int) -> list[Candidate]:
    """Return candidates in stored order, or in one drawn by the seed for the prompt at this place."""
    if shuffle is None:
        return drawn
    return [drawn[chosen] for chosen in np.random.default_rng([shuffle, place]).permutation(len(drawn))]


def _nothing(draw: SampleRequest, stored: int) -> ServerError:
    if not stored:
        asked = prompt_key(draw.prompt)[-80:].replace("\0", " ")
        return ServerError(
            f"No completion of this prompt is stored: ...{asked!r}.", "Draw it from a server.", fatal=True
        )
    return ServerError(
        f"All {stored} stored completions of the prompt have been handed out.",
        "Store more, or ask for fewer.",
        fatal=True,
    )


def _halted(candidate: Candidate, draw: SampleRequest) -> Candidate:
    """Return a candidate as the halt rule leaves it."""
    if draw.halt is None or candidate.confidences is None or candidate.logprobs is None:
        return candidate
    watcher = draw.halt.watch()
    for place, (logprob, confidence) in enumerate(zip(candidate.logprobs, candidate.confidences, strict=False), 1):
        if watcher.push("", float(logprob), float(confidence)) and place < candidate.tokens:
            return replace(
                candidate,
                text=candidate.text[: len(candidate.text) * place // candidate.tokens],
                tokens=place,
                finish="halt",
                logprobs=candidate.logprobs[:place],
                confidences=candidate.confidences[:place],
            )
    return candidate
