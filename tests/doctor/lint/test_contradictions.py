"""Every rule of what contradicts itself: where it holds, and each look-alike where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.dialects import dialect_of
from breadth.doctor.evidence import Evidence
from breadth.doctor.knobs import Clash, Knobs
from breadth.doctor.lint.contradictions import contradictions
from breadth.doctor.lint.points import Point


def points(**values: Any) -> list[Point]:
    theirs = {name: f"{name}={value}" for name, value in values.items()}
    return list(contradictions(Evidence("config", knobs=Knobs(**values, theirs=theirs))))


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
        ({"longest": 4096, "longest_prompt": 1024, "context": 4096}, True),
        ({"longest": 3072, "longest_prompt": 1024, "context": 4096}, None),
        ({"longest": 4096, "context": 4096}, None),  # how long prompts are is not known
        ({"longest": 4097, "context": 4096}, True),
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
    found = points(**settings)
    assert [one.grave for one in found] == ([] if grave is None else [grave])


def test_a_trainer_that_cuts_the_distribution_in_the_loss_too_is_consistent() -> None:
    knobs = Knobs(top_p=0.9, correct_mismatch=False, theirs={"top_p": "policy.generation.top_p=0.9"})
    assert list(contradictions(Evidence("config", knobs=knobs, dialect=dialect_of("nemo-rl")))) == []
    assert len(list(contradictions(Evidence("config", knobs=knobs, dialect=dialect_of("verl"))))) == 1


def test_defaults_of_the_trainer_contradict_nobody() -> None:
    knobs = Knobs(
        group=1,
        estimator="grpo",
        clip_low=0.3,
        clip_high=0.2,
        dual_clip=1.1,
        temperature=0.0,
        top_p=0.9,
        correct_mismatch=False,
    )
    assert list(contradictions(Evidence("config", knobs=knobs))) == []


def test_a_group_left_at_one_beside_an_estimator_that_was_chosen() -> None:
    knobs = Knobs(group=1, estimator="grpo", theirs={"estimator": "algorithm.adv_estimator=grpo"})
    (found,) = contradictions(Evidence("config", knobs=knobs))
    assert found.setting == "algorithm.adv_estimator=grpo; group left at its default"


def test_all_bent_samplings_are_one_point_with_one_remedy() -> None:
    (found,) = points(top_p=0.9, top_k=50, repetition_penalty=1.1, correct_mismatch=False)
    assert found.remedy is not None
    assert {change.knob: change.value for change in found.remedy.changes} == {
        "top_p": 1.0,
        "top_k": 0,
        "repetition_penalty": 1.0,
    }


@pytest.mark.parametrize(("weight", "grave"), [("refused", True), ("wrong", True), ("slight", False)])
def test_what_the_trainer_s_own_rules_say(weight: Any, grave: bool) -> None:
    (found,) = contradictions(Evidence("config", knobs=Knobs(clashes=(Clash("a=1, b=2", "they differ", weight),))))
    assert found.grave == grave
    assert ("refuses to start" in found.why) == (weight == "refused")


def test_a_run_that_started_was_not_refused(make: Any) -> None:
    evidence = make(reward=np.ones(20), knobs=Knobs(clashes=(Clash("a=1, b=2", "they differ", "refused"),)))
    (found,) = contradictions(evidence)
    assert not found.grave
    assert found.why == "they differ; the run started all the same"
