"""A tiny model, its tokenizer and a run of TRL's GRPO on them, for the tests of the TRL adapter."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

WORDS = ["<pad>", "<eos>", "what", "is", "1", "2", "3", "4", "5", "6", "7", "8", "9", "plus", "?", "so"]


class Tiny:
    """Builds tiny trainers; everything in them is seeded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tokenizer(self) -> Any:
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast

        words = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="so"))
        words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")

    def model(self) -> Any:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.set_num_threads(1)
        torch.manual_seed(0)
        sizes = LlamaConfig(
            vocab_size=len(WORDS),
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
        return LlamaForCausalLM(sizes)

    def arguments(self, name: str, **changes: Any) -> Any:
        from trl import GRPOConfig

        settings: dict[str, Any] = {
            "output_dir": str(self.folder / name),
            "logging_steps": 1,
            "max_steps": 4,
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 6,
            "save_strategy": "no",
            "learning_rate": 1e-2,
            "lr_scheduler_type": "constant",
            "report_to": [],
            "use_cpu": True,
            "bf16": False,
            "disable_tqdm": True,
            "shuffle_dataset": False,
            "seed": 3,
        }
        return GRPOConfig(**(settings | changes))

    def questions(self) -> Any:
        from datasets import Dataset

        sums = [(one, two) for one in range(1, 5) for two in range(1, 5)]
        prompts = [f"what is {one} plus {two} ?" for one, two in sums]
        return Dataset.from_dict({"prompt": prompts, "truth": [str(one + two) for one, two in sums]})

    def trainer(
        self,
        name: str,
        objective: Any = None,
        *,
        rewards: Any = None,
        options: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Any:
        """Build TRL's own trainer, or ours when there is an objective."""
        from trl import GRPOTrainer

        from breadth.adapters.trl.trainer import BreadthGRPOTrainer

        ours = {} if objective is None else {"objective": objective}
        kind = GRPOTrainer if objective is None else BreadthGRPOTrainer
        model, arguments = self.model(), self.arguments(name, **changes)
        return kind(
            model,
            rewards or has_two,
            arguments,
            self.questions(),
            processing_class=self.tokenizer(),
            **ours,
            **(options or {}),
        )

    def train(self, trainer: Any, resume: Path | None = None) -> list[dict[str, Any]]:
        """Train quietly, from the same seed whatever ran before; returns the log of the optimizer steps."""
        from transformers import set_seed

        set_seed(3)
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
        return [row for row in trainer.state.log_history if "reward" in row]


def has_two(completions: list[str], **_: Any) -> list[float]:
    return [1.0 if "2" in completion.split() else 0.0 for completion in completions]


def told_rollouts(seed: int = 0) -> Callable[[list[str], Any], dict[str, Any]]:
    """Return completions that depend on the step and on their place among those of all processes only.

    In place of sampling.
    """

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        import numpy as np

        first = trainer.accelerator.process_index * len(prompts)
        completions = []
        for place in range(first, first + len(prompts)):
            dice = np.random.default_rng([seed, trainer.state.global_step, place])
            completions.append([*dice.integers(2, len(WORDS), size=dice.integers(1, 6)).tolist(), 1])
        ids = trainer.processing_class(prompts)["input_ids"]
        return {
            "prompt_ids": ids,
            "completion_ids": completions,
            "logprobs": [[-1.0] * len(one) for one in completions],
        }

    return rollout


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    if find_spec("trl") is None:
        pytest.skip("TRL is not installed (extra 'train')")
    return Tiny(tmp_path)


@pytest.fixture
def told() -> Callable[..., Any]:
    return told_rollouts
