"""REPO-R with its adaptive scale."""

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
from breadth.training.loss.repo import Repo, RepoState
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Batch


def batch_of(chances: list[float], sign: float) -> Batch:
    logprobs = torch.tensor([chances], dtype=torch.float64).log().requires_grad_()
    return Batch(logprobs, torch.tensor([sign], dtype=torch.float64), torch.ones(1, len(chances), dtype=torch.bool))


def scaled(chances: list[float], sign: float, scale: float) -> list[float]:
    effect = Repo().apply(batch_of(chances, sign).clean(), RepoState(scale=scale), None)
    return [float(one) for one in effect.after.advantages[0]]


def states_over(repo: Repo, readings: tuple[float, ...]) -> list[RepoState]:
    state, states = repo.init(), []
    for reading in readings:
        state = repo.update(state, {"entropy": Mean(10 * reading, 10.0)})
        states.append(state)
    return states


def test_numbers_of_the_scaled_advantages() -> None:
    assert scaled([0.9, 0.05], 1.0, 0.1) == pytest.approx([1.010536, 1.299573], abs=1e-6)
    assert scaled([0.9, 0.05], -1.0, 0.1) == pytest.approx([-0.989464, -0.700427], abs=1e-6)


def test_gradient_follows_the_scaled_advantages_only() -> None:
    for sign, expected in ((1.0, [1.010536, 1.299573]), (-1.0, [-0.989464, -0.700427])):
        batch = batch_of([0.9, 0.05], sign)
        objective = Objective(Chain((Repo(), ClippedPolicy())))
        objective.begin(batch)
        objective.loss(batch).backward()
        # on-policy: the gradient by a log-prob is -A / 2 tokens, with nothing through the surprise
        assert batch.logprobs.grad[0].tolist() == pytest.approx([-one / 2 for one in expected], abs=1e-6)


def test_no_sign_ever_changes() -> None:
    # scale * surprise = 0.8 * ln 100 = 3.7: without the floor the advantage would be +2.7
    assert scaled([0.9, 0.01], -1.0, 0.8) == pytest.approx([-(1 - 0.8 * -math.log(0.9)), 0.0], abs=1e-9)
    stats = Repo().apply(batch_of([0.9, 0.01], -1.0).clean(), RepoState(scale=0.8), None).stats
    assert stats["muted"].value == pytest.approx(0.5)
    assert scaled([1e-30], 1.0, 0.8) == pytest.approx([1 + 0.8 * 20.0]), "a surprise counts up to 20 nats"


def test_impossible_tokens_stay_finite() -> None:
    assert scaled([0.0], 1.0, 0.1) == pytest.approx([3.0])
    assert scaled([0.0], -1.0, 0.1) == pytest.approx([0.0])


def test_scale_doubles_below_the_start_and_halves_above() -> None:
    states = states_over(Repo(settle=2), (0.4, 0.6, 0.45, 0.4, 0.5, 0.55, 0.6))
    assert states[1].start == pytest.approx(0.5)
    assert [one.scale for one in states] == pytest.approx([0.1, 0.1, 0.2, 0.4, 0.4, 0.2, 0.1])


def test_scale_stays_in_its_range() -> None:
    low = states_over(Repo(settle=1), (0.5,) + (0.1,) * 6)
    assert [one.scale for one in low] == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.8, 0.8, 0.8])
    high = states_over(Repo(settle=1), (0.5,) + (0.9,) * 5)
    assert [one.scale for one in high] == pytest.approx([0.1, 0.05, 0.025, 0.0125, 0.0125, 0.0125])


@pytest.mark.parametrize(("reads", "expected"), [("sampled", -math.log(0.9 * 0.05) / 2), ("exact", 0.7)])
def test_which_entropy_it_reads(reads: Any, expected: float) -> None:
    repo = Repo(reads=reads)
    whole = batch_of([0.9, 0.05], 1.0)
    batch = Batch(whole.logprobs, whole.advantages, whole.mask, entropy=torch.full((1, 2), 0.7, dtype=torch.float64))
    assert repo.apply(batch.clean(), repo.init(), None).stats["entropy"].value == pytest.approx(expected)
    assert repo.needs == ({"entropy"} if reads == "exact" else set())


def test_an_empty_step_changes_nothing() -> None:
    repo = Repo(settle=1)
    state = states_over(repo, (0.5, 0.4))[-1]
    for stats in ({}, {"entropy": Mean(0.0, 0.0)}, {"entropy": Mean(math.nan, 2.0)}):
        assert repo.update(state, stats) == state


def test_contract() -> None:
    check_mechanism(Repo(settle=2))
    check_mechanism(Repo(settle=2, reads="exact"))
    check_mechanism(Repo(scale=2.0, largest=2.0))


def test_order_no_effect_and_bad_settings() -> None:
    with pytest.raises(MechanismError, match="repo must come before clipped-policy"):
        Chain((ClippedPolicy(), Repo()))
    assert Repo().no_effect(Regime(updates_per_generation=1)) is None
    verdict = Repo(scale=0.0, smallest=0.0).no_effect(Regime())
    assert verdict is not None
    assert verdict.mechanism == "repo"
    bad: list[tuple[str, dict[str, Any]]] = [
        ("scale", {"scale": -0.1}),
        ("scale", {"scale": math.inf, "largest": math.inf}),
        ("smallest", {"smallest": 0.2}),
        ("largest", {"largest": 0.05}),
        ("largest", {"largest": math.inf}),
        ("reads", {"reads": "guessed"}),
        ("settle", {"settle": 0}),
    ]
    for field, settings in bad:
        with pytest.raises(SettingsError, match=f"got {field} ="):
            Repo(**settings)


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        Repo,
        {"scale": 0.1, "smallest": 0.0125, "largest": 0.8, "reads": "sampled", "settle": 5},
        accepted=[{"scale": 0.0, "smallest": 0.0}, {"smallest": 0.1}, {"largest": 0.1}, {"settle": 1}],
        refused=[
            {"scale": -0.1},
            {"scale": math.inf},
            {"smallest": -0.1},
            {"smallest": 0.2},
            {"largest": 0.09},
            {"largest": math.inf},
            {"settle": 0},
            {"reads": "other"},
        ],
    )


def test_any_positive_advantage_grows_and_one_of_zero_is_not_muted() -> None:
    # ln 100 = 4.60517
    assert scaled([0.01], 0.5, 0.1) == pytest.approx([0.5 * 1.460517])
    effect = Repo().apply(batch_of([0.01], 0.0).clean(), RepoState(scale=0.8), None)
    assert float(effect.after.advantages[0]) == 0.0
    assert (effect.stats["muted"].total, effect.stats["muted"].count) == (0, 1)
    stats = Repo().apply(batch_of([0.9, 0.9, 0.01], -1.0).clean(), RepoState(scale=0.8), None).stats
    assert (stats["muted"].total, stats["muted"].count) == (1, 3)


def test_a_run_starts_with_the_configured_scale_and_nothing_seen() -> None:
    assert Repo().init() == RepoState(steps=0, start=0.0, scale=0.1)
    assert RepoState() == RepoState(steps=0, start=0.0, scale=0.0)


def test_a_masked_token_is_not_muted() -> None:
    batch = batch_of([0.9, 0.01, 0.01], -1.0)
    batch = Batch(batch.logprobs, batch.advantages, torch.tensor([[True, True, False]]))
    stats = Repo().apply(batch.clean(), RepoState(scale=0.8), None).stats
    assert (stats["muted"].total, stats["muted"].count) == (1, 2)
