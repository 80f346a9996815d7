"""The next token from the logits of a model: penalties, temperature, cuts, then one draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from breadth.inference.records import Sampling


def chosen_token(logits: Any, sampling: Sampling, prompt: Sequence[int], written: Sequence[int], generator: Any) -> int:
    """Draw a token: penalties, temperature, min-p, top-k, top-p, chance; temperature 0 takes the likeliest.

    Repetition is punished over prompt and reply, presence and frequency over the reply alone, as OpenAI and vLLM have it.
    """
    import torch

    scores = _punished(logits, sampling, prompt, written)
    if sampling.temperature == 0:
        return int(scores.argmax())
    scores = scores / sampling.temperature
    if sampling.min_p > 0:
        scores = scores.masked_fill(scores < scores.max() + math.log(sampling.min_p), -math.inf)
    if 0 < sampling.top_k < len(scores):
        scores = scores.masked_fill(scores < scores.topk(sampling.top_k).values[-1], -math.inf)
    if sampling.top_p < 1:
        ordered, places = scores.sort(descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        scores = scores.scatter(0, places[before >= sampling.top_p], -math.inf)
    return int(torch.multinomial(scores.softmax(-1), 1, generator=generator))


def _punished(logits: Any, sampling: Sampling, prompt: Sequence[int], written: Sequence[int]) -> Any:
    """Return logits with the penalties for tokens seen before."""
    import torch

    if sampling.repetition_penalty == 1 and not sampling.presence_penalty and not sampling.frequency_penalty:
        return logits
    counts = torch.bincount(torch.tensor(list(written), dtype=torch.long), minlength=len(logits))[: len(logits)]
    known = counts.clone()
    known[torch.tensor(list(prompt), dtype=torch.long)] += 1
    weaker = torch.where(logits > 0, logits / sampling.repetition_penalty, logits * sampling.repetition_penalty)
    punished = torch.where(known > 0, weaker, logits)
    return punished - sampling.presence_penalty * (counts > 0) - sampling.frequency_penalty * counts
