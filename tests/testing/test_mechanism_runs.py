"""The runs that the contract compares tell of every period, and differ exactly where they should."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from breadth.base.errors import MechanismError
from breadth.testing.mechanism_records import SEQUENCES, sample_rollouts, sample_step
from breadth.testing.mechanism_runs import STEPS, run_all, run_credit, run_loss, run_plan, run_step
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.mechanism import Mechanism
from breadth.training.objective import Objective
from breadth.training.records import required

PLAIN = Chain((ClippedPolicy(),))
PAYING = PLAIN.plus(ForkThermostat(settle=2, floor=0.9, ceiling=1.1, proportional=0.5))


def loaded(name: str, **options: Any) -> Mechanism[Any, Any]:
    mechanism: Mechanism[Any, Any] = Mechanism.catalogue.load(name)(**options)
    return mechanism


def test_a_step_is_the_loss_over_its_parts() -> None:
    step, objective = sample_step(2), Objective(PLAIN)
    loss = run_step(objective, step, [torch.arange(5), torch.arange(5, SEQUENCES)])
    batch = step.batch.cleaned()
    moved = (batch.logprobs - required(batch.old_logprobs)).exp().detach()
    each = torch.maximum(-moved * batch.advantages, -moved.clamp(0.8, 1.2) * batch.advantages) * required(batch.weights)
    assert loss.item() == pytest.approx(each.sum().item() / int(batch.mask.sum()), abs=1e-12)
    assert required(step.logits.grad).any()
    assert objective.step == 1


def test_the_loss_seat_tells_of_every_step() -> None:
    told = run_loss(PAYING)
    wanted = {f"{what} of step {number}" for what in ("loss", "gradient") for number in range(STEPS)}
    assert told.keys() == wanted | {"states"}
    assert told["states"]["fork-thermostat"]["steps"] == STEPS
    assert len({told[f"loss of step {number}"].item() for number in range(STEPS)}) == STEPS


def test_an_entropy_without_gradient_only_matters_to_who_pays_for_it() -> None:
    chain = PLAIN.plus(loaded("forking-tokens"))  # reads the entropy, and no gradient of it
    left, right = run_loss(chain), run_loss(chain, gradient=False)
    assert all(torch.equal(left[name], right[name]) for name in left if name != "states")
    with pytest.raises(MechanismError, match="carry no gradient"):
        run_loss(PAYING, gradient=False)


def test_the_credit_seat_tells_of_every_generation_in_the_order_given() -> None:
    chain, order = Chain((GroupAdvantage(), loaded("flat-filter"))), list(reversed(range(len(sample_rollouts(0)))))
    straight, turned = run_credit(chain), run_credit(chain, order=order)
    assert len(straight) == 2 * STEPS + 1
    assert torch.allclose(straight["advantages of generation 3"][order], turned["advantages of generation 3"])
    kept = straight["rollouts kept of generation 0"]
    assert 0 < int(kept.sum()) < len(kept)


def test_the_plan_seat_tells_of_every_generation_whatever_the_order() -> None:
    chain = Chain((loaded("temperature", start=1.0, end=0.5, over=4), loaded("difficulty", pilot=8)))
    told = run_plan(chain)
    assert [told[f"plan {number}"][1] for number in range(STEPS)] == [1.0, 0.875, 0.75, 0.625] + [0.5] * 4
    assert any(0 in told[f"plan {number}"][0].values() for number in range(STEPS))
    assert run_plan(chain, turn=True) == told


def test_all_seats_pass_their_periods() -> None:
    objective = Objective(Chain((loaded("difficulty", pilot=8), GroupAdvantage(), *PAYING.mechanisms)))
    run_all(objective)
    assert (objective.generation, objective.step) == (STEPS, STEPS)
    assert objective.states[0].problems
    assert objective.states[3].steps == STEPS
