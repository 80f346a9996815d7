"""A scripted model whose accuracy is a known function of how long it thinks: for seeing whether an optimum is found blind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from breadth.inference.records import Candidate, text_of
from breadth.runtime.sampler import Draw, Meter

WORD = "hmm "
"""What one token of thinking looks like."""
FINAL = "Final Answer:"
"""What a prefix ends with when thinking was cut and the answer is wanted."""
ANSWER_TOKENS = 4


@dataclass
class HumpModel:
    """A sampler that thinks word by word and is right with a probability that you choose.

    Left alone it thinks ``natural`` words and states its answer; told to go on it thinks as long again; cut, it answers
    at once. How long it has thought is counted in what stands before the answer, so whoever forces its thinking sees
    the accuracy of that length.
    """

    accuracy: Callable[[int], float]
    """Words of thinking -> chance that an answer is right."""
    truths: Mapping[str, str]
    """Question -> right answer."""
    natural: int = 32
    """Words it thinks by itself."""
    misled: float = 1.0
    """Share of wrong answers that are the same one: 1 makes voting useless where it is wrong more often than not, 0
    spreads them.
    """
    surer: float = 0.0
    """How much higher the confidence of right answers is than that of wrong ones, whose standard deviation is 1; only where log-probs are
    asked for."""
    offers: frozenset[str] = frozenset({"prefix", "seed", "confidences", "logprobs"})
    """What it can do."""
    limit: int | None = None
    """Draws after which it hangs, as if the process were about to be killed; None for no limit."""
    drawn: list[Draw] = field(default_factory=list)
    """Everything asked of it."""

    async def draw(self, draw: Draw, meter: Meter) -> Candidate:
        """Think, and answer when there is room to."""
        meter.calls += 1
        if self.limit is not None and len(self.drawn) >= self.limit:
            await asyncio.Event().wait()
        self.drawn.append(draw)
        rng = np.random.default_rng(draw.seed)
        words = 0 if draw.prefix.endswith(FINAL) else self.natural
        room = draw.sampling.max_tokens
        if words + ANSWER_TOKENS > room:
            words, text, finish = room, WORD * room, "length"
        else:
            text, finish = WORD * words + self._answer(draw, rng, words), "stop"
        tokens = words + (ANSWER_TOKENS if finish == "stop" else 0)
        meter.prompt_tokens, meter.tokens = 10 + draw.prefix.count(WORD), tokens
        confidences = self._confidences(draw, rng, text) if draw.sampling.top_logprobs else None
        return Candidate(
            text,
            finish="stop" if finish == "stop" else "length",
            prompt_tokens=meter.prompt_tokens,
            tokens=tokens,
            confidences=confidences,
            logprobs=confidences,
        )

    async def close(self) -> None:
        """Do nothing."""

    def _answer(self, draw: Draw, rng: np.random.Generator, words: int) -> str:
        truth = self.truths[_question(draw)]
        thought = draw.prefix.count(WORD) + words
        said = " " if draw.prefix.endswith(FINAL) else "The answer is "
        if rng.random() < self.accuracy(thought):
            return f"{said}{truth}."
        wrong = 1 if rng.random() < self.misled else int(rng.integers(2, 1000))
        return f"{said}{int(truth) + wrong}."

    def _confidences(
        self, draw: Draw, rng: np.random.Generator, text: str
    ) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        right = text.endswith(f" {self.truths[_question(draw)]}.")
        return np.array([10 + rng.normal() + self.surer * right], dtype=np.float32)


def _question(draw: Draw) -> str:
    if isinstance(draw.prompt, str):
        return draw.prompt
    return text_of(draw.prompt[-1].get("content"))
