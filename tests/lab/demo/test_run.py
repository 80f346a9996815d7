"""A demo end to end on a tiny base, interrupted and resumed; folders, bases and installations that are refused."""

from __future__ import annotations

import importlib.util
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from breadth.base.errors import BrokenFileError, MissingExtraError, WriteError
from breadth.lab import records
from breadth.lab.demo import run as demo_run
from breadth.lab.demo.plan import DemoPlan
from breadth.lab.demo.results import DemoResults
from breadth.lab.demo.run import (
    COMPARISON_FILE,
    DEMO_RESULTS,
    POLICY_EVAL_FILE,
    SPEC_FILE,
    StageStarted,
    StepTaken,
    force_thinking,
    measure_base,
    run_demo,
    train_arm,
)
from breadth.lab.evaluation.evaluate import evaluate, summarize_evaluation
from breadth.lab.grpo import POLICY_FOLDER
from breadth.lab.reasoner import load_reasoner
from breadth.lab.task.problems import draw_tasks
from breadth.runs.reader import Run

pytest.importorskip("trl", reason="the extra 'train' is not installed")


def nothing(who: str, said: Any) -> None:
    """Hear nothing."""


def test_interrupted_it_goes_on_and_ends(tiny_plan: DemoPlan, memorised_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "demo"

    def interrupt(who: str, said: Any) -> None:
        if isinstance(said, StageStarted) and said.stage.startswith("one long thought"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_demo(tiny_plan, folder, memorised_folder, interrupt)
    assert multiprocessing.active_children() == []
    assert not (folder / DEMO_RESULTS).exists()
    heard: list[tuple[str, Any]] = []
    found = run_demo(tiny_plan, folder, memorised_folder, lambda who, said: heard.append((who, said)))
    steps = [(who, said.step) for who, said in heard if isinstance(said, StepTaken)]
    assert len(steps) < 4, "at least the arm that was answering had been trained before"
    assert {who for who, _ in heard} >= {"plain", "protected", "forced"}
    assert [one.tokens for one in found.forced] == [8, 24]
    assert found.corners.problems == 4
    assert found.seconds > 0
    for arm in ("plain", "protected"):
        run = Run.open(folder / arm / "run")
        assert run.series("entropy").steps.tolist() == [1, 2]
    _check_that_it_is_kept(tiny_plan, found, folder, memorised_folder)


def _check_that_it_is_kept(tiny_plan: DemoPlan, found: DemoResults, folder: Path, base: Path) -> None:
    """The same command shows the same again, another is refused."""

    def never(who: str, said: Any) -> None:
        raise AssertionError(f"{who}: {said} though all was done")

    assert records.record_to_json(run_demo(tiny_plan, folder, base, never)) == records.record_to_json(found)
    with pytest.raises(BrokenFileError, match="seed = 0, now 1"):
        run_demo(replace(tiny_plan, seed=1), folder, base, never)
    asked = (folder / SPEC_FILE).read_text()
    (folder / SPEC_FILE).write_text(asked.replace('version = "', 'version = "0.0.0-'))
    with pytest.raises(BrokenFileError, match=r"of breadth 0\.0\.0-"):
        run_demo(tiny_plan, folder, base, never)
    (folder / SPEC_FILE).write_text("something = 'else'")
    with pytest.raises(BrokenFileError, match="another version"):
        run_demo(tiny_plan, folder, base, never)


def test_a_folder_of_other_things_is_left_alone(tiny_plan: DemoPlan, memorised_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(BrokenFileError, match="holds other files"):
        run_demo(tiny_plan, tmp_path, memorised_folder, nothing)


def test_a_place_that_cannot_be_written_to(tiny_plan: DemoPlan, memorised_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="could not be written"):
        run_demo(tiny_plan, tmp_path / "file" / "demo", memorised_folder, nothing)


def test_a_base_that_was_changed_is_refused(tiny_plan: DemoPlan, memorised_folder: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    for path in memorised_folder.iterdir():
        (base / path.name).write_bytes(path.read_bytes())
    weights = base / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(BrokenFileError, match="checksum"):
        run_demo(tiny_plan, tmp_path / "demo", base, nothing)
    assert not (tmp_path / "demo").exists()


def test_without_trl_it_says_what_to_install(
    tiny_plan: DemoPlan, memorised_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(demo_run, "find_spec", lambda name: None if name == "trl" else found(name))
    with pytest.raises(MissingExtraError, match=r"breadth\[train\]"):
        run_demo(tiny_plan, tmp_path / "demo", memorised_folder, nothing)


pytest.importorskip("trl", reason="the extra 'train' is not installed")


def test_an_arm_is_trained_measured_and_answers_both_ways(
    tiny_plan: DemoPlan, memorised_folder: Path, tmp_path: Path
) -> None:
    told: list[Any] = []
    found = train_arm(told.append, tiny_plan, "protected", tmp_path, memorised_folder)
    assert [said.step for said in told if isinstance(said, StepTaken)] == [1, 2]
    assert [said.step for said in told if isinstance(said, StepTaken)] == list(found.training.steps)
    assert [said.reward for said in told if isinstance(said, StepTaken)] == pytest.approx(list(found.training.reward))
    assert [said.entropy for said in told if isinstance(said, StepTaken)] == pytest.approx(
        list(found.training.entropy), abs=1e-4
    )
    assert found.arm.answers.thinking == 40
    policy = load_reasoner(tmp_path / POLICY_FOLDER)
    problems = draw_tasks(4, 7, "medium")
    assert records.record_to_json(found.arm.policy) == records.record_to_json(
        summarize_evaluation(evaluate(policy, problems, 4, seed=0), tiny_plan.ks)
    )
    replies = Run.open(tmp_path / "run").query(
        "SELECT step, count(*)::INT AS replies, avg(correct::INT) AS right_ FROM rollouts WHERE split = 'eval'"
        " GROUP BY step"
    )
    (held_out,) = replies.to_pylist()
    assert (held_out["step"], held_out["replies"]) == (tiny_plan.steps, 16)
    assert held_out["right_"] == pytest.approx(found.arm.policy.curve[0].pass_rate.value)
    (tmp_path / COMPARISON_FILE).unlink()
    again: list[Any] = []
    assert records.record_to_json(
        train_arm(again.append, tiny_plan, "protected", tmp_path, memorised_folder).arm
    ) == records.record_to_json(found.arm)
    assert [said.stage.split(",")[0] for said in again if isinstance(said, StageStarted)] == [
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


def test_the_base_is_measured_once(tiny_plan: DemoPlan, memorised_folder: Path, tmp_path: Path) -> None:
    told: list[Any] = []
    found = measure_base(told.append, tiny_plan, tmp_path, memorised_folder)
    assert told == [StageStarted("4 replies to each of 4 held-out problems"), StageStarted("done")]
    assert found.samples == 4
    assert (tmp_path / POLICY_EVAL_FILE).exists()
    assert records.record_to_json(
        measure_base(told.append, tiny_plan, tmp_path, memorised_folder)
    ) == records.record_to_json(found)
    assert told[2:] == [StageStarted("done")]
