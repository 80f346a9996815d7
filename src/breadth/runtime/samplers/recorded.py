"""A sampler that returns stored completions: a strategy runs live against a store instead of a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from breadth.base.errors import ServerError
from breadth.inference.records import Candidate, Prompt, text_of
from breadth.runtime.sampler import Meter, SampleRequest


class RecordedSampler:
    """Returns stored candidates of the requested prompt, each once, in stored order or shuffled by a seed.

    It has only what was sampled: another prompt, another prefix, more samples than are stored and a cap below a stored
    completion's length are refused with a message. A halt rule is run over the stored log-probs and confidences, token
    by token without their texts; a completion it ends keeps the same share of its characters as of its tokens.
    """

    def __init__(self, stored: Iterable[tuple[Prompt, Sequence[Candidate]]], *, shuffle: int | None = None) -> None:
        self._stored: dict[str, list[Candidate]] = {}
        for number, (prompt, candidates) in enumerate(stored):
            order: Iterable[int] = range(len(candidates))
            if shuffle is not None:
                order = np.random.default_rng([shuffle, number]).permutation(len(candidates))
            self._stored[prompt_key(prompt)] = [candidates[position] for position in order]
        self._used = dict.fromkeys(self._stored, 0)
        every = [candidate for candidates in self._stored.values() for candidate in candidates]
        checks: dict[str, Callable[[Candidate], bool]] = {
            "logprobs": lambda candidate: candidate.logprobs is not None,
            "confidences": lambda candidate: candidate.confidences is not None,
        }
        self._offers = frozenset(name for name, has in checks.items() if every and all(map(has, every)))

    @property
    def offers(self) -> frozenset[str]:
        """Log-probs and confidences where every stored candidate has them; nothing else."""
        return self._offers

    @property
    def num_remaining(self) -> int:
        """Candidates not returned yet."""
        return sum(len(candidates) - self._used[key] for key, candidates in self._stored.items())

    async def sample(self, request: SampleRequest, meter: Meter) -> Candidate:
        """Return the next stored candidate; see `Sampler`."""
        await asyncio.sleep(0)
        meter.calls += 1
        key = prompt_key(request.prompt)
        stored = self._stored.get(key, [])
        number = self._used.get(key, 0)
        if number >= len(stored):
            raise not_stored_error(request, len(stored))
        candidate = stored[number]
        if candidate.prefix != request.prefix:
            raise ServerError(
                "The reply must continue a given prefix, and none such is stored.",
                "Run this strategy on a server.",
                fatal=True,
            )
        if candidate.tokens > request.sampling.max_tokens:
            raise ServerError(
                f"The next stored completion has {candidate.tokens} tokens, and {request.sampling.max_tokens} are"
                " allowed.",
                "Allow as many tokens as when the completions were sampled, or a larger budget.",
                fatal=True,
            )
        self._used[key] += 1
        result = halt_stored(candidate, request)
        meter.prompt_tokens += result.prompt_tokens
        meter.cached_tokens += result.cached_tokens
        meter.tokens += result.tokens
        return result

    async def close(self) -> None:
        """Do nothing: no connection is held."""


def prompt_key(prompt: Prompt) -> str:
    """Return roles and texts of a prompt as one text, different for different prompts."""
    if isinstance(prompt, str):
        return prompt
    return "\0".join(f"{message.get('role', '')}\0{text_of(message.get('content'))}" for message in prompt)


def not_stored_error(request: SampleRequest, stored: int) -> ServerError:
    """Return the error for a prompt without any, or any further, stored completion."""
    if not stored:
        prompt = prompt_key(request.prompt)[-80:].replace("\0", " ")
        return ServerError(
            f"No completion of this prompt is stored: ...{prompt!r}.", "Sample it from a server.", fatal=True
        )
    return ServerError(
        f"All {stored} stored completions of the prompt have been handed out.",
        "Store more, or ask for fewer.",
        fatal=True,
    )


def halt_stored(candidate: Candidate, request: SampleRequest) -> Candidate:
    """Return a candidate as the halt rule leaves it."""
    if request.halt is None or candidate.confidences is None or candidate.logprobs is None:
        return candidate
    watcher = request.halt.watch()
    for length, (logprob, confidence) in enumerate(zip(candidate.logprobs, candidate.confidences, strict=False), 1):
        if watcher.push("", float(logprob), float(confidence)) and length < candidate.tokens:
            return replace(
                candidate,
                text=candidate.text[: len(candidate.text) * length // candidate.tokens],
                tokens=length,
                finish="halt",
                logprobs=candidate.logprobs[:length],
                confidences=candidate.confidences[:length],
            )
    return candidate
