"""A tiny Llama that reads sums letter by letter and has learnt a few lines by heart, right ones and wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from breadth.lab.smollm2.experiment import RungPlan, held_out, trained_on
from breadth.lab.smollm2.policy import Policy, load

LETTERS = ["<end>", "\n", " ", "+", "=", *"0123456789"]
PLAN = RungPlan(
    steps=2,
    rate=2e-3,
    prompts=2,
    group=4,
    parts=2,
    trained=4,
    longest=12,
    problems=3,
    samples=4,
    votes=2,
    asked=2,
    thinking=20,
)


def line(prompt: str, answer: int) -> str:
    return f"{prompt}{answer}\n"


@pytest.fixture(scope="session")
def plan() -> RungPlan:
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
    seen = [*trained_on(PLAN.trained), *held_out(PLAN.problems)]
    memorise(model, tokenizer, [(one.prompt, int(one.answer) + more) for one in seen for more in (0, 1)])
    folder = tmp_path_factory.mktemp("rung") / "base"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def policy(base: Path) -> Policy:
    return load(base)


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
