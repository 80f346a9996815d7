"""Tests of the module of the same name."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from breadth.base.errors import MechanismError
from breadth.testing.mechanism_samples import (
    CHECK_STEPS,
    GROUP,
    SEQUENCES,
    TOKEN_FIELDS,
    TOKENS,
    VOCABULARY,
    build_batch,
    run_all,
    run_credit,
    run_loss,
    run_plan,
    run_step,
    sample_plan,
    sample_rollouts,
    sample_step,
    take_rollouts,
    take_sequences,
)
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.mechanism import Mechanism
from breadth.training.objective import Objective
from breadth.training.records import not_none


def test_a_batch_of_known_policies() -> None:
    even, sure = (
        torch.zeros(1, 1, 2),
        torch.tensor([[[math.log(3.0), 0.0]]]),
    )  # halves, and three quarters against a quarter
    one = torch.ones(1, 1)
    batch = build_batch(even, sure, even, torch.tensor([[1]]), one, one, one.bool())
    assert batch.logprobs.item() == torch.tensor(0.5).log().item()
    assert math.isclose(not_none(batch.old_logprobs).item(), math.log(0.25), abs_tol=1e-6)
    assert math.isclose(not_none(batch.entropy).item(), math.log(2), abs_tol=1e-6)
    assert math.isclose(
        not_none(batch.old_entropy).item(), -0.75 * math.log(0.75) - 0.25 * math.log(0.25), abs_tol=1e-6
    )
    # KL(old || current) = 0.75 ln 1.5 + 0.25 ln 0.5
    assert math.isclose(
        not_none(batch.old_divergence).item(), 0.75 * math.log(1.5) + 0.25 * math.log(0.5), abs_tol=1e-6
    )
    assert not_none(batch.reference_logprobs).item() == batch.logprobs.item()


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
    mask, weights = step.batch.mask, not_none(step.batch.weights)
    assert mask.shape == (SEQUENCES, TOKENS)
    assert step.logits.shape == (SEQUENCES, TOKENS, VOCABULARY)
    assert 1 <= int(mask.sum(-1).min()) < TOKENS
    assert bool((weights[mask] == 0).any())
    assert bool((step.batch.advantages > 0).any())
    assert bool((step.batch.advantages < 0).any())
    ratios = (step.batch.logprobs - not_none(step.batch.old_logprobs)).exp()[mask]
    assert ratios.max().item() > 1.28  # both bounds of the clip are reached
    assert ratios.min().item() < 0.8


def test_gradients_reach_the_parameters() -> None:
    step = sample_step(0, dtype=torch.bfloat16)
    assert step.batch.logprobs.dtype is torch.bfloat16
    (step.batch.logprobs.sum() + not_none(step.batch.entropy).sum()).backward()
    inside = step.logits.grad.abs().sum(-1) > 0
    assert torch.equal(inside, step.batch.mask)


def test_take_follows_the_order_in_every_field() -> None:
    batch = sample_step(0).batch
    part = take_sequences(batch, torch.tensor([5, 2]))
    assert not_none(part.rows).tolist() == [5, 2]
    for name in (*TOKEN_FIELDS, "mask"):
        assert torch.equal(getattr(part, name), getattr(batch, name)[[5, 2]])


def test_rollouts_have_every_kind_of_group() -> None:
    rollouts = sample_rollouts(0)
    shares = not_none(rollouts.correct).view(-1, GROUP).mean(-1).tolist()
    assert shares[:2] == [0.0, 1.0]
    assert any(0 < share < 1 for share in shares)
    assert rollouts.rewards.isnan().nonzero().flatten().tolist() == [3 * GROUP + 1]
    assert torch.equal(not_none(rollouts.mask).sum(-1), rollouts.lengths)
    assert rollouts.outcomes is not None
    assert None in [one for seed in range(8) for one in sample_rollouts(seed).outcomes or ()]
    assert all(
        (outcome == "42") == bool(right)
        for outcome, right in zip(rollouts.outcomes, not_none(rollouts.correct), strict=True)
    )
    assert sample_rollouts(0).texts == rollouts.texts


def test_pick_follows_the_order_in_every_field() -> None:
    rollouts = sample_rollouts(0)
    part = take_rollouts(rollouts, [7, 1])
    assert part.groups.tolist() == [1, 0]
    assert rollouts.texts is not None
    assert rollouts.outcomes is not None
    assert part.texts == [rollouts.texts[7], rollouts.texts[1]]
    assert part.outcomes == [rollouts.outcomes[7], rollouts.outcomes[1]]
    assert torch.equal(not_none(part.entropy), not_none(rollouts.entropy)[[7, 1]])
    assert len(take_rollouts(rollouts, [])) == 0


def test_plans_repeat_and_count_what_was_seen() -> None:
    assert sample_plan(0, 0).results == {}
    plan = sample_plan(0, 3)
    assert plan == sample_plan(0, 3)
    assert plan.results
    assert all(0 <= correct <= drawn == 8 for drawn, correct in plan.results.values())


PLAIN = Chain((ClippedPolicy(),))
PAYING = PLAIN.plus(ForkThermostat(settle=2, floor=0.9, ceiling=1.1, proportional=0.5))


def loaded(name: str, **options: Any) -> Mechanism[Any, Any]:
    mechanism: Mechanism[Any, Any] = Mechanism.catalogue.load(name)(**options)
    return mechanism


def test_a_step_is_the_loss_over_its_parts() -> None:
    step, objective = sample_step(2), Objective(PLAIN)
    loss = run_step(objective, step, [torch.arange(5), torch.arange(5, SEQUENCES)])
    batch = step.batch.clean()
    moved = (batch.logprobs - not_none(batch.old_logprobs)).exp().detach()
    each = torch.maximum(-moved * batch.advantages, -moved.clamp(0.8, 1.2) * batch.advantages) * not_none(batch.weights)
    assert loss.item() == pytest.approx(each.sum().item() / int(batch.mask.sum()), abs=1e-12)
    assert not_none(step.logits.grad).any()
    assert objective.step == 1


def test_the_loss_stage_tells_of_every_step() -> None:
    told = run_loss(PAYING)
    wanted = {f"{what} of step {number}" for what in ("loss", "gradient") for number in range(CHECK_STEPS)}
    assert told.keys() == wanted | {"states"}
    assert told["states"]["fork-thermostat"]["steps"] == CHECK_STEPS
    assert len({told[f"loss of step {number}"].item() for number in range(CHECK_STEPS)}) == CHECK_STEPS


def test_an_entropy_without_gradient_only_matters_to_who_pays_for_it() -> None:
    chain = PLAIN.plus(loaded("forking-tokens"))  # reads the entropy, and no gradient of it
    left, right = run_loss(chain), run_loss(chain, gradient=False)
    assert all(torch.equal(left[name], right[name]) for name in left if name != "states")
    with pytest.raises(MechanismError, match="have no gradient"):
        run_loss(PAYING, gradient=False)


def test_the_credit_stage_tells_of_every_generation_in_the_order_given() -> None:
    chain, order = Chain((GroupAdvantage(), loaded("flat-filter"))), list(reversed(range(len(sample_rollouts(0)))))
    straight, turned = run_credit(chain), run_credit(chain, order=order)
    assert len(straight) == 2 * CHECK_STEPS + 1
    assert torch.allclose(straight["advantages of generation 3"][order], turned["advantages of generation 3"])
    kept = straight["rollouts kept of generation 0"]
    assert 0 < int(kept.sum()) < len(kept)


def test_the_plan_stage_tells_of_every_generation_whatever_the_order() -> None:
    chain = Chain((loaded("temperature", start=1.0, end=0.5, over=4), loaded("difficulty", pilot=8)))
    told = run_plan(chain)
    assert [told[f"plan {number}"][1] for number in range(CHECK_STEPS)] == [1.0, 0.875, 0.75, 0.625] + [0.5] * 4
    assert any(0 in told[f"plan {number}"][0].values() for number in range(CHECK_STEPS))
    assert run_plan(chain, reverse=True) == told


def test_all_stages_pass_their_periods() -> None:
    objective = Objective(Chain((loaded("difficulty", pilot=8), GroupAdvantage(), *PAYING.mechanisms)))
    run_all(objective)
    assert (objective.generation, objective.step) == (CHECK_STEPS, CHECK_STEPS)
    assert objective.states[0].problems
    assert objective.states[3].steps == CHECK_STEPS
