"""Contradictions become one finding, by the words of the user's file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.adapters.trl.config import SETTINGS as TRL
from breadth.adapters.verl.config import SETTINGS as VERL
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Excluded, Finding
from breadth.doctor.findings.contradictory_settings import FINDING, find_contradictions
from breadth.doctor.lint import (
    Issue,
)
from breadth.doctor.trainer_config import Conflict, TrainerConfig, dialect_of
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

NAME = "contradictory-settings"


def checked(dialect: Any, settings: dict[str, Any]) -> Any:
    return FINDING.check(Evidence("config", config=dialect.translate(settings), dialect=dialect))


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, NAME)


def test_verl_left_at_one_response_a_prompt() -> None:
    found = checked(VERL, {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.optim.lr": 1e-6})
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is Severity.WARNING
    assert found.confidence == "certain"
    assert (
        found.headline == "1 contradiction is in the settings: algorithm.adv_estimator=grpo; group left at its default."
    )
    assert VERL.patch(found.prescriptions[0].changes, VERL.translate({})) == ("actor_rollout_ref.rollout.n=8",)


def test_several_are_listed_the_gravest_first() -> None:
    found = checked(
        TRL, {"num_generations": 8, "loss_type": "dr_grpo", "top_p": 0.9, "epsilon": 0.28, "epsilon_high": 0.2}
    )
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is Severity.WARNING
    assert (
        found.headline
        == "3 contradictions are in the settings: epsilon=0.28; epsilon_high=0.2; loss_type='dr_grpo'; top_p=0.9."
    )
    assert [one.action for one in found.prescriptions] == [
        "Swap the two: 0.2 below, 0.28 above",
        "Sample rollouts from the full distribution",
    ]
    patch = TRL.patch(found.prescriptions[0].changes, TRL.translate({}))
    assert patch == ("GRPOConfig(epsilon=0.2, epsilon_high=0.28)",)


def test_what_only_does_less_is_a_note() -> None:
    found = checked(TRL, {"num_generations": 8, "top_p": 0.95})
    assert isinstance(found, Finding)
    assert found.severity is Severity.NOTE


def test_a_sound_configuration_is_clear_and_so_is_none() -> None:
    assert isinstance(checked(TRL, {"num_generations": 8, "temperature": 0.7, "epsilon_high": 0.28}), Excluded)
    assert FINDING.check(Evidence("nothing")) is None


def user_config(**values: Any) -> TrainerConfig:
    """Return a configuration whose settings the user all set."""
    return TrainerConfig(**values, user_settings={name: f"{name}={value}" for name, value in values.items()})


def conflict_points(**values: Any) -> list[Issue]:
    theirs = {name: f"{name}={value}" for name, value in values.items()}
    return list(find_contradictions(Evidence("config", config=TrainerConfig(**values, user_settings=theirs))))


@pytest.mark.parametrize(
    ("settings", "grave"),
    [
        ({"group": 1, "estimator": "grpo"}, True),
        ({"group": 1, "estimator": "group_norm"}, True),
        ({"group": 1, "estimator": "gae"}, None),
        ({"group": 2, "estimator": "grpo"}, None),
        ({"group": 1}, None),
        ({"clip_low": 0.28, "clip_high": 0.2}, True),
        ({"clip_low": 0.2, "clip_high": 0.2}, None),
        ({"clip_low": 0.2, "clip_high": 0.28}, None),
        ({"clip_low": 0.28, "clip_high": 0.2, "clips": False}, None),
        ({"dual_clip": 1.1, "clip_high": 0.28, "clips": True}, True),
        ({"dual_clip": 1.28, "clip_high": 0.28, "clips": True}, True),
        ({"dual_clip": 3.0, "clip_high": 0.28, "clips": True}, None),
        ({"dual_clip": 1.1, "clip_high": 0.28, "clips": True, "loss": "dppo_tv"}, None),
        ({"dual_clip": 1.1, "clip_high": 0.28, "clips": False}, None),
        ({"temperature": 0.0, "group": 8}, True),
        ({"temperature": 0.7, "group": 8}, None),  # log-probs are taken at the temperature of the rollouts
        ({"max_completion_length": 4096, "max_prompt_length": 1024, "context": 4096}, True),
        ({"max_completion_length": 3072, "max_prompt_length": 1024, "context": 4096}, None),
        ({"max_completion_length": 4096, "context": 4096}, None),  # how long prompts are is not known
        ({"max_completion_length": 4097, "context": 4096}, True),
        ({"mask_truncated": True, "length_penalty": True}, False),
        ({"mask_truncated": True, "length_penalty": None}, None),
        ({"mask_truncated": False, "length_penalty": True}, None),
        ({"top_p": 0.95, "correct_mismatch": False}, False),
        ({"top_p": 0.95, "correct_mismatch": True}, None),
        ({"top_p": 0.95, "engine": "hf"}, False),  # no second engine, and nothing to weigh with
        ({"top_p": 0.95, "engine": "vllm"}, None),  # whether it is corrected is not known
        ({"top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0, "correct_mismatch": False}, None),
        ({"top_p": 95.0, "correct_mismatch": False}, None),  # a matter of units
        ({"top_k": 50, "correct_mismatch": False}, False),
        ({"min_p": 0.05, "correct_mismatch": False}, False),
        ({"repetition_penalty": 1.1, "correct_mismatch": False}, False),
    ],
    ids=str,
)
def test_rules(settings: dict[str, Any], grave: bool | None) -> None:
    found = conflict_points(**settings)
    assert [one.serious for one in found] == ([] if grave is None else [grave])


def test_a_trainer_that_cuts_the_distribution_in_the_loss_too_is_consistent() -> None:
    config = TrainerConfig(top_p=0.9, correct_mismatch=False, user_settings={"top_p": "policy.generation.top_p=0.9"})
    assert list(find_contradictions(Evidence("config", config=config, dialect=dialect_of("nemo-rl")))) == []
    assert len(list(find_contradictions(Evidence("config", config=config, dialect=dialect_of("verl"))))) == 1


def test_defaults_of_the_trainer_contradict_nobody() -> None:
    config = TrainerConfig(
        group=1,
        estimator="grpo",
        clip_low=0.3,
        clip_high=0.2,
        dual_clip=1.1,
        temperature=0.0,
        top_p=0.9,
        correct_mismatch=False,
    )
    assert list(find_contradictions(Evidence("config", config=config))) == []


def test_a_group_left_at_one_beside_an_estimator_that_was_chosen() -> None:
    config = TrainerConfig(group=1, estimator="grpo", user_settings={"estimator": "algorithm.adv_estimator=grpo"})
    (found,) = find_contradictions(Evidence("config", config=config))
    assert found.setting == "algorithm.adv_estimator=grpo; group left at its default"


def test_all_bent_samplings_are_one_point_with_one_remedy() -> None:
    (found,) = conflict_points(top_p=0.9, top_k=50, repetition_penalty=1.1, correct_mismatch=False)
    assert found.prescription is not None
    assert {change.setting: change.value for change in found.prescription.changes} == {
        "top_p": 1.0,
        "top_k": 0,
        "repetition_penalty": 1.0,
    }


@pytest.mark.parametrize(("weight", "grave"), [("refused", True), ("wrong", True), ("slight", False)])
def test_what_the_trainer_s_own_rules_say(weight: Any, grave: bool) -> None:
    (found,) = find_contradictions(
        Evidence("config", config=TrainerConfig(conflicts=(Conflict("a=1, b=2", "they differ", weight),)))
    )
    assert found.serious == grave
    assert ("refuses to start" in found.why) == (weight == "refused")


def test_a_run_that_started_was_not_refused(make: Any) -> None:
    evidence = make(
        reward=np.ones(20), config=TrainerConfig(conflicts=(Conflict("a=1, b=2", "they differ", "refused"),))
    )
    (found,) = find_contradictions(evidence)
    assert not found.serious
    assert found.why == "they differ; the run started anyway"


@pytest.mark.parametrize(
    ("model", "cap", "more", "found"),
    [
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1024, {}, True),
        ("Qwen/QwQ-32B", 4096, {}, True),
        ("Qwen/QwQ-32B", 4097, {}, False),
        ("Qwen/Qwen3-4B-Thinking-2507", 2048, {"thinking": False}, True),  # it has no other mode
        ("Qwen/Qwen3-8B", 2048, {}, True),
        ("/models/Qwen3-30B-A3B-FP8/", 2048, {}, True),
        ("unsloth/Qwen3-4B-unsloth-bnb-4bit", 2048, {}, True),
        ("Qwen/Qwen3-8B", 2048, {"thinking": False}, False),
        ("Qwen/Qwen3-8B-Base", 2048, {}, False),
        ("Qwen/Qwen3-4B-Instruct-2507", 2048, {}, False),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 2048, {}, False),
        ("Qwen/Qwen2.5-Math-7B", 2048, {}, False),
        ("meta-llama/Llama-3.1-8B-Instruct", 256, {}, False),
    ],
)
def test_a_short_cap_for_a_model_that_thinks_long(model: str, cap: int, more: dict[str, Any], found: bool) -> None:
    points = conflict_points(model=model, max_completion_length=cap, **more)
    assert [point.serious for point in points] == [False] * found
    for point in points:
        assert point.prescription is not None
        assert [(change.setting, change.value) for change in point.prescription.changes] == [
            ("max_completion_length", 8192)
        ]
    assert (
        list(find_contradictions(Evidence("config", config=TrainerConfig(model=model, max_completion_length=8)))) == []
    )


def test_a_loss_whose_name_means_another_method() -> None:
    (point,) = conflict_points(loss="dro")
    assert not point.serious
    assert "Direct Reward Optimization" in point.why
    assert list(find_contradictions(Evidence("config", config=TrainerConfig(loss="dro")))) == []


def test_a_lower_bound_of_cispo_may_be_as_wide_as_one_likes() -> None:
    assert conflict_points(clip_low=10.0, clip_high=0.2, clips=True, loss="cispo") == []


def test_refusal_names_the_first_version_that_refuses() -> None:
    refused = Conflict("a=1", "a excludes b", consequence="refused", since="TRL 0.18")
    (point,) = find_contradictions(Evidence("config", config=TrainerConfig(conflicts=(refused,))))
    assert point.why == "a excludes b; TRL 0.18 and later refuse to start"
    unknown = Conflict("a=1", "a excludes b", consequence="refused")
    (point,) = find_contradictions(Evidence("config", config=TrainerConfig(conflicts=(unknown,))))
    assert point.why == "a excludes b; the trainer refuses to start"
