"""The static entropy bonus."""

from __future__ import annotations

import math

import pytest
import torch

from breadth.base.errors import SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.logits import entropy_and_logprobs
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.entropy_bonus import EntropyBonus
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Batch

Z = [2.0, 1.0, 0.0, -1.0]


def loss_and_gradient(*mechanisms: EntropyBonus | ClippedPolicy) -> tuple[float, torch.Tensor]:
    """Return what a chain makes of one sequence of two positions with the logits Z, advantage 1, tokens 0 and 3."""
    logits = torch.tensor([[Z, Z]], dtype=torch.float64, requires_grad=True)
    logprobs, entropy = entropy_and_logprobs(logits, torch.tensor([[0, 3]]))
    objective = Objective(Chain(mechanisms))
    batch = Batch(logprobs, torch.ones(1, dtype=torch.float64), torch.ones(1, 2, dtype=torch.bool), entropy=entropy)
    objective.begin(batch)
    loss = objective.loss(batch)
    loss.backward()
    return float(loss.detach()), logits.grad[0]


def test_numbers_of_loss_and_gradient() -> None:
    plain, without = loss_and_gradient(ClippedPolicy())
    paid, with_bonus = loss_and_gradient(ClippedPolicy(), EntropyBonus(0.1))
    assert paid - plain == pytest.approx(-0.1 * 0.947537, abs=1e-6)
    # a token mean over two positions: each gets half of -0.1 * dH/dz
    expected = [-0.05 * one for one in (-0.326688, 0.116701, 0.130076, 0.079911)]
    for position in (0, 1):
        assert (with_bonus - without)[position].tolist() == pytest.approx(expected, abs=1e-6)


def test_without_a_price_nothing_changes_bit_for_bit() -> None:
    plain, without = loss_and_gradient(ClippedPolicy())
    paid, with_bonus = loss_and_gradient(ClippedPolicy(), EntropyBonus(0.0))
    assert paid == plain
    assert torch.equal(with_bonus, without)


def test_the_term_is_not_weighted() -> None:
    batch = Batch(
        torch.zeros(1, 2, requires_grad=True),
        torch.ones(1),
        torch.ones(1, 2, dtype=torch.bool),
        entropy=torch.tensor([[1.0, 3.0]], requires_grad=True),
        weights=torch.zeros(1, 2),
    )
    objective = Objective(Chain((ClippedPolicy(), EntropyBonus(0.5))))
    objective.begin(batch)
    assert float(objective.loss(batch).detach()) == pytest.approx(-1.0)
    assert objective.finish()["entropy-bonus/entropy"] == pytest.approx(2.0)


def test_contract() -> None:
    check_mechanism(EntropyBonus())
    check_mechanism(EntropyBonus(0.3))


def test_inert_and_bad_settings() -> None:
    verdict = EntropyBonus(0.0).no_effect(Regime())
    assert verdict is not None
    assert verdict.mechanism == "entropy-bonus"
    assert EntropyBonus().no_effect(Regime(updates_per_generation=1)) is None, (
        "it acts on strictly on-policy updates too"
    )
    for coefficient in (-0.1, float("nan"), float("inf")):
        with pytest.raises(SettingsError, match="coefficient"):
            EntropyBonus(coefficient)


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        EntropyBonus,
        {"coefficient": 0.001},
        accepted=[{"coefficient": 0.0}],
        refused=[{"coefficient": -0.1}, {"coefficient": math.inf}],
    )
