"""The records: what cleaning fills in and takes away, and how rollouts of ranks are joined."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from breadth.base.errors import MechanismError
from breadth.training.records import Batch, Plan, Rollouts, find_successes, not_none

NAN = math.nan


def batch(**changes: object) -> Batch:
    given = {
        "logprobs": torch.tensor([[-1.0, NAN], [-2.0, -3.0]]),
        "advantages": torch.tensor([1.0, -1.0]),
        "mask": torch.tensor([[True, False], [True, True]]),
    }
    return Batch(**(given | changes))


def test_cleaning_fills_in_every_default() -> None:
    clean = batch().clean()
    assert clean.logprobs.tolist() == [[-1.0, 0.0], [-2.0, -3.0]]
    assert clean.advantages.tolist() == [[1.0, 0.0], [-1.0, -1.0]]
    assert not_none(clean.old_logprobs).tolist() == clean.logprobs.tolist()
    assert not_none(clean.weights).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert not_none(clean.rows).tolist() == [0, 1]
    assert clean.entropy is None


def test_cleaning_keeps_the_gradient_and_only_inside_the_mask() -> None:
    logprobs = torch.tensor([[-1.0, NAN], [-2.0, -3.0]], requires_grad=True)
    old = torch.zeros(2, 2, requires_grad=True)
    clean = batch(logprobs=logprobs, old_logprobs=old).clean()
    assert not not_none(clean.old_logprobs).requires_grad
    clean.logprobs.sum().backward()
    assert logprobs.grad.tolist() == [[1.0, 0.0], [1.0, 1.0]]


def test_advantages_that_are_no_numbers_become_zero() -> None:
    clean = batch(advantages=torch.tensor([NAN, math.inf])).clean()
    assert clean.advantages.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    clean = batch(advantages=torch.tensor([[2.0, NAN], [-math.inf, 3.0]])).clean()
    assert clean.advantages.tolist() == [[2.0, 0.0], [0.0, 3.0]]


def test_half_precision_is_widened_and_garbage_left_out_of_every_field() -> None:
    garbage = torch.tensor([[0.5, NAN], [0.25, 0.5]], dtype=torch.bfloat16)
    clean = batch(
        entropy=garbage, reference_logprobs=garbage, weights=garbage, mask=torch.tensor([[1, 0], [1, 1]])
    ).clean()
    for values in (clean.entropy, clean.reference_logprobs, clean.weights):
        assert not_none(values).dtype is torch.float32
        assert not_none(values).tolist() == [[0.5, 0.0], [0.25, 0.5]]
    assert clean.mask.dtype is torch.bool


def test_cleaning_writes_into_nothing() -> None:
    dirty = batch()
    dirty.clean()
    assert dirty.logprobs[0, 1].isnan()
    assert dirty.advantages.tolist() == [1.0, -1.0]


def test_weighing_multiplies() -> None:
    clean = (
        batch(weights=torch.tensor([[0.5, 1.0], [1.0, 2.0]]))
        .clean()
        .scale_weights(torch.tensor([[2.0, 2.0], [0.0, 1.0]]))
    )
    assert not_none(clean.weights).tolist() == [[1.0, 0.0], [0.0, 2.0]]


def test_a_survey_sees_no_gradient() -> None:
    detached = batch(logprobs=torch.zeros(2, 2, requires_grad=True)).detach()
    assert not detached.logprobs.requires_grad


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 2, 1)])
def test_wrong_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(MechanismError, match=r"must be \(sequences, tokens\)"):
        batch(logprobs=torch.zeros(shape))


def test_a_field_nobody_provided_is_named_as_such() -> None:
    with pytest.raises(MechanismError, match="was not provided"):
        not_none(batch().entropy)


def rollouts(**changes: object) -> Rollouts:
    given = {
        "rewards": torch.tensor([1.0, NAN, 0.0]),
        "groups": torch.tensor([4, 4, 5]),
        "lengths": torch.tensor([2, 1, 3]),
    }
    return Rollouts(**(given | changes))


def test_rollouts_are_cleaned() -> None:
    clean = rollouts(
        truncated=torch.tensor([0, 1, 0]), rewards=torch.tensor([1.0, NAN, 0.0], dtype=torch.bfloat16)
    ).clean()
    assert clean.rewards.dtype is torch.float32
    assert not_none(clean.advantages).tolist() == [0.0, 0.0, 0.0]
    assert not_none(clean.kept).tolist() == [True, True, True]
    assert not_none(clean.truncated).tolist() == [False, True, False]
    assert not_none(rollouts(advantages=torch.tensor([1.0, NAN, 2.0])).clean().advantages).tolist() == [1.0, 0.0, 2.0]


def test_scored_are_those_with_a_reward_that_were_kept() -> None:
    clean = rollouts(rewards=torch.tensor([1.0, NAN, math.inf, 0.0]), kept=torch.tensor([1, 1, 1, 0])).clean()
    assert clean.is_scored.tolist() == [True, False, False, False]
    assert len(clean) == 4


def test_credit_is_added_to_rollouts_or_to_all_their_tokens() -> None:
    change = torch.tensor([1.0, 0.0, -1.0])
    assert not_none(rollouts().clean().add_advantages(change).advantages).tolist() == [1.0, 0.0, -1.0]
    by_token = rollouts(advantages=torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).add_advantages(change)
    assert not_none(by_token.advantages).tolist() == [[2.0, 3.0], [3.0, 4.0], [4.0, 5.0]]


def test_joined_and_parted_again() -> None:
    left = rollouts(outcomes=["1", None, "2"], mask=torch.tensor([[1, 1], [1, 0], [1, 1]]).bool())
    right = Rollouts(
        torch.tensor([2.0]),
        torch.tensor([4]),
        torch.tensor([3]),
        outcomes=["9"],
        mask=torch.ones(1, 3, dtype=torch.bool),
    )
    whole = Rollouts.concatenate([left, right])
    assert whole.rewards.nan_to_num(nan=-1.0).tolist() == [1.0, -1.0, 0.0, 2.0]
    assert whole.groups.tolist() == [4, 4, 5, 4]
    assert whole.outcomes == ["1", None, "2", "9"]
    assert not_none(whole.mask).tolist() == [
        [True, True, False],
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert whole.texts is None
    last = whole.slice_rows(slice(3, 4))
    assert (last.rewards.tolist(), last.outcomes) == ([2.0], ["9"])
    assert Rollouts.concatenate([left]) is left
    graded = replace(left, correct=torch.ones(3))
    assert Rollouts.concatenate([graded, right]).correct is Rollouts.concatenate([right, graded]).correct is None


def test_a_plan_has_one_count_for_each_problem() -> None:
    with pytest.raises(MechanismError, match="names 2 problems but 1 sample counts"):
        Plan(("a", "b"), (8,))


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
