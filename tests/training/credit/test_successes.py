"""Which rollouts succeeded, from correctness or from rewards of two levels."""

import math

import pytest
import torch

from breadth.base.errors import MechanismError
from breadth.training.credit.successes import find_successes
from breadth.training.records import Rollouts


def _rollouts(rewards: list[float], correct: list[float] | None = None, kept: list[bool] | None = None) -> Rollouts:
    return Rollouts(
        rewards=torch.tensor(rewards),
        groups=torch.zeros(len(rewards), dtype=torch.long),
        lengths=torch.ones(len(rewards)),
        correct=None if correct is None else torch.tensor(correct),
        kept=None if kept is None else torch.tensor(kept),
    ).clean()


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (0.1, 1.0), (-5.0, -2.0)])
def test_the_higher_of_two_levels_is_success(low: float, high: float) -> None:
    won, known = find_successes(_rollouts([low, high, low, math.nan, high]))
    assert won.tolist() == [False, True, False, False, True]
    assert known.tolist() == [True, True, True, False, True]


@pytest.mark.parametrize(("level", "expected"), [(1.0, True), (0.0, False), (-1.0, False)])
def test_equal_rewards_succeed_when_they_are_above_zero(level: float, expected: bool) -> None:
    assert find_successes(_rollouts([level] * 3))[0].tolist() == [expected] * 3


def test_levels_that_differ_only_by_rounding_are_one() -> None:
    below = 1 - 2.0**-24  # the float32 next to 1
    assert float(torch.tensor(below)) < 1.0
    assert find_successes(_rollouts([below, 1.0, 0.0]))[0].tolist() == [True, True, False]


def test_correctness_goes_before_shaped_rewards() -> None:
    won, known = find_successes(
        _rollouts([0.3, 0.9, -0.2, 1.0], correct=[1.0, 0.0, math.nan, 1.0], kept=[True, True, True, False])
    )
    assert won.tolist() == [True, False, False, False]
    assert known.tolist() == [True, True, False, False]


def test_more_than_two_levels_are_refused_with_what_to_give_instead() -> None:
    with pytest.raises(MechanismError, match="from 0 to 1") as error:
        find_successes(_rollouts([0.0, 0.5, 1.0]))
    assert "correct" in error.value.remedy


def test_a_dropped_or_unscored_rollout_adds_no_level() -> None:
    assert find_successes(_rollouts([0.0, 0.5, 1.0], kept=[True, False, True]))[0].tolist() == [False, False, True]
    assert find_successes(_rollouts([0.0, math.inf, 1.0]))[0].tolist() == [False, False, True]


def test_correctness_that_is_no_yes_or_no_is_refused() -> None:
    with pytest.raises(MechanismError, match="numbers other than 0 and 1"):
        find_successes(_rollouts([0.0, 1.0], correct=[0.5, 1.0]))


def test_nothing_is_known_of_nothing() -> None:
    assert find_successes(_rollouts([]))[0].tolist() == []
    assert find_successes(_rollouts([math.nan, math.nan]))[1].tolist() == [False, False]


def test_how_far_one_level_may_spread_grows_with_its_size() -> None:
    # At 1000 it is about 1e-3, at 0 about 1e-6.
    def successes(rewards: list[float]) -> list[bool]:
        values = torch.tensor(rewards, dtype=torch.float64)
        batch = Rollouts(values, torch.zeros(len(rewards), dtype=torch.long), torch.ones(len(rewards))).clean()
        return list(find_successes(batch)[0].tolist())

    assert successes([1000.0, 1000.0005]) == [True, True]
    assert successes([1000.0, 1000.002]) == [False, True]
    assert successes([-1000.0, -999.9995]) == [False, False]
    assert successes([-1000.0, -999.998]) == [False, True]
    assert successes([0.0, 0.5e-6]) == [False, True], "one level, and only one is above 0"
    assert successes([0.0, 1000.0, 1000.0005]) == [False, True, True]
    # From 0 to 1 it is 2e-6: exactly that far from either level is that level.
    assert successes([0.0, 2e-6, 1.0]) == [False, False, True]
    assert successes([-1.0, -2e-6, 0.0]) == [False, True, True]
    with pytest.raises(MechanismError, match="more than two levels"):
        successes([0.0, 2.1e-6, 1.0])
    edge = 1e-6
    for _ in range(9):  # the level h with h = 1e-6 (1 + h), each step rounded to a float
        edge = 1e-6 * (1 + edge)
    assert successes([0.0, edge]) == [False, True], "one level, and only one is above 0"
    with pytest.raises(MechanismError, match="more than two levels"):
        successes([-1.0, -2.1e-6, 0.0])
