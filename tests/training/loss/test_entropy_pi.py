"""The proportional-integral controller of EntroPIC."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from breadth.base.errors import MechanismError, SettingsError
from breadth.base.stats import Mean
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.entropy_pi import EntropyPI, PIState
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Batch


def states_over(controller: EntropyPI, readings: tuple[float, ...]) -> list[PIState]:
    state, states = controller.init(), []
    for reading in readings:
        state = controller.update(state, {"entropy": Mean(10 * reading, 10.0)})
        states.append(state)
    return states


def batch_with(entropy: float) -> Batch:
    """Return two sequences, one right and one wrong, each with a likely token (0.97) and one that is not (0.9)."""
    chances = torch.tensor([[0.97, 0.9], [0.97, 0.9]], dtype=torch.float64)
    return Batch(
        logprobs=chances.log().requires_grad_(),
        advantages=torch.tensor([2.0, -1.0], dtype=torch.float64),
        mask=torch.ones(2, 2, dtype=torch.bool),
        entropy=torch.full((2, 2), entropy, dtype=torch.float64),
    )


def test_numbers_of_the_controller() -> None:
    states = states_over(EntropyPI(target=0.1), (0.3, 0.2, 0.08, 0.05))
    assert [one.coefficient for one in states] == pytest.approx([0.2, 0.102, -0.017, -0.0472], abs=1e-9)
    assert [one.error for one in states] == pytest.approx([0.2, 0.1, -0.02, -0.05], abs=1e-9)
    assert [one.accumulated for one in states] == pytest.approx([0.2, 0.3, 0.28, 0.23], abs=1e-9)


def test_too_much_entropy_favours_what_is_likely() -> None:
    controller = EntropyPI(target=0.1)
    (state,) = states_over(controller, (0.3,))
    shifted = controller.apply(batch_with(0.3).clean(), state, None).after.advantages
    # A + 0.2 |A| on the tokens above 0.95: 2.4 for the right answer, -0.8 for the wrong one
    assert shifted.tolist() == [pytest.approx([2.4, 2.0]), pytest.approx([-0.8, -1.0])]
    (state,) = states_over(controller, (0.0,))
    shifted = controller.apply(batch_with(0.0).clean(), state, None).after.advantages
    assert shifted.tolist() == [pytest.approx([1.8, 2.0]), pytest.approx([-1.1, -1.0])]


def test_gradient_of_the_shifted_loss_uses_the_coefficient_of_the_step_before() -> None:
    objective = Objective(Chain((EntropyPI(target=0.1), ClippedPolicy())))
    gradients = []
    for entropy in (0.3, 0.2, 0.08):
        batch = batch_with(entropy)
        objective.begin(batch)
        objective.loss(batch).backward()
        gradients.append(batch.logprobs.grad[0, 0].item())
        metrics = objective.finish()
    # on-policy: the gradient by a log-prob is -A / 4 tokens
    assert gradients == pytest.approx([-2.0 / 4, -2.0 * 1.2 / 4, -2.0 * 1.102 / 4], abs=1e-9)
    assert metrics["entropy-pi/coefficient"] == pytest.approx(-0.017)
    assert metrics["entropy-pi/likely"] == pytest.approx(0.5)
    assert metrics["entropy-pi/entropy"] == pytest.approx(0.08)


def test_no_sign_changes_at_the_limit() -> None:
    controller = EntropyPI(target=0.0)
    for reading, expected in ((50.0, [4.0, 0.0]), (0.0, [2.0, -1.0])):
        (state,) = states_over(controller, (reading,))
        shifted = controller.apply(batch_with(1.0).clean(), state, None).after.advantages
        assert shifted[:, 0].tolist() == pytest.approx(expected)
    state = states_over(EntropyPI(target=9.0), (0.0,))[-1]
    assert state.coefficient == -1.0
    shifted = controller.apply(batch_with(1.0).clean(), state, None).after.advantages
    assert shifted[:, 0].tolist() == pytest.approx([0.0, -2.0])


def test_the_sum_does_not_wind_up_at_the_limit() -> None:
    controller = EntropyPI(target=0.1, integral=0.5)
    states = states_over(controller, (2.1,) * 20 + (0.05,))
    assert states[-2].coefficient == 1.0
    assert states[-2].accumulated == pytest.approx(0.0), "beyond the limit from the first step on"
    assert states[-1].coefficient == pytest.approx(-0.05), "the way back begins at once"
    climbing = states_over(EntropyPI(target=0.1, proportional=0.0, integral=0.5), (1.1,) * 20 + (0.0,) * 2)
    assert climbing[-3].accumulated == pytest.approx(3.0), "one step past the two that reach the limit"
    assert climbing[-1].accumulated == pytest.approx(2.8), "at the limit an error that points inwards counts"


def test_without_a_target_the_run_holds_its_own_start() -> None:
    states = states_over(EntropyPI(settle=2), (0.4, 0.6, 0.7))
    assert [one.coefficient for one in states] == pytest.approx([0.0, 0.0, 0.2])
    assert states[-1].start == pytest.approx(0.5)


@pytest.mark.parametrize(("reads", "expected"), [("exact", 0.4), ("sampled", -math.log(0.97 * 0.9) / 2)])
def test_which_entropy_it_reads(reads: Any, expected: float) -> None:
    controller = EntropyPI(reads=reads)
    stats = controller.apply(batch_with(0.4).clean(), controller.init(), None).stats
    assert stats["entropy"].value == pytest.approx(expected)
    assert controller.needs == ({"entropy"} if reads == "exact" else set())


def test_an_empty_step_changes_nothing() -> None:
    controller = EntropyPI(target=0.1)
    (state,) = states_over(controller, (0.3,))
    for stats in ({}, {"entropy": Mean(0.0, 0.0)}, {"entropy": Mean(math.inf, 2.0)}):
        assert controller.update(state, stats) == state


def test_contract() -> None:
    check_mechanism(EntropyPI(target=0.5, threshold=0.3))
    check_mechanism(EntropyPI(settle=2, threshold=0.3, reads="sampled"))
    check_mechanism(EntropyPI())


def test_order_no_effect_and_bad_settings() -> None:
    with pytest.raises(MechanismError, match="entropy-pi must come before clipped-policy"):
        Chain((ClippedPolicy(), EntropyPI()))
    assert EntropyPI().no_effect(Regime(updates_per_generation=1)) is None
    verdict = EntropyPI(proportional=0.0, integral=0.0).no_effect(Regime())
    assert verdict is not None
    assert verdict.mechanism == "entropy-pi"
    bad: list[tuple[str, dict[str, Any]]] = [
        ("proportional", {"proportional": -1.0}),
        ("integral", {"integral": math.inf}),
        ("target", {"target": math.nan}),
        ("threshold", {"threshold": 0.0}),
        ("threshold", {"threshold": 1.0}),
        ("reads", {"reads": "guessed"}),
        ("settle", {"settle": 0}),
    ]
    for field, settings in bad:
        with pytest.raises(SettingsError, match=f"got {field} ="):
            EntropyPI(**settings)


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        EntropyPI,
        {"proportional": 1.0, "integral": 0.01, "target": None, "threshold": 0.95, "reads": "exact", "settle": 5},
        accepted=[{"proportional": 0.0}, {"integral": 0.0}, {"target": 0.0}, {"threshold": 0.01}, {"settle": 1}],
        refused=[
            {"proportional": -0.1},
            {"proportional": math.inf},
            {"integral": -0.1},
            {"integral": math.inf},
            {"target": -0.1},
            {"target": math.inf},
            {"threshold": 0.0},
            {"threshold": 1.0},
            {"settle": 0},
            {"reads": "other"},
        ],
    )


def test_a_run_starts_with_nothing_seen() -> None:
    assert EntropyPI().init() == PIState(steps=0, start=0.0, error=0.0, accumulated=0.0, coefficient=0.0)


def test_a_token_exactly_at_the_threshold_is_not_likely() -> None:
    batch = batch_with(0.3)
    batch = Batch(
        torch.tensor([[math.log(0.95), math.log(0.96)]] * 2, dtype=torch.float64), batch.advantages, batch.mask
    )
    stats = EntropyPI(reads="sampled").apply(batch.clean(), PIState(), None).stats
    assert (stats["likely"].total, stats["likely"].count) == (2, 4)


def test_a_small_error_at_the_limit_does_not_wind_up_either() -> None:
    # 1 * 0.1 + 0.5 * 3 is above 1, and 0.1 points outwards.
    before = PIState(steps=9, accumulated=3.0, coefficient=1.0)
    after = EntropyPI(target=0.1, integral=0.5).update(before, {"entropy": Mean(0.2, 1.0)})
    assert (after.coefficient, after.accumulated) == (1.0, 3.0)


def test_one_gain_is_enough_to_act() -> None:
    assert EntropyPI(proportional=0.0).no_effect(Regime()) is None
    assert EntropyPI(integral=0.0).no_effect(Regime()) is None
