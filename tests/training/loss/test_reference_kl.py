"""The KL to a reference: value and gradient of each estimator, averaged over the whole vocabulary, and the contract."""

from __future__ import annotations

from typing import Literal, TypeAlias

import pytest
import torch

from breadth.base.errors import SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.reference_kl import ReferenceKL
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Batch

Estimator: TypeAlias = Literal["k1", "k2", "k3", "k3+"]
LOGITS = [2.0, 1.0, 0.0, -1.0]
REFERENCE = [1.5, 1.2, -0.3, 0.4]


def policies() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the logits with gradient, and both policies' log-probabilities of the whole vocabulary."""
    logits = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    return logits, logits.log_softmax(-1), torch.tensor(REFERENCE, dtype=torch.float64).log_softmax(-1)


def expected(estimator: Estimator) -> tuple[float, torch.Tensor]:
    """Return the mean of the term and of its gradient over every token of the vocabulary.

    Each as likely as the policy makes it.
    """
    logits, now, reference = policies()
    batch = Batch(
        now[:, None], torch.zeros(4), torch.ones(4, 1, dtype=torch.bool), reference_logprobs=reference[:, None]
    ).clean()
    (term,) = ReferenceKL(1.0, estimator).apply(batch, None, None).terms
    mean = (now.detach().exp() * term[:, 0]).sum()
    (gradient,) = torch.autograd.grad(mean, logits)
    return float(mean.detach()), gradient


def exact(*, reverse: bool = False) -> tuple[float, torch.Tensor]:
    """Return KL(current || reference), or KL(reference || current), and its gradient."""
    logits, now, reference = policies()
    divergence = (reference.exp() * (reference - now)).sum() if reverse else (now.exp() * (now - reference)).sum()
    (gradient,) = torch.autograd.grad(divergence, logits)
    return float(divergence.detach()), gradient


def test_k1_has_the_value_and_no_gradient() -> None:
    value, gradient = expected("k1")
    assert value == pytest.approx(exact()[0], abs=1e-12)
    assert float(gradient.abs().max()) < 1e-12


def test_k2_has_the_gradient_and_not_the_value() -> None:
    value, gradient = expected("k2")
    assert abs(value - exact()[0]) > 1e-3
    torch.testing.assert_close(gradient, exact()[1], rtol=0, atol=1e-12)


def test_k3_has_the_value_and_the_gradient_of_the_other_kl() -> None:
    value, gradient = expected("k3")
    assert value == pytest.approx(exact()[0], abs=1e-12)
    torch.testing.assert_close(gradient, exact(reverse=True)[1], rtol=0, atol=1e-12)
    assert float((gradient - exact()[1]).abs().max()) > 1e-2


def test_k3_plus_has_both() -> None:
    value, gradient = expected("k3+")
    assert value == pytest.approx(exact()[0], abs=1e-12)
    torch.testing.assert_close(gradient, exact()[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"),
    # d = 0.5: k2 = 0.125, k3 = exp(-0.5) + 0.5 - 1 = 0.1065307, its gradient 1 - exp(-0.5) = 0.3934693
    [("k1", 0.5, 1.0), ("k2", 0.125, 0.5), ("k3", 0.1065307, 0.3934693), ("k3+", 0.1065307, 0.5)],
)
def test_one_token_by_hand(estimator: Estimator, value: float, gradient: float) -> None:
    logprobs = torch.tensor([[-1.0, float("nan")]], dtype=torch.float64, requires_grad=True)
    batch = Batch(
        logprobs,
        torch.zeros(1),
        torch.tensor([[True, False]]),
        reference_logprobs=torch.tensor([[-1.5, 1e9]], dtype=torch.float64),
    )
    objective = Objective(Chain((ClippedPolicy(), ReferenceKL(0.04, estimator))))
    objective.begin(batch)
    loss = objective.loss(batch)
    (found,) = torch.autograd.grad(loss, logprobs)
    assert float(loss.detach()) == pytest.approx(0.04 * value, abs=1e-6)
    assert found[0].tolist() == pytest.approx([0.04 * gradient, 0.0], abs=1e-6)
    assert objective.finish()["reference-kl/divergence"] == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "k3+"])
@pytest.mark.parametrize("reference", [-1e9, -float("inf"), -30.0])
def test_a_reference_that_excludes_the_token_stays_finite(estimator: Estimator, reference: float) -> None:
    logprobs = torch.tensor([[-0.1]], requires_grad=True)
    batch = Batch(
        logprobs, torch.zeros(1), torch.ones(1, 1, dtype=torch.bool), reference_logprobs=torch.tensor([[reference]])
    ).clean()
    (term,) = ReferenceKL(1.0, estimator).apply(batch, None, None).terms
    (gradient,) = torch.autograd.grad(term.sum(), logprobs)
    assert torch.isfinite(term).all()
    assert torch.isfinite(gradient).all()
    if reference < -100:  # a distance counts up to 100 nats
        assert ReferenceKL(1.0, "k2").estimate_kl(batch.logprobs.detach(), torch.tensor([[reference]])).item() == 5000.0
    if reference == -30.0 and estimator in ("k2", "k3+"):
        assert float(gradient) == pytest.approx(29.9)  # the pull back does not let go beyond a ratio of exp(20)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "k3+"])
def test_contract(estimator: Estimator) -> None:
    check_mechanism(ReferenceKL(0.1, estimator))


def test_settings_and_regimes() -> None:
    with pytest.raises(SettingsError, match="coefficient"):
        ReferenceKL(-0.1)
    assert ReferenceKL().needs == {"reference_logprobs"}
    on_policy = Regime(updates_per_generation=1)
    verdict = ReferenceKL(estimator="k1").no_effect(on_policy)
    assert verdict is not None
    assert "k3+" in verdict.remedy
    assert ReferenceKL().no_effect(on_policy) is None


def test_a_misspelt_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match="ReferenceKL got estimator = 'k4'"):
        ReferenceKL(estimator="k4")  # type: ignore[arg-type]  # what a user may write


def test_charged_only_where_the_policy_plans() -> None:
    # d = 0.5 on three tokens, the last masked: k2 is 0.125, charged on the one that plans and counts.
    batch = Batch(
        torch.full((1, 3), -0.5),
        torch.zeros(1),
        torch.tensor([[True, True, False]]),
        reference_logprobs=torch.full((1, 3), -1.0),
        planning=torch.tensor([[True, False, True]]),
    ).clean()
    effect = ReferenceKL(2.0, "k2", "planning").apply(batch, None, None)
    assert effect.terms[0].tolist() == [[0.25, 0.0, 0.0]]
    assert effect.stats["divergence"].value == pytest.approx(0.125)
    assert ReferenceKL(tokens="planning").needs == {"reference_logprobs", "planning"}
    check_mechanism(ReferenceKL(0.1, tokens="planning"))
    with pytest.raises(SettingsError, match="'all' or 'planning'"):
        ReferenceKL(tokens="forks")  # type: ignore[arg-type]  # what a user might type


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        ReferenceKL,
        {"coefficient": 0.001, "estimator": "k3+", "tokens": "all"},
        accepted=[
            {"coefficient": 0.0},
            {"estimator": "k1"},
            {"estimator": "k2"},
            {"estimator": "k3"},
            {"tokens": "planning"},
        ],
        refused=[{"coefficient": -0.1}, {"estimator": "k4"}, {"tokens": "other"}],
    )
