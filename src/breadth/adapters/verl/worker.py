"""verl's actor worker with a chain's loss stage: the chain's steps begin and end with verl's optimizer steps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from verl.single_controller.base.decorator import Dispatch, register
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.utils.losses import ppo_loss

from breadth.adapters.verl.loss import LossStage, chain_from_settings, count_replicas, resume_objective, stage_loss
from breadth.adapters.verl.registration import LOSS_MODE
from breadth.base.errors import MechanismError


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
