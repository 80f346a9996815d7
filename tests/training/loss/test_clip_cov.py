"""Clip-Cov: the spec's candidates, what a picked token loses, the draw over the whole batch, and the contract."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from breadth.base.errors import MechanismError, SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.loss.clip_cov import ClipCov
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Batch

OPEN = ClippedPolicy(low=1.0, high=1.0)


def spec_batch() -> Batch:
    """Return the six tokens of the spec as two sequences."""
    logprobs = torch.tensor([[-0.05, -0.10, -2.30], [-0.02, -1.20, -3.00]], dtype=torch.float64, requires_grad=True)
    old = torch.tensor([[-0.05, -0.20, -2.30], [-0.02, -1.00, -2.50]], dtype=torch.float64)
    return Batch(logprobs, torch.tensor([1.0, -1.0], dtype=torch.float64), torch.ones(2, 3, dtype=torch.bool), old)


def surveyed(mechanism: ClipCov, surrogate: ClippedPolicy = OPEN, step: int = 0) -> tuple[list[int], list[int]]:
    """Return the flat places of the candidates and of the picked tokens."""
    batch = surrogate.apply(replace(spec_batch(), step=step).clean(), None, None).after
    tokens = mechanism.survey(batch, None).tokens
    return tokens["candidates"].flatten().nonzero()[:, 0].tolist(), tokens["picked"].flatten().nonzero()[:, 0].tolist()


def test_the_specs_candidates() -> None:
    candidates, chosen = surveyed(ClipCov(share=1.0, lower=0.5))
    assert candidates == chosen == [0, 1, 5]
    assert surveyed(ClipCov(share=1.0))[0] == [0, 1, 5]
    assert surveyed(ClipCov(share=1.0, lower=1.05, upper=1.5))[0] == [0]


def test_a_quota_below_one_draws_one() -> None:
    drawn = [surveyed(ClipCov(lower=0.5), step=step)[1] for step in range(60)]
    assert {len(one) for one in drawn} == {1}
    assert {one[0] for one in drawn} == {0, 1, 5}


def test_what_the_surrogate_clipped_is_no_candidate() -> None:
    # token 5 has ratio exp(-0.5) = 0.607 and A = -1: a clip at 0.8 has already taken its gradient
    assert surveyed(ClipCov(share=1.0, lower=0.5), ClippedPolicy())[0] == [0, 1]


def test_picked_tokens_lose_gradient_and_stay_in_the_denominator() -> None:
    batch = spec_batch()
    objective = Objective(Chain((OPEN, ClipCov(share=1.0, lower=0.5))))
    objective.begin(batch)
    loss = objective.loss(batch)
    loss.backward()
    # left are tokens 2, 3, 4: losses -1, 1, exp(-0.2) = 0.818731, over all six tokens
    assert float(loss.detach()) == pytest.approx((-1.0 + 1.0 + 0.818731) / 6, abs=1e-6)
    gradient = batch.logprobs.grad
    assert gradient is not None
    assert gradient.flatten().tolist() == pytest.approx([0.0, 0.0, -1 / 6, 1 / 6, 0.818731 / 6, 0.0], abs=1e-6)
    assert gradient[0, 0] == gradient[0, 1] == gradient[1, 2] == 0.0
    metrics = objective.finish()
    assert metrics["clip-cov/picked"] == metrics["clip-cov/candidates"] == 0.5


def test_no_candidate_picks_nothing() -> None:
    assert surveyed(ClipCov(lower=4.0)) == ([], [])


def test_it_must_stand_after_the_policy_loss() -> None:
    with pytest.raises(MechanismError):
        Chain((ClipCov(), ClippedPolicy()))


def test_contract() -> None:
    check_mechanism(ClipCov(share=0.05, lower=0.2))
    check_mechanism(ClipCov(lower=-1e6, upper=1e6), before=(OPEN,))
    check_mechanism(ClipCov())


@pytest.mark.parametrize("settings", [{"share": -0.1}, {"share": 1.1}, {"lower": 5.0}, {"lower": math.nan}])
def test_bad_settings(settings: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        ClipCov(**settings)


def test_regimes() -> None:
    lone = ClipCov().no_effect(Regime(sequences_per_update=1, tokens_per_response=1e6))
    short = ClipCov().no_effect(Regime(sequences_per_update=8, tokens_per_response=100))
    assert lone is not None
    assert "one response" in lone.reason
    assert short is not None
    assert "less than one" in short.reason
    assert (
        ClipCov().no_effect(Regime(updates_per_generation=1, sequences_per_update=64, tokens_per_response=1000)) is None
    )


def test_the_bounds_themselves_are_no_candidates() -> None:
    # log-probs -1 and -3 and advantages 1 and -1, centred: every token has a covariance of exactly 1
    logprobs = torch.tensor([[-1.0], [-3.0]], dtype=torch.float64)
    batch = Batch(logprobs, torch.tensor([1.0, -1.0], dtype=torch.float64), torch.ones(2, 1).bool(), logprobs)
    batch = OPEN.apply(batch.clean(), None, None).after
    for lower, upper, count in ((0.5, 1.5, 2), (0.5, 1.0, 0), (1.0, 1.5, 0)):
        tokens = ClipCov(share=1.0, lower=lower, upper=upper).survey(batch, None).tokens
        assert int(tokens["candidates"].sum()) == count


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        ClipCov,
        {"share": 0.0002, "lower": 1.0, "upper": 5.0},
        accepted=[{"share": 0.0}, {"share": 1.0}, {"lower": 4.9}],
        refused=[{"share": -0.1}, {"share": 1.1}, {"lower": 5.0}],
    )
