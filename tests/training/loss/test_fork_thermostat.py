"""The fork thermostat: its control law step by step by hand, its bands, its trail, what it prices, and the contract."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from breadth.base import settings
from breadth.base.errors import SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.entropy import EntropyHistogram
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import MAX_TRAIL_LENGTH, Action, ForkThermostat, ThermostatState
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Batch


def test_the_trail_forgets_the_oldest_first() -> None:
    state = ThermostatState()
    for step in range(MAX_TRAIL_LENGTH + 3):
        state = replace(state, steps=step).with_mode("raising", f"action {step}", "because")
    assert len(state.trail) == MAX_TRAIL_LENGTH
    assert state.trail[0] == Action(3, "action 3", "because")
    assert state.trail[-1].step == MAX_TRAIL_LENGTH + 2
    assert state.mode == "raising"


def test_it_survives_a_checkpoint() -> None:
    state = ThermostatState(steps=7, start=0.5, entropy=0.25, threshold=0.125, push=-0.01, coefficient=0.02).with_mode(
        "lowering", "did", "why"
    )
    assert (
        settings.from_table(ThermostatState, json.loads(json.dumps(settings.to_table(state), allow_nan=False))) == state
    )
    assert settings.from_table(ThermostatState, settings.to_table(ThermostatState())) == ThermostatState()


QUICK = ForkThermostat(share=1.0, floor=0.5, ceiling=1.5, settle=2, proportional=0.02, integral=0.004, limit=0.1)
"""Settings that the numbers below are worked out for, whatever the defaults are."""


def seen(*entropies: float) -> dict[str, Any]:
    """The stats of a step whose tokens had these entropies."""
    values = torch.tensor([entropies])
    return {"entropies": EntropyHistogram.from_tokens(values, torch.ones_like(values, dtype=torch.bool))}


def after(mechanism: ForkThermostat, *entropies: float) -> ThermostatState:
    """The state after steps of these fork entropies."""
    state = mechanism.init()
    for entropy in entropies:
        state = mechanism.update(state, seen(entropy))
    return state


def batch(entropy: torch.Tensor, mask: torch.Tensor | None = None, **more: Any) -> Batch:
    return Batch(
        torch.zeros_like(entropy),
        torch.zeros(len(entropy)),
        torch.ones_like(entropy).bool() if mask is None else mask,
        entropy=entropy,
        **more,
    )


def test_the_start_is_the_mean_of_the_settling_steps_and_nothing_is_done_in_them() -> None:
    for steps, start in enumerate([1.0, 0.8], start=1):
        state = after(QUICK, *[1.0, 0.6][:steps])
        assert state.start == pytest.approx(start, abs=1e-6)
        assert (state.steps, state.coefficient, state.push, state.mode, state.trail) == (
            steps,
            0.0,
            0.0,
            "settling",
            (),
        )


def test_the_control_law_step_by_step() -> None:
    # start (1.0 + 0.6) / 2 = 0.8, so the band is 0.4 to 1.2
    expected = [
        (
            0.2,
            0.001,
            0.006,
            "raising",
        ),  # 0.2 / 0.8 = 0.25 of the start, e = 0.25: push 0.004 * 0.25, coefficient 0.02 * 0.25 + push
        (0.2, 0.002, 0.007, "raising"),  # the same distance once more
        (0.8, 0.002, 0.002, "inside"),  # e = 0: the push stays, the proportional part goes
        (1.1, 0.002, 0.002, "inside"),  # anywhere in the band
        (2.0, -0.002, -0.022, "lowering"),  # 2.5 of the start, e = -1: push 0.002 - 0.004, coefficient -0.02 + push
        (1.6, -0.004, -0.014, "lowering"),  # 2.0 of the start, e = -0.5: push -0.002 - 0.002, coefficient -0.01 + push
    ]
    state = after(QUICK, 1.0, 0.6)
    for entropy, push, coefficient, mode in expected:
        state = QUICK.update(state, seen(entropy))
        assert state.push == pytest.approx(push, abs=1e-7)
        assert state.coefficient == pytest.approx(coefficient, abs=1e-7)
        assert state.mode == mode
        assert state.start == pytest.approx(0.8, abs=1e-6)
        assert state.entropy == pytest.approx(entropy, abs=1e-6)
    assert state.steps == 8


@pytest.mark.parametrize(("low", "sign"), [(True, 1.0), (False, -1.0)])
def test_it_does_not_wind_up_and_comes_back_at_once(low: bool, sign: float) -> None:
    mechanism = ForkThermostat(share=1.0, floor=0.5, ceiling=1.5, settle=1, proportional=0.1, integral=0.1, limit=0.1)
    outside, opposite = (0.25, 1.75) if low else (1.75, 0.25)  # e = 0.25 and -0.25, or the other way round
    state = after(mechanism, 1.0, *[outside] * 3)
    # push 0.025, 0.05, 0.075; coefficient 0.025 + push = 0.05, 0.075, 0.1: now at the limit
    assert state.coefficient == pytest.approx(sign * 0.1, abs=1e-7)
    for _ in range(50):
        state = mechanism.update(state, seen(outside))
        assert state.coefficient == sign * 0.1
    assert state.push == pytest.approx(sign * 0.075, abs=1e-7)  # 50 more steps would have made it 1.325
    back = mechanism.update(state, seen(1.0))
    assert back.coefficient == pytest.approx(sign * 0.075, abs=1e-7)
    turned = mechanism.update(state, seen(opposite))
    assert turned.push == pytest.approx(sign * 0.05, abs=1e-7)
    assert turned.coefficient == pytest.approx(sign * 0.025, abs=1e-7)


def test_at_the_limit_it_still_integrates_inwards() -> None:
    mechanism = ForkThermostat(share=1.0, floor=0.5, ceiling=1.5, settle=1, proportional=0.0, integral=0.1, limit=0.1)
    state = replace(after(mechanism, 1.0), push=0.3, coefficient=0.1, mode="raising")
    assert mechanism.update(state, seen(2.5)).push == pytest.approx(
        0.2, abs=1e-7
    )  # e = -1 although 0.2 is still outside the limit


def test_a_policy_that_starts_without_entropy_has_no_band() -> None:
    state = after(QUICK, 0.0, 0.0, 0.5, 0.0)
    assert (state.start, state.coefficient, state.mode) == (0.0, 0.0, "inside")


def test_an_empty_batch_keeps_the_state() -> None:
    state = after(QUICK, 1.0, 0.6, 0.2)
    empty = {"entropies": EntropyHistogram.from_tokens(torch.tensor([[1.0]]), torch.tensor([[False]]))}
    assert QUICK.update(state, empty) is state
    assert QUICK.update(state, {}) is state


def test_the_trail_says_what_was_done_and_why() -> None:
    state = after(QUICK, 1.0, 0.6, 0.2, 0.2, 0.8, 2.0)
    assert [(one.step, one.what) for one in state.trail] == [
        (3, "settling -> raising, coefficient +0.006"),
        (5, "raising -> inside, coefficient +0.002"),
        (6, "inside -> lowering, coefficient -0.022"),
    ]
    assert state.trail[0].why == "fork entropy 0.2 nats, band 0.4 to 1.2 (0.5 to 1.5 of the start 0.8)"


def test_the_trail_keeps_its_newest_entries() -> None:
    state = after(QUICK, 1.0, 1.0, *[0.1, 1.0] * 150)
    assert len(state.trail) == MAX_TRAIL_LENGTH == 256
    assert (state.trail[0].step, state.trail[-1].step) == (302 - 255, 302)


def test_a_trail_survives_json() -> None:
    state = after(QUICK, 1.0, 0.6, 0.2, 2.0)
    assert settings.from_table(ThermostatState, json.loads(json.dumps(settings.to_table(state)))) == state


def test_forks_are_found_by_the_threshold_of_the_step_before() -> None:
    mechanism = ForkThermostat(share=0.25, settle=1)
    first = batch(torch.tensor([[0.1, 0.2, 0.3, 1.0]]))
    fresh = mechanism.apply(first.clean(), mechanism.init(), None)
    assert fresh.stats["forks"].value == 0.0
    state = mechanism.update(mechanism.init(), fresh.stats)
    assert (state.threshold, state.entropy) == (1.0, 1.0)  # the largest of four
    later = mechanism.apply(
        batch(torch.tensor([[0.89, 0.91, 2.0, 0.2]])).clean(), state, None
    )  # from nine tenths of it on
    assert later.stats["forks"].value == 0.5
    assert later.stats["mechanical_entropy"].value == pytest.approx((0.89 + 0.2) / 2)
    assert mechanism.update(state, later.stats).threshold == pytest.approx(2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tokens_of_equal_entropy_fork_together(dtype: torch.dtype) -> None:
    mechanism = ForkThermostat()
    equal = batch(torch.full((10, 100), 3.0, dtype=dtype).log())
    state = mechanism.update(mechanism.init(), mechanism.apply(equal.clean(), mechanism.init(), None).stats)
    assert mechanism.apply(equal.clean(), state, None).stats["forks"].value == 1.0


@pytest.mark.parametrize("coefficient", [0.05, -0.05])
def test_it_prices_the_entropy_of_forks_alone_and_acts_on_policy(coefficient: float) -> None:
    objective = Objective(Chain((ClippedPolicy(), ForkThermostat())))
    objective.states[1] = ThermostatState(steps=9, start=1.0, threshold=0.5, coefficient=coefficient)
    entropy = torch.tensor([[0.6, 0.4, 0.5], [0.9, math.nan, math.nan]], dtype=torch.float64, requires_grad=True)
    record = batch(entropy, torch.tensor([[True, True, True], [True, False, False]]))
    assert record.old_logprobs is None
    objective.begin(record)
    loss = objective.loss(record)
    loss.backward()
    assert loss.item() == pytest.approx(-coefficient * (0.6 + 0.5 + 0.9) / 4, abs=1e-9)  # four tokens count
    assert entropy.grad.tolist() == [
        [pytest.approx(-coefficient / 4), 0.0, pytest.approx(-coefficient / 4)],
        [pytest.approx(-coefficient / 4), 0.0, 0.0],
    ]


@pytest.mark.parametrize(("coefficient", "direction"), [(0.1, 1.0), (-0.1, -1.0)])
def test_a_step_downhill_moves_the_entropy_the_right_way(coefficient: float, direction: float) -> None:
    logits = torch.tensor([[[1.0, 0.0, 0.0], [9.0, 0.0, 0.0]]], requires_grad=True)  # a fork, and a mechanical token
    logprobs = logits.log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    objective = Objective(Chain((ClippedPolicy(), ForkThermostat())))
    objective.states[1] = ThermostatState(steps=9, start=1.0, threshold=0.5, coefficient=coefficient)
    record = Batch(logprobs[..., 0], torch.zeros(1), torch.ones(1, 2).bool(), entropy=entropy)
    objective.begin(record)
    objective.loss(record).backward()
    assert not logits.grad[0, 1].any()
    moved = (logits - logits.grad).detach().log_softmax(-1)
    change = -(moved.exp() * moved).sum(-1) - entropy.detach()
    assert direction * float(change[0, 0]) > 1e-3
    assert float(change[0, 1]) == pytest.approx(0.0, abs=1e-7)


def test_a_dry_run_reports_and_does_nothing() -> None:
    mechanism = replace(QUICK, dry_run=True)
    wet, dry = after(QUICK, 1.0, 0.6, 0.2), after(mechanism, 1.0, 0.6, 0.2)
    assert dry.coefficient == wet.coefficient != 0
    assert dry.trail[0].what == wet.trail[0].what + " (dry run: not applied)"
    record = batch(torch.tensor([[0.6, 0.4]])).clean()
    assert mechanism.apply(record, dry, None).terms == ()
    assert len(QUICK.apply(record, wet, None).terms) == 1


def test_the_log_shows_stats_and_state() -> None:
    objective = Objective(Chain((ClippedPolicy(), QUICK)))
    record = batch(torch.tensor([[0.6, 0.4]]))
    objective.begin(record)
    objective.loss(record)
    metrics = objective.finish()
    names = {"forks", "mechanical_entropy", "steps", "start", "entropy", "threshold", "push", "coefficient"}
    assert {name for name in metrics if name.startswith("fork")} == {f"fork-thermostat/{name}" for name in names}
    assert metrics["fork-thermostat/start"] == pytest.approx(0.5)


def test_contract() -> None:
    narrow = ForkThermostat(settle=2, floor=0.9, ceiling=1.1, proportional=0.5, integral=0.1, limit=1.0)
    check_mechanism(narrow)
    check_mechanism(ForkThermostat(), neutral=replace(narrow, dry_run=True))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("share", 0.0),
        ("share", 1.1),
        ("floor", 1.5),
        ("floor", -0.1),
        ("settle", 0),
        ("proportional", -1.0),
        ("integral", -1.0),
        ("limit", -1.0),
    ],
)
def test_bad_settings(field: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"ForkThermostat got {field}"):
        ForkThermostat(**{field: value})  # type: ignore[arg-type]  # the field is one of the numbers


def test_defaults_are_a_band_around_the_start() -> None:
    default = ForkThermostat()
    assert default.share == 0.2  # the paper's
    assert default.floor < 1 < default.ceiling
    assert 0 < default.integral < default.proportional < default.limit


def test_it_can_act_everywhere() -> None:
    assert ForkThermostat().no_effect(Regime(updates_per_generation=1, sequences_per_update=1, group_size=1)) is None
    assert "entropy" in ForkThermostat().needs


@pytest.mark.parametrize("still", [ForkThermostat(limit=0.0), ForkThermostat(proportional=0.0, integral=0.0)])
def test_without_gains_or_a_limit_it_says_so(still: ForkThermostat) -> None:
    verdict = still.no_effect(Regime())
    assert verdict is not None
    assert verdict.mechanism == "fork-thermostat"
    assert "dry_run" in verdict.remedy


PLANNED = ForkThermostat(
    forks="planning", floor=0.5, ceiling=1.5, settle=1, proportional=0.02, integral=0.004, limit=0.1
)


def test_with_planning_forks_only_planning_tokens_are_measured_and_priced() -> None:
    # Planning tokens have 0.4 and 0.2 nats: H = 0.3, though the others have ten times as much. The masked one (9 nats)
    # plans too.
    entropy = torch.tensor([[0.4, 4.0, 0.2, 3.0, 9.0]], requires_grad=True)
    one = batch(
        entropy, torch.tensor([[True, True, True, True, False]]), planning=torch.tensor([[1, 0, 1, 0, 1]])
    ).clean()
    state = PLANNED.update(PLANNED.init(), PLANNED.apply(one, PLANNED.init(), None).stats)
    assert state.start == pytest.approx(0.3, abs=2e-3)  # the histogram's cells
    effect = PLANNED.apply(one, replace(state, coefficient=0.05), None)
    assert torch.stack(effect.terms).sum(0).detach().tolist()[0] == pytest.approx([-0.02, 0.0, -0.01, 0.0, 0.0])
    assert effect.stats["forks"].value == pytest.approx(2 / 4)
    assert effect.stats["mechanical_entropy"].value == pytest.approx(3.5)


def test_planning_forks_need_to_be_told_which_tokens_plan() -> None:
    assert PLANNED.needs == ForkThermostat().needs | {"planning"}
    check_mechanism(PLANNED)
    with pytest.raises(SettingsError, match="'entropy' or 'planning'"):
        ForkThermostat(forks="all")  # type: ignore[arg-type]  # what a user might type


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        ForkThermostat,
        {
            "share": 0.2,
            "forks": "entropy",
            "floor": 0.7,
            "ceiling": 1.5,
            "settle": 5,
            "proportional": 0.05,
            "integral": 0.01,
            "limit": 0.2,
            "dry_run": False,
        },
        accepted=[
            {"share": 1.0},
            {"floor": 0.0},
            {"settle": 1},
            {"proportional": 0.0},
            {"integral": 0.0},
            {"limit": 0.0},
        ],
        refused=[
            {"share": 0.0},
            {"share": 1.1},
            {"floor": -0.1},
            {"floor": 1.5},
            {"settle": 0},
            {"proportional": -0.1},
            {"integral": -0.1},
            {"limit": -0.1},
            {"forks": "other"},
        ],
    )


def test_a_run_starts_with_nothing_seen() -> None:
    assert ForkThermostat().init() == ThermostatState(
        steps=0, start=0.0, entropy=0.0, threshold=None, push=0.0, coefficient=0.0, mode="settling", trail=()
    )


def test_exactly_nine_tenths_of_the_threshold_forks() -> None:
    state = ThermostatState(steps=9, threshold=2.5)
    forks = ForkThermostat().forking_tokens(batch(torch.tensor([[2.2499, 2.25, 2.5]])), state)
    assert forks.tolist() == [[False, True, True]]


def test_one_gain_is_enough_to_act() -> None:
    assert ForkThermostat(proportional=0.0).no_effect(Regime()) is None
    assert ForkThermostat(integral=0.0).no_effect(Regime()) is None


def test_the_distance_to_the_band_by_hand() -> None:
    # The band of a start of 2 is 1 to 3.
    distances = [QUICK.distance_to_band(entropy, 2.0) for entropy in (0.0, 0.5, 1.0, 2.0, 3.0, 4.0)]
    assert distances == [0.5, 0.25, 0.0, 0.0, 0.0, -0.5]
    assert QUICK.distance_to_band(0.25, 1.0) == 0.25
    assert QUICK.distance_to_band(0.25, 0.0) == 0.0


def test_a_small_error_at_the_limit_does_not_wind_up_either() -> None:
    # 0.02 * 0.25 + 0.004 * 0.25 + 0.3 is above the limit, and 0.25 points outwards.
    before = ThermostatState(steps=9, start=1.0, threshold=1.0, push=0.3, coefficient=0.1, mode="raising")
    state = QUICK.update(before, seen(0.25))
    assert (state.push, state.coefficient) == (0.3, 0.1)
