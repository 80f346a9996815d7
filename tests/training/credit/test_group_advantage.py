"""The group advantage of GRPO by hand, its three scales, bad groups, and the contract."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch

from breadth.base.errors import SettingsError
from breadth.testing.mechanisms import check_edges, check_mechanism
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.mechanism import Regime
from breadth.training.records import Rollouts, not_none

NAN = math.nan
ONE_IN_EIGHT = [1.0] + [0.0] * 7


def advantages(mechanism: GroupAdvantage, rewards: list[float], groups: list[int] | None = None) -> list[float]:
    values = torch.tensor(rewards, dtype=torch.float64)
    rollouts = Rollouts(values, torch.tensor(groups or [0] * len(rewards)), torch.ones(len(rewards)))
    result: list[float] = not_none(mechanism.apply(rollouts.clean(), None, None).after.advantages).tolist()
    return result


def test_one_success_in_eight_by_the_population() -> None:
    # mean 1/8, deviation sqrt(1/8 * 7/8) = 0.330719: 0.875 / 0.330719 = sqrt(7) and -0.125 / 0.330719 = -1/sqrt(7)
    found = advantages(GroupAdvantage(scale="population", epsilon=0.0), ONE_IN_EIGHT)
    assert found == pytest.approx([2.645751] + [-0.377964] * 7, abs=1e-6)
    assert sum(found) == pytest.approx(0.0, abs=1e-12)


def test_one_success_in_eight_by_the_sample() -> None:
    # deviation sqrt(0.875 / 7) = 0.353553: 0.875 / 0.353553 = 2.474874
    assert advantages(GroupAdvantage(epsilon=0.0), ONE_IN_EIGHT) == pytest.approx(
        [2.474874] + [-0.353553] * 7, abs=1e-6
    )


@pytest.mark.parametrize("size", [2, 4, 8, 64])
def test_the_two_deviations_differ_by_a_known_factor(size: int) -> None:
    rewards = [float(place % 3) for place in range(size)]
    sample = advantages(GroupAdvantage(epsilon=0.0), rewards)
    population = advantages(GroupAdvantage(scale="population", epsilon=0.0), rewards)
    factor = math.sqrt((size - 1) / size)
    assert sample == pytest.approx([factor * one for one in population], abs=1e-9)
    if size == 8:
        assert factor == pytest.approx(0.935414, abs=1e-6)


def test_without_a_scale_only_the_mean_is_taken_off() -> None:
    assert advantages(GroupAdvantage(scale="none"), [1.0, 0.0, 0.0, 1.0]) == pytest.approx(
        [0.5, -0.5, -0.5, 0.5], abs=1e-12
    )


def test_epsilon_is_added_to_the_deviation() -> None:
    # rewards 0 and 1: sample deviation 0.707107; TRL's 1e-4 gives 0.5 / 0.707207 = 0.707007
    assert advantages(GroupAdvantage(epsilon=1e-4), [0.0, 1.0])[1] == pytest.approx(0.707007, abs=1e-6)


def test_groups_are_apart_and_may_be_interleaved() -> None:
    found = advantages(GroupAdvantage(epsilon=0.0), [1.0, 5.0, 0.0, 7.0], [3, 1, 3, 1])
    half = math.sqrt(0.5)
    assert found == pytest.approx([half, -half, -half, half], abs=1e-9)


def test_two_prompts_in_one_group_and_apart() -> None:
    rewards = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    joint = advantages(GroupAdvantage(), rewards)
    assert joint == pytest.approx([0.935413 if one else -0.935413 for one in rewards], abs=1e-6)
    apart = advantages(GroupAdvantage(epsilon=0.0), rewards, [0] * 4 + [1] * 4)
    assert apart == pytest.approx([0.5, 0.5, 0.5, -1.5, -0.5, -0.5, 1.5, -0.5], abs=1e-9)


@pytest.mark.parametrize("scale", ["sample", "population", "none"])
@pytest.mark.parametrize("rewards", [[1.0] * 8, [0.0] * 8, [0.1] * 7, [1e6 + 0.1] * 5, [-3.3] * 3])
def test_equal_rewards_give_exactly_nothing(
    scale: Literal["sample", "population", "none"], rewards: list[float]
) -> None:
    assert advantages(GroupAdvantage(scale=scale, epsilon=0.0), rewards) == [0.0] * len(rewards)


def test_equal_rewards_in_single_precision_give_exactly_nothing() -> None:
    rollouts = Rollouts(torch.full((7,), 0.1), torch.zeros(7, dtype=torch.long), torch.ones(7))
    effect = GroupAdvantage(epsilon=0.0).apply(rollouts.clean(), None, None)
    assert not_none(effect.after.advantages).tolist() == [0.0] * 7
    assert effect.stats["flat"].value == 1.0


@pytest.mark.parametrize("size", [8, 16, 64, 256])
@pytest.mark.parametrize("reward", [0.1, 0.7, 3.3, 1000.1])
def test_equal_rewards_of_large_groups_in_single_precision_give_exactly_nothing(size: int, reward: float) -> None:
    # summed in single precision, the mean of sixteen times 3.3 is not 3.3, and the difference over itself is no small
    # advantage
    rollouts = Rollouts(torch.full((size,), reward), torch.zeros(size, dtype=torch.long), torch.ones(size)).clean()
    after = not_none(GroupAdvantage().apply(rollouts, None, None).after.advantages)
    assert after.tolist() == [0.0] * size
    assert after.dtype == torch.float32


@pytest.mark.parametrize("scale", ["sample", "population", "none"])
def test_a_group_of_one_gives_nothing(scale: Literal["sample", "population", "none"]) -> None:
    assert advantages(GroupAdvantage(scale=scale, epsilon=0.0), [1.0, 0.0, 1.0], [0, 1, 2]) == [0.0, 0.0, 0.0]


def test_a_rollout_without_a_reward_is_left_out_of_the_baseline() -> None:
    half = math.sqrt(0.5)
    assert advantages(GroupAdvantage(epsilon=0.0), [1.0, NAN, 0.0]) == pytest.approx([half, 0.0, -half], abs=1e-9)
    assert advantages(GroupAdvantage(epsilon=0.0), [1.0, NAN, math.inf]) == [0.0, 0.0, 0.0]
    assert advantages(GroupAdvantage(), [NAN, NAN]) == [0.0, 0.0]


def test_a_dropped_rollout_is_left_out_too() -> None:
    rollouts = Rollouts(
        torch.tensor([1.0, 9.0, 0.0]), torch.zeros(3), torch.ones(3), kept=torch.tensor([True, False, True])
    )
    effect = GroupAdvantage(scale="none").apply(rollouts.clean(), None, None)
    assert not_none(effect.after.advantages).tolist() == [0.5, 0.0, -0.5]


def test_stats() -> None:
    rollouts = Rollouts(torch.tensor([1.0, 0.0, 1.0, 1.0, NAN]), torch.tensor([0, 0, 1, 1, 1]), torch.ones(5))
    stats = GroupAdvantage(scale="none").apply(rollouts.clean(), None, None).stats
    assert stats["flat"].value == 0.5  # two of the four scored rollouts
    assert stats["size"].value == 0.25  # 0.5, 0.5, 0, 0


def test_no_rollouts() -> None:
    assert advantages(GroupAdvantage(), [], []) == []


def test_contract() -> None:
    for mechanism in (GroupAdvantage(), GroupAdvantage(scale="population", epsilon=0.0), GroupAdvantage(scale="none")):
        check_mechanism(mechanism)


def test_bad_settings_and_inert() -> None:
    with pytest.raises(SettingsError, match="epsilon = -1"):
        GroupAdvantage(epsilon=-1.0)
    verdict = GroupAdvantage().no_effect(Regime(group_size=1))
    assert verdict is not None
    assert "one rollout per problem" in verdict.reason
    assert "two" in verdict.remedy
    assert GroupAdvantage().no_effect(Regime(group_size=2)) is None
    assert GroupAdvantage().no_effect(Regime()) is None


def test_a_misspelt_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match="GroupAdvantage got scale = 'std'"):
        GroupAdvantage(scale="std")  # type: ignore[arg-type]  # what a user may write


def test_how_far_equal_rewards_may_differ_grows_with_their_size() -> None:
    # At 1000 the tolerance is 1.001e-4 a rollout. A gap d has squares d^2 / 2: 1.125e-8 below, 4.5e-8 above 2.004e-8.
    assert advantages(GroupAdvantage(scale="none"), [1000.0, 1000.00015]) == [0.0, 0.0]
    assert advantages(GroupAdvantage(scale="none"), [1000.0, 1000.0003])[1] > 0
    # At 0 it is 1e-7: squares of 1.125e-14 and 4.5e-14 against 2e-14.
    assert advantages(GroupAdvantage(scale="none"), [0.0, 1.5e-7]) == [0.0, 0.0]
    assert advantages(GroupAdvantage(scale="none"), [0.0, 3e-7])[1] > 0


def test_the_defaults_and_the_edges_of_the_settings() -> None:
    check_edges(
        GroupAdvantage,
        {"scale": "sample", "epsilon": 1e-06},
        accepted=[{"epsilon": 0.0}],
        refused=[{"epsilon": -1e-09}, {"scale": "mean"}],
    )


def centred(rewards: list[float]) -> list[float]:
    return advantages(GroupAdvantage(scale="none"), rewards)


def test_rewards_one_tolerance_from_their_mean_are_equal_and_one_float_more_is_not() -> None:
    # Around 1 the tolerance is 2e-7: half a gap of 3e-7 is below, of 5e-7 above.
    assert centred([1.0, 1.0 + 3e-7]) == [0.0, 0.0]
    assert centred([1.0, 1.0 + 5e-7])[1] > 0
    # The edge r and -r with r = 1e-7 (1 + r), each step rounded to a float.
    edge = 1e-7
    for _ in range(9):
        edge = 1e-7 * (1 + edge)
    assert centred([edge, -edge]) == [0.0, 0.0]
    above = math.nextafter(math.nextafter(edge, 1), 1)
    assert centred([above, -above])[0] > 0
