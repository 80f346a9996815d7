"""What verl does not read, given other settings, and what it refuses together; asked of verl where it can say."""

from __future__ import annotations

from typing import Any

import pytest

from breadth.adapters.verl.config import SETTINGS

verl = pytest.importorskip("verl", reason="verl is not installed")

ACTOR = "actor_rollout_ref.actor"
LOSS = "actor_rollout_ref.actor.policy_loss"
BASE_CONFIG = {"actor_rollout_ref.rollout.n": 4}


def idle(settings: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(one.setting, one.intended) for one in SETTINGS.translate({**BASE_CONFIG, **settings}).unused]


@pytest.mark.parametrize(
    ("settings", "said", "meant"),
    [
        ({f"{ACTOR}.kl_loss_coef": 0.01}, f"{ACTOR}.kl_loss_coef=0.01", True),
        ({f"{ACTOR}.kl_loss_coef": 0.01, f"{ACTOR}.use_kl_loss": False}, f"{ACTOR}.kl_loss_coef=0.01", False),
        ({"algorithm.kl_ctrl.kl_coef": 0.01}, "algorithm.kl_ctrl.kl_coef=0.01", True),
        ({"algorithm.kl_ctrl.kl_coef": 0.01, f"{ACTOR}.use_kl_loss": True}, "algorithm.kl_ctrl.kl_coef=0.01", False),
        ({f"{ACTOR}.clip_ratio": 0.4}, f"{ACTOR}.clip_ratio=0.4", True),
        ({f"{ACTOR}.clip_ratio": 0.3, f"{ACTOR}.clip_ratio_high": 0.4}, f"{ACTOR}.clip_ratio=0.3", False),
        ({f"{LOSS}.kl_cov_ratio": 0.002}, f"{LOSS}.kl_cov_ratio=0.002", True),
        ({f"{LOSS}.ppo_kl_coef": 1, f"{LOSS}.loss_mode": "clip_cov"}, f"{LOSS}.ppo_kl_coef=1", False),
        ({f"{ACTOR}.clip_ratio_high": 0.28, f"{LOSS}.loss_mode": "kl_cov"}, f"{ACTOR}.clip_ratio_high=0.28", False),
        ({f"{ACTOR}.clip_ratio_c": 10.0, f"{LOSS}.loss_mode": "gspo"}, f"{ACTOR}.clip_ratio_c=10.0", False),
        (
            {"algorithm.rollout_correction.rollout_is_threshold": 2.0},
            "algorithm.rollout_correction.rollout_is_threshold=2.0",
            True,
        ),
        (
            {"reward.reward_kwargs.overlong_buffer_cfg.enable": True, "reward_model.reward_manager": "naive"},
            "reward.reward_kwargs.overlong_buffer_cfg.enable=True",
            True,
        ),
    ],
)
def test_a_setting_that_nothing_reads(settings: dict[str, Any], said: str, meant: bool) -> None:
    assert idle(settings) == [(said, meant)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {f"{ACTOR}.kl_loss_coef": 0.0},
        {f"{ACTOR}.kl_loss_coef": 0.01, f"{ACTOR}.use_kl_loss": True},
        {f"{ACTOR}.kl_loss_coef": 0.01, f"{ACTOR}.use_kl_loss": "$KL"},
        {f"{ACTOR}.clip_ratio": 0.2},
        {f"{ACTOR}.clip_ratio": 0.28, f"{ACTOR}.clip_ratio_high": 0.28},
        {f"{ACTOR}.clip_ratio_high": 0.28, f"{LOSS}.loss_mode": "a_fork_s"},
        {f"{LOSS}.kl_cov_ratio": 0.002, f"{LOSS}.loss_mode": "kl_cov"},
        {"reward.reward_kwargs.overlong_buffer_cfg.enable": True, "reward_model.reward_manager": "a_fork_s"},
        {"config_name": "mine", f"{ACTOR}.kl_loss_coef": 0.01, f"{ACTOR}.clip_ratio": 0.4},
    ],
    ids=str,
)
def test_what_acts_or_may_act_is_not_idle(settings: dict[str, Any]) -> None:
    assert idle(settings) == []


def test_the_losses_of_verl_do_not_read_clip_ratio_as_it_is_configured() -> None:
    """The claim behind the trap: with low and high at their default, clip_ratio changes no loss."""
    torch = pytest.importorskip("torch")
    algorithms = pytest.importorskip("verl.trainer.ppo.core_algos")
    from verl.workers.config import FSDPActorConfig

    rows = torch.linspace(-1, 1, 12).reshape(2, 6)
    losses = []
    for clip in (0.05, 0.2, 0.9):
        actor = FSDPActorConfig(strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=1, clip_ratio=clip)
        arguments = {
            "old_log_prob": rows * 0,
            "log_prob": rows,
            "advantages": torch.sign(rows),
            "response_mask": torch.ones_like(rows),
        }
        losses.append(
            float(algorithms.compute_policy_loss_vanilla(**arguments, loss_agg_mode="token-mean", config=actor)[0])
        )
    assert losses[0] == losses[1] == losses[2]


@pytest.mark.parametrize(
    ("settings", "weight"),
    [
        ({"data.train_batch_size": 64, f"{ACTOR}.ppo_mini_batch_size": 128}, "refused"),
        ({"data.train_batch_size": 64}, "refused"),  # verl's own mini-batch of 256
        ({"data.train_batch_size": 64, f"{ACTOR}.ppo_mini_batch_size": 128, f"{ACTOR}.use_dynamic_bsz": True}, "wrong"),
        ({"data.train_batch_size": 64, f"{ACTOR}.use_dynamic_bsz": True}, "slight"),
        ({"data.train_batch_size": 64, f"{ACTOR}.ppo_mini_batch_size": 48}, "slight"),
        ({"data.train_batch_size": 64, f"{ACTOR}.ppo_mini_batch_size": 16}, None),
        (
            {f"{ACTOR}.ppo_mini_batch_size": 2048},
            None,
        ),  # the size of the generation is not the user's: it may be set elsewhere
        (
            {
                "data.train_batch_size": 6,
                f"{ACTOR}.ppo_mini_batch_size": 6,
                "trainer.n_gpus_per_node": 16,
                "trainer.nnodes": 1,
            },
            "refused",
        ),
        (
            {
                "data.train_batch_size": 8,
                f"{ACTOR}.ppo_mini_batch_size": 8,
                "trainer.n_gpus_per_node": 16,
                "trainer.nnodes": 2,
            },
            None,
        ),
        ({f"{ACTOR}.use_kl_loss": True, "algorithm.use_kl_in_reward": True}, "slight"),
        ({f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm", "algorithm.adv_estimator": "grpo"}, "slight"),
        (
            {
                f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm",
                "algorithm.adv_estimator": "grpo",
                "algorithm.norm_adv_by_std_in_grpo": False,
            },
            None,
        ),
    ],
    ids=str,
)
def test_what_does_not_go_together(settings: dict[str, Any], weight: str | None) -> None:
    found = SETTINGS.translate({**BASE_CONFIG, **settings}).conflicts
    assert [one.consequence for one in found] == ([] if weight is None else [weight])
    if weight == "refused":
        _refused(settings)


def _refused(settings: dict[str, Any]) -> None:
    """Hold the claim against verl's own validation."""
    hydra = pytest.importorskip("hydra")
    validate = pytest.importorskip("verl.utils.config").validate_config
    overrides = [
        f"{name}={value}"
        for name, value in {**BASE_CONFIG, f"{ACTOR}.ppo_micro_batch_size_per_gpu": 1, **settings}.items()
    ]
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra.compose("ppo_trainer", overrides=overrides)
    with pytest.raises((ValueError, AssertionError), match=r"must be >=|divisible"):
        validate(config, use_reference_policy=False, use_critic=False)


@pytest.mark.parametrize(
    ("settings", "weight"),
    [
        ({"trainer.total_epochs": 15}, "wrong"),
        ({"trainer.total_epochs": 15, "trainer.save_freq": -1}, "slight"),
        ({"trainer.total_epochs": 15, "trainer.save_freq": 20}, None),
        ({"trainer.total_epochs": 15, "trainer.save_freq": "$FREQ"}, None),
        ({}, None),  # a part of a configuration
    ],
    ids=str,
)
def test_a_run_that_saves_nothing(settings: dict[str, Any], weight: str | None) -> None:
    conflicts = SETTINGS.translate({f"{ACTOR}.strategy": "fsdp", **settings}).conflicts
    assert [conflict.consequence for conflict in conflicts] == ([] if weight is None else [weight])


@pytest.mark.parametrize("sign", [{"config_name": "ppo_megatron_trainer"}, {f"{ACTOR}.strategy": "megatron"}])
def test_with_megatron_workers_count_not_devices(sign: dict[str, str]) -> None:
    sizes = {
        "data.train_batch_size": 3,
        "actor_rollout_ref.rollout.n": 8,
        f"{ACTOR}.ppo_mini_batch_size": 3,
        "trainer.n_gpus_per_node": 8,
        "trainer.nnodes": 6,
    }
    (conflict,) = SETTINGS.translate(sizes).conflicts
    assert (conflict.consequence, conflict.since) == ("refused", "verl 0.2")
    assert SETTINGS.translate({**sizes, **sign}).conflicts == ()
