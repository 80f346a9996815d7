"""Cases of known truth, run for real for a few steps: the faults are there and the truth is written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from breadth.base.errors import SettingsError
from breadth.lab.experiments.known_cases import CASES, Case, Fault, Killed, Sign, kill_at, mark, numbers_of, train_case
from breadth.lab.grpo import RUN
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


def small(label: str, steps: int = 4) -> Case:
    """The same case with a few steps of four problems and four replies."""
    case = CASES[label]
    return replace(case, course=replace(case.course, steps=steps, prompts=4, group=4, problems=32))


def test_every_label_is_a_finding_and_small_enough_for_two_minutes() -> None:
    assert CASES.keys() == FINDINGS
    for case in CASES.values():
        assert case.course.steps <= 80
        assert case.course.prompts * case.course.group <= 64
        assert case.signs


def test_a_restart_repeats_steps_and_the_log_alone_changes(
    tmp_path: Path, memorised_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("breadth.lab.grpo.SAVED_EVERY", 2)
    case = small("unreliable-metric", steps=6)
    case = replace(case, fault=replace(case.fault, restarted_from=3))
    train_case(case, tmp_path, memorised_folder, lambda units: None)
    run = Run.open(tmp_path / RUN)
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
        small("train-inference-mismatch"), fault=replace(CASES["train-inference-mismatch"].fault, drawn_at=3.0)
    )
    train_case(case, tmp_path, memorised_folder, lambda units: None)
    mark(tmp_path / RUN, "train-inference-mismatch", case)
    surprise = numbers_of(tmp_path / RUN)["surprise"]
    assert surprise is not None
    assert surprise > 1.3  # drawn from the policy itself it would be 1
    config = read_header(tmp_path / RUN).config
    assert config["truth"]["label"] == "train-inference-mismatch"
    assert config["truth"]["why"] == case.why
    assert config["trl"]["generation_kwargs"] == {"temperature": 3.0}
    assert config["trl"]["temperature"] == 1.0


def test_only_problems_the_base_solves_as_seldom_or_often_as_asked_are_trained_on(
    tmp_path: Path, memorised_folder: Path
) -> None:
    case = small("overly-hard")
    train_case(case, tmp_path / "some", memorised_folder, lambda units: None)
    assert Run.open(tmp_path / "some" / RUN).rollout_files
    never = replace(case, fault=replace(case.fault, solved=(-1.0, 2.0)))
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
    Fault().put_into(trainer)
    Fault().put_into_log(trainer)
    assert trainer.generation_config.temperature == 1.0
    trainer.measured(1.0, 1.0, 2.0)
    trainer.log({})
    assert trainer.logged[0]["entropy"] == 1.0


def test_replies_are_drawn_at_another_temperature_than_the_loss_takes() -> None:
    trainer = Trainer()
    Fault(drawn_at=1.5).put_into(trainer)
    assert trainer.generation_config.temperature == trainer.generation_kwargs["temperature"] == 1.5
    assert trainer.args.generation_kwargs == {"temperature": 1.5}
    assert trainer.args.temperature == 1.0


def test_the_mean_over_padding_is_smaller_by_the_share_of_padding() -> None:
    trainer = Trainer()
    Fault(averaged_over_padding=True).put_into_log(trainer)
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


@pytest.mark.parametrize("wrong", [{"drawn_at": 0.0}, {"restarted_from": 0}])
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        Fault(**wrong)


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
    found = numbers_of(tmp_path)
    assert found["passed_start"] == 0.25
    assert found["passed_end"] == 0.75
    assert found["entropy_start"] == pytest.approx(0.4)
    assert found["entropy_ratio"] == pytest.approx(0.5)
    assert found["logged_ratio"] == pytest.approx(0.25)
    assert found["truncated"] == 0.25
    assert found["flat"] == 0.5
    assert found["surprise"] == pytest.approx(1.5)


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["p"], "group": ["g"], "reward": [1.0]}, 1)
    found = numbers_of(tmp_path)
    assert found["entropy_ratio"] is found["surprise"] is found["logged_ratio"] is found["truncated"] is None
    assert not Sign("surprise", least=0).shows(found)
    assert Sign("surprise", least=0).words(found) == "no: surprise is not there, wanted 0 or more"


def test_a_sign_shows_inside_its_range() -> None:
    sign = Sign("flat", least=0.5, most=0.75)
    assert [sign.shows({"flat": value}) for value in (0.4, 0.5, 0.75, 0.8)] == [False, True, True, False]
    assert sign.words({"flat": 0.4}) == "no: flat is 0.4, wanted 0.5 or more and 0.75 or less"


def test_a_number_nobody_measures_is_refused() -> None:
    with pytest.raises(SettingsError, match="flat"):
        Sign("flatness")
