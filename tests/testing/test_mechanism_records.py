"""The records of the contract are made of real policies, repeat exactly, and hold the cases mechanisms must survive."""

from __future__ import annotations

import math

import torch

from breadth.testing.mechanism_records import (
    GROUP,
    SEQUENCES,
    TOKEN_FIELDS,
    TOKENS,
    VOCABULARY,
    batch_of,
    pick,
    sample_plan,
    sample_rollouts,
    sample_step,
    take,
)
from breadth.training.records import required


def test_a_batch_of_known_policies() -> None:
    even, sure = torch.zeros(1, 1, 2), torch.tensor([[[math.log(3.0), 0.0]]])  # halves, and three quarters against a quarter
    one = torch.ones(1, 1)
    batch = batch_of(even, sure, even, torch.tensor([[1]]), one, one, one.bool())
    assert batch.logprobs.item() == torch.tensor(0.5).log().item()
    assert math.isclose(required(batch.old_logprobs).item(), math.log(0.25), abs_tol=1e-6)
    assert math.isclose(required(batch.entropy).item(), math.log(2), abs_tol=1e-6)
    assert math.isclose(required(batch.old_entropy).item(), -0.75 * math.log(0.75) - 0.25 * math.log(0.25), abs_tol=1e-6)
    # KL(old || current) = 0.75 ln 1.5 + 0.25 ln 0.5
    assert math.isclose(required(batch.old_divergence).item(), 0.75 * math.log(1.5) + 0.25 * math.log(0.5), abs_tol=1e-6)
    assert required(batch.reference_logprobs).item() == batch.logprobs.item()


def test_a_step_repeats_and_its_garbage_is_outside_the_mask_alone() -> None:
    step, again, dirty = sample_step(3), sample_step(3), sample_step(3, fill=math.nan)
    for name in TOKEN_FIELDS:
        values, others, garbage = (getattr(one.batch, name) for one in (step, again, dirty))
        assert torch.equal(values, others)
        assert torch.equal(values[step.batch.mask], garbage[step.batch.mask])
        assert garbage[~step.batch.mask].isnan().all()
    assert not torch.equal(step.batch.logprobs, sample_step(4).batch.logprobs)


def test_a_step_has_what_a_mechanism_must_survive() -> None:
    step = sample_step(0)
    mask, weights = step.batch.mask, required(step.batch.weights)
    assert mask.shape == (SEQUENCES, TOKENS)
    assert step.logits.shape == (SEQUENCES, TOKENS, VOCABULARY)
    assert 1 <= int(mask.sum(-1).min()) < TOKENS
    assert bool((weights[mask] == 0).any())
    assert bool((step.batch.advantages > 0).any())
    assert bool((step.batch.advantages < 0).any())
    ratios = (step.batch.logprobs - required(step.batch.old_logprobs)).exp()[mask]
    assert ratios.max().item() > 1.28  # both bounds of the clip are reached
    assert ratios.min().item() < 0.8


def test_gradients_reach_the_parameters() -> None:
    step = sample_step(0, dtype=torch.bfloat16)
    assert step.batch.logprobs.dtype is torch.bfloat16
    (step.batch.logprobs.sum() + required(step.batch.entropy).sum()).backward()
    inside = step.logits.grad.abs().sum(-1) > 0
    assert torch.equal(inside, step.batch.mask)


def test_take_follows_the_order_in_every_field() -> None:
    batch = sample_step(0).batch
    part = take(batch, torch.tensor([5, 2]))
    assert required(part.rows).tolist() == [5, 2]
    for name in (*TOKEN_FIELDS, "mask"):
        assert torch.equal(getattr(part, name), getattr(batch, name)[[5, 2]])


def test_rollouts_have_every_kind_of_group() -> None:
    rollouts = sample_rollouts(0)
    shares = required(rollouts.correct).view(-1, GROUP).mean(-1).tolist()
    assert shares[:2] == [0.0, 1.0]
    assert any(0 < share < 1 for share in shares)
    assert rollouts.rewards.isnan().nonzero().flatten().tolist() == [3 * GROUP + 1]
    assert torch.equal(required(rollouts.mask).sum(-1), rollouts.lengths)
    assert rollouts.outcomes is not None
    assert None in [one for seed in range(8) for one in sample_rollouts(seed).outcomes or ()]
    assert all((outcome == "42") == bool(right) for outcome, right in zip(rollouts.outcomes, required(rollouts.correct), strict=True))
    assert sample_rollouts(0).texts == rollouts.texts


def test_pick_follows_the_order_in_every_field() -> None:
    rollouts = sample_rollouts(0)
    part = pick(rollouts, [7, 1])
    assert part.groups.tolist() == [1, 0]
    assert rollouts.texts is not None
    assert rollouts.outcomes is not None
    assert part.texts == [rollouts.texts[7], rollouts.texts[1]]
    assert part.outcomes == [rollouts.outcomes[7], rollouts.outcomes[1]]
    assert torch.equal(required(part.entropy), required(rollouts.entropy)[[7, 1]])
    assert len(pick(rollouts, [])) == 0


def test_plans_repeat_and_count_what_was_seen() -> None:
    assert sample_plan(0, 0).seen == {}
    plan = sample_plan(0, 3)
    assert plan == sample_plan(0, 3)
    assert plan.seen
    assert all(0 <= correct <= drawn == 8 for drawn, correct in plan.seen.values())
