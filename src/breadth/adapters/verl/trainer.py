"""verl's trainers and its actor worker with a chain: credit where verl computes advantages, loss in the workers.

Select one with ``trainer.v1.trainer_mode=breadth``; the policy-loss settings name the chain (see
`breadth.adapters.verl.loss`). The chain's steps begin and end with verl's optimizer steps.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import open_dict
from verl.single_controller.base.decorator import Dispatch, register
from verl.trainer.ppo.utils import Role as WorkerRole
from verl.trainer.ppo.v1 import trainer_base as verl_trainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.utils.losses import ppo_loss

from breadth.adapters.verl.conflicts import refuse_conflicts, verl_regime
from breadth.adapters.verl.credit import CreditStage
from breadth.adapters.verl.loss import (
    LossStage,
    chain_from_settings,
    count_replicas,
    load_states,
    resume_objective,
    save_states,
    stage_loss,
)
from breadth.adapters.verl.registration import LOSS_MODE, TRAINER_MODES
from breadth.base.errors import MechanismError
from breadth.training.mechanism import Stage
from breadth.training.objective import Objective


class ChainActor(TrainingWorker):  # type: ignore[misc]  # verl is untyped
    """verl's training worker, with the loss stage around each of its optimizer steps."""

    stage: LossStage | None = None
    """The chain's loss stage; without one (None) the worker behaves as verl's own."""

    def attach(self, loss: Any) -> Any:
        """Read the chain from the settings of verl's worker loss; return verl's loss with the stage attached."""
        if not isinstance(loss, partial) or loss.func is not ppo_loss:
            raise MechanismError(
                "verl's worker trains with another loss than ppo_loss, which alone calls a policy loss.",
                "Switch off what replaces it (distillation), or use only the credit stage.",
            )
        config = loss.keywords["config"]
        self.stage = LossStage(chain_from_settings(config.policy_loss), count_replicas(self.engine))
        loss_fn = partial(stage_loss, config=config, stage=self.stage)
        self.set_loss_fn(loss_fn)
        return loss_fn

    def train_mini_batch(self, data: Any) -> Any:
        """Take all optimizer steps of one generation."""
        if self.stage is not None:
            self.stage.start_generation()
        return super().train_mini_batch(data)

    def train_batch(self, data: Any) -> Any:
        """Take one optimizer step."""
        if self.stage is None:
            return super().train_batch(data)
        self.stage.begin(data)
        output = super().train_batch(data)
        metrics = self.stage.finish()
        if output is not None:
            tu.assign_non_tensor(output, metrics={**tu.get(output, "metrics"), **metrics})
        return output


class ChainWorker(ActorRolloutRefWorker):  # type: ignore[misc]  # verl is untyped
    """verl's hybrid worker, whose actor runs the chain's loss stage."""

    actor_worker_cls = ChainActor

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]  # verl is untyped
    def init_model(self) -> None:
        """Build the models as verl does, then attach the chain to the actor."""
        super().init_model()
        if "actor" in self.role and self.config.actor.policy_loss.loss_mode == LOSS_MODE:
            self.loss_fn: Any = self.actor.attach(self.loss_fn)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]  # verl is untyped
    def chain_state(self) -> dict[str, Any] | None:
        """Return the state of the loss stage, the same on every rank; None without one."""
        return None if self.actor.stage is None else self.actor.stage.objective.state()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]  # verl is untyped
    def restore_chain(self, state: Mapping[str, Any] | None) -> None:
        """Resume from a checkpoint's state of the loss stage."""
        if self.actor.stage is not None:
            resume_objective(self.actor.stage.objective, state)


_LOG = logging.getLogger(__name__)


class ChainMixin:
    """Adds a chain to one of verl's trainers; comes before it in the bases."""

    verl_mode: str
    """verl's name of the trainer underneath: verl uses it in several places."""

    def __init__(self, config: Any) -> None:
        chain = chain_from_settings(config.actor_rollout_ref.actor.policy_loss)
        chain = replace(chain, reduction=chain.reduction.with_length(int(config.data.max_response_length)))
        refuse_conflicts(chain, config)
        for verdict in Objective(chain).explain(verl_regime(config)):
            _LOG.warning("%s", verdict)
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.verl_mode
            # As text: the workers run what was checked here, whatever files they can read.
            config.actor_rollout_ref.actor.policy_loss.chain = chain.dumps()
        self.chain = chain
        """The chain this run was started with."""
        self.credit_objective = Objective(replace(chain, mechanisms=chain.mechanisms_of(Stage.CREDIT)))
        """Runs the credit stage, here in the trainer's one process."""
        super().__init__(config=config)  # type: ignore[call-arg]  # the trainer underneath

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()  # type: ignore[misc]  # the trainer underneath
        mapping: dict[Any, Any] = self.role_worker_mapping  # type: ignore[attr-defined]
        for role in (WorkerRole.Actor, WorkerRole.ActorRollout, WorkerRole.ActorRolloutRef):
            if role in mapping:
                mapping[role] = verl_trainer.ray.remote(ChainWorker)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Let verl score the batch, then set the chain's advantages."""
        batch = super()._compute_advantage(batch, metrics)  # type: ignore[misc]  # the trainer underneath
        config: Any = self.config  # type: ignore[attr-defined]
        stage = CreditStage(
            self.credit_objective, getattr(self, "tokenizer", None), config.data.get("max_response_length")
        )
        queue, where = verl_trainer.tq, {"keys": batch.keys, "partition_id": batch.partition_id}
        written, credited = stage.compute_advantages(
            queue.kv_batch_get(**where, select_fields=stage.fields), batch.keys, batch.tags
        )
        metrics.update(credited)
        return queue.kv_batch_put(**where, fields=verl_trainer.TensorDict(written, batch_size=len(batch)))

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Let verl update the actor; the chain's metrics lose the prefix verl gives all of the actor's."""
        batch = super()._update_actor(batch, metrics)  # type: ignore[misc]  # the trainer underneath
        for name in [name for name in metrics if name.startswith("actor/breadth/")]:
            metrics[name.removeprefix("actor/")] = metrics.pop(name)
        return batch

    def _save_checkpoint(self) -> None:
        """Write the chain's state first: verl marks the checkpoint as complete at the end."""
        workers: Any = self.actor_rollout_wg  # type: ignore[attr-defined]
        states = {"credit": self.credit_objective.state(), "loss": workers.chain_state()[0]}
        save_states(self._step_folder(), {stage: state for stage, state in states.items() if state is not None})
        super()._save_checkpoint()  # type: ignore[misc]  # the trainer underneath

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()  # type: ignore[misc]  # the trainer underneath
        if self.global_steps == 0:  # type: ignore[attr-defined]
            return
        settings: Any = self.config.trainer  # type: ignore[attr-defined]
        states = load_states(
            Path(settings.resume_from_path) if settings.resume_mode == "resume_path" else self._step_folder()
        )
        resume_objective(self.credit_objective, states.get("credit"))
        self.actor_rollout_wg.restore_chain(states.get("loss"))  # type: ignore[attr-defined]

    def _step_folder(self) -> Path:
        config: Any = self.config  # type: ignore[attr-defined]
        return Path(config.trainer.default_local_dir) / f"global_step_{self.global_steps}"  # type: ignore[attr-defined]


@verl_trainer.register_trainer(TRAINER_MODES[0])
class BreadthTrainer(ChainMixin, PPOTrainerSync):  # type: ignore[misc]  # verl is untyped
    """verl's synchronous trainer with a chain."""

    verl_mode = "sync"


@verl_trainer.register_trainer(TRAINER_MODES[1])
class BreadthTrainerColocateAsync(ChainMixin, PPOTrainerColocateAsync):  # type: ignore[misc]  # verl is untyped
    """verl's asynchronous trainer on shared GPUs with a chain."""

    verl_mode = "colocate_async"
