"""The contract of mechanisms over processes: what :func:`check_ranks` holds them to, on real gloo ranks."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as spawning

from breadth.testing.mechanism_records import SEQUENCES, pick, sample_plan, sample_rollouts, sample_step, take
from breadth.testing.mechanism_runs import STEPS
from breadth.testing.mechanisms import close
from breadth.training.chain import Chain
from breadth.training.mechanism import Seat
from breadth.training.objective import Objective
from breadth.training.records import required

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
            if not close(alone["states"], part["states"]):
                raise AssertionError(f"rank {rank} ends in another state: {part['states']} against {alone['states']} of {chain.dumps()}")
            if not close(alone["plans"], part["plans"]):
                raise AssertionError(f"rank {rank} plans otherwise than one process with {chain.dumps()}")
        for name in ("losses", "gradients", "advantages"):
            joined = together[0][name] + together[1][name] if name == "advantages" else _sum([part[name] for part in together])
            expected = alone[name]
            if name == "advantages":
                expected, joined = sorted(map(tuple, expected)), sorted(map(tuple, joined))
            if not close(expected, joined):
                raise AssertionError(f"two ranks give other {name} than one process with {chain.dumps()}")


def run_chain(chain: Chain, rank: int, size: int) -> dict[str, Any]:
    """Run some generations and optimizer steps with every ``size``-th row; returns what came out, as plain numbers."""
    objective = Objective(chain)
    told: dict[str, Any] = {"losses": [], "gradients": [], "advantages": [], "plans": []}
    for number in range(STEPS):
        if chain.seated(Seat.PLAN):
            plan, _ = objective.plan(sample_plan(0, number))
            told["plans"].append([plan.temperature, *plan.samples])
        if chain.seated(Seat.CREDIT):
            rollouts = sample_rollouts(number)
            own = list(range(rank, len(rollouts), size))
            after, _ = objective.credit(pick(rollouts, own))
            kept, advantages = required(after.kept), required(after.advantages)
            told["advantages"] += [[number, row, float(kept[at]), *_row(advantages[at])] for at, row in enumerate(own)]
        if chain.seated(Seat.LOSS):
            step = sample_step(number, sharpness=3.0 / (1 + number / 4))
            part = take(step.batch, torch.arange(rank, SEQUENCES, size))
            objective.begin(part)
            loss = objective.loss(part)
            loss.backward()
            objective.finish()
            told["losses"].append(float(loss.detach()))
            told["gradients"].append(required(step.logits.grad).flatten().tolist())
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
