"""The adaptive entropy target of Skywork-OR1."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from breadth.base.errors import SettingsError
from breadth.base.stats import Mean
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.entropy_target import EntropyTarget, TargetState
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Batch

READINGS = (0.35, 0.25, 0.18, 0.15, 0.19, 0.22, 0.10)


def states_over(target: EntropyTarget, readings: tuple[float, ...]) -> list[TargetState]:
    state, states = target.init(), []
    for reading in readings:
        state = target.update(state, {"sampled": Mean(10 * reading, 10.0), "exact": Mean(10 * reading, 10.0)})
        states.append(state)
    return states


def batch_with(sampled: float, exact: float) -> Batch:
    """Return one sequence of four tokens with a given sampled and exact mean entropy."""
    shift = torch.tensor([[-0.05, 0.05, -0.02, 0.02]], dtype=torch.float64)
    return Batch(
        logprobs=torch.full((1, 4), -9.0, dtype=torch.float64, requires_grad=True),
        advantages=torch.zeros(1, dtype=torch.float64),
        mask=torch.ones(1, 4, dtype=torch.bool),
        old_logprobs=-(sampled + shift),
        entropy=(exact + shift).requires_grad_(),
    )


def test_numbers_of_the_controller() -> None:
    states = states_over(EntropyTarget(), READINGS)
    assert [one.coefficient for one in states] == pytest.approx([0, 0, 1e-4, 2e-4, 3e-4, 2e-4, 3e-4], abs=1e-12)
    paid = [one.coefficient * one.paying for one in states]
    assert paid == pytest.approx([0, 0, 1e-4, 2e-4, 3e-4, 0, 3e-4], abs=1e-12)


def test_the_loss_pays_for_the_exact_entropy_in_the_next_step() -> None:
    objective = Objective(Chain((ClippedPolicy(), EntropyTarget(increment=0.01, largest=1.0))))
    losses = []
    for reading in READINGS:
        batch = batch_with(reading, 0.5)
        objective.begin(batch)
        losses.append(float(objective.loss(batch).detach()))
        metrics = objective.finish()
    assert losses == pytest.approx([-0.5 * paid for paid in (0, 0, 0, 0.01, 0.02, 0.03, 0)], abs=1e-9)
    assert metrics["entropy-target/sampled"] == pytest.approx(0.10)
    assert metrics["entropy-target/exact"] == pytest.approx(0.5)
    assert metrics["entropy-target/coefficient"] == pytest.approx(0.03)
    assert metrics["entropy-target/paying"] == 1.0


@pytest.mark.parametrize(("reads", "paying"), [("sampled", False), ("exact", True)])
def test_which_entropy_the_controller_reads(reads: Any, paying: bool) -> None:
    objective = Objective(Chain((ClippedPolicy(), EntropyTarget(reads=reads))))
    batch = batch_with(sampled=0.3, exact=0.1)
    objective.begin(batch)
    objective.loss(batch)
    objective.finish()
    assert objective.states[1].paying is paying


def test_coefficient_stays_in_its_range() -> None:
    target = EntropyTarget(increment=0.002, smallest=0.001, largest=0.004)
    assert target.init().coefficient == 0.001
    states = states_over(target, (0.1, 0.1, 0.1, 0.3, 0.3, 0.3))
    assert [one.coefficient for one in states] == pytest.approx([0.003, 0.004, 0.004, 0.002, 0.001, 0.001])


def test_a_target_set_by_the_runs_own_start() -> None:
    target = EntropyTarget(target_share=0.5, settle=3)
    states = states_over(target, (0.5, 0.7, 0.6, 0.31, 0.29, 0.2))
    assert states[2].start == pytest.approx(0.6)
    assert [one.coefficient for one in states] == pytest.approx([0, 0, 0, 0, 1e-4, 2e-4])
    assert [one.paying for one in states] == [False, False, False, False, True, True]


def test_a_target_outside_everything_seen_shows() -> None:
    trap = states_over(EntropyTarget(target=5.0, settle=3), (0.3,) * 60)
    assert [one.outside for one in trap[:4]] == [0, 0, 1, 1]
    assert trap[-1].coefficient == 0.005, "walked to its limit"
    idle = states_over(EntropyTarget(target=0.01, settle=3), (0.3, 0.2, 0.4, 0.3))
    assert idle[-1].outside == -1
    assert idle[-1].coefficient == 0.0
    assert not idle[-1].paying
    fitting = states_over(EntropyTarget(target=0.25, settle=3), (0.3, 0.2, 0.4))[-1]
    assert fitting.outside == 0
    assert [fitting.lowest, fitting.highest] == pytest.approx([0.2, 0.4])


def test_a_target_outside_everything_seen_is_in_the_metrics() -> None:
    objective = Objective(Chain((ClippedPolicy(), EntropyTarget(target=5.0, settle=1))))
    batch = batch_with(0.3, 0.3)
    objective.begin(batch)
    objective.loss(batch)
    assert objective.finish()["entropy-target/outside"] == 1.0


def test_an_empty_step_changes_nothing() -> None:
    target = EntropyTarget()
    state = states_over(target, READINGS)[-1]
    for stats in (
        {},
        {"sampled": Mean(0.0, 0.0)},
        {"sampled": Mean(float("nan"), 3.0)},
        {"sampled": Mean(float("inf"), 3.0)},
    ):
        assert target.update(state, stats) == state


def test_contract() -> None:
    check_mechanism(EntropyTarget(target=4.0, increment=0.05, largest=1.0))
    check_mechanism(EntropyTarget(target=1.3, increment=0.05, largest=1.0, reads="exact"))
    check_mechanism(EntropyTarget(target_share=0.9, increment=0.05, largest=1.0, settle=2, reads="exact"))
    check_mechanism(EntropyTarget())


def test_inert_and_bad_settings() -> None:
    assert EntropyTarget().no_effect(Regime(updates_per_generation=1)) is None
    for still in (EntropyTarget(largest=0.0), EntropyTarget(increment=0.0)):
        verdict = still.no_effect(Regime())
        assert verdict is not None
        assert verdict.mechanism == "entropy-target"
    assert replace(EntropyTarget(), increment=0.0, smallest=0.001).no_effect(Regime()) is None
    bad: list[tuple[str, dict[str, Any]]] = [
        ("target", {"target": -0.1}),
        ("target", {"target": float("nan")}),
        ("target_share", {"target_share": 0.0}),
        ("increment", {"increment": -1e-4}),
        ("smallest", {"smallest": 0.01}),
        ("largest", {"largest": float("inf")}),
        ("reads", {"reads": "guessed"}),
        ("settle", {"settle": 0}),
    ]
    for field, settings in bad:
        with pytest.raises(SettingsError, match=f"got {field} ="):
            EntropyTarget(**settings)


def test_the_start_is_the_mean_of_exactly_the_settling_steps() -> None:
    state = TargetState()
    for entropy, start in ((1.0, 1.0), (3.0, 2.0), (8.0, 2.0), (0.5, 2.0)):
        state = state.observe(entropy, 2)
        assert state.start == start
    assert (state.steps, state.lowest, state.highest) == (4, 0.5, 8.0)


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        EntropyTarget,
        {
            "target": 0.2,
            "target_share": None,
            "increment": 0.0001,
            "smallest": 0.0,
            "largest": 0.005,
            "reads": "sampled",
            "settle": 5,
        },
        accepted=[{"target": 0.0}, {"increment": 0.0}, {"target_share": 0.1}, {"smallest": 0.005}, {"settle": 1}],
        refused=[
            {"target": -0.1},
            {"target": math.inf},
            {"increment": -0.1},
            {"increment": math.inf},
            {"target_share": 0.0},
            {"target_share": math.inf},
            {"smallest": -0.1},
            {"smallest": 0.006},
            {"largest": math.inf},
            {"settle": 0},
            {"reads": "other"},
        ],
    )


def test_a_run_starts_with_nothing_seen_and_the_smallest_coefficient() -> None:
    assert EntropyTarget(smallest=0.001).init() == TargetState(
        steps=0, coefficient=0.001, paying=False, start=0.0, lowest=0.0, highest=0.0, outside=0
    )
    assert TargetState().coefficient == 0.0


def test_the_first_entropy_is_the_lowest_and_the_highest_so_far() -> None:
    first = TargetState().observe(5.0, 2)
    assert (first.lowest, first.highest) == (5.0, 5.0)
    second = first.observe(3.0, 2)
    assert (second.lowest, second.highest) == (3.0, 5.0)


def test_a_target_by_the_start_waits_for_the_whole_of_it() -> None:
    # Twice the start is above every entropy, but the start is known only after two steps.
    states = states_over(EntropyTarget(target_share=2.0, settle=2), (0.5, 0.5, 0.5))
    assert [(state.coefficient, state.paying, state.outside) for state in states] == [
        (0.0, False, 0),
        (0.0, False, 0),
        (1e-4, True, 1),
    ]


def test_an_entropy_exactly_at_the_target_is_enough() -> None:
    states = states_over(EntropyTarget(target=0.5, settle=1), (0.25, 0.5))
    assert [(state.coefficient, state.paying) for state in states] == [(1e-4, True), (0.0, False)]
    same = states_over(EntropyTarget(target=0.5, settle=1), (0.5,))[0]
    assert (same.paying, same.outside) == (False, 0)
