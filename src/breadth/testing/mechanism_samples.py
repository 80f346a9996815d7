"""Random records of every stage, and runs of a chain on them, for the contract of mechanisms to compare."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from breadth.training.chain import Chain
from breadth.training.mechanism import Stage
from breadth.training.objective import Objective
from breadth.training.records import Batch, Plan, Rollouts, not_none

SEQUENCES, TOKENS, VOCABULARY, GROUP = 16, 12, 7, 4
TOKEN_FIELDS = (
    "logprobs",
    "old_logprobs",
    "entropy",
    "old_entropy",
    "reference_logprobs",
    "old_divergence",
    "advantages",
    "weights",
)
"""Fields of a Batch with one value per token."""


@dataclass(frozen=True)
class Step:
    """The whole batch of one optimizer step, with the parameters of its gradient."""

    logits: Tensor
    """(B, T, V) parameters."""
    batch: Batch
    """The batch computed from them."""


def sample_step(seed: int, *, dtype: torch.dtype = torch.float64, fill: float = 0.0, sharpness: float = 2.0) -> Step:
    """Return a random step; ``fill`` is the value of every token field outside the mask."""
    dice = torch.Generator().manual_seed(seed)
    shape = (SEQUENCES, TOKENS, VOCABULARY)
    logits = (sharpness * torch.randn(shape, generator=dice, dtype=torch.float64)).requires_grad_()
    old = logits.detach() + 0.4 * torch.randn(shape, generator=dice, dtype=torch.float64)
    reference = logits.detach() + 0.4 * torch.randn(shape, generator=dice, dtype=torch.float64)
    sampled = torch.randint(VOCABULARY, shape[:2], generator=dice)
    advantages = torch.randn(SEQUENCES, 1, generator=dice, dtype=torch.float64).expand(shape[:2]).clone()
    weights = (torch.rand(shape[:2], generator=dice) > 0.1).double()
    mask = torch.arange(TOKENS) < torch.randint(1, TOKENS + 1, (SEQUENCES, 1), generator=dice)
    batch = build_batch(logits, old, reference, sampled, advantages, weights, mask)
    values = {
        name: torch.where(mask, getattr(batch, name), torch.full((), fill, dtype=torch.float64)).to(dtype)
        for name in TOKEN_FIELDS
    }
    return Step(logits, replace(batch, **values))


def build_batch(
    logits: Tensor, old: Tensor, reference: Tensor, sampled: Tensor, advantages: Tensor, weights: Tensor, mask: Tensor
) -> Batch:
    """Return the batch of the logits of three policies and the sampled tokens."""
    now, then = logits.log_softmax(-1), old.log_softmax(-1)
    picked = sampled[..., None]
    return Batch(
        logprobs=now.gather(-1, picked)[..., 0],
        advantages=advantages,
        mask=mask,
        old_logprobs=then.gather(-1, picked)[..., 0],
        rows=torch.arange(len(mask)),
        entropy=-(now.exp() * now).sum(-1),
        old_entropy=-(then.exp() * then).sum(-1),
        reference_logprobs=reference.log_softmax(-1).gather(-1, picked)[..., 0],
        old_divergence=(then.exp() * (then - now)).sum(-1),
        planning=(sampled % 3 == 0) | ~mask,
        weights=weights,
    )


def take_sequences(batch: Batch, places: Tensor) -> Batch:
    """Return some sequences of a batch, in the order given."""
    return replace(
        batch,
        **{
            spec.name: value[places] for spec in fields(batch) if isinstance(value := getattr(batch, spec.name), Tensor)
        },
    )


def sample_rollouts(seed: int) -> Rollouts:
    """Return a random generation: one problem per group, some all right, some all wrong, one reward missing."""
    dice = random.Random(seed)  # noqa: S311  # made-up data, not a secret
    count = SEQUENCES + 2 * GROUP
    right = [dice.random() < (0.0, 1.0, 0.5, 0.3, 0.7, 0.1)[place // GROUP] for place in range(count)]
    rewards = torch.tensor([float(solved) for solved in right], dtype=torch.float64)
    rewards[3 * GROUP + 1] = float("nan")
    lengths = torch.tensor([dice.randint(1, TOKENS) for _ in range(count)])
    noise = torch.Generator().manual_seed(seed)
    outcomes = ["42" if solved else dice.choice(["7", "13", None]) for solved in right]
    return Rollouts(
        rewards=rewards,
        groups=torch.arange(count) // GROUP,
        lengths=lengths,
        correct=torch.tensor([float(solved) for solved in right], dtype=torch.float64),
        problems=[f"problem {place // GROUP}" for place in range(count)],
        outcomes=outcomes,
        texts=[sample_text(dice, outcome) for outcome in outcomes],
        truncated=lengths == TOKENS,
        mask=torch.arange(TOKENS) < lengths[:, None],
        entropy=torch.rand(count, TOKENS, generator=noise, dtype=torch.float64),
        planning=torch.rand(count, TOKENS, generator=noise) < 0.3,
    )


def take_rollouts(rollouts: Rollouts, places: list[int]) -> Rollouts:
    """Return some rollouts, in the order given."""
    values = {spec.name: getattr(rollouts, spec.name) for spec in fields(rollouts)}
    for name, value in values.items():
        if isinstance(value, Tensor):
            values[name] = value[places]
        elif isinstance(value, list):
            values[name] = [value[place] for place in places]
    return replace(rollouts, **values)


def sample_plan(seed: int, step: int) -> Plan:
    """Return a random plan over a few problems, with the counts of the previous generation."""
    dice = random.Random(1000 * seed + step)  # noqa: S311  # made-up data, not a secret
    problems = tuple(f"problem {place}" for place in range(12))
    seen = {
        problem: (8, min(8, max(0, round(dice.gauss(place, 1.5)))))
        for place, problem in enumerate(problems)
        if step and dice.random() < 0.8
    }
    return Plan(problems, (8,) * len(problems), step=step, results=seen)


def sample_text(dice: random.Random, outcome: str | None) -> str:
    """Return a random completion: reasoning, sometimes a repetition loop, and the stated answer."""
    steps = [
        "first we add the terms",
        "let us check the result again",
        "so the sum is 40",
        "then we divide by two",
        "wait, that is wrong",
    ]
    body = ". ".join(dice.choices(steps, k=dice.randint(2, 6)))
    if dice.random() < 0.2:
        body = "loop loop loop loop " * 30
    stated = "" if outcome is None else rf" The answer is \boxed{{{outcome}}}."
    confidence = dice.choice(["", "0.9", "0.2", "1.7"])
    return (
        f"<think>{body}</think><answer>{stated}</answer><analysis>fine</analysis><confidence>{confidence}</confidence>"
    )


CHECK_STEPS = 8
"""Optimizer steps or generations of each check: enough for controllers to leave their first state."""


def run_all(objective: Objective) -> None:
    """Run some periods of every stage."""
    for step in range(CHECK_STEPS):
        if objective.chain.mechanisms_of(Stage.PLAN):
            objective.plan(sample_plan(0, step))
        if objective.chain.mechanisms_of(Stage.CREDIT):
            objective.credit(sample_rollouts(step))
        if objective.chain.mechanisms_of(Stage.LOSS):
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
    """Run some optimizer steps; return every loss and gradient and the last state."""
    objective, results = Objective(chain), dict[str, Any]()
    for number in range(CHECK_STEPS):
        step = sample_step(number, dtype=dtype, fill=fill, sharpness=3.0 / (1 + number / 4))
        if not gradient:
            step = replace(step, batch=replace(step.batch, entropy=not_none(step.batch.entropy).detach()))
        order = (
            torch.randperm(SEQUENCES, generator=torch.Generator().manual_seed(number))
            if shuffle
            else torch.arange(SEQUENCES)
        )
        results[f"loss of step {number}"] = run_step(objective, step, list(order.chunk(cuts)))
        results[f"gradient of step {number}"] = not_none(step.logits.grad)
    return results | {"states": objective.state()["states"]}


def run_step(objective: Objective, step: Step, parts: Sequence[Tensor]) -> Tensor:
    """Take one optimizer step in micro-batches; return the loss (the gradient is in the step's logits)."""
    objective.begin(take_sequences(step.batch, torch.cat(list(parts))))
    total = torch.zeros((), dtype=torch.float64)
    for places in parts:
        loss = objective.loss(take_sequences(step.batch, places))
        loss.backward(retain_graph=True)
        total = total + loss.detach()
    objective.finish()
    return total


def run_credit(chain: Chain, *, order: list[int] | None = None, garbage: bool = False) -> dict[str, Any]:
    """Run some generations; return all advantages, which rollouts were kept, and the last state."""
    objective, results = Objective(chain), dict[str, Any]()
    for number in range(CHECK_STEPS):
        rollouts = sample_rollouts(number)
        if garbage:
            mask = not_none(rollouts.mask)
            rollouts = replace(
                rollouts,
                entropy=torch.where(mask, rollouts.entropy, float("nan")),
                planning=not_none(rollouts.planning) | ~mask,
            )
        rollouts = rollouts if order is None else take_rollouts(rollouts, order)
        copies = {name: value.clone() for name, value in vars(rollouts).items() if isinstance(value, Tensor)}
        after, _ = objective.credit(rollouts)
        for name, copy in copies.items():
            if not torch.equal(copy.nan_to_num(), getattr(rollouts, name).nan_to_num()):
                raise AssertionError(f"it writes into the rollouts' {name}")
        advantages = not_none(after.advantages)
        results[f"advantages of generation {number}"] = (
            advantages * not_none(rollouts.mask) if advantages.ndim == 2 else advantages
        )
        results[f"rollouts kept of generation {number}"] = not_none(after.kept).double()
    return results | {"states": objective.state()["states"]}


def run_plan(chain: Chain, *, reverse: bool = False) -> dict[str, Any]:
    """Run some generations; return what each plan samples, and the last state."""
    objective, results = Objective(chain), dict[str, Any]()
    for number in range(CHECK_STEPS):
        plan = sample_plan(0, number)
        plan = replace(plan, problems=plan.problems[::-1], samples=plan.samples[::-1]) if reverse else plan
        after, _ = objective.plan(plan)
        results[f"plan {number}"] = (dict(sorted(zip(after.problems, after.samples, strict=True))), after.temperature)
        objective.generation += 1
    return results | {"states": objective.state()["states"]}
