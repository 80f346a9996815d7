"""The rare-success cap: numbers by hand, bad input, the contract."""

import math
from dataclasses import replace

import pytest
import torch

from breadth.base.errors import MechanismError, SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.maxrl import MaxRL
from breadth.training.credit.rare_success_cap import RareSuccessCap
from breadth.training.mechanism import Mechanism, Regime
from breadth.training.objective import Objective
from breadth.training.records import Rollouts, not_none

POPULATION = GroupAdvantage(scale="population", epsilon=0.0)


def _rollouts(rewards: list[float]) -> Rollouts:
    return Rollouts(
        rewards=torch.tensor(rewards, dtype=torch.float64),
        groups=torch.zeros(len(rewards), dtype=torch.long),
        lengths=torch.ones(len(rewards)),
    )


def _advantages(rewards: list[float], *chain: Mechanism[Rollouts, None]) -> list[float]:
    return list(not_none(Objective(Chain(chain)).credit(_rollouts(rewards))[0].advantages).tolist())


def test_one_success_in_eight_is_capped() -> None:
    one = [1.0] + [0.0] * 7
    assert _advantages(one, POPULATION) == pytest.approx([2.645751] + [-0.377964] * 7, abs=1e-6)
    assert _advantages(one, POPULATION, RareSuccessCap()) == pytest.approx([2.0] + [-0.377964] * 7, abs=1e-6)
    assert _advantages(one, MaxRL(), RareSuccessCap(cap=3.0)) == [3.0] + [-1.0] * 7


def test_two_successes_or_a_smaller_group_are_left_alone() -> None:
    for rewards in ([1.0, 1.0] + [0.0] * 30, [1.0] + [0.0] * 6, [0.0] * 8, [1.0] * 8):
        assert _advantages(rewards, MaxRL(), RareSuccessCap()) == _advantages(rewards, MaxRL())


def test_an_advantage_below_the_cap_is_left_alone() -> None:
    one = [1.0] + [0.0] * 7
    assert _advantages(one, POPULATION, RareSuccessCap(cap=2.7)) == _advantages(one, POPULATION)


def test_unscored_rollouts_do_not_make_the_group_large() -> None:
    rewards = [1.0, math.nan] + [0.0] * 6
    assert _advantages(rewards, MaxRL(), RareSuccessCap()) == [6.0, 0.0] + [-1.0] * 6
    assert _advantages([*rewards, 0.0], MaxRL(), RareSuccessCap()) == [2.0, 0.0] + [-1.0] * 7


def test_rewards_of_minus_one_and_one() -> None:
    assert _advantages([-1.0] * 7 + [1.0], POPULATION, RareSuccessCap())[-1] == 2.0


def test_token_advantages_are_capped_each() -> None:
    advantages = torch.zeros(8, 3, dtype=torch.float64)
    advantages[0], advantages[1] = torch.tensor([5.0, -5.0, 1.0]), torch.tensor([5.0, 5.0, 5.0])
    record = replace(_rollouts([1.0] + [0.0] * 7), advantages=advantages).clean()
    effect = RareSuccessCap().apply(record, None, None)
    assert not_none(effect.after.advantages)[:2].tolist() == [[2.0, -5.0, 1.0], [5.0, 5.0, 5.0]]
    assert effect.stats["capped"].value == effect.stats["lone"].value == 1.0


def test_shaped_rewards_need_correctness() -> None:
    record = _rollouts([0.9, 0.1, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0])
    with pytest.raises(MechanismError, match="more than two levels"):
        Objective(Chain((RareSuccessCap(),))).credit(record)
    told = replace(record, correct=torch.tensor([1.0] + [0.0] * 7), advantages=torch.full((8,), 4.0))
    assert not_none(Objective(Chain((RareSuccessCap(),))).credit(told)[0].advantages).tolist() == [2.0] + [4.0] * 7


def test_settings_and_regime() -> None:
    with pytest.raises(SettingsError, match="cap"):
        RareSuccessCap(cap=-1.0)
    with pytest.raises(SettingsError, match="size"):
        RareSuccessCap(size=1)
    assert RareSuccessCap().no_effect(Regime(group_size=7)) is not None
    assert RareSuccessCap().no_effect(Regime(group_size=8)) is None
    assert RareSuccessCap().no_effect(Regime()) is None


def test_contract() -> None:
    check_mechanism(RareSuccessCap(cap=0.5, size=4))


@pytest.mark.parametrize("per_token", [False, True])
def test_stats_are_shares_of_the_successes(per_token: bool) -> None:
    # Groups of eight: one lone success of 3 that is capped, one of 1 that is not, two successes that are not lone.
    rewards = [1.0] + [0.0] * 7 + [1.0] + [0.0] * 7 + [1.0, 1.0] + [0.0] * 6
    advantages = torch.tensor([3.0] + [-1.0] * 7 + [1.0] + [-1.0] * 7 + [3.0, 3.0] + [-1.0] * 6)
    batch = Rollouts(
        torch.tensor(rewards),
        torch.arange(24) // 8,
        torch.ones(24),
        advantages=torch.stack([advantages, advantages], 1) if per_token else advantages,
    ).clean()
    stats = RareSuccessCap().apply(batch, None, None).stats
    assert (stats["lone"].total, stats["lone"].count) == (2, 4)
    assert (stats["capped"].total, stats["capped"].count) == (1, 4)


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        RareSuccessCap,
        {"cap": 2.0, "size": 8},
        accepted=[{"cap": 0.0}, {"size": 2}],
        refused=[{"cap": -0.1}, {"size": 1}],
    )
