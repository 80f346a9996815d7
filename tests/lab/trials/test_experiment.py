"""Experiments: the catalogue, and the bench that knows one base from another."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.base.errors import BrokenFileError, CatalogueError, SettingsError
from breadth.lab.model.reasoner import Reasoner, save
from breadth.lab.trials.experiment import EXPERIMENTS, Bench, Experiment, bench_of


def test_every_experiment_is_known_by_its_own_name_and_says_what_it_tests() -> None:
    for name, experiment in EXPERIMENTS:
        one: Experiment = experiment
        assert one.name == name
        assert one.statement.endswith(".")
        assert "\n" not in one.statement
        assert one.seeds >= 1


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_every_experiment_has_different_trials_whose_settings_name_the_base_and_the_seed(name: str) -> None:
    trials = EXPERIMENTS.load(name).trials(Bench(2, weights="abc"))
    assert len({trial.name for trial in trials}) == len(trials)
    assert len({str(trial.settings) for trial in trials}) == len(trials)
    assert {trial.settings["weights"] for trial in trials} == {"abc"}
    assert all(trial.units >= 1 for trial in trials)


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_more_seeds_add_trials_and_change_none(name: str) -> None:
    few, more = (EXPERIMENTS.load(name).trials(Bench(seeds, weights="abc")) for seeds in (1, 3))
    assert set(map(str, few)) < set(map(str, more))


@pytest.mark.parametrize("name", EXPERIMENTS.names())
def test_a_page_without_results_says_that_it_cannot_tell(name: str) -> None:
    page = EXPERIMENTS.load(name).page([], Bench(1))
    assert page.sections[0].severity.value == "cannot tell"


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(CatalogueError, match="remedies"):
        EXPERIMENTS.load("remedy")


def test_the_bench_tells_bases_apart_and_refuses_a_damaged_one(tmp_path: Path, memorised: Reasoner) -> None:
    save(memorised, tmp_path / "one")
    save(memorised, tmp_path / "same")
    first, same = bench_of(tmp_path / "one", 2), bench_of(tmp_path / "same", 2)
    assert (first.weights, first.prime, first.seeds) == (same.weights, 7, 2)
    with (tmp_path / "same" / "model.safetensors").open("ab") as file:
        file.write(b"x")
    with pytest.raises(BrokenFileError, match="checksum"):
        bench_of(tmp_path / "same", 2)


def test_no_seed_is_no_bench() -> None:
    with pytest.raises(SettingsError, match="seeds"):
        Bench(0)
