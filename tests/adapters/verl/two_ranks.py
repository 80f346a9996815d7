"""One of two processes that train a bigram with verl's own worker code and a chain; run by the tests as a script.

Usage: two_ranks.py RANK FOLDER HOW CHAIN..., HOW being ``stage`` (verl's engine and worker loss) or ``worker`` (verl's
TrainingWorker).
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from bigram import Bigram, generation, part  # type: ignore[import-not-found]  # beside this script
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPActorConfig
from verl.workers.engine.base import BaseEngine
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.utils.losses import ppo_loss

from breadth.adapters.verl.loss import (
    BreadthLoss,
    LossStage,
    load_chain,
    load_states,
    resume_objective,
    save_states,
    stage_loss,
)

RANKS, COUNT, MINI, RATE = 2, 8, 4, 0.5


class BigramEngine(BaseEngine):  # type: ignore[misc]  # verl is untyped
    """verl's FSDP engine with a bigram on the CPU in the place of a sharded model.

    Gradients are averaged over ranks, as FSDP does.
    """

    forward_backward_batch = transformer_impl.FSDPEngine.forward_backward_batch
    ulysses_sequence_parallel_size = 1

    def __init__(self) -> None:
        self.module = Bigram(seed=1)
        self.gradients: list[list[float]] = []

    def get_data_parallel_group(self) -> Any:
        return dist.group.WORLD

    def get_data_parallel_size(self) -> int:
        return RANKS

    def get_data_parallel_rank(self) -> int:
        return int(dist.get_rank())

    def is_mp_src_rank_with_outputs(self) -> bool:
        return True

    def train_mode(self, **_: Any) -> Any:
        return nullcontext()

    def _gradient_sync_context(self, is_last_micro_batch: bool) -> Any:
        return nullcontext()

    def forward_step(self, micro_batch: Any, loss_function: Any, forward_only: bool) -> Any:
        output = self.module.output(micro_batch)
        loss, metrics = loss_function(model_output=output, data=micro_batch, dp_group=self.get_data_parallel_group())
        return loss, {"model_output": {}, "loss": loss.detach().item(), "metrics": metrics}

    def optimizer_zero_grad(self) -> None:
        self.module.table.grad = None

    def optimizer_step(self) -> float:
        gradient = self.module.table.grad
        dist.all_reduce(gradient)
        gradient /= RANKS
        self.gradients.append(gradient.flatten().tolist())
        with torch.no_grad():
            self.module.table -= RATE * gradient
        return float(gradient.norm())

    def lr_scheduler_step(self) -> float:
        return RATE


def actor_config(chain: str) -> Any:
    return FSDPActorConfig(
        rollout_n=4,
        ppo_micro_batch_size_per_gpu=1,
        policy_loss=BreadthLoss(loss_mode="breadth", chain=chain),
        clip_ratio_c=3.0,
    )


def by_stage(engine: BigramEngine, stage: LossStage, config: Any, data: Any) -> list[dict[str, Any]]:
    """Take one generation's steps with verl's engine, the stage around each."""
    steps = []
    stage.start_generation()
    for mini in tu.make_iterator(data, mini_batch_size=MINI // RANKS, epochs=2, seed=1):
        tu.assign_non_tensor(mini, global_batch_size=MINI, use_dynamic_bsz=False, micro_batch_size_per_gpu=1)
        stage.begin(mini)
        output = engine.train_batch(mini, partial(stage_loss, config=config, stage=stage))
        steps.append({"loss": sum(output["loss"]) / RANKS, **stage.finish()})
    return steps


def by_worker(actor: Any, data: Any) -> list[dict[str, Any]]:
    """Take one generation's steps with verl's training worker."""
    tu.assign_non_tensor(
        data, global_batch_size=MINI, mini_batch_size=MINI, epochs=2, seed=1, dataloader_kwargs={"shuffle": False}
    )
    metrics = tu.get(actor.train_mini_batch(data=data), "metrics")
    steps = len(metrics["loss"])
    return [
        {name: metrics[name][step] for name in metrics if name == "loss" or name.startswith("breadth/")}
        for step in range(steps)
    ]


def actor_of(engine: BigramEngine, config: Any) -> Any:
    from verl.utils.profiler import DistProfiler
    from verl.workers import engine_workers

    from breadth.adapters.verl.trainer import ChainActor

    engine_workers.get_torch_device = lambda: SimpleNamespace(
        max_memory_allocated=lambda: 0, max_memory_reserved=lambda: 0
    )
    actor = ChainActor.__new__(ChainActor)
    actor.engine, actor.model_config, actor.device_name, actor.flops_counter = engine, {}, "cpu", None
    actor.engine_config = SimpleNamespace(
        use_dynamic_bsz=False,
        max_token_len_per_gpu=None,
        micro_batch_size_per_gpu=1,
        use_fused_kernels=False,
        forward_only=False,
    )
    actor.profiler = DistProfiler(rank=engine.get_data_parallel_rank())
    actor.attach(partial(ppo_loss, config=config))
    return actor


def run(rank: int, folder: Path, how: str, chain: str) -> dict[str, Any]:
    """Train two generations, save, and go on in a new stage from what was saved."""
    transformer_impl.get_device_id = lambda: "cpu"
    config, steps = actor_config(chain), []
    engine, states = BigramEngine(), []
    for number in range(3):
        stage, actor = LossStage(load_chain(chain)), None
        if how == "worker":
            actor = actor_of(engine, config)
            stage = actor.stage
        if number:
            resume_objective(stage.objective, load_states(folder / f"rank_{rank}")["loss"])
        own = part(generation(COUNT, number), list(range(rank * COUNT // RANKS, (rank + 1) * COUNT // RANKS)))
        steps += by_worker(actor, own) if how == "worker" else by_stage(engine, stage, config, own)
        save_states(folder / f"rank_{rank}", {"loss": stage.objective.state()})
        states.append(stage.objective.state()["states"])
    return {
        "steps": steps,
        "gradients": engine.gradients,
        "states": states,
        "table": engine.module.table.flatten().tolist(),
    }


def main(rank: int, folder: Path, how: str, chains: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    try:
        steps = [run(rank, folder, how, chain) for chain in chains]
        (folder / f"{rank}.json").write_text(json.dumps(steps), encoding="utf-8")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
