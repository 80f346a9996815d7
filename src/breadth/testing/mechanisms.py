"""The contract of training mechanisms: what :func:`check_mechanism` requires of every mechanism, ours and yours."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
import torch.multiprocessing as spawning
from torch import Tensor

from breadth.base import settings
from breadth.base.errors import MechanismError, SettingsError
from breadth.testing import expect
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
AnyRecord = TypeVar("AnyRecord", Batch, Rollouts)

MAX_STATE_DIFFERENCE = 1e-6
"""Largest difference in loss, gradient and state between two ways to split or order the same batch."""


def check_mechanism(
    mechanism: AnyMechanism,
    *,
    neutral: AnyMechanism | None = None,
    before: Sequence[AnyMechanism] = (),
    after: Sequence[AnyMechanism] = (),
) -> None:
    """Check the contract of mechanisms; raises AssertionError with what is broken.

    - the class is a documented, frozen dataclass; it and its state survive TOML, JSON and pickle;
    - tokens outside the mask never matter, NaN included; an empty mask gives zero; bfloat16 gives finite numbers;
    - 1, 2, 4 or 8 micro-batches, in any order, give the same loss, gradient and next state (ranks:
      :func:`check_ranks`);
    - it writes into nothing it is given; the gradient is finite, and zero where the weights are zero;
    - a field it needs and nobody provides is refused at attach, and it reads no other;
    - with the settings of its ``neutral``, which switch it off, it changes nothing at all; the argument ``neutral`` is
      the same mechanism switched off in another way.

    The class need not be registered. ``before`` and ``after`` are put around it in the chain; a surrogate and an
    estimator are added where it needs one.
    """
    with provisional_names([mechanism, *before, *after]):
        check_stages(mechanism, neutral, before, after)


def check_stages(
    mechanism: AnyMechanism,
    neutral: AnyMechanism | None,
    before: Sequence[AnyMechanism],
    after: Sequence[AnyMechanism],
) -> None:
    """Check the contract of a mechanism whose class has a name in the catalogue."""
    if neutral is None and mechanism.neutral is not None:
        neutral = replace(cast("Any", mechanism), **mechanism.neutral)
    check_settings(mechanism)
    chain = chain_around(mechanism, before, after)
    check_attach(mechanism, chain)
    check_needs(chain)
    check_states(chain)
    bare = chain_around(None, before, after, like=mechanism)
    if mechanism.stage is Stage.LOSS:
        check_loss(chain)
        check_neutral(neutral, lambda other: run_loss(chain_around(other, before, after)), lambda: run_loss(bare))
    elif mechanism.stage is Stage.CREDIT:
        check_credit(chain)
        check_neutral(neutral, lambda other: run_credit(chain_around(other, before, after)), lambda: run_credit(bare))
    else:
        check_plan(chain)
        check_neutral(neutral, lambda other: run_plan(chain_around(other, before, after)), lambda: run_plan(bare))


@contextmanager
def provisional_names(mechanisms: Iterable[AnyMechanism]) -> Iterator[dict[str, str]]:
    """Give classes that are not registered a name in the catalogue for a while; yield name -> ``"module:Name"``.

    So a mechanism can be tried before it has an entry point. Its class must be at the top level of a module.
    """
    catalogue = Mechanism.catalogue
    kinds = {type(mechanism) for mechanism in mechanisms}
    places = {
        f"provisional-{kind.__name__}": f"{kind.__module__}:{kind.__qualname__}"
        for kind in kinds
        if catalogue.name_of(kind) is None
    }
    entries = cast("dict[str, str]", catalogue.entries)
    entries.update(places)
    try:
        yield places
    finally:
        for name in places:
            del entries[name]


def chain_around(
    mechanism: AnyMechanism | None,
    before: Sequence[AnyMechanism] = (),
    after: Sequence[AnyMechanism] = (),
    like: AnyMechanism | None = None,
) -> Chain:
    """Return a chain with the mechanism and the surrogate or estimator that it needs."""
    model = mechanism if mechanism is not None else like
    own = [*before, *([] if mechanism is None else [mechanism]), *after]
    if model is None or model.stage is Stage.PLAN:
        return Chain(tuple(own))
    role, filler = (
        (Role.SURROGATE, ClippedPolicy(high=0.28)) if model.stage is Stage.LOSS else (Role.ESTIMATOR, GroupAdvantage())
    )
    if any(other.role is role for other in own) or model.role is role:
        return Chain(tuple(own)) if own else Chain((filler,))
    return Chain((*own, filler)) if model.precedes is role else Chain((filler, *own))


def check_settings(mechanism: AnyMechanism) -> None:
    """Check that a mechanism is a documented frozen dataclass whose settings survive TOML, JSON and pickle."""
    cls: Any = type(mechanism)
    documented = bool(cls.__doc__) and not cls.__doc__.startswith(
        f"{cls.__name__}("
    )  # what dataclass writes where there is nothing
    expect(is_dataclass(cls) and documented, f"{cls.__name__} is not a documented dataclass")
    expect("<locals>" not in cls.__qualname__, f"{cls.__name__} is defined in a function: move it to its module")
    expect(isinstance(mechanism.needs, frozenset), "needs is not a frozenset")
    table = json.loads(json.dumps(settings.to_table(mechanism)))
    expect(settings.from_table(cls, table) == mechanism, f"{cls.__name__} does not survive TOML: {table}")
    expect(pickle.loads(pickle.dumps(mechanism)) == mechanism, "it does not survive pickle")  # noqa: S301  # our own bytes
    if fields(cls):
        try:
            setattr(mechanism, fields(cls)[0].name, None)
        except FrozenInstanceError:
            return
        raise AssertionError(f"{cls.__name__} is not frozen")


def check_edges(
    kind: type[AnyMechanism],
    defaults: Mapping[str, Any],
    *,
    accepted: Sequence[Mapping[str, Any]] = (),
    refused: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Check that the defaults are the published ones, and that settings are accepted up to an edge and refused beyond.

    A field without a default takes that of the class's ``example``.
    """
    usual: Any = kind(**kind.example)
    for name, value in defaults.items():
        expect(getattr(usual, name) == value, f"the default of {name} is {getattr(usual, name)!r}, not {value!r}")
    for values in accepted:
        changed = kind(**{**kind.example, **values})
        expect(all(getattr(changed, name) == value for name, value in values.items()), f"{values} is not kept")
    for values in refused:
        try:
            kind(**{**kind.example, **values})
        except SettingsError as error:
            expect(next(iter(values)) in error.problem, f"the refusal of {values} does not name the field: {error}")
        else:
            raise AssertionError(f"{kind.__name__} accepts {values}")


def check_attach(mechanism: AnyMechanism, chain: Chain) -> None:
    """Check that a missing field is refused at attach."""
    Objective(chain).attach(set(chain.needs))
    for field in mechanism.needs:
        record = Batch if mechanism.stage is Stage.LOSS else Rollouts
        expect(
            field.partition(".")[0] in {spec.name for spec in fields(record)},
            f"it needs {field!r}, which is no field of {record.__name__}",
        )
        try:
            Objective(chain).attach(set(chain.needs) - {f"{mechanism.stage.value}.{field}"})
        except MechanismError:
            continue
        raise AssertionError(f"a missing {field!r} is not refused at attach")


def check_needs(chain: Chain) -> None:
    """Check that one period runs with only the fields that the chain needs."""
    objective = Objective(chain)
    try:
        if chain.mechanisms_of(Stage.CREDIT):
            objective.credit(keep_needed_fields(sample_rollouts(0), Stage.CREDIT, chain))
        if chain.mechanisms_of(Stage.LOSS):
            batch = keep_needed_fields(sample_step(0).batch, Stage.LOSS, chain)
            objective.begin(batch)
            objective.loss(batch)
            objective.finish()
    except (MechanismError, AttributeError, TypeError) as error:
        raise AssertionError(f"without the fields it does not need it fails: {error}") from error


def keep_needed_fields(record: AnyRecord, stage: Stage, chain: Chain) -> AnyRecord:
    """Return a record without the optional fields that the chain does not need."""
    optional = [spec.name for spec in fields(record) if spec.default is None]
    nothing: dict[str, Any] = {name: None for name in optional if f"{stage.value}.{name}" not in chain.needs}
    return replace(record, **nothing)


def check_states(chain: Chain) -> None:
    """Check that the states survive JSON and pickle, before and after a run."""
    objective = Objective(chain)
    for _ in range(2):
        results = objective.state()
        again = Objective(Chain.loads(chain.dumps()))
        again.restore(json.loads(dump_state(results)))
        expect(again.states == objective.states, f"the state does not survive JSON: {results['states']}")
        expect(pickle.loads(pickle.dumps(objective.states)) == objective.states, "the state does not survive pickle")  # noqa: S301
        run_all(objective)


def check_loss(chain: Chain) -> None:
    """Check a loss chain: splits, order, masks, gradients and precision."""
    whole = run_loss(chain)
    expect(
        all(torch.isfinite(value).all() for value in whole.values() if isinstance(value, Tensor)),
        "loss or gradient is not finite",
    )
    for cuts in (2, 4, 8):
        check_same(whole, run_loss(chain, cuts=cuts), f"{cuts} micro-batches")
    check_same(whole, run_loss(chain, cuts=4, shuffle=True), "another order of the sequences")
    for fill in (float("nan"), 1e9, -1e9):
        check_same(whole, run_loss(chain, fill=fill), f"{fill} outside the mask")
    if "loss.entropy.gradient" not in chain.needs:
        check_same(whole, run_loss(chain, gradient=False), "an entropy without its gradient, which it does not need,")
    check_no_writes(chain)
    check_empty_mask(chain)
    check_zero_weights(chain)
    half = run_loss(chain, dtype=torch.bfloat16)
    expect(
        all(torch.isfinite(value).all() for value in half.values() if isinstance(value, Tensor)),
        "bfloat16 gives numbers that are not finite",
    )


def apply_loss_stage(objective: Objective, batch: Batch) -> Batch:
    """Apply the loss stage to a batch, check that no mechanism writes into it, and return the last record."""
    objective.begin(batch)
    after = replace(batch.clean(), step=objective.step, seed=objective.chain.seed)
    for index, mechanism in objective.enumerate_stage(Stage.LOSS):
        selection = objective.selection_for(index, after)
        held = tensor_versions(batch) | tensor_versions(after)
        effect = mechanism.apply(after, objective.states[index], selection)
        for tensor, (name, version) in held.items():
            expect(tensor._version == version, f"it writes into the batch's {name}")
        after = effect.after
    return after


def tensor_versions(batch: Batch) -> dict[Tensor, tuple[str, int]]:
    """Return the tensors of a batch with their name and version counter."""
    return {value: (name, value._version) for name, value in vars(batch).items() if isinstance(value, Tensor)}


def check_no_writes(chain: Chain) -> None:
    """Check that neither survey nor apply writes into the batch."""
    objective = Objective(chain)
    for number in range(CHECK_STEPS):
        step = sample_step(number)
        held = tensor_versions(step.batch)
        apply_loss_stage(objective, step.batch)
        run_step(objective, step, [torch.arange(SEQUENCES)])
        for tensor, (name, version) in held.items():
            expect(tensor._version == version, f"its survey writes into the batch's {name}")


def check_empty_mask(chain: Chain) -> None:
    """Check that an empty mask gives no loss and no gradient."""
    objective = Objective(chain)
    for _ in range(CHECK_STEPS):
        step = sample_step(2, fill=float("nan"))
        nothing = replace(step.batch, mask=torch.zeros_like(step.batch.mask))
        total = run_step(objective, Step(step.logits, nothing), [torch.arange(SEQUENCES)])
        expect(float(total) == 0.0, f"an empty mask gives a loss of {float(total)}")
        expect(not bool(not_none(step.logits.grad).any()), "an empty mask gives a gradient")
    dump_state(objective.state())


def dump_state(state: dict[str, Any]) -> str:
    """Return a state as strict JSON."""
    try:
        return json.dumps(state, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"JSON cannot hold the state: {error}: {state['states']}") from error


def check_zero_weights(chain: Chain) -> None:
    """Check that zero weights give a zero gradient of the surrogate."""
    step = sample_step(3)
    after = apply_loss_stage(Objective(chain), replace(step.batch, weights=torch.zeros_like(step.batch.logprobs)))
    (not_none(after.weights) * not_none(after.surrogate)).sum().backward()
    expect(not bool(not_none(step.logits.grad).any()), "the gradient is not zero where the weights are zero")


def check_credit(chain: Chain) -> None:
    """Check a credit chain: order, masks, missing rewards and tiny groups."""
    whole = run_credit(chain)
    expect(
        all(torch.isfinite(value).all() for name, value in whole.items() if "advantages" in name),
        "an advantage is not finite",
    )
    order = list(reversed(range(len(sample_rollouts(0)))))
    reordered = run_credit(chain, order=order)
    for name, value in reordered.items():
        reordered[name] = value[order] if isinstance(value, Tensor) else value
    check_same(whole, reordered, "another order of the rollouts")
    garbage = run_credit(chain, garbage=True)
    check_same(whole, garbage, "garbage outside the mask")
    objective, rollouts = Objective(chain), sample_rollouts(0)
    unscored = torch.isnan(rollouts.rewards)
    credited, _ = objective.credit(rollouts)
    expect(not bool(not_none(credited.advantages)[unscored].any()), "a rollout without a reward gets an advantage")
    for places in ([], [0], [0, 1], list(range(0, 24, 4))):
        result, _ = Objective(chain).credit(take_rollouts(rollouts, places))
        expect(
            bool(torch.isfinite(not_none(result.advantages)).all()),
            f"{len(places)} rollouts give an advantage that is not finite",
        )
    flat, _ = Objective(chain).credit(replace(rollouts, rewards=torch.ones_like(rollouts.rewards)))
    expect(bool(torch.isfinite(not_none(flat.advantages)).all()), "equal rewards give an advantage that is not finite")


def check_plan(chain: Chain) -> None:
    """Check that a plan depends on the history alone, not on the order of problems."""
    expect(run_plan(chain) == run_plan(chain), "the same history gives another plan")
    reordered = run_plan(chain, reverse=True)
    expect(reordered == run_plan(chain), "another order of the problems gives another plan")


def check_neutral(
    neutral: AnyMechanism | None, run: Callable[[AnyMechanism], dict[str, Any]], bare: Callable[[], dict[str, Any]]
) -> None:
    """Check that the neutral settings change nothing."""
    if neutral is None:
        return
    check_settings(neutral)
    with_it, without = run(neutral), bare()
    for name, value in without.items():
        if name != "states":
            same = torch.equal(value, with_it[name]) if isinstance(value, Tensor) else value == with_it[name]
            expect(same, f"the neutral settings change the {name}")


def check_same(left: dict[str, Any], right: dict[str, Any], what: str) -> None:
    """Check that two runs gave the same numbers and states."""
    for name, value in left.items():
        if isinstance(value, Tensor):
            gap = float((value - right[name]).abs().max()) if value.numel() else 0.0
            expect(
                gap <= MAX_STATE_DIFFERENCE * max(1.0, float(value.abs().max()) if value.numel() else 1.0),
                f"{what} changes the {name} by {gap:.3g}",
            )
        else:
            expect(states_agree(value, right[name]), f"{what} changes the {name}: {value} against {right[name]}")


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


RANKS = 2


def check_ranks(chains: Sequence[Chain]) -> None:
    """Run each chain on one process and on two with half of every batch each; AssertionError if the results differ.

    Groups span the processes. Loss and gradient are sums over the processes; the states must be equal on both.
    """
    members = [mechanism for chain in chains for mechanism in chain.mechanisms]
    with tempfile.TemporaryDirectory() as folder, provisional_names(members) as places:
        texts = [chain.dumps() for chain in chains]
        spawning.spawn(run_rank, args=(folder, texts, places), nprocs=RANKS)
        results = [json.loads(Path(folder, f"rank-{rank}.json").read_text(encoding="utf-8")) for rank in range(RANKS)]
    for place, chain in enumerate(chains):
        alone, together = run_chain(chain, 0, 1), [rank_results[place] for rank_results in results]
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
                else sum_nested([part[name] for part in together])
            )
            expected = alone[name]
            if name == "advantages":
                expected, joined = sorted(map(tuple, expected)), sorted(map(tuple, joined))
            if not states_agree(expected, joined):
                raise AssertionError(f"two ranks give other {name} than one process with {chain.dumps()}")


def run_chain(chain: Chain, rank: int, size: int) -> dict[str, Any]:
    """Run some generations and optimizer steps with every ``size``-th row; return the results as plain numbers."""
    objective = Objective(chain)
    results: dict[str, Any] = {"losses": [], "gradients": [], "advantages": [], "plans": []}
    for number in range(CHECK_STEPS):
        if chain.mechanisms_of(Stage.PLAN):
            plan, _ = objective.plan(sample_plan(0, number))
            results["plans"].append([plan.temperature, *plan.samples])
        if chain.mechanisms_of(Stage.CREDIT):
            rollouts = sample_rollouts(number)
            own = list(range(rank, len(rollouts), size))
            after, _ = objective.credit(take_rollouts(rollouts, own))
            kept, advantages = not_none(after.kept), not_none(after.advantages)
            results["advantages"] += [
                [number, row, float(kept[at]), *advantages[at].reshape(-1).tolist()] for at, row in enumerate(own)
            ]
        if chain.mechanisms_of(Stage.LOSS):
            step = sample_step(number, sharpness=3.0 / (1 + number / 4))
            part = take_sequences(step.batch, torch.arange(rank, SEQUENCES, size))
            objective.begin(part)
            loss = objective.loss(part)
            loss.backward()
            objective.finish()
            results["losses"].append(float(loss.detach()))
            results["gradients"].append(not_none(step.logits.grad).flatten().tolist())
    return results | {"states": objective.state()["states"]}


def run_rank(rank: int, folder: str, texts: Sequence[str], places: Mapping[str, str]) -> None:
    """Run the chains as one rank of a process group and write the results to a file; ``places``: provisional names."""
    cast("dict[str, str]", Mechanism.catalogue.entries).update(places)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    try:
        results = [run_chain(Chain.loads(text), rank, RANKS) for text in texts]
        Path(folder, f"rank-{rank}.json").write_text(json.dumps(results), encoding="utf-8")
    finally:
        dist.destroy_process_group()


def sum_nested(parts: Sequence[Any]) -> Any:
    """Add nested lists element by element."""
    if isinstance(parts[0], list):
        return [sum_nested(items) for items in zip(*parts, strict=True)]
    return sum(parts)
