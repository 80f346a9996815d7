"""TRL's tensors as our records, on made-up buffers with known numbers."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from breadth.adapters.trl.convert import (
    ROWS_KEY,
    Providers,
    ScoredCompletions,
    loss_mask,
    plain_text,
    to_batch,
    to_rollouts,
)
from breadth.base.errors import MechanismError
from breadth.measure.answers import stated_key
from breadth.runs.writer import problem_id
from breadth.training.credit.strategic_grams import StrategicGrams
from breadth.training.records import not_none

WORDS = ["<pad>", "<eos>", " let", " us", " try", " 7", " 8", " a"]


class Words:
    """A tokenizer that, like those of SentencePiece, takes the first blank of whatever it decodes away."""

    pad_token_id = 0

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        assert not add_special_tokens
        return {"input_ids": [WORDS.index(f" {word}") for word in text.split()]}

    def decode(self, ids: list[int]) -> str:
        return "".join(WORDS[token] for token in ids).removeprefix(" ")


def trainer(rank: int = 0, names: tuple[str, ...] = ("accuracy",), weights: tuple[float, ...] = (1.0,)) -> Any:
    return SimpleNamespace(
        accelerator=SimpleNamespace(process_index=rank),
        reward_weights=torch.tensor(weights),
        reward_func_names=list(names),
        num_generations=2,
        eos_token_ids=[1],
        _tokenizer=Words(),
    )


def scored(rewards: list[list[float]]) -> ScoredCompletions:
    ids = [[2, 3, 4, 5, 1], [6, 1]]
    return ScoredCompletions(["what is 3 + 4?"] * 2, [r"\boxed{7}", "no idea"], ids, torch.tensor(rewards))


OUTPUT = {"advantages": torch.tensor([0.5, -0.5]), "completion_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])}


def test_a_process_takes_its_own_rows_of_everybodys_rewards() -> None:
    told = scored([[0.0], [0.0], [1.0], [0.0]])
    rollouts = to_rollouts(trainer(rank=1), OUTPUT, told, Providers(), frozenset({"correct", "outcomes"}))
    assert rollouts.rewards.tolist() == [1.0, 0.0]
    assert rollouts.groups.tolist() == [1, 1]
    assert not_none(rollouts.correct).tolist() == [1.0, 0.0]
    assert rollouts.lengths.tolist() == [5, 2]
    assert rollouts.problems == [problem_id("what is 3 + 4?")] * 2
    assert rollouts.outcomes == ["7", None]
    assert not_none(rollouts.truncated).tolist() == [False, False]


def test_rewards_are_weighed_and_a_rollout_nobody_scored_has_none() -> None:
    nan = math.nan
    rollouts = to_rollouts(
        trainer(names=("a", "b"), weights=(1.0, 0.5)),
        OUTPUT,
        scored([[1.0, nan], [nan, nan]]),
        Providers(),
        frozenset(),
    )
    assert rollouts.rewards[0] == 1.0
    assert torch.isnan(rollouts.rewards[1])
    assert rollouts.correct is None  # two reward functions, and nobody said which one grades


def test_the_grade_is_the_one_named_and_must_be_right_or_wrong() -> None:
    told = scored([[0.3, 1.0], [0.2, 0.0]])
    owner = trainer(names=("length", "accuracy"), weights=(1.0, 1.0))
    named = to_rollouts(owner, OUTPUT, told, Providers(correct="accuracy"), frozenset({"correct"}))
    assert not_none(named.correct).tolist() == [1.0, 0.0]
    with pytest.raises(MechanismError, match=r"length gave 0\.3"):
        to_rollouts(owner, OUTPUT, told, Providers(correct="length"), frozenset({"correct"}))
    shaped = to_rollouts(trainer(), OUTPUT, scored([[0.3], [0.2]]), Providers(), frozenset())
    assert shaped.correct is None  # one shaped reward, and no mechanism asks


def test_planning_tokens_are_those_inside_a_gram() -> None:
    providers, told = Providers(grams=StrategicGrams(("let us try",))), scored([[1.0], [0.0]])
    rollouts = to_rollouts(trainer(), OUTPUT, told, providers, frozenset({"planning"}))
    assert to_rollouts(trainer(), OUTPUT, told, providers, frozenset()).planning is None
    assert not_none(rollouts.planning).tolist() == [[True, True, True, False, False], [False] * 5]


def test_all_processes_have_grades_or_none() -> None:
    """Rewards of 0 and 1 on one process alone are no grades, or joining the processes would fail."""
    told = scored([[0.0], [1.0], [0.5], [1.0]])
    assert all(to_rollouts(trainer(rank), OUTPUT, told, Providers(), frozenset()).correct is None for rank in (0, 1))


def test_what_can_be_provided() -> None:
    assert "credit.correct" in Providers().fields(["accuracy"])
    assert "credit.correct" not in Providers().fields(["accuracy", "length"])
    assert "credit.correct" in Providers(correct="length").fields(["accuracy", "length"])
    with pytest.raises(MechanismError, match="Did you mean 'length'"):
        Providers(correct="lenght").fields(["accuracy", "length"])
    assert "credit.planning" not in Providers().fields(["accuracy"])
    assert "loss.planning" not in Providers().fields(["accuracy"])
    assert {"credit.planning", "loss.planning"} <= Providers(grams=StrategicGrams(("what if we",))).fields(["accuracy"])


def test_a_micro_batch_with_tool_output_and_a_sampler_that_differs() -> None:
    logprobs = torch.zeros(2, 5)
    inputs = OUTPUT | {"tool_mask": torch.tensor([[1, 0, 1, 1, 1], [1, 1, 1, 1, 1]]), ROWS_KEY: torch.tensor([7, 3])}
    corrected = inputs | {"importance_sampling_ratio": torch.tensor([[2.0], [0.5]])}
    batch = to_batch(corrected, logprobs, torch.ones(2, 5))
    assert batch.mask.tolist() == [[True, False, True, True, True], [True, True, False, False, False]]
    assert not_none(batch.weights).tolist() == [[2.0] * 5, [0.5] * 5]
    assert not_none(batch.rows).tolist() == [7, 3]
    assert to_batch(inputs, logprobs, torch.ones(2, 5)).weights is None
    assert int(loss_mask(OUTPUT).sum()) == 7


def test_texts_and_outcomes() -> None:
    assert plain_text("so") == "so"
    assert (
        plain_text([{"role": "assistant", "content": "a"}, {"role": "tool", "content": None}, {"content": ["b"]}])
        == "a\nb"
    )
    pictures = [SimpleNamespace(tobytes=lambda value=value: value) for value in (b"cat", b"cat", b"dog")]
    asked = [
        plain_text([{"content": [{"type": "image", "image": one}, {"type": "text", "text": "what?"}]}])
        for one in pictures
    ]
    assert asked[0] == asked[1] != asked[2]  # the same problem in every epoch
    assert asked[0].endswith(">\nwhat?")
    assert stated_key(r"The answer is \boxed{\frac12}.") == stated_key(r"\boxed{0.5}")
    assert stated_key("hm") is None
