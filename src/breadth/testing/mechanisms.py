"""The contract of training mechanisms: what :func:`check_mechanism` holds every mechanism to, ours and yours."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.multiprocessing as spawning
from torch import Tensor

from breadth.base import settings
from breadth.base.errors import MechanismError
from breadth.testing.mechanism_samples import (
    CHECK_STEPS,
    SEQUENCES,
    Step,
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
from breadth.training.mechanism import Mechanism, Role, Stage
from breadth.training.objective import Objective
from breadth.training.records import Batch, Rollouts, not_none

AnyMechanism = Mechanism[Any, Any]
Record = TypeVar("Record", Batch, Rollouts)

MAX_STATE_DIFFERENCE = 1e-6
"""How far loss, gradient and state may differ between two ways to cut or order the same batch."""


def check_mechanism(
    mechanism: AnyMechanism,
    *,
    neutral: AnyMechanism | None = None,
    before: Sequence[AnyMechanism] = (),
    after: Sequence[AnyMechanism] = (),
) -> None:
    """Hold a mechanism to the contract of its family; raises AssertionError with what it breaks.

    - the class is a documented, frozen dataclass; it and its state survive TOML, JSON and pickle;
    - tokens outside the mask never matter, NaN included; an empty mask gives zero; bfloat16 gives finite numbers;
    - 1, 2, 4 or 8 micro-batches, in any order, give the same loss, gradient and next state (ranks:
      :func:`check_ranks`);
    - nothing it is given is written to; the gradient is finite, and zero where the weights are zero;
    - a field it needs and nobody provides is refused at attach, and it reads no other;
    - ``neutral``, the same mechanism with the settings that switch it off, changes nothing at all.

    ``before`` and ``after`` are put around it in the chain; a surrogate and an estimator are added where it needs one.
    """
    check_settings(mechanism)
    chain = chain_around(mechanism, before, after)
    _check_attach(mechanism, chain)
    _check_needs(chain)
    _check_states(chain)
    bare = chain_around(None, before, after, like=mechanism)
    if mechanism.stage is Stage.LOSS:
        _check_loss(chain)
        _check_neutral(neutral, lambda one: run_loss(chain_around(one, before, after)), lambda: run_loss(bare))
    elif mechanism.stage is Stage.CREDIT:
        _check_credit(chain)
        _check_neutral(neutral, lambda one: run_credit(chain_around(one, before, after)), lambda: run_credit(bare))
    else:
        _check_plan(chain)
        _check_neutral(neutral, lambda one: run_plan(chain_around(one, before, after)), lambda: run_plan(bare))


def chain_around(
    mechanism: AnyMechanism | None,
    before: Sequence[AnyMechanism] = (),
    after: Sequence[AnyMechanism] = (),
    like: AnyMechanism | None = None,
) -> Chain:
    """Return a chain with the mechanism in it, and the surrogate or estimator it cannot do without."""
    model = mechanism if mechanism is not None else like
    own = [*before, *([] if mechanism is None else [mechanism]), *after]
    if model is None or model.stage is Stage.PLAN:
        return Chain(tuple(own))
    role, filler = (
        (Role.SURROGATE, ClippedPolicy(high=0.28)) if model.stage is Stage.LOSS else (Role.ESTIMATOR, GroupAdvantage())
    )
    if any(one.role is role for one in own) or model.role is role:
        return Chain(tuple(own)) if own else Chain((filler,))
    return Chain((*own, filler)) if model.precedes is role else Chain((filler, *own))


def check_settings(mechanism: AnyMechanism) -> None:
    """Check that a mechanism is a documented frozen dataclass whose settings survive TOML, JSON and pickle."""
    cls: Any = type(mechanism)
    documented = bool(cls.__doc__) and not cls.__doc__.startswith(
        f"{cls.__name__}("
    )  # what dataclass writes where there is nothing
    _require(is_dataclass(cls) and documented, f"{cls.__name__} is not a documented dataclass")
    known = f"{cls.__module__}:{cls.__qualname__}" in cls.catalogue.table().values()
    _require(known, f"{cls.__name__} has no name in TOML: register it in the entry-point group breadth.mechanisms")
    _require(isinstance(mechanism.needs, frozenset), "needs is not a frozenset")
    table = json.loads(json.dumps(settings.to_table(mechanism)))
    _require(settings.from_table(cls, table) == mechanism, f"{cls.__name__} does not survive TOML: {table}")
    _require(pickle.loads(pickle.dumps(mechanism)) == mechanism, "it does not survive pickle")  # noqa: S301  # our own bytes
    if fields(cls):
        try:
            setattr(mechanism, fields(cls)[0].name, None)
        except FrozenInstanceError:
            return
        raise AssertionError(f"{cls.__name__} is not frozen")


def _check_attach(mechanism: AnyMechanism, chain: Chain) -> None:
    Objective(chain).attach(set(chain.needs))
    for field in mechanism.needs:
        record = Batch if mechanism.stage is Stage.LOSS else Rollouts
        _require(
            field.partition(".")[0] in {spec.name for spec in fields(record)},
            f"it needs {field!r}, which is no field of {record.__name__}",
        )
        try:
            Objective(chain).attach(set(chain.needs) - {f"{mechanism.stage.value}.{field}"})
        except MechanismError:
            continue
        raise AssertionError(f"a missing {field!r} is not refused at attach")


def _check_needs(chain: Chain) -> None:
    """Let one period pass with no field beyond the minimum but those the chain asks for."""
    objective = Objective(chain)
    try:
        if chain.mechanisms_of(Stage.CREDIT):
            objective.credit(_bared(sample_rollouts(0), Stage.CREDIT, chain))
        if chain.mechanisms_of(Stage.LOSS):
            batch = _bared(sample_step(0).batch, Stage.LOSS, chain)
            objective.begin(batch)
            objective.loss(batch)
            objective.finish()
    except (MechanismError, AttributeError, TypeError) as error:
        raise AssertionError(f"without the fields it does not need it fails: {error}") from error


def _bared(record: Record, stage: Stage, chain: Chain) -> Record:
    optional = [spec.name for spec in fields(record) if spec.default is None]
    nothing: dict[str, Any] = {name: None for name in optional if f"{stage.value}.{name}" not in chain.needs}
    return replace(record, **nothing)


def _check_states(chain: Chain) -> None:
    objective = Objective(chain)
    for _ in range(2):
        told = objective.state()
        again = Objective(Chain.loads(chain.dumps()))
        again.restore(json.loads(_json(told)))
        _require(again.states == objective.states, f"the state does not survive JSON: {told['states']}")
        _require(pickle.loads(pickle.dumps(objective.states)) == objective.states, "the state does not survive pickle")  # noqa: S301
        run_all(objective)


def _check_loss(chain: Chain) -> None:
    whole = run_loss(chain)
    _require(
        all(torch.isfinite(value).all() for value in whole.values() if isinstance(value, Tensor)),
        "loss or gradient is not finite",
    )
    for cuts in (2, 4, 8):
        _same(whole, run_loss(chain, cuts=cuts), f"{cuts} micro-batches")
    _same(whole, run_loss(chain, cuts=4, shuffle=True), "another order of the sequences")
    for fill in (float("nan"), 1e9, -1e9):
        _same(whole, run_loss(chain, fill=fill), f"{fill} outside the mask")
    if "loss.entropy.gradient" not in chain.needs:
        _same(whole, run_loss(chain, gradient=False), "an entropy without its gradient, which it does not need,")
    _check_untouched(chain)
    _check_empty(chain)
    _check_weightless(chain)
    half = run_loss(chain, dtype=torch.bfloat16)
    _require(
        all(torch.isfinite(value).all() for value in half.values() if isinstance(value, Tensor)),
        "bfloat16 gives numbers that are not finite",
    )


def _applied(objective: Objective, batch: Batch) -> Batch:
    """Apply the loss stage to a batch, watching that no mechanism writes into what it is given; returns the last record."""
    objective.begin(batch)
    after = replace(batch.clean(), step=objective.step, seed=objective.chain.seed)
    for index, mechanism in objective.enumerate_stage(Stage.LOSS):
        selection = objective.selection_for(index, after)
        held = _versions(batch) | _versions(after)
        effect = mechanism.apply(after, objective.states[index], selection)
        for tensor, (name, version) in held.items():
            _require(tensor._version == version, f"it writes into the batch's {name}")
        after = effect.after
    return after


def _versions(batch: Batch) -> dict[Tensor, tuple[str, int]]:
    return {value: (name, value._version) for name, value in vars(batch).items() if isinstance(value, Tensor)}


def _check_untouched(chain: Chain) -> None:
    objective = Objective(chain)
    for number in range(CHECK_STEPS):
        step = sample_step(number)
        held = _versions(step.batch)
        _applied(objective, step.batch)
        run_step(objective, step, [torch.arange(SEQUENCES)])
        for tensor, (name, version) in held.items():
            _require(tensor._version == version, f"its survey writes into the batch's {name}")


def _check_empty(chain: Chain) -> None:
    objective = Objective(chain)
    for _ in range(CHECK_STEPS):
        step = sample_step(2, fill=float("nan"))
        nothing = replace(step.batch, mask=torch.zeros_like(step.batch.mask))
        total = run_step(objective, Step(step.logits, nothing), [torch.arange(SEQUENCES)])
        _require(float(total) == 0.0, f"an empty mask gives a loss of {float(total)}")
        _require(not bool(not_none(step.logits.grad).any()), "an empty mask gives a gradient")
    _json(objective.state())


def _json(state: dict[str, Any]) -> str:
    try:
        return json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"JSON cannot hold the state: {error}: {state['states']}") from error


def _check_weightless(chain: Chain) -> None:
    """Without weights and without extra terms nothing must move."""
    step = sample_step(3)
    after = _applied(Objective(chain), replace(step.batch, weights=torch.zeros_like(step.batch.logprobs)))
    (not_none(after.weights) * not_none(after.surrogate)).sum().backward()
    _require(not bool(not_none(step.logits.grad).any()), "the gradient is not zero where the weights are zero")


def _check_credit(chain: Chain) -> None:
    whole = run_credit(chain)
    _require(
        all(torch.isfinite(value).all() for name, value in whole.items() if "advantages" in name),
        "an advantage is not finite",
    )
    order = list(reversed(range(len(sample_rollouts(0)))))
    turned = run_credit(chain, order=order)
    for name, value in turned.items():
        turned[name] = value[order] if isinstance(value, Tensor) else value
    _same(whole, turned, "another order of the rollouts")
    garbage = run_credit(chain, garbage=True)
    _same(whole, garbage, "garbage outside the mask")
    objective, rollouts = Objective(chain), sample_rollouts(0)
    unscored = torch.isnan(rollouts.rewards)
    credited, _ = objective.credit(rollouts)
    _require(not bool(not_none(credited.advantages)[unscored].any()), "a rollout without a reward gets an advantage")
    for places in ([], [0], [0, 1], list(range(0, 24, 4))):
        result, _ = Objective(chain).credit(take_rollouts(rollouts, places))
        _require(
            bool(torch.isfinite(not_none(result.advantages)).all()),
            f"{len(places)} rollouts give an advantage that is not finite",
        )
    flat, _ = Objective(chain).credit(replace(rollouts, rewards=torch.ones_like(rollouts.rewards)))
    _require(
        bool(torch.isfinite(not_none(flat.advantages)).all()), "equal rewards give an advantage that is not finite"
    )


def _check_plan(chain: Chain) -> None:
    _require(run_plan(chain) == run_plan(chain), "the same history gives another plan")
    turned = run_plan(chain, turn=True)
    _require(turned == run_plan(chain), "another order of the problems gives another plan")


def _check_neutral(
    neutral: AnyMechanism | None, run: Callable[[AnyMechanism], dict[str, Any]], bare: Callable[[], dict[str, Any]]
) -> None:
    if neutral is None:
        return
    check_settings(neutral)
    with_it, without = run(neutral), bare()
    for name, value in without.items():
        if name != "states":
            same = torch.equal(value, with_it[name]) if isinstance(value, Tensor) else value == with_it[name]
            _require(same, f"the neutral settings change the {name}")


def _same(left: dict[str, Any], right: dict[str, Any], what: str) -> None:
    for name, value in left.items():
        if isinstance(value, Tensor):
            gap = float((value - right[name]).abs().max()) if value.numel() else 0.0
            _require(
                gap <= MAX_STATE_DIFFERENCE * max(1.0, float(value.abs().max()) if value.numel() else 1.0),
                f"{what} changes the {name} by {gap:.3g}",
            )
        else:
            _require(states_agree(value, right[name]), f"{what} changes the {name}: {value} against {right[name]}")


def states_agree(left: Any, right: Any) -> bool:
    """Whether two states agree: numbers to the tolerance, everything else exactly."""
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(states_agree(left[key], right[key]) for key in left)
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(states_agree, left, right))
    if isinstance(left, int | float) and isinstance(right, int | float):
        return abs(left - right) <= MAX_STATE_DIFFERENCE * max(1.0, abs(left))
    return bool(left == right)


def _require(held: bool, otherwise: str) -> None:
    if not held:
        raise AssertionError(otherwise)


RANKS = 2


def check_ranks(chains: Sequence[Chain]) -> None:
    """Run each chain on two processes with half of every batch each, and alone; raises AssertionError where they differ.

    Groups straddle the processes. Loss and gradient are sums over the processes; the states must be the same on both.
    """
    with tempfile.TemporaryDirectory() as folder:
        texts = [chain.dumps() for chain in chains]
        spawning.spawn(_worker, args=(folder, texts), nprocs=RANKS)
        told = [json.loads(Path(folder, f"rank-{rank}.json").read_text(encoding="utf-8")) for rank in range(RANKS)]
    for place, chain in enumerate(chains):
        alone, together = run_chain(chain, 0, 1), [one[place] for one in told]
        for rank, part in enumerate(together):
            if not states_agree(alone["states"], part["states"]):
                raise AssertionError(
                    f"rank {rank} ends in another state: {part['states']} against {alone['states']} of {chain.dumps()}"
                )
            if not states_agree(alone["plans"], part["plans"]):
                raise AssertionError(f"rank {rank} plans otherwise than one process with {chain.dumps()}")
        for name in ("losses", "gradients", "advantages"):
            joined = (
                together[0][name] + together[1][name]
                if name == "advantages"
                else _sum([part[name] for part in together])
            )
            expected = alone[name]
            if name == "advantages":
                expected, joined = sorted(map(tuple, expected)), sorted(map(tuple, joined))
            if not states_agree(expected, joined):
                raise AssertionError(f"two ranks give other {name} than one process with {chain.dumps()}")


def run_chain(chain: Chain, rank: int, size: int) -> dict[str, Any]:
    """Run some generations and optimizer steps with every ``size``-th row; returns what came out, as plain numbers."""
    objective = Objective(chain)
    told: dict[str, Any] = {"losses": [], "gradients": [], "advantages": [], "plans": []}
    for number in range(CHECK_STEPS):
        if chain.mechanisms_of(Stage.PLAN):
            plan, _ = objective.plan(sample_plan(0, number))
            told["plans"].append([plan.temperature, *plan.samples])
        if chain.mechanisms_of(Stage.CREDIT):
            rollouts = sample_rollouts(number)
            own = list(range(rank, len(rollouts), size))
            after, _ = objective.credit(take_rollouts(rollouts, own))
            kept, advantages = not_none(after.kept), not_none(after.advantages)
            told["advantages"] += [[number, row, float(kept[at]), *_row(advantages[at])] for at, row in enumerate(own)]
        if chain.mechanisms_of(Stage.LOSS):
            step = sample_step(number, sharpness=3.0 / (1 + number / 4))
            part = take_sequences(step.batch, torch.arange(rank, SEQUENCES, size))
            objective.begin(part)
            loss = objective.loss(part)
            loss.backward()
            objective.finish()
            told["losses"].append(float(loss.detach()))
            told["gradients"].append(not_none(step.logits.grad).flatten().tolist())
    return told | {"states": objective.state()["states"]}


def _worker(rank: int, folder: str, texts: Sequence[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    try:
        told = [run_chain(Chain.loads(text), rank, RANKS) for text in texts]
        Path(folder, f"rank-{rank}.json").write_text(json.dumps(told), encoding="utf-8")
    finally:
        dist.destroy_process_group()


def _row(value: Any) -> list[float]:
    return [float(value)] if value.ndim == 0 else value.tolist()


def _sum(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], list):
        return [_sum(items) for items in zip(*parts, strict=True)]
    return sum(parts)
