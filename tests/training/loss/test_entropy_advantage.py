"""The entropy-shaped advantage."""

from __future__ import annotations

import math

import pytest
import torch

from breadth.base.errors import MechanismError, SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.entropy_advantage import EntropyAdvantage
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Batch

ENTROPY = [0.1, 1.5, 3.0, 1.5, 3.0, 2.0]
ADVANTAGES = [1.0, 1.0, 1.0, -1.0, -1.0, 0.0]


def batch_of(entropy: torch.Tensor, advantages: torch.Tensor) -> Batch:
    logprobs = torch.full_like(entropy, -1.0).detach().requires_grad_()
    return Batch(logprobs[None], advantages[None], torch.ones(1, len(entropy), dtype=torch.bool), entropy=entropy[None])


def test_numbers_of_the_shaping() -> None:
    batch = batch_of(torch.tensor(ENTROPY), torch.tensor(ADVANTAGES)).clean()
    effect = EntropyAdvantage().apply(batch, None, None)
    assert (effect.after.advantages - batch.advantages)[0].tolist() == pytest.approx(
        [0.04, 0.5, 0.5, 0.5, 0.5, 0.0], abs=1e-6
    )
    assert effect.after.advantages[0].tolist() == pytest.approx([1.04, 1.5, 1.5, -0.5, -0.5, 0.0], abs=1e-6)
    assert effect.stats["shift"].value == pytest.approx(2.04 / 6, abs=1e-6)
    assert effect.stats["capped"].value == pytest.approx(4 / 6, abs=1e-6)


def test_no_gradient_comes_through_the_entropy() -> None:
    entropy = torch.tensor(ENTROPY, requires_grad=True)
    batch = batch_of(entropy, torch.tensor(ADVANTAGES))
    objective = Objective(Chain((EntropyAdvantage(), ClippedPolicy())))
    objective.begin(batch)
    objective.loss(batch).backward()
    assert entropy.grad is None
    # on-policy: the gradient by a log-prob is -A / 6 tokens
    (gradient,) = torch.autograd.grad(_loss(batch), batch.logprobs)
    assert gradient[0].tolist() == pytest.approx([-one / 6 for one in (1.04, 1.5, 1.5, -0.5, -0.5, 0.0)], abs=1e-6)


def _loss(batch: Batch) -> torch.Tensor:
    objective = Objective(Chain((EntropyAdvantage(), ClippedPolicy())))
    objective.begin(batch)
    return objective.loss(batch)


@pytest.mark.parametrize("cap", [1.01, 2.0, 10.0])
def test_no_sign_ever_changes(cap: float) -> None:
    dice = torch.Generator().manual_seed(0)
    advantages = torch.randn(2000, generator=dice) * (torch.rand(2000, generator=dice) > 0.1)
    entropy = 12 * torch.rand(2000, generator=dice) ** 3
    shaped = (
        EntropyAdvantage(scale=5.0, cap=cap)
        .apply(batch_of(entropy, advantages).clean(), None, None)
        .after.advantages[0]
    )
    assert torch.equal(shaped.sign(), advantages.sign())
    assert (shaped >= advantages).all()


def test_a_group_without_advantages_stays_silent() -> None:
    batch = batch_of(torch.tensor(ENTROPY), torch.zeros(6)).clean()
    assert not EntropyAdvantage().apply(batch, None, None).after.advantages.any()


def test_contract() -> None:
    check_mechanism(EntropyAdvantage())
    check_mechanism(EntropyAdvantage(scale=2.0, cap=1.1), neutral=EntropyAdvantage(cap=math.inf))


def test_order_no_effect_and_bad_settings() -> None:
    with pytest.raises(MechanismError, match="entropy-advantage must come before clipped-policy"):
        Chain((ClippedPolicy(), EntropyAdvantage()))
    for still in (EntropyAdvantage(scale=0.0), EntropyAdvantage(cap=math.inf)):
        verdict = still.no_effect(Regime())
        assert verdict is not None
        assert verdict.mechanism == "entropy-advantage"
    assert EntropyAdvantage().no_effect(Regime(updates_per_generation=1)) is None
    for scale, cap, field in (
        (-0.1, 2.0, "scale"),
        (math.nan, 2.0, "scale"),
        (0.4, 1.0, "cap"),
        (0.4, math.nan, "cap"),
    ):
        with pytest.raises(SettingsError, match=f"got {field} ="):
            EntropyAdvantage(scale, cap)


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        EntropyAdvantage,
        {"scale": 0.4, "cap": 2.0},
        accepted=[{"scale": 0.0}, {"cap": 1.01}],
        refused=[{"scale": -0.1}, {"scale": math.inf}, {"cap": 1.0}],
    )


def test_a_shift_exactly_at_its_limit_is_not_capped() -> None:
    # 0.5 times an entropy of 1 and of 1.5, against 1 / 2.
    batch = batch_of(torch.tensor([1.0, 1.5]), torch.tensor([1.0, -1.0])).clean()
    effect = EntropyAdvantage(scale=0.5, cap=2.0).apply(batch, None, None)
    assert effect.after.advantages[0].tolist() == [1.5, -0.5]
    assert (effect.stats["capped"].total, effect.stats["capped"].count) == (1, 2)
