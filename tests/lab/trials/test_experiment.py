"""Experiments: the catalogue, and the bench that knows one base from another."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.base.errors import BrokenFileError, CatalogueError, SettingsError, WriteError
from breadth.lab.reasoner import Reasoner, save_reasoner
from breadth.lab.trials.experiment import (
    EXPERIMENTS,
    FAILURE_FILE,
    RESULT_FILE,
    TRIAL_FILE,
    Experiment,
    ExperimentSetup,
    ExperimentTrial,
    list_finished,
    load_setup,
    prepare_trials,
    read_result,
    read_trial,
    write_result,
)


def test_every_experiment_is_known_by_its_own_name_and_says_what_it_tests() -> None:
    for name, experiment in EXPERIMENTS:
        one: Experiment = experiment
        assert one.name == name
        assert one.statement.endswith(".")
        assert "\n" not in one.statement
        assert one.seeds >= 1


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_every_experiment_has_different_trials_whose_settings_name_the_base_and_the_seed(name: str) -> None:
    trials = EXPERIMENTS.load(name).trials(ExperimentSetup(2, weights="abc"))
    assert len({trial.name for trial in trials}) == len(trials)
    assert len({str(trial.settings) for trial in trials}) == len(trials)
    assert {trial.settings["weights"] for trial in trials} == {"abc"}
    assert all(trial.units >= 1 for trial in trials)


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_more_seeds_add_trials_and_change_none(name: str) -> None:
    few, more = (EXPERIMENTS.load(name).trials(ExperimentSetup(seeds, weights="abc")) for seeds in (1, 3))
    assert set(map(str, few)) < set(map(str, more))


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_a_page_without_results_says_that_it_cannot_tell(name: str) -> None:
    page = EXPERIMENTS.load(name).page([], ExperimentSetup(1))
    assert page.sections[0].severity.value == "cannot tell"


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(CatalogueError, match="remedies"):
        EXPERIMENTS.load("remedy")


def test_the_bench_tells_bases_apart_and_refuses_a_damaged_one(tmp_path: Path, memorised: Reasoner) -> None:
    save_reasoner(memorised, tmp_path / "one")
    save_reasoner(memorised, tmp_path / "same")
    first, same = load_setup(tmp_path / "one", 2), load_setup(tmp_path / "same", 2)
    assert (first.weights, first.prime, first.seeds) == (same.weights, 7, 2)
    with (tmp_path / "same" / "model.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(BrokenFileError, match="checksum"):
        load_setup(tmp_path / "same", 2)


def test_no_seed_is_no_bench() -> None:
    with pytest.raises(SettingsError, match="seeds"):
        ExperimentSetup(0)


TRIAL = ExperimentTrial(
    "arm/seed-0",
    "module:work",
    {"rate": 0.1, "chain": {"kind": "plain", "high": float("inf")}, "parts": [{"low": 1}, {"low": 2}]},
)


def test_what_is_asked_is_read_back_and_the_same_is_accepted_again(tmp_path: Path) -> None:
    prepare_trials([TRIAL], tmp_path)
    assert read_trial(tmp_path / TRIAL.name) == ("module:work", TRIAL.settings)
    prepare_trials([TRIAL], tmp_path)


def test_another_setting_is_refused_by_its_name_and_both_values(tmp_path: Path) -> None:
    prepare_trials([TRIAL], tmp_path)
    other = ExperimentTrial(
        TRIAL.name, TRIAL.work, {"rate": 0.2, "chain": {"kind": "plain"}, "parts": [{"low": 1}, {"low": 3}]}
    )
    with pytest.raises(BrokenFileError) as caught:
        prepare_trials([other], tmp_path)
    assert "rate was 0.1, now 0.2" in str(caught.value)
    assert "chain.high was inf, now not set" in str(caught.value)
    assert "parts.1.low was 2, now 3" in str(caught.value)
    assert "parts.0" not in str(caught.value)
    assert "--out" in caught.value.remedy


def test_results_are_kept_and_an_earlier_failure_is_forgotten(tmp_path: Path) -> None:
    prepare_trials([TRIAL], tmp_path)
    folder = tmp_path / TRIAL.name
    assert read_result(folder) is None
    assert list_finished([TRIAL], tmp_path) == []
    (folder / FAILURE_FILE).write_text("it broke")
    write_result(folder, {"value": 1.5, "nothing": float("nan")}, 2.04)
    (one,) = list_finished([TRIAL], tmp_path)
    assert (one.trial, one.result, one.seconds) == (TRIAL, {"value": 1.5, "nothing": None}, 2.0)
    assert not (folder / FAILURE_FILE).exists()


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"result": {}}', b'{"result": {}, "seconds"'])
def test_a_damaged_result_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / RESULT_FILE).write_bytes(content)
    with pytest.raises(BrokenFileError, match="Delete it"):
        read_result(tmp_path)


@pytest.mark.parametrize("content", ["rate = ", "rate = 1", "work = 3"])
def test_a_damaged_question_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / TRIAL_FILE).write_text(content)
    with pytest.raises(BrokenFileError, match="Move the folder away"):
        read_trial(tmp_path)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "arm").write_text("a file in the way")
    with pytest.raises(WriteError, match="could not be written"):
        prepare_trials([TRIAL], tmp_path)
