"""The work of a demo, done here and now on a tiny base: files are left for later, and what is there is not done again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="the extra 'train' is not installed")

from breadth.lab import records
from breadth.lab.courses.training import TRAINED
from breadth.lab.demo.jobs import BOTH_WAYS, MEASURED, StageBegun, StepTaken, force_thinking, measure_base, train_arm
from breadth.lab.demo.plan import Plan
from breadth.lab.measuring.evaluation import evaluate
from breadth.lab.measuring.measured import measured
from breadth.lab.model.reasoner import load
from breadth.lab.task.tasks import draw_tasks


def test_an_arm_is_trained_measured_and_answers_both_ways(
    tiny_plan: Plan, memorised_folder: Path, tmp_path: Path
) -> None:
    told: list[Any] = []
    found = train_arm(told.append, tiny_plan, "protected", tmp_path, memorised_folder)
    assert [said.step for said in told if isinstance(said, StepTaken)] == [1, 2]
    assert [said.step for said in told if isinstance(said, StepTaken)] == list(found.training.steps)
    assert [said.reward for said in told if isinstance(said, StepTaken)] == pytest.approx(list(found.training.reward))
    assert [said.entropy for said in told if isinstance(said, StepTaken)] == pytest.approx(
        list(found.training.entropy), abs=1e-4
    )
    assert found.arm.both_ways.thinking == 40
    policy = load(tmp_path / TRAINED)
    problems = draw_tasks(4, 7, "medium")
    assert records.dumps(found.arm.measured) == records.dumps(
        measured(evaluate(policy, problems, 4, seed=0), tiny_plan.ks)
    )
    (tmp_path / BOTH_WAYS).unlink()
    again: list[Any] = []
    assert records.dumps(
        train_arm(again.append, tiny_plan, "protected", tmp_path, memorised_folder).arm
    ) == records.dumps(found.arm)
    assert [said.stage.split(",")[0] for said in again if isinstance(said, StageBegun)] == [
        "training",
        "one long thought",
        "done",
    ]
    assert not [said for said in again if isinstance(said, StepTaken)]
    forced = force_thinking(told.append, tiny_plan, tmp_path, tmp_path / "24.json", 24)
    assert (forced.tokens, len(forced.accuracy)) == (24, 4)
    again.clear()
    assert force_thinking(again.append, tiny_plan, tmp_path, tmp_path / "24.json", 24) == forced
    assert again == []


def test_the_base_is_measured_once(tiny_plan: Plan, memorised_folder: Path, tmp_path: Path) -> None:
    told: list[Any] = []
    found = measure_base(told.append, tiny_plan, tmp_path, memorised_folder)
    assert told == [StageBegun("4 replies to each of 4 held-out problems"), StageBegun("done")]
    assert found.samples == 4
    assert (tmp_path / MEASURED).exists()
    assert records.dumps(measure_base(told.append, tiny_plan, tmp_path, memorised_folder)) == records.dumps(found)
    assert told[2:] == [StageBegun("done")]
