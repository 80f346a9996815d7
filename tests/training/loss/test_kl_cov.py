"""KL-Cov: the spec's loss and gradient, both divergences, where it cannot act, and the contract."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import pytest
import torch

from breadth.base.errors import SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.kl_cov import KLCov
from breadth.training.mechanism import Mechanism, Regime
from breadth.training.objective import Objective
from breadth.training.records import Batch, not_none

OPEN = ClippedPolicy(low=1.0, high=math.inf)
TWO_OF_SIX = 2 / 6 + 1e-9


def spec_batch() -> Batch:
    """Return the six tokens of the spec as two sequences."""
    logprobs = torch.tensor([[-0.05, -0.10, -2.30], [-0.02, -1.20, -3.00]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-0.05, -0.20, -2.30], [-0.02, -1.00, -2.50]], dtype=torch.float64)
    return Batch(logprobs, torch.tensor([1.0, -1.0], dtype=torch.float64), torch.ones(2, 3, dtype=torch.bool), old)


def run(batch: Batch, *after: Mechanism[Batch, None]) -> tuple[float, torch.Tensor, dict[str, float]]:
    """Return loss, gradient times the number of tokens, and metrics of one step."""
    objective = Objective(Chain((OPEN, *after)))
    objective.begin(batch)
    loss = objective.loss(batch)
    (gradient,) = torch.autograd.grad(loss, batch.logprobs)
    return float(loss.detach()), gradient.flatten() * 6, objective.finish()


def test_the_specs_numbers() -> None:
    plain, gradient, _ = run(spec_batch())
    assert plain == pytest.approx(-0.113318, abs=1e-6)
    # -A times the ratios 1, 1.105171, 1, 1, 0.818731, 0.606531
    assert gradient.tolist() == pytest.approx([-1.0, -1.105171, -1.0, 1.0, 0.818731, 0.606531], abs=1e-6)
    charged, changed, metrics = run(spec_batch(), KLCov(share=TWO_OF_SIX))
    assert charged == pytest.approx(-0.029985, abs=1e-6)
    assert float(changed[5]) == pytest.approx(-0.393469, abs=1e-6)
    assert changed[:5].tolist() == gradient[:5].tolist()
    assert metrics["kl-cov/picked"] == pytest.approx(1 / 3)
    assert metrics["kl-cov/distance"] == pytest.approx(0.25)  # 0.5 on token 5, 0 on token 0


def test_the_largest_covariances_are_picked() -> None:
    batch = spec_batch().clean()
    assert KLCov(share=TWO_OF_SIX).survey(batch, None).tokens["picked"].flatten().nonzero()[:, 0].tolist() == [0, 5]
    assert KLCov().survey(batch, None).tokens["picked"].flatten().nonzero()[:, 0].tolist() == [5]


def test_on_policy_it_changes_no_gradient() -> None:
    batch = replace(spec_batch(), old_logprobs=None)
    _, plain, _ = run(batch)
    _, charged, metrics = run(batch, KLCov(share=1.0))
    assert torch.equal(plain, charged)
    assert metrics["kl-cov/distance"] == 0.0


def test_the_full_divergence_is_the_papers() -> None:
    # one position, old (0.5, 0.5), current (0.8, 0.2): KL = 0.5 ln(0.5/0.8) + 0.5 ln(0.5/0.2) = 0.2231436; d KL/d
    # logits = current - old
    logits = torch.tensor([math.log(0.8), math.log(0.2)], dtype=torch.float64, requires_grad=True)
    now, old = logits.log_softmax(-1), torch.tensor([0.5, 0.5], dtype=torch.float64)
    divergence = (old * (old.log() - now)).sum().view(1, 1)
    batch = Batch(
        now[:1].view(1, 1), torch.ones(1), torch.ones(1, 1, dtype=torch.bool), old_divergence=divergence
    ).clean()
    mechanism = KLCov(share=1.0, coefficient=2.0, divergence="full")
    (term,) = mechanism.apply(batch, None, mechanism.survey(batch, None)).terms
    assert float(term.detach()) == pytest.approx(2 * 0.2231436, abs=1e-6)
    (gradient,) = torch.autograd.grad(term.sum(), logits)
    assert gradient.tolist() == pytest.approx([2 * 0.3, -2 * 0.3], abs=1e-9)


def test_the_full_divergence_has_no_gradient_on_policy_either() -> None:
    logits = torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    now = logits.log_softmax(-1)
    old = now.detach().exp()
    (gradient,) = torch.autograd.grad((old * (old.log() - now)).sum(), logits)
    assert float(gradient.abs().max()) < 1e-15


@pytest.mark.parametrize("off", [KLCov(coefficient=0.0), KLCov(share=0.0)], ids=["coefficient", "share"])
def test_without_coefficient_or_share_no_term_is_added(off: KLCov) -> None:
    batch = spec_batch().clean()
    assert off.apply(batch, None, off.survey(batch, None)).terms == ()


def test_needs() -> None:
    assert KLCov().needs == frozenset()
    assert KLCov(divergence="full").needs == {"old_divergence"}


def test_contract() -> None:
    check_mechanism(KLCov(share=0.1))
    check_mechanism(KLCov(share=0.1), neutral=KLCov(coefficient=0.0))
    check_mechanism(KLCov(share=0.1, divergence="full"))


def test_a_runaway_ratio_stays_finite() -> None:
    batch = replace(spec_batch(), old_logprobs=torch.full((2, 3), -1e9, dtype=torch.float64)).clean()
    mechanism = KLCov(share=1.0)
    (term,) = mechanism.apply(batch, None, mechanism.survey(batch, None)).terms
    assert not_none(term).detach().unique().tolist() == [20.0]


@pytest.mark.parametrize("settings", [{"share": -0.1}, {"share": 1.1}, {"coefficient": -1.0}])
def test_bad_settings(settings: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        KLCov(**settings)  # type: ignore[arg-type]  # the settings are numbers


@pytest.mark.parametrize("divergence", ["sampled", "full"])
def test_regimes(divergence: Literal["sampled", "full"]) -> None:
    mechanism = replace(KLCov(), divergence=divergence)
    cases = {
        "on-policy": Regime(updates_per_generation=1),
        "one response": Regime(updates_per_generation=4, sequences_per_update=1),
        "less than one": Regime(updates_per_generation=4, sequences_per_update=2, tokens_per_response=100),
    }
    for reason, regime in cases.items():
        verdict = mechanism.no_effect(regime)
        assert verdict is not None
        assert reason in verdict.reason
    assert (
        mechanism.no_effect(Regime(updates_per_generation=4, sequences_per_update=64, tokens_per_response=1000)) is None
    )


def test_a_misspelt_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match="KLCov got divergence = 'kl'"):
        KLCov(divergence="kl")  # type: ignore[arg-type]  # what a user may write


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        KLCov,
        {"share": 0.002, "coefficient": 1.0, "divergence": "sampled"},
        accepted=[{"share": 0.0}, {"share": 1.0}, {"coefficient": 0.0}, {"divergence": "full"}],
        refused=[{"share": -0.1}, {"share": 1.1}, {"coefficient": -0.1}, {"divergence": "other"}],
    )
