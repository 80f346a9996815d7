"""Draws many replies to many prompts at once: a prompt is read once for all its replies, and a reply that has ended costs nothing more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from breadth.lab.rung.model import Policy
from breadth.lab.rung.sums import read_answer

ROWS = 256
"""Replies drawn at one time: enough for the arithmetic to be worth it, few enough for little memory."""


@dataclass(frozen=True)
class Reply:
    """One reply, drawn as the policy is: at temperature 1, from the whole vocabulary."""

    ids: list[int]
    """Its tokens, the end of the line included."""
    entropies: NDArray[np.float32]
    """Of the distributions they were drawn from, in nats."""
    text: str
    """What it says."""
    ended: bool
    """Whether it ended by itself."""

    @property
    def answer(self) -> str | None:
        """The answer in it."""
        return read_answer(self.text, ended=self.ended)


def draw_replies(policy: Policy, prompts: Sequence[str], each: int, longest: int, seed: int) -> list[list[Reply]]:
    """Draw so many replies to each prompt, of at most so many tokens; the same seed draws the same."""
    import torch

    generator, step = torch.Generator().manual_seed(seed), max(1, ROWS // each)
    found: list[list[Reply]] = []
    with torch.inference_mode():
        for start in range(0, len(prompts), step):
            some = prompts[start : start + step]
            drawn = _drawn(policy, some, each, longest, generator)
            found += [drawn[place * each : (place + 1) * each] for place in range(len(some))]
    return found


def rollouts_of(policy: Policy, longest: int) -> Callable[[Sequence[str], Any], dict[str, Any]]:
    """Return TRL's ``rollout_func``: a reply to each prompt given, drawn from the weights as they are then.

    Its seed comes from torch's own chance, which checkpoints keep: a run that goes on draws what it would have drawn.
    """
    import torch

    def rollouts(prompts: Sequence[str], _: Any) -> dict[str, Any]:
        counts = Counter(prompts)
        was_training = policy.model.training
        policy.model.eval()
        drawn = draw_replies(policy, list(counts), max(counts.values()), longest, int(torch.randint(2**62, ())))
        policy.model.train(was_training)
        waiting: dict[str, Iterator[Reply]] = {
            prompt: iter(replies) for prompt, replies in zip(counts, drawn, strict=True)
        }
        return {
            "prompt_ids": [list(policy.tokenizer(prompt)["input_ids"]) for prompt in prompts],
            "completion_ids": [next(waiting[prompt]).ids for prompt in prompts],
            "logprobs": None,
        }

    return rollouts


class _Rows:
    """The replies that have not ended: what the model remembers of each, and what it may say next."""

    def __init__(self, policy: Policy, prompts: Sequence[str], each: int) -> None:
        import torch

        read = [policy.tokenizer(prompt)["input_ids"] for prompt in prompts]
        width = max(map(len, read))
        ids = torch.tensor([[policy.end] * (width - len(row)) + row for row in read])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in read])
        places = (mask.cumsum(1) - 1).clamp(min=0)
        out = policy.model(input_ids=ids, attention_mask=mask, position_ids=places, use_cache=True, logits_to_keep=1)
        self.model, self.cache = policy.model, out.past_key_values
        self.cache.batch_repeat_interleave(each)
        self.logits = out.logits[:, -1].repeat_interleave(each, 0)
        self.mask, self.last = mask.repeat_interleave(each, 0), places[:, -1:].repeat_interleave(each, 0)
        self.numbers = torch.arange(len(prompts) * each)

    def draw(self, generator: Any) -> tuple[Any, Any]:
        """Draw the next token of each row; return them and the entropy of each choice."""
        import torch

        likely = self.logits.float().log_softmax(-1)
        shares = likely.exp()
        return torch.multinomial(shares, 1, generator=generator), -(shares * likely.clamp(min=-1e4)).sum(-1)

    def go_on(self, tokens: Any, kept: Any) -> None:
        """Let the model read the tokens of the rows that are kept; the others are forgotten."""
        import torch

        if not bool(kept.all()):
            places = kept.nonzero()[:, 0]
            self.cache.batch_select_indices(places)
            tokens, self.mask, self.last, self.numbers = (
                tokens[places],
                self.mask[places],
                self.last[places],
                self.numbers[places],
            )
        self.mask, self.last = torch.cat([self.mask, torch.ones_like(tokens)], 1), self.last + 1
        read = {
            "attention_mask": self.mask,
            "position_ids": self.last,
            "past_key_values": self.cache,
            "use_cache": True,
        }
        self.logits = self.model(input_ids=tokens, **read).logits[:, -1]


def _drawn(policy: Policy, prompts: Sequence[str], each: int, longest: int, generator: Any) -> list[Reply]:
    rows = _Rows(policy, prompts, each)
    ids: list[list[int]] = [[] for _ in rows.numbers]
    entropies: list[list[float]] = [[] for _ in rows.numbers]
    for left in reversed(range(longest)):
        tokens, choices = rows.draw(generator)
        for number, token, entropy in zip(rows.numbers.tolist(), tokens[:, 0].tolist(), choices.tolist(), strict=True):
            ids[number].append(token)
            entropies[number].append(entropy)
        kept = tokens[:, 0] != policy.end
        if not left or not bool(kept.any()):
            break
        rows.go_on(tokens, kept)
    return [
        Reply(one, np.array(entropy, np.float32), policy.said(one), one[-1] == policy.end)
        for one, entropy in zip(ids, entropies, strict=True)
    ]
