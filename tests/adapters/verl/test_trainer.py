"""verl's own trainer class, advantage code and worker with a chain.

The queue between the trainer's processes is kept in memory; two ranks run verl's own TrainingWorker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip(
    "verl.trainer.ppo.v1", reason="verl's trainers and what they need (verl[verl-core]) are not installed"
)

from omegaconf import OmegaConf
from verl.single_controller.base.decorator import MAGIC_ATTR, Dispatch
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1 import get_trainer_cls, trainer_base
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers.engine_workers import TrainingWorker
from verl.workers.utils.losses import sft_loss

from breadth.adapters.verl.loss import STATES_FILE, LossStage, chain_from_settings, stage_loss
from breadth.adapters.verl.trainer import BreadthTrainer, ChainActor, ChainWorker
from breadth.base.errors import MechanismError, SettingsError
from breadth.training.chain import Chain
from breadth.training.credit.group_advantage import GroupAdvantage
from breadth.training.credit.outcome_bonus import OutcomeBonus
from breadth.training.loss.clip_cov import ClipCov
from breadth.training.loss.clipped_policy import ClippedPolicy
from breadth.training.loss.fork_thermostat import ForkThermostat
from breadth.training.loss.forking_tokens import ForkingTokens
from breadth.training.objective import Objective
from breadth.training.records import Rollouts

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


pytest.importorskip(
    "verl.trainer.ppo.v1", reason="verl's trainers and what they need (verl[verl-core]) are not installed"
)


ENTROPY = "actor_rollout_ref.actor.calculate_entropy=true"
pytestmark = pytest.mark.filterwarnings("ignore:Disabled critic")
KEYS = ["a_0_0", "b_0_0", "a_1_0", "b_1_0", "a_2_0", "b_2_0", "pad_0_0"]
CHAIN = Chain((GroupAdvantage(), ClippedPolicy(), ForkThermostat()))
Compose = Callable[..., Any]


class Queue:
    """verl's TransferQueue as far as the trainer uses it, in this process."""

    def __init__(self, rows: dict[str, dict[str, Any]], tags: dict[str, dict[str, Any]]) -> None:
        self.rows, self.tags = rows, tags

    def meta(self, keys: list[str]) -> Any:
        return trainer_base.KVBatchMeta(partition_id="train", keys=keys, tags=[self.tags[key] for key in keys])

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        return list_of_dict_to_tensordict(
            [{name: self.rows[key][name] for name in select_fields if name in self.rows[key]} for key in keys]
        )

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any) -> Any:
        assert len(fields) == len(keys)
        for name in list(fields.keys()):
            values = fields[name].unbind() if fields[name].is_nested else fields[name]
            for key, value in zip(keys, values, strict=True):
                self.rows[key][name] = value
        return self.meta(keys)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    rows: dict[str, dict[str, Any]] = {}
    for number, (key, reward) in enumerate(zip(KEYS, [1.0, 0.3, 0.0, 0.9, 0.5, -1.0, 0.0], strict=True)):
        length = 2 + number % 3
        scores, mask = torch.zeros(length), torch.ones(length, dtype=torch.int64) * (key[0] != "p")
        scores[-1] = reward
        old = torch.linspace(-2, -1, length)
        rows[key] = {
            "uid": key.split("_")[0],
            "response_mask": mask,
            "rm_scores": scores,
            "rollout_log_probs": old,
            "old_log_probs": old,
        }
        rows[key] |= {"entropy": torch.ones(length), "responses": torch.arange(length), "prompts": torch.arange(2)}
    found = Queue(rows, {key: {"is_padding": key[0] == "p"} for key in KEYS})
    monkeypatch.setattr(trainer_base, "tq", found)
    return found


def trained(configured: Compose, chain: Chain, *overrides: str, **options: Any) -> Any:
    return BreadthTrainer(config=configured(chain.dumps(), ENTROPY, *overrides, **options))


def test_verl_finds_it_by_name_and_takes_it_for_its_own(configured: Compose) -> None:
    trainer = get_trainer_cls("breadth")(config=configured("thermostat", ENTROPY))
    assert (trainer.trainer_mode, type(trainer.replay_buffer).__name__) == ("sync", "ReplayBuffer")
    trainer = get_trainer_cls("breadth_colocate_async")(config=configured("thermostat", ENTROPY))
    assert (trainer.trainer_mode, type(trainer.replay_buffer).__name__) == ("colocate_async", "ReplayBufferAsync")


def test_the_workers_get_the_chain_that_was_checked(configured: Compose, tmp_path: Path) -> None:
    path = tmp_path / "chain.toml"
    path.write_text(CHAIN.dumps(), encoding="utf-8")
    trainer = BreadthTrainer(config=configured(str(path), ENTROPY))
    path.unlink()
    actor = omega_conf_to_dataclass(trainer.config.actor_rollout_ref.actor)
    assert chain_from_settings(actor.policy_loss) == CHAIN == trainer.chain
    trainer._init_resource_pool_mgr()
    assert trainer.role_worker_mapping[Role.ActorRollout].__ray_actor_class__ is ChainWorker


def test_a_chain_that_cannot_run_is_refused_before_anything_starts(configured: Compose) -> None:
    with pytest.raises(MechanismError, match="reads the entropy"):
        BreadthTrainer(config=configured("thermostat"))
    config = configured("thermostat")
    OmegaConf.set_struct(config, False)
    del config.actor_rollout_ref.actor.policy_loss["chain"]
    OmegaConf.set_struct(config, True)
    with pytest.raises(SettingsError, match="names no chain"):
        BreadthTrainer(config=config)


def test_what_cannot_act_is_said_at_the_start(configured: Compose, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        trained(configured, CHAIN, "actor_rollout_ref.rollout.n=1")
    assert "group-advantage: with one rollout per problem every advantage is zero" in caplog.text


def test_the_advantages_are_the_chains(configured: Compose, queue: Queue) -> None:
    """The chain has the group advantage without the division.

    So it differs from the GRPO that verl computed before it.
    """
    metrics: dict[str, Any] = {}
    verls = trainer_base.PPOTrainer._compute_advantage(trained(configured, CHAIN), queue.meta(KEYS), metrics)
    grpo = {key: queue.rows[key]["advantages"][-1].item() for key in verls.keys}
    after = trained(configured, CHAIN)._compute_advantage(queue.meta(KEYS), metrics)
    assert {key: queue.rows[key]["advantages"][-1].item() for key in KEYS} == pytest.approx(grpo, abs=1e-6)
    assert after.keys == KEYS
    plain = Chain((GroupAdvantage(scale="none"), ClippedPolicy()))
    trained(configured, plain)._compute_advantage(queue.meta(KEYS), metrics)
    told = [queue.rows[key]["advantages"][-1].item() for key in KEYS]
    assert told == pytest.approx([0.5, 0.3 - 0.2 / 3, -0.5, 0.9 - 0.2 / 3, 0.0, -1 - 0.2 / 3, 0.0], abs=1e-6)
    assert [int(queue.rows[key]["breadth_row"]) for key in KEYS] == list(range(7))
    assert metrics["breadth/group-advantage/flat"] == 0.0
    assert [len(queue.rows[key]["advantages"]) for key in KEYS] == [2, 3, 4, 2, 3, 4, 2]


def test_trainer_and_workers_together_do_what_the_bare_objective_does(
    configured: Compose, queue: Queue, bigram: Any
) -> None:
    """Credit in verl's trainer, loss in verl's worker loss on two micro-batches:

    loss and gradient are the whole chain's.
    """
    data, policy = bigram.generation(6), bigram.Bigram(seed=1)
    for row, key in enumerate(KEYS[:6]):
        names = [name for name in data.keys() if name != "breadth_row"]  # noqa: SIM118  # a TensorDict is no dict
        queue.rows[key] |= {name: data[name].unbind()[row] for name in names}
        queue.rows[key] |= {
            "rollout_log_probs": queue.rows[key]["old_log_probs"],
            "rm_scores": torch.zeros(len(data["responses"].unbind()[row])),
        }
        queue.rows[key]["rm_scores"][-1] = [1.0, 0.3, 0.0, 0.9, 0.5, -1.0][row]
    trainer = trained(configured, CHAIN)
    batch = trainer._compute_advantage(queue.meta(KEYS[:6]), {})
    fetched = queue.kv_batch_get(batch.keys, "train", [*names, "advantages", "breadth_row"])
    config, stage = omega_conf_to_dataclass(trainer.config.actor_rollout_ref.actor), LossStage(trainer.chain)
    stage.begin(fetched)
    total = 0.0
    for rows in ([0, 1, 2, 3], [4, 5]):
        micro = bigram.part(fetched, rows)
        tu.assign_non_tensor(micro, dp_size=1, batch_num_tokens=1, global_batch_size=6)
        loss, _ = stage_loss(policy.output(micro), micro, config=config, stage=stage)
        loss.backward()
        total += float(loss.detach())
    gradient, policy.table.grad = policy.table.grad, None

    bare, record = Objective(CHAIN), policy.batch(data)
    rewards, groups = torch.tensor([1.0, 0.3, 0.0, 0.9, 0.5, -1.0]), torch.tensor([0, 1, 0, 1, 0, 1])
    credited, _ = bare.credit(Rollouts(rewards, groups, record.mask.sum(-1)))
    record = replace(record, advantages=credited.advantages)
    bare.begin(record)
    expected = bare.loss(record)
    expected.backward()
    assert total == pytest.approx(float(expected.detach()), abs=1e-6)
    torch.testing.assert_close(gradient, policy.table.grad, atol=1e-6, rtol=1e-6)
    assert {f"breadth/{name}": value for name, value in bare.finish().items()} == pytest.approx(
        stage.finish(), abs=1e-6, nan_ok=True
    )


def test_metrics_of_the_workers_stand_under_our_name(configured: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    def verls(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        metrics.update({"actor/breadth/fork-thermostat/push": 0.5, "actor/pg_loss": 1.0})
        return batch

    monkeypatch.setattr(trainer_base.PPOTrainer, "_update_actor", verls)
    metrics: dict[str, Any] = {}
    trained(configured, CHAIN)._update_actor("batch", metrics)
    assert metrics == {"breadth/fork-thermostat/push": 0.5, "actor/pg_loss": 1.0}


class Workers:
    """Two ranks' workers, as verl's worker group calls them."""

    def __init__(self, chain: Chain) -> None:
        self.workers = [ChainWorker.__new__(ChainWorker) for _ in range(2)]
        for worker in self.workers:
            worker.actor = SimpleNamespace(stage=LossStage(chain))

    def chain_state(self) -> list[Any]:
        return [worker.chain_state() for worker in self.workers]

    def restore_chain(self, state: Any) -> None:
        for worker in self.workers:
            worker.restore_chain(state)


@pytest.mark.parametrize("how", ["auto", "resume_path"])
def test_state_survives_a_checkpoint(
    configured: Compose, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    chain = Chain((GroupAdvantage(), OutcomeBonus(), ClippedPolicy(), ForkThermostat()))
    folder = tmp_path / "global_step_3"
    seen: list[bool] = []
    monkeypatch.setattr(
        trainer_base.PPOTrainer, "_save_checkpoint", lambda _: seen.append((folder / STATES_FILE).exists())
    )
    monkeypatch.setattr(trainer_base.PPOTrainer, "_load_checkpoint", lambda self: setattr(self, "global_steps", 3))
    overrides = [
        f"trainer.default_local_dir={tmp_path}",
        f"trainer.resume_mode={how}",
        f"trainer.resume_from_path={folder}",
    ]
    first, second = (trained(configured, chain, *overrides) for _ in range(2))
    for trainer in (first, second):
        trainer.global_steps, trainer.actor_rollout_wg = 3, Workers(chain)
    first.credit_objective.generation = 3
    first.actor_rollout_wg.workers[0].actor.stage.objective.step = 12
    first._save_checkpoint()
    assert seen == [True], "the chain's state is there before verl declares the checkpoint complete"
    second._load_checkpoint()
    assert second.credit_objective.state() == first.credit_objective.state()
    assert [worker.actor.stage.objective.step for worker in second.actor_rollout_wg.workers] == [12, 12]
    (folder / STATES_FILE).unlink()
    with pytest.raises(MechanismError, match="outcome-bonus"):
        second._load_checkpoint()


def test_a_new_run_loads_nothing(configured: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_base.PPOTrainer, "_load_checkpoint", lambda self: setattr(self, "global_steps", 0))
    trainer = trained(configured, CHAIN)
    trainer._load_checkpoint()
    assert trainer.credit_objective.generation == 0
