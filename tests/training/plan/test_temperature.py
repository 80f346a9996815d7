"""The temperature schedule: values by hand at the start, on the way and after it."""

from __future__ import annotations

import math

import pytest

from breadth.base.errors import SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.plan.temperature import Temperature
from breadth.training.records import Plan


def at(schedule: Temperature, step: int) -> float:
    return schedule.apply(Plan(("a",), (8,), temperature=0.3, step=step), None, None).after.temperature


def test_linear_by_hand() -> None:
    schedule = Temperature(0.6, 1.0, over=4)
    assert [at(schedule, step) for step in range(6)] == pytest.approx([0.6, 0.7, 0.8, 0.9, 1.0, 1.0], abs=1e-12)


def test_cosine_by_hand() -> None:
    schedule = Temperature(1.2, 0.8, over=4, shape="cosine")
    # (1 - cos(pi/4)) / 2 = 0.146447 of the way after a quarter of the generations.
    quarter = (1 - math.sqrt(0.5)) / 2
    expected = [1.2, 1.2 - 0.4 * quarter, 1.0, 0.8 + 0.4 * quarter, 0.8, 0.8]
    assert [at(schedule, step) for step in range(6)] == pytest.approx(expected, abs=1e-12)


def test_the_end_is_exact_and_only_the_temperature_changes() -> None:
    plan = Plan(("a", "b"), (8, 4), step=1000, results={"a": (8, 1)})
    effect = Temperature(0.1, 0.7, over=3).apply(plan, None, None)
    assert effect.after == Plan(("a", "b"), (8, 4), temperature=0.7, step=1000, results={"a": (8, 1)})
    assert effect.stats["temperature"].value == 0.7


def test_the_objective_counts_the_generations() -> None:
    objective = Objective(Chain((Temperature(1.0, 2.0, over=2),)))
    told = []
    for generation in range(4):
        objective.generation = generation
        told.append(objective.plan(Plan(("a",), (8,)))[1]["temperature/temperature"])
    assert told == [1.0, 1.5, 2.0, 2.0]


def test_a_way_to_itself_is_inert() -> None:
    assert "1" in str(Temperature(1.0, 1.0, over=5).no_effect(Regime(temperature=1.0)))
    assert Temperature(1.0, 1.0, over=5).no_effect(Regime()) is None
    assert Temperature(1.0, 1.2, over=5).no_effect(Regime(temperature=1.0)) is None


@pytest.mark.parametrize("bad", [{"start": 0.0}, {"end": math.inf}, {"end": math.nan}, {"over": 0}, {"shape": "step"}])
def test_bad_settings_are_refused(bad: dict[str, object]) -> None:
    given: dict[str, object] = {"start": 1.0, "end": 1.0, "over": 1, **bad}
    with pytest.raises(SettingsError, match=next(iter(bad))):
        Temperature(**given)  # type: ignore[arg-type]  # what a user may write


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_the_contract(shape: str) -> None:
    check_mechanism(Temperature(1.0, 1.4, 5, shape))  # type: ignore[arg-type]  # a parametrized literal


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        Temperature,
        {"shape": "linear"},
        accepted=[{"shape": "cosine"}, {"over": 1}],
        refused=[{"over": 0}, {"shape": "other"}],
    )


def test_before_the_first_generation_it_is_the_start() -> None:
    assert at(Temperature(0.6, 1.0, over=4), -3) == 0.6
    assert at(Temperature(0.6, 1.0, over=1), 0) == 0.6
    assert at(Temperature(0.6, 1.0, over=1), 1) == 1.0


def test_the_end_is_exact_where_the_sum_would_not_be() -> None:
    assert 1.1 + (0.1 - 1.1) != 0.1
    assert at(Temperature(1.1, 0.1, over=3), 3) == 0.1
