"""Some periods of a chain with random records, and what they gave: what the contract of mechanisms compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from breadth.testing.mechanism_records import SEQUENCES, Step, pick, sample_plan, sample_rollouts, sample_step, take
from breadth.training.chain import Chain
from breadth.training.mechanism import Seat
from breadth.training.objective import Objective
from breadth.training.records import required

STEPS = 8
"""Optimizer steps or generations each check runs, so that controllers leave their first state."""


def run_all(objective: Objective) -> None:
    """Let some periods of every seat pass."""
    for step in range(STEPS):
        if objective.chain.seated(Seat.PLAN):
            objective.plan(sample_plan(0, step))
        if objective.chain.seated(Seat.CREDIT):
            objective.credit(sample_rollouts(step))
        if objective.chain.seated(Seat.LOSS):
            run_step(objective, sample_step(step), [torch.arange(SEQUENCES)])


def run_loss(
    chain: Chain,
    *,
    cuts: int = 1,
    shuffle: bool = False,
    fill: float = 0.0,
    dtype: torch.dtype = torch.float64,
    gradient: bool = True,
) -> dict[str, Any]:
    """Run some optimizer steps; returns every loss and gradient and the last state."""
    objective, told = Objective(chain), dict[str, Any]()
    for number in range(STEPS):
        step = sample_step(number, dtype=dtype, fill=fill, sharpness=3.0 / (1 + number / 4))
        if not gradient:
            step = replace(step, batch=replace(step.batch, entropy=required(step.batch.entropy).detach()))
        order = torch.randperm(SEQUENCES, generator=torch.Generator().manual_seed(number)) if shuffle else torch.arange(SEQUENCES)
        told[f"loss of step {number}"] = run_step(objective, step, list(order.chunk(cuts)))
        told[f"gradient of step {number}"] = required(step.logits.grad)
    return told | {"states": objective.state()["states"]}


def run_step(objective: Objective, step: Step, parts: Sequence[Tensor]) -> Tensor:
    """Take one optimizer step in micro-batches of these sequences; returns the loss, and leaves the gradient in the step's logits."""
    objective.begin(take(step.batch, torch.cat(list(parts))))
    total = torch.zeros((), dtype=torch.float64)
    for places in parts:
        loss = objective.loss(take(step.batch, places))
        loss.backward(retain_graph=True)
        total = total + loss.detach()
    objective.finish()
    return total


def run_credit(chain: Chain, *, order: list[int] | None = None, garbage: bool = False) -> dict[str, Any]:
    """Run some generations; returns all advantages, what was kept and the last state."""
    objective, told = Objective(chain), dict[str, Any]()
    for number in range(STEPS):
        rollouts = sample_rollouts(number)
        if garbage:
            mask = required(rollouts.mask)
            rollouts = replace(
                rollouts, entropy=torch.where(mask, rollouts.entropy, float("nan")), planning=required(rollouts.planning) | ~mask
            )
        rollouts = rollouts if order is None else pick(rollouts, order)
        copies = {name: value.clone() for name, value in vars(rollouts).items() if isinstance(value, Tensor)}
        after, _ = objective.credit(rollouts)
        for name, copy in copies.items():
            if not torch.equal(copy.nan_to_num(), getattr(rollouts, name).nan_to_num()):
                raise AssertionError(f"it writes into the rollouts' {name}")
        advantages = required(after.advantages)
        told[f"advantages of generation {number}"] = advantages * required(rollouts.mask) if advantages.ndim == 2 else advantages
        told[f"rollouts kept of generation {number}"] = required(after.kept).double()
    return told | {"states": objective.state()["states"]}


def run_plan(chain: Chain, *, turn: bool = False) -> dict[str, Any]:
    """Run some generations; returns what each plan samples, and the last state."""
    objective, told = Objective(chain), dict[str, Any]()
    for number in range(STEPS):
        plan = sample_plan(0, number)
        plan = replace(plan, problems=plan.problems[::-1], samples=plan.samples[::-1]) if turn else plan
        after, _ = objective.plan(plan)
        told[f"plan {number}"] = (dict(sorted(zip(after.problems, after.samples, strict=True))), after.temperature)
        objective.generation += 1
    return told | {"states": objective.state()["states"]}
