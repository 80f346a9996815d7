"""The leave-one-out advantage: numbers by hand, bad input, the contract."""

import itertools
import math

import pytest
import torch

from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.leave_one_out import LeaveOneOut
from breadth.training.mechanism import Regime
from breadth.training.objective import Objective
from breadth.training.records import Rollouts, not_none


def _advantages(rewards: list[float], groups: list[int] | None = None) -> list[float]:
    record = Rollouts(
        rewards=torch.tensor(rewards, dtype=torch.float64),
        groups=torch.tensor(groups or [0] * len(rewards), dtype=torch.long),
        lengths=torch.ones(len(rewards)),
    )
    return list(not_none(Objective(Chain((LeaveOneOut(),))).credit(record)[0].advantages).tolist())


def test_each_reward_against_the_mean_of_the_others() -> None:
    # others of the first: (0 + 2 + 0) / 3 = 2/3; of the third: (1 + 0 + 0) / 3 = 1/3; of the zeros: (1 + 2 + 0) / 3 = 1
    assert _advantages([1.0, 0.0, 2.0, 0.0]) == pytest.approx([1 / 3, -1.0, 5 / 3, -1.0], abs=1e-6)


def test_groups_stand_apart_wherever_their_rollouts_are() -> None:
    assert _advantages([1.0, 5.0, 0.0, 7.0], [3, 1, 3, 1]) == pytest.approx([1.0, -2.0, -1.0, 2.0], abs=1e-6)


def test_an_unscored_rollout_is_nobodys_other() -> None:
    assert _advantages([1.0, math.nan, 0.0]) == pytest.approx([1.0, 0.0, -1.0], abs=1e-6)


def test_a_group_of_one_and_a_flat_group_give_exactly_nothing() -> None:
    assert _advantages([1.0]) == [0.0]
    assert _advantages([math.nan, 1.0]) == [0.0, 0.0]
    assert _advantages([0.1] * 3 + [0.7] * 7, [0] * 3 + [1] * 7) == [0.0] * 10
    assert _advantages([]) == []


@pytest.mark.parametrize("reward", [0.1, 3.3, 1000.1])
def test_equal_rewards_of_large_groups_in_single_precision_give_exactly_nothing(reward: float) -> None:
    record = Rollouts(torch.full((64,), reward), torch.zeros(64), torch.ones(64)).clean()
    after = not_none(LeaveOneOut().apply(record, None, None).after.advantages)
    assert after.tolist() == [0.0] * 64
    assert after.dtype == torch.float32


def test_it_is_the_centred_reward_times_n_over_n_minus_1() -> None:
    rewards = torch.tensor([0.2, 0.9, 0.4, 0.4, 1.3], dtype=torch.float64)
    record = Rollouts(rewards=rewards, groups=torch.zeros(5), lengths=torch.ones(5)).clean()
    centred = not_none(GroupAdvantage(scale="none").apply(record, None, None).after.advantages)
    assert _advantages(rewards.tolist()) == pytest.approx((centred * 5 / 4).tolist(), abs=1e-6)


def test_it_is_unbiased_by_enumeration() -> None:
    """Over all outcomes of three tries, the mean of A times the score is d p / d logit = p (1 - p)."""
    p, n = 0.3, 3
    total = 0.0
    for rewards in itertools.product([0.0, 1.0], repeat=n):
        chance = math.prod(p if one else 1 - p for one in rewards)
        total += chance * sum(a * (r - p) for a, r in zip(_advantages(list(rewards)), rewards, strict=True)) / n
    assert total == pytest.approx(p * (1 - p), abs=1e-9)


def test_it_tells_of_groups_of_one() -> None:
    assert LeaveOneOut().no_effect(Regime(group_size=1)) is not None
    assert LeaveOneOut().no_effect(Regime(group_size=2)) is None
    assert LeaveOneOut().no_effect(Regime()) is None


def test_contract() -> None:
    check_mechanism(LeaveOneOut())


def test_how_far_equal_rewards_may_differ_grows_with_their_size() -> None:
    # At 1000 the tolerance is 1.001e-4 a rollout. A gap d has squares d^2 / 2: 1.125e-8 below, 4.5e-8 above 2.004e-8.
    assert _advantages([1000.0, 1000.00015]) == [0.0, 0.0]
    assert _advantages([1000.0, 1000.0003])[1] > 0
    # At 0 it is 1e-7: squares of 1.125e-14 and 4.5e-14 against 2e-14.
    assert _advantages([0.0, 1.5e-7]) == [0.0, 0.0]
    assert _advantages([0.0, 3e-7])[1] > 0


def test_stats_count_scored_rollouts() -> None:
    rollouts = Rollouts(torch.tensor([1.0, 0.0, 1.0, 1.0, math.nan]), torch.tensor([0, 0, 1, 1, 1]), torch.ones(5))
    stats = LeaveOneOut().apply(rollouts.clean(), None, None).stats
    assert (stats["flat"].total, stats["flat"].count) == (2, 4)
    assert (stats["size"].total, stats["size"].count) == (2.0, 4)  # 1, 1, 0, 0


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(LeaveOneOut, {})


def test_rewards_one_tolerance_from_their_mean_are_equal_and_one_float_more_is_not() -> None:
    # Around 1 the tolerance is 2e-7: half a gap of 3e-7 is below, of 5e-7 above.
    assert _advantages([1.0, 1.0 + 3e-7]) == [0.0, 0.0]
    assert _advantages([1.0, 1.0 + 5e-7])[1] > 0
    # The edge r and -r with r = 1e-7 (1 + r), each step rounded to a float.
    edge = 1e-7
    for _ in range(9):
        edge = 1e-7 * (1 + edge)
    assert _advantages([edge, -edge]) == [0.0, 0.0]
    above = math.nextafter(math.nextafter(edge, 1), 1)
    assert _advantages([above, -above])[0] > 0
