"""A tiny Llama that reads sums letter by letter and has learnt a few lines by heart, right ones and wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from breadth.lab.smollm2.experiment import SmolLM2Plan, list_held_out_sums, training_sums
from breadth.lab.smollm2.policy import SmolLM2Policy, load_policy

LETTERS = ["<end>", "\n", " ", "+", "=", *"0123456789"]
PLAN = SmolLM2Plan(
    steps=2,
    learning_rate=2e-3,
    prompts=2,
    group=4,
    accumulation_steps=2,
    train_problems=4,
    max_completion_length=12,
    problems=3,
    samples=4,
    votes=2,
    compared_problems=2,
    thinking=20,
)


def line(prompt: str, answer: int) -> str:
    return f"{prompt}{answer}\n"


@pytest.fixture(scope="session")
def plan() -> SmolLM2Plan:
    """Everything the experiment does, in seconds."""
    return PLAN


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that answers the sums it has seen at once: rightly half of the time, else one too many."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = letters()
    config = LlamaConfig(
        vocab_size=len(LETTERS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    seen = [*training_sums(PLAN.train_problems), *list_held_out_sums(PLAN.problems)]
    memorise(model, tokenizer, [(one.prompt, int(one.answer) + more) for one in seen for more in (0, 1)])
    folder = tmp_path_factory.mktemp("rung") / "base"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def policy(base: Path) -> SmolLM2Policy:
    return load_policy(base)


def letters() -> Any:
    """A tokenizer of single letters; its own end of text is not the line break."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({letter: number for number, letter in enumerate(LETTERS)}, unk_token="<end>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")


def memorise(model: Any, tokenizer: Any, lessons: list[tuple[str, int]]) -> None:
    rows = [tokenizer(line(prompt, answer))["input_ids"] for prompt, answer in lessons]
    width = max(map(len, rows))
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    labels = ids.masked_fill(ids == 0, -100)
    for place, (prompt, _) in enumerate(lessons):
        labels[place, : len(prompt)] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(150):
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
