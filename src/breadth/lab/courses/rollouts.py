"""Draws the replies of a course with the lab's own engine, through the seam that TRL has for that: no reply waits for the longest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from breadth.inference.records import Sampling
from breadth.lab.model.reasoner import Reasoner
from breadth.lab.sampling.drawing import draw_all
from breadth.lab.sampling.jobs import Job

Rollouts = Callable[[Sequence[str], Any], dict[str, Any]]
"""Given the prompts of a generation, each as often as it is to be answered, and the trainer."""


def rollouts_of(reasoner: Reasoner, longest: int) -> Rollouts:
    """Return TRL's ``rollout_func`` for a reasoner: one reply to each prompt given, drawn from the weights as they are then.

    Seeds come from torch's own chance, which checkpoints keep: a run that goes on draws what it would have drawn. The
    temperature is that of the trainer's generation, whatever its loss takes it to be.
    """
    import torch

    def rollouts(prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        given = {prompt: tuple(reasoner.tokenizer(prompt)["input_ids"]) for prompt in dict.fromkeys(prompts)}
        sampling = Sampling(temperature=trainer.generation_config.temperature, top_p=1.0, max_tokens=longest)
        seeds = torch.randint(2**62, (len(prompts),)).tolist()
        drawn = draw_all(
            reasoner, [Job(given[prompt], sampling, seed) for prompt, seed in zip(prompts, seeds, strict=True)]
        )
        return {
            "prompt_ids": [list(given[prompt]) for prompt in prompts],
            "completion_ids": [one.ids.tolist() for one in drawn],
            "logprobs": None,
        }

    return rollouts
