"""Replies drawn for TRL: one a prompt, from the weights as they are, by torch's own chance, at the trainer's temperature."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from breadth.lab.courses.rollouts import rollouts_of
from breadth.lab.model.reasoner import Reasoner
from breadth.lab.task.grammar import END
from breadth.lab.task.tasks import held_out

LONGEST = 40


@pytest.fixture
def chance() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        yield


def trainer(temperature: float) -> SimpleNamespace:
    return SimpleNamespace(generation_config=SimpleNamespace(temperature=temperature))


@pytest.mark.usefixtures("chance")
def test_one_reply_a_prompt_in_order(memorised: Reasoner) -> None:
    first, second = (problem.text for problem in held_out(memorised.teacher.facts.prime, "medium")[:2])
    found = rollouts_of(memorised, LONGEST)([first, first, second], trainer(1.0))
    ids = [memorised.tokenizer(text)["input_ids"] for text in (first, first, second)]
    assert found["prompt_ids"] == ids
    assert found["logprobs"] is None
    end = memorised.tokenizer.convert_tokens_to_ids(END)
    assert len(found["completion_ids"]) == 3
    for reply in found["completion_ids"]:
        assert (reply[-1] == end and end not in reply[:-1]) or len(reply) == LONGEST


def test_the_same_chance_gives_the_same_replies(memorised: Reasoner) -> None:
    prompts = [held_out(memorised.teacher.facts.prime, "medium")[0].text] * 8
    draw = rollouts_of(memorised, LONGEST)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        once, twice = (draw(prompts, trainer(1.0))["completion_ids"] for _ in range(2))
        torch.manual_seed(1)
        again = draw(prompts, trainer(1.0))["completion_ids"]
    assert once == again
    assert once != twice


@pytest.mark.usefixtures("chance")
def test_the_temperature_is_the_trainers(memorised: Reasoner) -> None:
    prompts = [held_out(memorised.teacher.facts.prime, "medium")[0].text] * 8
    cold = rollouts_of(memorised, LONGEST)(prompts, trainer(0.001))["completion_ids"]
    assert len({tuple(reply) for reply in cold}) == 1
    hot = rollouts_of(memorised, LONGEST)(prompts, trainer(3.0))["completion_ids"]
    assert len({tuple(reply) for reply in hot}) > 1
