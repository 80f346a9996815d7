"""The clipped policy loss: the table of losses and gradients by hand, dual clip, overflow, and the contract."""

from __future__ import annotations

import math

import pytest
import torch

from breadth.base.errors import SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Batch, not_none
from breadth.training.reduction import Totals

HIGHER = ClippedPolicy(low=0.2, high=0.28)


def applied(
    mechanism: ClippedPolicy, ratios: list[float], advantages: list[float]
) -> tuple[list[float], list[float], list[bool]]:
    """Return loss, gradient by log p, and what was clipped, of tokens with these ratios."""
    moved = torch.tensor([ratios], dtype=torch.float64)
    logprobs = moved.log().requires_grad_()
    batch = Batch(
        logprobs,
        torch.tensor([advantages], dtype=torch.float64),
        torch.ones_like(moved).bool(),
        torch.zeros_like(moved),
    )
    after = mechanism.apply(batch.clean(), None, None).after
    losses = not_none(after.surrogate)
    (gradient,) = torch.autograd.grad(losses.sum(), logprobs)
    return losses[0].tolist(), gradient[0].tolist(), not_none(after.clipped)[0].tolist()


def test_the_table_of_clip_higher() -> None:
    losses, gradient, clipped = applied(HIGHER, [0.5, 0.5, 1.2, 1.5, 1.5], [1.0, -1.0, 1.0, 1.0, -1.0])
    assert losses == pytest.approx([-0.50, 0.80, -1.20, -1.28, 1.50], abs=1e-12)
    assert gradient == pytest.approx([-0.50, 0.0, -1.20, 0.0, 1.50], abs=1e-12)
    assert clipped == [False, True, False, True, False]


def test_the_same_bounds_on_both_sides_is_ppo() -> None:
    losses, gradient, clipped = applied(ClippedPolicy(), [1.25, 1.15, 0.75, 0.85], [2.0, 2.0, -2.0, -2.0])
    assert losses == pytest.approx([-2.4, -2.3, 1.6, 1.7], abs=1e-12)
    assert gradient == pytest.approx([0.0, -2.3, 0.0, 1.7], abs=1e-12)
    assert clipped == [True, False, True, False]


def test_dual_clip_bounds_what_a_wrong_token_costs() -> None:
    # without it a ratio of 7 with A = -1 costs 7; with it 3, and its gradient is gone; A > 0 and small ratios are as
    # before
    losses, gradient, clipped = applied(
        ClippedPolicy(low=0.2, high=0.28, dual=3.0), [7.0, 2.9, 7.0, 0.5], [-1.0, -1.0, 1.0, -1.0]
    )
    assert losses == pytest.approx([3.0, 2.9, -1.28, 0.8], abs=1e-12)
    assert gradient == pytest.approx([0.0, 2.9, 0.0, 0.0], abs=1e-12)
    assert clipped == [True, False, True, True]
    assert applied(HIGHER, [7.0], [-1.0])[0] == pytest.approx([7.0])


def test_without_bounds_it_is_the_importance_weighted_gradient() -> None:
    losses, gradient, clipped = applied(ClippedPolicy(low=1.0, high=math.inf), [0.01, 50.0, 50.0], [-1.0, 1.0, -1.0])
    assert losses == pytest.approx([0.01, -50.0, 50.0])
    assert gradient == pytest.approx([0.01, -50.0, 50.0])
    assert not any(clipped)


def test_on_policy_it_is_the_plain_policy_gradient() -> None:
    losses, gradient, clipped = applied(ClippedPolicy(low=0.0, high=0.0), [1.0, 1.0], [0.7, -0.3])
    assert losses == pytest.approx([-0.7, 0.3])
    assert gradient == pytest.approx([-0.7, 0.3])
    assert not any(clipped)


def test_a_ratio_that_overflows_is_bounded_and_finite() -> None:
    losses, gradient, _ = applied(HIGHER, [1e200, 1e200, 1e-200], [1.0, -1.0, -1.0])
    assert losses == pytest.approx([-1.28, math.exp(20), 0.8])
    assert gradient == [0.0, 0.0, 0.0]
    old = torch.tensor([[-1e4]])
    batch = Batch(torch.zeros(1, 1, requires_grad=True), torch.tensor([-1.0]), torch.ones(1, 1).bool(), old)
    objective = Objective(Chain((HIGHER,)))
    objective.begin(Totals.from_mask(batch.mask))
    assert objective.loss(batch).item() == pytest.approx(math.exp(20), rel=1e-6)


def test_stats_are_shares_of_all_tokens() -> None:
    mask = torch.tensor([[True, True, True, True, False]])
    moved = torch.tensor([[0.5, 0.5, 1.5, 1.0, 1.5]])
    batch = Batch(moved.log(), torch.tensor([[-1.0, 1.0, 1.0, 1.0, 1.0]]), mask, torch.zeros(1, 5))
    stats = HIGHER.apply(batch.clean(), None, None).stats
    assert (stats["clipped_low"].value, stats["clipped_high"].value) == (0.25, 0.25)


def test_contract() -> None:
    for mechanism in (HIGHER, ClippedPolicy(dual=1.5), ClippedPolicy(low=1.0, high=math.inf)):
        check_mechanism(mechanism)


@pytest.mark.parametrize(
    ("field", "value"), [("low", 1.1), ("low", -0.1), ("high", -0.1), ("dual", 1.0), ("low", math.nan)]
)
def test_bad_settings(field: str, value: float) -> None:
    with pytest.raises(SettingsError, match=f"ClippedPolicy got {field}"):
        ClippedPolicy(**{field: value})


def test_clip_higher_is_inert_on_policy() -> None:
    verdict = HIGHER.no_effect(Regime(updates_per_generation=1))
    assert verdict is not None
    assert "clip-higher never acts" in verdict.reason
    assert "num_iterations" in verdict.remedy
    assert HIGHER.no_effect(Regime(updates_per_generation=2)) is None
    assert HIGHER.no_effect(Regime()) is None
    assert ClippedPolicy().no_effect(Regime(updates_per_generation=1)) is None
    assert ClippedPolicy(low=1.0, high=math.inf).no_effect(Regime(updates_per_generation=1)) is None


def test_dual_clip_is_inert_on_policy() -> None:
    alone, both = ClippedPolicy(dual=3.0), ClippedPolicy(high=0.28, dual=3.0)
    verdict = alone.no_effect(Regime(updates_per_generation=1))
    assert verdict is not None
    assert verdict.reason.startswith("dual clip never acts: ")
    verdict = both.no_effect(Regime(updates_per_generation=1))
    assert verdict is not None
    assert verdict.reason.startswith("clip-higher and dual clip never act: ")
    assert alone.no_effect(Regime(updates_per_generation=2)) is None


def test_a_token_without_an_advantage_is_not_clipped() -> None:
    assert applied(ClippedPolicy(dual=3.0), [0.5, 1.5, 7.0], [0.0] * 3)[2] == [False] * 3


def test_the_dual_bound_scales_with_the_advantage_and_leaves_small_right_ones() -> None:
    losses, _, clipped = applied(ClippedPolicy(dual=3.0), [7.0, 7.0], [-2.0, 0.5])
    assert losses == pytest.approx([6.0, -0.6])  # 3 times 2; 1.2 times 0.5
    assert clipped == [True, True]


def test_stats_are_shares_of_the_counted_tokens() -> None:
    moved = torch.tensor([[0.5, 0.5, 1.5, 1.0, 1.5]])
    batch = Batch(
        moved.log(),
        torch.tensor([[-1.0, -1.0, 1.0, 1.0, 1.0]]),
        torch.tensor([[True, True, True, True, False]]),
        torch.zeros_like(moved),
    )
    stats = ClippedPolicy().apply(batch.clean(), None, None).stats
    assert (stats["clipped_low"].total, stats["clipped_low"].count) == (2, 4)
    assert (stats["clipped_high"].total, stats["clipped_high"].count) == (1, 4)


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        ClippedPolicy,
        {"low": 0.2, "high": 0.2, "dual": None},
        accepted=[{"low": 0.0}, {"low": 1.0}, {"high": 0.0}, {"high": math.inf}, {"dual": 1.01}],
        refused=[{"low": -0.1}, {"low": 1.1}, {"high": -0.1}, {"dual": 1.0}],
    )


def test_a_ratio_exactly_at_the_dual_bound_keeps_its_gradient() -> None:
    logprobs = torch.ones(1, 1, dtype=torch.float64)
    edge = float(logprobs.exp())
    batch = Batch(logprobs, torch.tensor([-1.0]), torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1)).clean()
    for dual, capped in ((edge, False), (math.nextafter(edge, 0), True)):
        assert bool(not_none(ClippedPolicy(dual=dual).apply(batch, None, None).after.clipped)) is capped
