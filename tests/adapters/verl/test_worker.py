"""The chain in verl's training worker: two ranks of verl's own TrainingWorker, its steps, metrics and checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip(
    "verl.trainer.ppo.v1", reason="verl's trainers and what they need (verl[verl-core]) are not installed"
)

from verl.single_controller.base.decorator import MAGIC_ATTR, Dispatch
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import sft_loss

from breadth.adapters.verl.loss import LossSeat
from breadth.adapters.verl.worker import ChainedActor, ChainedWorker
from breadth.base.errors import MechanismError
from breadth.training.chain import Chain
from breadth.training.loss.clip_cov import ClipCov
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.loss.forking_tokens import ForkingTokens

ACTIVE = ForkThermostat(settle=1, floor=1.2, ceiling=1.3)
VERL = ClippedPolicy(low=0.2, high=0.2, dual=3.0)


def test_two_ranks_of_verls_worker_train_as_the_bare_objective_over_a_restart(trains_alike: Callable[..., Any]) -> None:
    told = trains_alike("worker", [Chain((VERL, ClipCov(share=0.2, lower=0.01), ForkingTokens(share=0.4), ACTIVE))])[0][
        0
    ]
    assert told["states"][-1]["fork-thermostat"]["coefficient"] > 0, (
        "the thermostat must act, or the test shows nothing"
    )
    assert [step["breadth/stale"] for step in told["steps"]] == [0.0, 1.0, 1.0, 1.0] * 3


def test_without_a_chain_the_worker_is_verls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingWorker, "train_batch", lambda _, data: ("verl's", data))
    assert ChainedActor.train_batch(ChainedActor.__new__(ChainedActor), 7) == ("verl's", 7)


def test_a_rank_without_outputs_stays_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingWorker, "train_batch", lambda *_: None)
    actor: Any = ChainedActor.__new__(ChainedActor)
    seen: list[str] = []
    actor.seat = SimpleNamespace(begin=seen.append, finish=lambda: seen.append("finished"))
    assert actor.train_batch("batch") is None
    assert seen == ["batch", "finished"]


def test_another_worker_loss_is_refused() -> None:
    with pytest.raises(MechanismError, match="another loss than ppo_loss"):
        ChainedActor.__new__(ChainedActor).attach(partial(sft_loss, config=None))


def test_verl_can_call_every_method_the_trainer_calls() -> None:
    for name in ("init_model", "chain_state", "restore_chain", "update_actor", "save_checkpoint"):
        assert getattr(getattr(ChainedWorker, name), MAGIC_ATTR)["dispatch_mode"] is not None
    assert getattr(ChainedWorker.chain_state, MAGIC_ATTR)["dispatch_mode"] == Dispatch.ONE_TO_ALL
    assert ChainedWorker.actor_worker_cls is ChainedActor


def test_state_goes_out_and_comes_back() -> None:
    worker, other = (ChainedWorker.__new__(ChainedWorker) for _ in range(2))
    worker.actor, other.actor = (SimpleNamespace(seat=LossSeat(Chain((VERL, ACTIVE)))) for _ in range(2))
    worker.actor.seat.objective.step = 7
    other.restore_chain(worker.chain_state())
    assert other.actor.seat.objective.step == 7
    with pytest.raises(MechanismError, match=r"has no breadth.json, but fork-thermostat"):
        other.restore_chain(None)
    worker.actor = SimpleNamespace(seat=None)
    assert worker.chain_state() is None
    worker.restore_chain(None)
