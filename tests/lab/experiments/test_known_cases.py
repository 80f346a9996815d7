"""Cases of known truth, run for real for a few steps: the faults are there and the truth is written down."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from breadth.base.errors import SettingsError
from breadth.lab.courses.signs import numbers_of
from breadth.lab.courses.training import RUN
from breadth.lab.experiments.known_cases import CASES, Case, mark, train_case
from breadth.runs.reader import Run
from breadth.runs.schema import read_header

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
    monkeypatch.setattr("breadth.lab.courses.training.SAVED_EVERY", 2)
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
