"""The covariance of each token: the spec's numbers, what it means, and that order cannot change it."""

from __future__ import annotations

import pytest
import torch

from breadth.training.loss.covariances import covariance, without_spread
from breadth.training.records import Batch
from breadth.training.regime import Regime

LOGPROBS = [-0.05, -0.10, -2.30, -0.02, -1.20, -3.00]
ADVANTAGES = [1.0, 1.0, 1.0, -1.0, -1.0, -1.0]


def test_the_specs_numbers() -> None:
    batch = Batch(torch.tensor([LOGPROBS]), torch.tensor([ADVANTAGES]), torch.ones(1, 6, dtype=torch.bool)).cleaned()
    cost = covariance(batch)
    assert cost[0].tolist() == pytest.approx([1.061667, 1.011667, -1.188333, -1.091667, 0.088333, 1.888333], abs=1e-6)
    assert float(cost.mean()) == pytest.approx(0.295, abs=1e-6)


def test_means_are_over_the_mask() -> None:
    padded = Batch(
        torch.tensor([[*LOGPROBS[:3], float("nan")], [*LOGPROBS[3:], 1e9]]),
        torch.tensor([1.0, -1.0]),
        torch.tensor([[True, True, True, False]] * 2),
    ).cleaned()
    cost = covariance(padded)[padded.mask]
    assert cost.tolist() == pytest.approx([1.061667, 1.011667, -1.188333, -1.091667, 0.088333, 1.888333], abs=1e-6)


def test_the_mean_advantage_is_weighted_by_length() -> None:
    # three tokens at A = 1 and one at A = -1: the mean is 0.5, so the lone token is 1.5 away and the others 0.5
    mask = torch.tensor([[True, True, True], [True, False, False]])
    batch = Batch(torch.tensor([[-1.0, -1.0, -1.0], [-5.0, 0.0, 0.0]]), torch.tensor([1.0, -1.0]), mask).cleaned()
    assert covariance(batch)[mask].tolist() == pytest.approx([0.5, 0.5, 0.5, 4.5])


def test_an_empty_batch_has_finite_covariances() -> None:
    batch = Batch(torch.full((2, 3), float("nan")), torch.ones(2), torch.zeros(2, 3, dtype=torch.bool)).cleaned()
    assert torch.isfinite(covariance(batch)).all()


def test_order_does_not_change_a_bit() -> None:
    dice = torch.Generator().manual_seed(0)
    logprobs, advantages = -torch.rand(64, 100, generator=dice), torch.randn(64, generator=dice)
    mask = torch.rand(64, 100, generator=dice) < 0.9
    turn = torch.randperm(64, generator=dice)
    straight = covariance(Batch(logprobs, advantages, mask).cleaned())
    assert torch.equal(straight[turn], covariance(Batch(logprobs[turn], advantages[turn], mask[turn]).cleaned()))


def test_no_gradient_and_inputs_untouched() -> None:
    batch = Batch(torch.tensor([LOGPROBS], requires_grad=True), torch.tensor([ADVANTAGES]), torch.ones(1, 6, dtype=torch.bool)).cleaned()
    assert not covariance(batch).requires_grad
    assert batch.logprobs[0].tolist() == pytest.approx(LOGPROBS)


def test_one_response_has_no_spread() -> None:
    verdict = without_spread("clip-cov", Regime(sequences_per_update=1))
    assert verdict is not None
    assert "same advantage" in verdict.reason
    assert without_spread("clip-cov", Regime(sequences_per_update=2)) is None
    assert without_spread("clip-cov", Regime()) is None
    lone = Batch(torch.tensor([LOGPROBS]), torch.tensor([0.7]), torch.ones(1, 6, dtype=torch.bool)).cleaned()
    assert not covariance(lone).any()
