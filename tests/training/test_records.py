"""The records: what cleaning fills in and takes away, and how rollouts of ranks are joined."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from breadth.base.errors import MechanismError
from breadth.training.records import Batch, Plan, Rollouts, not_none

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
