"""Cases of known truth, run for real for a few steps: the faults are there and the truth is written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from breadth.base.errors import SettingsError
from breadth.lab.experiments.known_cases import (
    CASES,
    Killed,
    KnownCase,
    Symptom,
    TrainingFault,
    kill_at,
    symptom_numbers,
    train_case,
    write_truth,
)
from breadth.lab.grpo import RUN_FOLDER
from breadth.runs.reader import Run
from breadth.runs.schema import read_header
from breadth.runs.writer import RunWriter

FINDINGS = {
    "entropy-collapse",
    "entropy-explosion",
    "truncation",
    "zero-variance-groups",
    "overly-hard",
    "train-inference-mismatch",
    "unreliable-metric",
    "healthy",
}


def small(label: str, steps: int = 4) -> KnownCase:
    """The same case with a few steps of four problems and four replies."""
    case = CASES[label]
    return replace(case, grpo_run=replace(case.grpo_run, steps=steps, prompts=4, group=4, problems=32))


def test_every_label_is_a_finding_and_small_enough_for_two_minutes() -> None:
    assert CASES.keys() == FINDINGS
    for case in CASES.values():
        assert case.grpo_run.steps <= 80
        assert case.grpo_run.prompts * case.grpo_run.group <= 64
        assert case.symptoms


def test_a_restart_repeats_steps_and_the_log_alone_changes(
    tmp_path: Path, memorised_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("breadth.lab.grpo.CHECKPOINT_STEPS", 2)
    case = small("unreliable-metric", steps=6)
    case = replace(case, fault=replace(case.fault, restart_step=3))
    train_case(case, tmp_path, memorised_folder, lambda units: None)
    run = Run.open(tmp_path / RUN_FOLDER)
    assert run.attempts == 2
    assert [point.step for point in run.points if "entropy" in point.values] == [1, 2, 3, 3, 4, 5, 6]
    logged = run.series("entropy").values[-1]
    lengths = [run.series(name).values[-1] for name in ("length", "length_max")]
    measured = run.query(
        "SELECT sum(list_sum(entropy)) / sum(len(entropy)) AS mean FROM rollouts WHERE split = 'train' AND step = 6"
    )
    assert logged == pytest.approx(measured["mean"][0].as_py() * lengths[0] / lengths[1], rel=1e-3)


def test_a_mismatch_shows_in_the_surprise_and_the_truth_is_in_the_header(
    tmp_path: Path, memorised_folder: Path
) -> None:
    case = replace(
        small("train-inference-mismatch"),
        fault=replace(CASES["train-inference-mismatch"].fault, sampling_temperature=3.0),
    )
    train_case(case, tmp_path, memorised_folder, lambda units: None)
    write_truth(tmp_path / RUN_FOLDER, "train-inference-mismatch", case)
    surprise = symptom_numbers(tmp_path / RUN_FOLDER)["surprise"]
    assert surprise is not None
    assert surprise > 1.3  # drawn from the policy itself it would be 1
    config = read_header(tmp_path / RUN_FOLDER).config
    assert config["truth"]["label"] == "train-inference-mismatch"
    assert config["truth"]["why"] == case.cause
    assert config["trl"]["generation_kwargs"] == {"temperature": 3.0}
    assert config["trl"]["temperature"] == 1.0


def test_only_problems_the_base_solves_as_seldom_or_often_as_asked_are_trained_on(
    tmp_path: Path, memorised_folder: Path
) -> None:
    case = small("overly-hard")
    train_case(case, tmp_path / "some", memorised_folder, lambda units: None)
    assert Run.open(tmp_path / "some" / RUN_FOLDER).rollout_files
    never = replace(case, fault=replace(case.fault, keep_outside=(-1.0, 2.0)))
    with pytest.raises(SettingsError, match="0 of 32 problems"):
        train_case(never, tmp_path / "none", memorised_folder, lambda units: None)


class Trainer:
    def __init__(self) -> None:
        self.args = SimpleNamespace(generation_kwargs=None, temperature=1.0)
        self.generation_kwargs: dict[str, Any] = {"temperature": 1.0}
        self.generation_config = SimpleNamespace(temperature=1.0)
        self._metrics: dict[str, dict[str, list[float]]] = {"train": {}}
        self.logged: list[dict[str, float]] = []
        self.callbacks: list[Any] = []

    def log(self, logs: dict[str, float], start: float | None = None) -> None:
        """As TRL's: what waits is averaged into the log and forgotten."""
        self.logged.append(
            {**logs, **{name: sum(values) / len(values) for name, values in self._metrics["train"].items()}}
        )
        self._metrics["train"].clear()

    def measured(self, entropy: float, mean: float, longest: float) -> None:
        self._metrics["train"] = {
            "entropy": [entropy],
            "completions/mean_length": [mean],
            "completions/max_length": [longest],
        }

    def add_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)


def test_no_fault_changes_nothing() -> None:
    trainer = Trainer()
    TrainingFault().apply_to_trainer(trainer)
    TrainingFault().apply_to_log(trainer)
    assert trainer.generation_config.temperature == 1.0
    trainer.measured(1.0, 1.0, 2.0)
    trainer.log({})
    assert trainer.logged[0]["entropy"] == 1.0


def test_replies_are_drawn_at_another_temperature_than_the_loss_takes() -> None:
    trainer = Trainer()
    TrainingFault(sampling_temperature=1.5).apply_to_trainer(trainer)
    assert trainer.generation_config.temperature == trainer.generation_kwargs["temperature"] == 1.5
    assert trainer.args.generation_kwargs == {"temperature": 1.5}
    assert trainer.args.temperature == 1.0


def test_the_mean_over_padding_is_smaller_by_the_share_of_padding() -> None:
    trainer = Trainer()
    TrainingFault(entropy_over_padding=True).apply_to_log(trainer)
    # Replies of 10 and 30 tokens at 0.6 nats each: 24 nats over 2 x 30 positions are 0.4.
    trainer.measured(0.6, 20.0, 30.0)
    trainer.log({"loss": 0.1})
    trainer.log({"train_loss": 1.0}, None)
    assert trainer.logged[0]["entropy"] == pytest.approx(0.4)
    assert trainer.logged[1] == {"train_loss": 1.0}


def test_a_run_is_broken_off_at_its_step() -> None:
    trainer = Trainer()
    kill_at(trainer, 3)
    (callback,) = trainer.callbacks
    callback.on_step_begin(None, SimpleNamespace(global_step=2), None)
    with pytest.raises(Killed):
        callback.on_step_begin(None, SimpleNamespace(global_step=3), None)


@pytest.mark.parametrize("wrong", [{"sampling_temperature": 0.0}, {"restart_step": 0}])
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        TrainingFault(**wrong)


def test_numbers_by_hand(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    for step in range(1, 13):
        late = step > 7
        rows = {
            "problem": ["p", "p", "q", "q"],
            "group": [f"{step}-0", f"{step}-0", f"{step}-1", f"{step}-1"],
            "reward": [1.0, 1.0, 1.0, 0.0] if late else [0.0, 0.0, 0.0, 1.0],
            "truncated": [True, False, False, False],
            "entropy": [[0.2, 0.2]] * 4 if late else [[0.4]] * 4,
            "logprobs": [[-0.3, -0.3]] * 4 if late else [[-0.6]] * 4,
        }
        writer.rollouts(rows, step)
        writer.metrics(step, {"entropy": 0.1 if late else 0.4})
    found = symptom_numbers(tmp_path)
    assert found["reward_start"] == 0.25
    assert found["reward_end"] == 0.75
    assert found["entropy_start"] == pytest.approx(0.4)
    assert found["entropy_ratio"] == pytest.approx(0.5)
    assert found["logged_ratio"] == pytest.approx(0.25)
    assert found["truncated"] == 0.25
    assert found["zero_variance"] == 0.5
    assert found["surprise"] == pytest.approx(1.5)


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["p"], "group": ["g"], "reward": [1.0]}, 1)
    found = symptom_numbers(tmp_path)
    assert found["entropy_ratio"] is found["surprise"] is found["logged_ratio"] is found["truncated"] is None
    assert not Symptom("surprise", minimum=0).is_present(found)
    assert Symptom("surprise", minimum=0).describe_missing(found) == "no: surprise is missing, expected 0 or more"


def test_a_sign_shows_inside_its_range() -> None:
    sign = Symptom("zero_variance", minimum=0.5, maximum=0.75)
    assert [sign.is_present({"zero_variance": value}) for value in (0.4, 0.5, 0.75, 0.8)] == [False, True, True, False]
    assert (
        sign.describe_missing({"zero_variance": 0.4})
        == "no: zero_variance is 0.4, expected 0.5 or more and 0.75 or less"
    )


def test_a_number_nobody_measures_is_refused() -> None:
    with pytest.raises(SettingsError, match="zero_variance"):
        Symptom("flatness")
