"""verl's actor worker with a chain's loss seat: begins and ends the chain's step where verl's optimizer step begins and ends."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from verl.single_controller.base.decorator import Dispatch, register
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker
from verl.workers.utils.losses import ppo_loss

from breadth.adapters.verl import checkpoint
from breadth.adapters.verl.loss import LossSeat, chain_in, copies_of, fed_loss
from breadth.adapters.verl.registration import LOSS_MODE
from breadth.base.errors import MechanismError


class ChainedActor(TrainingWorker):  # type: ignore[misc]  # verl is untyped
    """verl's training worker, with the loss seat around each of its optimizer steps."""

    seat: LossSeat | None = None
    """The chain's loss seat; None until it is attached, and then verl's worker is as it was."""

    def attach(self, loss: Any) -> Any:
        """Take the chain from the settings of verl's worker loss; returns the loss to train with, which is verl's own with more at hand."""
        if not isinstance(loss, partial) or loss.func is not ppo_loss:
            raise MechanismError(
                "verl's worker trains with another loss than ppo_loss, which alone calls a policy loss.",
                "Switch off what replaces it (distillation), or use a chain of the credit seat only.",
            )
        config = loss.keywords["config"]
        self.seat = LossSeat(chain_in(config.policy_loss), copies_of(self.engine))
        fed = partial(fed_loss, config=config, seat=self.seat)
        self.set_loss_fn(fed)
        return fed

    def train_mini_batch(self, data: Any) -> Any:
        """Take all optimizer steps of one generation."""
        if self.seat is not None:
            self.seat.arrive()
        return super().train_mini_batch(data)

    def train_batch(self, data: Any) -> Any:
        """Take one optimizer step."""
        if self.seat is None:
            return super().train_batch(data)
        self.seat.begin(data)
        output = super().train_batch(data)
        metrics = self.seat.finish()
        if output is not None:
            tu.assign_non_tensor(output, metrics={**tu.get(output, "metrics"), **metrics})
        return output


class ChainedWorker(ActorRolloutRefWorker):  # type: ignore[misc]  # verl is untyped
    """verl's hybrid worker, whose actor runs the chain's loss seat."""

    actor_worker_cls = ChainedActor

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]  # verl is untyped
    def init_model(self) -> None:
        """Build the models as verl does, then attach the chain to the actor."""
        super().init_model()
        if "actor" in self.role and self.config.actor.policy_loss.loss_mode == LOSS_MODE:
            self.loss_fn: Any = self.actor.attach(self.loss_fn)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]  # verl is untyped
    def chain_state(self) -> dict[str, Any] | None:
        """Return the state of the loss seat, the same on every rank; None without one."""
        return None if self.actor.seat is None else self.actor.seat.objective.state()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]  # verl is untyped
    def restore_chain(self, state: Mapping[str, Any] | None) -> None:
        """Go on from a checkpoint's state of the loss seat."""
        if self.actor.seat is not None:
            checkpoint.resume(self.actor.seat.objective, state)
