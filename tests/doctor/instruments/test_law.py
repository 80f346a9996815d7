"""The law is shown with its ceiling where it holds, and with reasons where it does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from breadth.doctor.instruments.law import interventions, law
from breadth.measure.intervals import Interval
from breadth.report.sections import Facts
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter


def build(folder: Path, config: dict[str, object], levels: tuple[float, ...] = ()) -> Run:
    """A run that follows R = 0.95 - 0.30 exp(H) with small noise while entropy decays."""
    noise = np.random.default_rng(3).normal(0, 0.004, 120)
    writer = RunWriter(folder, Header(config=config, reward_levels=levels))
    for step in range(120):
        entropy = 0.9 * 0.98**step
        writer.metrics(step, {"entropy": entropy, "reward": 0.95 - 0.30 * float(np.exp(entropy)) + float(noise[step])})
    return Run.open(folder)


def test_the_ceiling_is_found_where_the_law_holds(tmp_path: Path) -> None:
    (facts,) = law(build(tmp_path, {}))
    assert isinstance(facts, Facts)
    assert facts.title == "Entropy law"
    ceiling = facts.facts[0].value
    assert isinstance(ceiling, Interval)
    assert ceiling.value == pytest.approx(0.65, abs=0.01)
    assert 0.65 in ceiling


def test_an_intervention_makes_it_invalid_and_is_named(tmp_path: Path) -> None:
    (facts,) = law(build(tmp_path, {"args": {"entropy_coef": 0.01}}))
    assert isinstance(facts, Facts)
    assert facts.title == "Entropy law: not valid here"
    assert any("entropy_coef = 0.01" in str(fact.value) for fact in facts.facts)


def test_settings_that_are_off_are_no_intervention() -> None:
    config = {"beta": 0.0, "use_kl_loss": False, "entropy_coef": None, "actor": {"kl_loss_coef": 0.001}}
    assert list(interventions(config)) == ["a KL penalty (kl_loss_coef = 0.001)"]


def test_without_both_series_there_is_no_law(tmp_path: Path) -> None:
    RunWriter(tmp_path).metrics(1, {"entropy": 1.0})
    assert law(Run.open(tmp_path)) == []


def test_a_ceiling_above_the_largest_reward_is_not_believed(tmp_path: Path) -> None:
    (facts,) = law(build(tmp_path, {}, (0.0, 0.5)))
    assert isinstance(facts, Facts)
    assert facts.title == "Entropy law: not valid here"
    assert "above 0.5, the largest reward" in str(facts.facts[0].value)
