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

from breadth.adapters.verl.loss import LossStage
from breadth.adapters.verl.worker import ChainActor, ChainWorker
from breadth.base.errors import MechanismError
from breadth.training.chain import Chain
from breadth.training.loss.clip_cov import ClipCov
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.loss.forking_tokens import ForkingTokens

ACTIVE = ForkThermostat(settle=1, floor=1.2, ceiling=1.3)
VERL = ClippedPolicy(low=0.2, high=0.2, dual=3.0)


def test_two_ranks_of_verls_worker_train_as_the_bare_objective_over_a_restart(trains_alike: Callable[..., Any]) -> None:
    trained = trains_alike("worker", [Chain((VERL, ClipCov(share=0.2, lower=0.01), ForkingTokens(share=0.4), ACTIVE))])[
        0
    ][0]
    assert trained["states"][-1]["fork-thermostat"]["coefficient"] > 0, (
        "the thermostat must act, or the test shows nothing"
    )
    assert [step["breadth/stale"] for step in trained["steps"]] == [0.0, 1.0, 1.0, 1.0] * 3


def test_without_a_chain_the_worker_is_verls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingWorker, "train_batch", lambda _, data: ("verl's", data))
    assert ChainActor.train_batch(ChainActor.__new__(ChainActor), 7) == ("verl's", 7)


def test_a_rank_without_outputs_stays_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingWorker, "train_batch", lambda *_: None)
    actor: Any = ChainActor.__new__(ChainActor)
    seen: list[str] = []
    actor.stage = SimpleNamespace(begin=seen.append, finish=lambda: seen.append("finished"))
    assert actor.train_batch("batch") is None
    assert seen == ["batch", "finished"]


def test_another_worker_loss_is_refused() -> None:
    with pytest.raises(MechanismError, match="another loss than ppo_loss"):
        ChainActor.__new__(ChainActor).attach(partial(sft_loss, config=None))


def test_verl_can_call_every_method_the_trainer_calls() -> None:
    for name in ("init_model", "chain_state", "restore_chain", "update_actor", "save_checkpoint"):
        assert getattr(getattr(ChainWorker, name), MAGIC_ATTR)["dispatch_mode"] is not None
    assert getattr(ChainWorker.chain_state, MAGIC_ATTR)["dispatch_mode"] == Dispatch.ONE_TO_ALL
    assert ChainWorker.actor_worker_cls is ChainActor


def test_state_goes_out_and_comes_back() -> None:
    worker, other = (ChainWorker.__new__(ChainWorker) for _ in range(2))
    worker.actor, other.actor = (SimpleNamespace(stage=LossStage(Chain((VERL, ACTIVE)))) for _ in range(2))
    worker.actor.stage.objective.step = 7
    other.restore_chain(worker.chain_state())
    assert other.actor.stage.objective.step == 7
    with pytest.raises(MechanismError, match=r"has no breadth.json, but fork-thermostat"):
        other.restore_chain(None)
    worker.actor = SimpleNamespace(stage=None)
    assert worker.chain_state() is None
    worker.restore_chain(None)
