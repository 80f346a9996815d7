"""The length guard: notices a collapse as the spec defines it, and reacts only while it lasts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from breadth.base.errors import MechanismError, SettingsError
from breadth.base.stats import Mean
from breadth.measure.change_points import run_collapse
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.length_guard import LengthGuard, LengthGuardState
from breadth.training.credit.planning_credit import PlanningCredit
from breadth.training.objective import Objective
from breadth.training.records import Rollouts, not_none

COLLAPSED = LengthGuardState(generations=40, start=500.0, smoothed=200.0, collapsed=True)


def rollouts(lengths: list[int], advantages: list[float] | torch.Tensor) -> Rollouts:
    return Rollouts(
        rewards=torch.zeros(len(lengths), dtype=torch.float64),
        groups=torch.zeros(len(lengths), dtype=torch.int64),
        lengths=torch.tensor(lengths, dtype=torch.int64),
        advantages=torch.as_tensor(advantages, dtype=torch.float64),
    ).clean()


def after(guard: LengthGuard, batch: Rollouts, state: LengthGuardState) -> list[Any]:
    told: list[Any] = not_none(guard.apply(batch, state, None).after.advantages).tolist()
    return told


def follow(guard: LengthGuard, lengths: list[float]) -> list[LengthGuardState]:
    states = [guard.init()]
    for length in lengths:
        states.append(guard.update(states[-1], {"length": Mean(length, 1)}))
    return states[1:]


def test_the_start_is_the_mean_of_the_settling_generations() -> None:
    states = follow(LengthGuard(settle=2, smoothing=0.5), [100.0, 300.0, 100.0, 0.0, 0.0])
    # 200 at the start; then 200 + .5 (100 - 200) = 150, 75, 37.5 against half of 200.
    assert states[1] == LengthGuardState(2, 200.0, 200.0)
    assert [state.smoothed for state in states[2:]] == [150.0, 75.0, 37.5]
    assert [state.collapsed for state in states[2:]] == [False, True, True]


def test_the_collapse_of_the_paper_is_noticed_and_agrees_with_the_instrument() -> None:
    # From 510.7 to 45.7 tokens in 58 steps, as 2605.28388 reports.
    lengths = [510.7] * 5 + [510.7 + (45.7 - 510.7) * step / 58 for step in range(1, 59)]
    states = follow(LengthGuard(), lengths)
    noticed = next(place for place, state in enumerate(states) if state.collapsed)
    assert noticed < len(lengths) - 1
    assert run_collapse(range(len(lengths)), lengths).length_collapse == noticed


def test_only_positive_advantages_of_short_responses_are_muted_while_collapsed() -> None:
    batch = rollouts([100, 100, 249, 250, 400], [1.0, -1.0, 2.0, 2.0, 2.0])
    assert after(LengthGuard(), batch, COLLAPSED) == [0.0, -1.0, 0.0, 2.0, 2.0]
    assert after(LengthGuard(), batch, replace(COLLAPSED, collapsed=False)) == [1.0, -1.0, 2.0, 2.0, 2.0]
    assert after(LengthGuard(act="report"), batch, COLLAPSED) == [1.0, -1.0, 2.0, 2.0, 2.0]


def test_token_advantages_are_muted_token_by_token() -> None:
    batch = rollouts([100, 400], torch.tensor([[1.0, -1.0], [1.0, -1.0]]))
    assert after(LengthGuard(), batch, COLLAPSED) == [[0.0, -1.0], [1.0, -1.0]]


def test_stop_halts_with_the_numbers_and_only_when_collapsed() -> None:
    guard, batch = LengthGuard(act="stop"), rollouts([100], [1.0])
    assert after(guard, batch, replace(COLLAPSED, collapsed=False)) == [1.0]
    with pytest.raises(MechanismError, match=r"from 500 tokens to 200, below 0\.5 of the start"):
        guard.apply(batch, COLLAPSED, None)


def test_through_the_objective_it_collapses_mutes_and_recovers() -> None:
    objective = Objective(Chain((LengthGuard(settle=1, smoothing=1.0),)))
    told = []
    for length in (100, 20, 20, 90, 20):
        credited, metrics = objective.credit(rollouts([length], [1.0]))
        told.append((not_none(credited.advantages).tolist(), metrics["length-guard/collapsed"]))
    # The state of the generations before decides: the first short generation is only noticed, the second muted, and 90
    # recovers.
    assert told == [([1.0], 0.0), ([1.0], 1.0), ([0.0], 1.0), ([1.0], 0.0), ([1.0], 1.0)]


def test_stats_count_short_successes() -> None:
    stats = LengthGuard().apply(rollouts([100, 100, 400], [1.0, -1.0, 1.0]), COLLAPSED, None).stats
    assert stats["length"].value == 200.0
    assert stats["short"].value == 0.5


def test_empty_generations_keep_the_state() -> None:
    guard = LengthGuard()
    assert guard.update(COLLAPSED, {}) == COLLAPSED
    assert guard.update(COLLAPSED, guard.apply(rollouts([], []), COLLAPSED, None).stats) == COLLAPSED
    # Zero-length completions count: they are the extreme of the collapse.
    assert guard.update(COLLAPSED, {"length": Mean(0.0, 4)}).smoothed == pytest.approx(180.0)


@pytest.mark.parametrize("bad", [{"floor": 1.0}, {"floor": -0.1}, {"act": "halt"}, {"settle": 0}, {"smoothing": 0.0}])
def test_bad_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(bad))):
        LengthGuard(**bad)  # type: ignore[arg-type]  # what a user may write


def test_the_contract() -> None:
    check_mechanism(LengthGuard(floor=0.99, settle=1, smoothing=1.0))
    check_mechanism(LengthGuard(act="report"), neutral=LengthGuard(act="report", settle=1))
    check_mechanism(LengthGuard(floor=0.99, settle=1, smoothing=1.0), before=(GroupAdvantage(), PlanningCredit()))


def test_a_response_counts_as_positive_when_any_of_its_tokens_is() -> None:
    batch = rollouts([100, 400, 100], torch.tensor([[1.0, -1.0], [1.0, -1.0], [-1.0, -1.0]]))
    stats = LengthGuard().apply(batch, COLLAPSED, None).stats
    assert (stats["short"].total, stats["short"].count) == (1, 2)
    assert (stats["length"].total, stats["length"].count) == (600.0, 3)
    assert after(LengthGuard(), batch, COLLAPSED) == [[0.0, -1.0], [1.0, -1.0], [-1.0, -1.0]]


def test_exactly_the_floor_is_neither_short_nor_a_collapse() -> None:
    assert after(LengthGuard(), rollouts([250, 249], [1.0, 1.0]), COLLAPSED) == [1.0, 0.0]
    states = follow(LengthGuard(settle=1, smoothing=1.0), [100.0, 50.0, 49.0])
    assert [state.collapsed for state in states] == [False, False, True]


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        LengthGuard,
        {"floor": 0.5, "act": "mute", "settle": 5, "smoothing": 0.1},
        accepted=[{"floor": 0.0}, {"floor": 0.99}, {"settle": 1}, {"smoothing": 1.0}, {"smoothing": 0.01}],
        refused=[
            {"floor": -0.1},
            {"floor": 1.0},
            {"settle": 0},
            {"smoothing": 0.0},
            {"smoothing": 1.1},
            {"act": "other"},
        ],
    )


def test_a_run_starts_with_nothing_known() -> None:
    assert LengthGuard().init() == LengthGuardState(generations=0, start=0.0, smoothed=0.0, collapsed=False)


def test_a_response_without_an_advantage_is_not_positive() -> None:
    stats = LengthGuard().apply(rollouts([100, 100], [0.0, 1.0]), COLLAPSED, None).stats
    assert (stats["short"].total, stats["short"].count) == (1, 1)
