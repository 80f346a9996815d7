"""CISPO: both conventions by hand, and the contract."""

from __future__ import annotations

import math

import pytest
import torch

from breadth.base.errors import SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.loss.cispo import Cispo
from breadth.training.mechanism import Regime
from breadth.training.records import Batch, not_none

TWO_SIDED = Cispo(low=0.2, high=0.28)
OLD = -3.0


def losses_of(mechanism: Cispo, ratios: list[float], advantages: list[float]) -> tuple[list[float], list[float]]:
    """Return loss and gradient of tokens with these ratios."""
    moved = torch.tensor([ratios], dtype=torch.float64)
    logprobs = (OLD + moved.log()).requires_grad_()
    batch = Batch(
        logprobs,
        torch.tensor([advantages], dtype=torch.float64),
        torch.ones_like(moved, dtype=torch.bool),
        torch.full_like(moved, OLD),
    )
    after = mechanism.apply(batch.clean(), None, None).after
    losses = not_none(after.surrogate)
    (gradient,) = torch.autograd.grad(losses.sum(), logprobs)
    assert not not_none(after.clipped).any()
    return losses[0].tolist(), gradient[0].tolist()


def test_around_one_as_verl() -> None:
    ratios, advantages = [0.5, 0.5, 1.2, 1.5, 1.5], [1.0, -1.0, 1.0, 1.0, -1.0]
    losses, gradient = losses_of(TWO_SIDED, ratios, advantages)
    assert gradient == pytest.approx([-0.80, 0.80, -1.20, -1.28, 1.28], abs=1e-9)
    # the value is the gradient times log p: for the first token log p = log 0.5 - 3 = -3.693147, so 0.8 * 3.693147 =
    # 2.954518
    assert losses[0] == pytest.approx(2.954518, abs=1e-6)
    assert losses[3] == pytest.approx(1.28 * -(math.log(1.5) + OLD), abs=1e-9)


def test_cap_as_trl() -> None:
    ratios, advantages = [0.01, 1.5, 4.0, 9.0, 9.0], [1.0, 1.0, -1.0, 1.0, -1.0]
    _, gradient = losses_of(Cispo(bounds="cap", cap=5.0), ratios, advantages)
    assert gradient == pytest.approx([-0.01, -1.5, 4.0, -5.0, 5.0], abs=1e-9)


def test_the_conventions_are_different_losses() -> None:
    # the same number 0.28 read as verl reads it bounds at 1.28; TRL would bound at 0.28, which we refuse
    assert losses_of(Cispo(), [2.0], [1.0])[1] == pytest.approx([-1.28])
    assert losses_of(Cispo(bounds="cap"), [2.0], [1.0])[1] == pytest.approx([-2.0])
    with pytest.raises(SettingsError, match="cap"):
        Cispo(bounds="cap", cap=0.28)


def test_on_policy_the_gradient_is_that_of_the_clipped_policy_loss() -> None:
    for mechanism in (TWO_SIDED, Cispo(bounds="cap")):
        assert losses_of(mechanism, [1.0, 1.0], [1.0, -2.0])[1] == [-1.0, 2.0]


def test_no_lower_bound_by_default() -> None:
    assert losses_of(Cispo(), [0.001], [1.0])[1] == pytest.approx([-0.001], abs=1e-9)


def test_a_runaway_token_keeps_a_finite_gradient() -> None:
    losses, gradient = losses_of(Cispo(bounds="cap", cap=math.inf), [1e200], [1.0])
    assert gradient == pytest.approx([-math.exp(20.0)])
    assert math.isfinite(losses[0])


def test_stats_count_the_bounded_weights() -> None:
    old = torch.zeros(1, 4)
    batch = Batch(
        torch.tensor([[0.5, 1.0, 1.5, 3.0]]).log(), torch.tensor([-1.0]), torch.ones(1, 4, dtype=torch.bool), old
    )
    stats = TWO_SIDED.apply(batch.clean(), None, None).stats
    assert (stats["bounded_low"].value, stats["bounded_high"].value) == (0.25, 0.5)


def test_contract() -> None:
    for mechanism in (Cispo(), TWO_SIDED, Cispo(bounds="cap"), Cispo(bounds="cap", cap=1.0)):
        check_mechanism(mechanism)


@pytest.mark.parametrize(("field", "value"), [("low", 1.1), ("low", -0.1), ("high", -0.1), ("cap", 0.9)])
def test_bad_settings(field: str, value: float) -> None:
    with pytest.raises(SettingsError, match=field):
        Cispo(**{field: value})  # type: ignore[arg-type]  # the field is one of the numbers


def test_inert_on_policy() -> None:
    verdict = Cispo().no_effect(Regime(updates_per_generation=1))
    assert verdict is not None
    assert verdict.mechanism == "cispo"
    assert Cispo().no_effect(Regime(updates_per_generation=None)) is None


def test_a_misspelt_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match="Cispo got bounds = 'trl'"):
        Cispo(bounds="trl")  # type: ignore[arg-type]  # what a user may write


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        Cispo,
        {"bounds": "around-one", "low": 1.0, "high": 0.28, "cap": 5.0},
        accepted=[{"low": 0.0}, {"high": 0.0}, {"cap": 1.0}, {"bounds": "cap"}],
        refused=[{"low": -0.1}, {"low": 1.1}, {"high": -0.1}, {"cap": 0.9}, {"bounds": "other"}],
    )


def test_a_weight_exactly_at_a_bound_is_not_bounded() -> None:
    logprobs = torch.zeros(1, 2)
    batch = Batch(logprobs, torch.ones(1), torch.ones(1, 2, dtype=torch.bool), logprobs).clean()
    stats = Cispo(low=0.0, high=0.0).apply(batch, None, None).stats
    assert (stats["bounded_low"].total, stats["bounded_high"].total) == (0, 0)
