"""GPPO and CE-GPPO: the table of values and gradients, their relation to clip-higher, and the contract."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from breadth.base.errors import SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.gradient_preserving import GradientPreserving
from breadth.training.mechanism import Mechanism, Regime
from breadth.training.records import Batch, not_none

GPPO = GradientPreserving()
CE_GPPO = GradientPreserving(below=0.75)


def moved_by(ratios: torch.Tensor, advantages: torch.Tensor) -> Batch:
    """Return one sequence whose tokens have these ratios and advantages."""
    old = torch.full_like(ratios, -3.0)
    return Batch(
        (old + ratios.log())[None].requires_grad_(),
        advantages[None],
        torch.ones(1, len(ratios), dtype=torch.bool),
        old[None],
    )


def losses_of(mechanism: Mechanism[Batch, None], batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return loss, gradient and the clipped flag of each token."""
    after = mechanism.apply(batch.clean(), None, None).after
    losses = not_none(after.surrogate)
    (gradient,) = torch.autograd.grad(losses.sum(), batch.logprobs)
    return losses[0].detach(), gradient[0], not_none(after.clipped)[0]


def random_tokens(seed: int) -> Batch:
    dice = torch.Generator().manual_seed(seed)
    ratios = (0.6 * torch.randn(500, generator=dice, dtype=torch.float64)).exp()
    return moved_by(ratios, torch.randn(500, generator=dice, dtype=torch.float64))


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clip_higher", "gppo", "ce_gppo"),
    [
        (0.5, 1.0, -0.50, -0.50, -0.50, -0.50),
        (0.5, -1.0, 0.80, 0.0, 0.80, 0.60),
        (1.2, 1.0, -1.20, -1.20, -1.20, -1.20),
        (1.5, 1.0, -1.28, 0.0, -1.28, -1.28),
        (1.5, -1.0, 1.50, 1.50, 1.50, 1.50),
    ],
)
def test_the_table(
    ratio: float, advantage: float, loss: float, clip_higher: float, gppo: float, ce_gppo: float
) -> None:
    batch = moved_by(torch.tensor([ratio], dtype=torch.float64), torch.tensor([advantage], dtype=torch.float64))
    for mechanism, wanted in ((ClippedPolicy(high=0.28), clip_higher), (GPPO, gppo), (CE_GPPO, ce_gppo)):
        value, gradient, clipped = losses_of(mechanism, batch)
        assert float(gradient) == pytest.approx(wanted, abs=1e-9)
        assert bool(clipped) == (wanted == 0.0)
        if mechanism is not CE_GPPO:  # CE-GPPO's value is scaled with its gradient
            assert float(value) == pytest.approx(loss, abs=1e-9)
    assert float(losses_of(CE_GPPO, batch)[0]) == pytest.approx(
        0.75 * loss if (ratio, advantage) == (0.5, -1.0) else loss, abs=1e-9
    )


def test_gppo_has_the_value_of_clip_higher() -> None:
    batch = random_tokens(0)
    torch.testing.assert_close(
        losses_of(GPPO, batch)[0], losses_of(ClippedPolicy(high=0.28), batch)[0], rtol=1e-12, atol=1e-12
    )


def test_scales_of_zero_give_the_gradient_of_clip_higher() -> None:
    batch = random_tokens(1)
    _, gradient, clipped = losses_of(GradientPreserving(below=0.0, above=0.0), batch)
    _, wanted, wanted_clipped = losses_of(ClippedPolicy(high=0.28), batch)
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-12)
    assert torch.equal(clipped, wanted_clipped)
    assert clipped.any()


def test_on_policy_all_are_the_plain_policy_gradient() -> None:
    advantages = torch.tensor([1.0, -2.0], dtype=torch.float64)
    for mechanism in (GPPO, CE_GPPO, ClippedPolicy(high=0.28)):
        losses, gradient, clipped = losses_of(mechanism, moved_by(torch.ones(2, dtype=torch.float64), advantages))
        assert losses.tolist() == gradient.tolist() == [-1.0, 2.0]
        assert not clipped.any()


def test_the_dual_bound_drops_gradients_of_wrong_tokens_only() -> None:
    batch = moved_by(torch.tensor([12.0, 12.0], dtype=torch.float64), torch.tensor([-1.0, 1.0], dtype=torch.float64))
    losses, gradient, clipped = losses_of(GradientPreserving(dual=10.0), batch)
    assert losses.tolist() == pytest.approx([10.0, -1.28])
    assert gradient.tolist() == pytest.approx([0.0, -1.28])
    assert clipped.tolist() == [True, False]


def test_stats_count_the_bounded_tokens() -> None:
    batch = moved_by(torch.tensor([0.5, 0.5, 1.5, 1.0]), torch.tensor([-1.0, 1.0, 1.0, 1.0]))
    stats = GPPO.apply(batch.clean(), None, None).stats
    assert (stats["bounded_low"].value, stats["bounded_high"].value) == (0.25, 0.25)


def test_contract() -> None:
    for mechanism in (
        GPPO,
        CE_GPPO,
        GradientPreserving(low=1.0, high=1e6),
        GradientPreserving(below=0.5, above=1.2, dual=1.5),
    ):
        check_mechanism(mechanism)


@pytest.mark.parametrize(
    ("field", "value"), [("low", 1.1), ("high", -0.1), ("below", -1.0), ("above", -1.0), ("dual", 1.0)]
)
def test_bad_settings(field: str, value: float) -> None:
    with pytest.raises(SettingsError, match=field):
        GradientPreserving(**{field: value})


def test_inert_on_policy() -> None:
    verdict = GPPO.no_effect(Regime(updates_per_generation=1))
    assert verdict is not None
    assert verdict.mechanism == "gradient-preserving"
    assert GPPO.no_effect(Regime(updates_per_generation=2)) is None


def test_a_token_without_an_advantage_is_neither_bounded_nor_clipped() -> None:
    batch = moved_by(torch.tensor([0.5, 1.5, 12.0], dtype=torch.float64), torch.zeros(3, dtype=torch.float64))
    effect = GradientPreserving(below=0.0, above=0.0, dual=10.0).apply(batch.clean(), None, None)
    assert (effect.stats["bounded_low"].value, effect.stats["bounded_high"].value) == (0.0, 0.0)
    assert not_none(effect.after.clipped).tolist() == [[False] * 3]


def test_the_dual_bound_scales_with_the_advantage_and_leaves_small_right_ones() -> None:
    batch = moved_by(
        torch.tensor([12.0, 12.0, 9.0], dtype=torch.float64), torch.tensor([-2.0, 0.5, -2.0], dtype=torch.float64)
    )
    losses, gradient, clipped = losses_of(GradientPreserving(dual=10.0), batch)
    # -10 times -2; 1.28 times -0.5; below the bound -9 times -2
    assert losses.tolist() == pytest.approx([20.0, -0.64, 18.0])
    assert gradient.tolist() == pytest.approx([0.0, -0.64, 18.0])
    assert clipped.tolist() == [True, False, False]


def test_only_counted_tokens_are_in_the_stats() -> None:
    batch = moved_by(torch.tensor([0.5, 1.5, 1.0, 0.5]), torch.tensor([-1.0, 1.0, 1.0, -1.0]))
    batch = replace(batch, mask=torch.tensor([[True, True, True, False]]))
    stats = GPPO.apply(batch.clean(), None, None).stats
    assert (stats["bounded_low"].total, stats["bounded_low"].count) == (1, 3)
    assert (stats["bounded_high"].total, stats["bounded_high"].count) == (1, 3)


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        GradientPreserving,
        {"low": 0.2, "high": 0.28, "below": 1.0, "above": 1.0, "dual": None},
        accepted=[{"low": 0.0}, {"low": 1.0}, {"high": 0.0}, {"below": 0.0}, {"above": 0.0}, {"dual": 1.01}],
        refused=[{"low": -0.1}, {"low": 1.1}, {"high": -0.1}, {"below": -0.1}, {"above": -0.1}, {"dual": 1.0}],
    )


def test_a_ratio_exactly_at_an_edge_is_not_bounded() -> None:
    batch = moved_by(torch.ones(2, dtype=torch.float64), torch.tensor([1.0, -1.0], dtype=torch.float64)).clean()
    stats = GradientPreserving(low=0.0, high=0.0).apply(batch, None, None).stats
    assert (stats["bounded_low"].total, stats["bounded_high"].total) == (0, 0)
    logprobs = torch.ones(1, 1, dtype=torch.float64)
    edge = float(logprobs.exp())
    batch = Batch(logprobs, torch.tensor([-1.0]), torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1)).clean()
    for dual, capped in ((edge, False), (0.999 * edge, True)):
        assert bool(not_none(GradientPreserving(dual=dual).apply(batch, None, None).after.clipped)) is capped
