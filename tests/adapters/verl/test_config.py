"""verl's configuration in every form it comes in, translated:

what is set, what is verl's default, what is not known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.verl.config import SETTINGS
from breadth.base.errors import BrokenFileError
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig
from breadth.runs.jsonl import read_head

verl = pytest.importorskip("verl", reason="verl is not installed")

ACTOR = "actor_rollout_ref.actor"
LOSS = "actor_rollout_ref.actor.policy_loss"
BASE_CONFIG = {"actor_rollout_ref.rollout.n": 4}


def read(folder: Path, text: str, name: str) -> TrainerConfig:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    assert SETTINGS.recognises(path, read_head(path))
    return SETTINGS.translate(SETTINGS.read(path))


def knobs(**settings: Any) -> TrainerConfig:
    """Return the knobs of settings of the actor."""
    return SETTINGS.translate(
        {f"{ACTOR}.{name}": value for name, value in settings.items()} | {f"{ACTOR}.strategy": "fsdp"}
    )


FORMS = {
    "train.yaml": (
        """
data: {train_batch_size: 64, max_response_length: 1024}
actor_rollout_ref:
  actor:
    optim: {lr: 1e-6}
    ppo_mini_batch_size: 16
    clip_ratio_high: 0.28
  rollout: {n: 8, name: vllm}
algorithm: {adv_estimator: grpo}
"""
    ),
    "run.sh": (
        """
n=8; LENGTH=$((256 * 4))
MINI=${MINI:-16}
python3 -m verl.trainer.main_ppo \\
  data.train_batch_size=64 data.max_response_length=$LENGTH \\
  actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.ppo_mini_batch_size=$MINI \\
  actor_rollout_ref.actor.clip_ratio_high=0.28 actor_rollout_ref.rollout.n=$n actor_rollout_ref.rollout.name=vllm \\
  algorithm.adv_estimator=grpo
"""
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_yaml_and_script_say_the_same(tmp_path: Path, name: str) -> None:
    found = read(tmp_path, FORMS[name], name)
    assert (found.group, found.prompts, found.mini_batch, found.updates) == (8, 64, 16, 4.0)
    assert (found.learning_rate, found.max_completion_length, found.engine, found.estimator) == (
        1e-6,
        1024,
        "vllm",
        "grpo",
    )
    assert (found.clip_low, found.clip_high, found.clips, found.dual_clip, found.loss) == (
        0.2,
        0.28,
        True,
        3.0,
        "vanilla",
    )
    assert (found.kl, found.kl_given, found.dynamic_sampling, found.correct_mismatch, found.logs_rollouts) == (
        0.0,
        None,
        False,
        False,
        False,
    )
    assert found.user_settings["group"] == "actor_rollout_ref.rollout.n=8"
    assert "clip_low" not in found.user_settings


def test_the_overrides_that_hydra_keeps_are_laid_over_what_nobody_knows(tmp_path: Path) -> None:
    lines = [
        "data.train_batch_size=2",
        f"+{ACTOR}.clip_ratio=0.2",
        "actor_rollout_ref.rollout.n=4",
        "~trainer.gone",
        f"{ACTOR}.optim.lr=1e-6",
    ]
    found = read(tmp_path, "".join(f"- {line}\n" for line in lines), "overrides.yaml")
    assert (found.prompts, found.group, found.learning_rate, found.clip_low) == (2, 4, 1e-6, 0.2)
    assert (found.updates, found.kl, found.loss, found.temperature, found.correct_mismatch) == (None,) * 5


@pytest.mark.parametrize(
    ("name", "text", "known"),
    [
        ("a.yaml", "defaults: [ppo_trainer, _self_]\nactor_rollout_ref: {rollout: {n: 4}}\n", True),
        (
            "a.yaml",
            (
                "defaults:\n  - /actor@actor_rollout_ref.actor: dp_actor\n  - _self_\nactor_rollout_ref: {rollout: {n:"
                " 4}}\n"
            ),
            True,
        ),
        ("a.yaml", "defaults: [my_base, _self_]\nactor_rollout_ref: {rollout: {n: 4}}\n", False),
        ("a.sh", "python main.py --config-name=ppo_trainer actor_rollout_ref.rollout.n=4\n", True),
        ("a.sh", "python main.py --config-name mine actor_rollout_ref.rollout.n=4\n", False),
        ("a.sh", "python main.py --config-name $NAME actor_rollout_ref.rollout.n=4\n", False),
    ],
)
def test_defaults_hold_over_verl_s_own_configuration_only(tmp_path: Path, name: str, text: str, known: bool) -> None:
    found = read(tmp_path, text, name)
    assert found.group == 4
    assert (found.prompts == 1024) == known
    assert (found.temperature == 1.0) == known


def test_a_log_that_prints_the_configuration_is_none(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("actor_rollout_ref: {}")
    assert not SETTINGS.recognises(tmp_path / "train.log", b"actor_rollout_ref")
    assert not SETTINGS.recognises(tmp_path / "a.yaml", b"data: {}")


@pytest.mark.parametrize(
    ("settings", "updates"),
    [
        ({"data.train_batch_size": 64, f"{ACTOR}.ppo_mini_batch_size": 64}, 1.0),
        (
            {"data.train_batch_size": 64, f"{ACTOR}.ppo_mini_batch_size": 16, f"{ACTOR}.ppo_epochs": 2},
            8.0,
        ),  # 64 / 16 * 2
        ({"data.train_batch_size": 64, f"{ACTOR}.ppo_mini_batch_size": 48}, 2.0),  # the second is short
        ({"data.train_batch_size": 2}, 1.0),  # verl's mini-batch of 256 is more than there is
        ({"data.train_batch_size": "$BATCH"}, None),
        ({"data.train_batch_size": "$BATCH", f"{ACTOR}.ppo_epochs": 3}, 3.0),  # at least
        (
            {
                "data.train_batch_size": 64,
                f"{ACTOR}.ppo_mini_batch_size": 64,
                "algorithm.rollout_correction.bypass_mode": True,
            },
            None,
        ),
        (
            {
                "data.train_batch_size": 64,
                f"{ACTOR}.ppo_mini_batch_size": 64,
                "trainer.v1.trainer_mode": "separate_async",
            },
            None,
        ),
        (
            {"data.train_batch_size": 64, f"{ACTOR}.ppo_mini_batch_size": 64, f"{ACTOR}.use_rollout_log_probs": True},
            None,
        ),
    ],
)
def test_updates_a_generation(settings: dict[str, Any], updates: float | None) -> None:
    assert SETTINGS.translate({**settings, "actor_rollout_ref.rollout.n": 4}).updates == updates


def test_a_clip_ratio_by_itself_is_not_what_the_losses_read() -> None:
    both = knobs(clip_ratio=0.4)
    assert (both.clip_low, both.clip_high) == (0.2, 0.2)
    null = knobs(clip_ratio=0.4, clip_ratio_low=None)
    assert (null.clip_low, null.clip_high) == (0.4, 0.2)


@pytest.mark.parametrize("switches", [(False, False), (True, False), (False, True), (True, True)])
def test_the_price_of_leaving_the_reference_needs_a_switch(switches: tuple[bool, bool]) -> None:
    in_loss, in_reward = switches
    found = SETTINGS.translate(
        {
            f"{ACTOR}.use_kl_loss": in_loss,
            f"{ACTOR}.kl_loss_coef": 0.02,
            "algorithm.use_kl_in_reward": in_reward,
            "algorithm.kl_ctrl.kl_coef": 0.3,
        }
    )
    assert found.kl == (0.02 if in_loss else 0.3 if in_reward else 0.0)
    assert found.kl_given == 0.02


@pytest.mark.parametrize(
    ("mode", "covariance", "share", "clips"),
    [
        ("vanilla", "", None, True),
        ("kl_cov", "kl-cov", 0.0002, False),
        ("clip_cov", "clip-cov", 0.0002, True),
        ("mine", "", None, None),
    ],
)
def test_losses(mode: str, covariance: str, share: float | None, clips: bool | None) -> None:
    found = SETTINGS.translate({f"{ACTOR}.policy_loss.loss_mode": mode})
    assert (found.loss, found.covariance, found.covariance_share, found.clips) == (mode, covariance, share, clips)


def test_a_chain_of_ours_goes_by_its_name_and_ranks_the_whole_batch() -> None:
    place = f"{ACTOR}.policy_loss"
    found = SETTINGS.translate({f"{place}.loss_mode": "breadth", f"{place}.chain": "kl_cov"})
    assert (found.loss, found.covariance) == ("kl_cov", "")


def test_micro_batches_are_not_of_one_size_where_they_are_cut_by_tokens() -> None:
    assert knobs(ppo_micro_batch_size_per_gpu=1).micro_batch == 1
    assert knobs(ppo_micro_batch_size_per_gpu=1, use_dynamic_bsz=True).micro_batch is None


@pytest.mark.parametrize(
    ("settings", "penalised"),
    [
        ({}, None),
        ({"reward_model.overlong_buffer.enable": True, "reward_model.reward_manager": "dapo"}, True),
        ({"reward.reward_kwargs.overlong_buffer_cfg.enable": True}, False),  # naive by default, which does not read it
        ({"reward.reward_kwargs.overlong_buffer_cfg.enable": True, "reward.reward_manager.name": "dapo"}, True),
        ({"reward_model.reward_kwargs.overlong_buffer_cfg.enable": False, "reward_model.reward_manager": "dapo"}, None),
        ({"custom_reward_function.overlong_buffer.enable": True}, None),
    ],
)
def test_a_penalty_for_length_acts_where_the_manager_reads_it(settings: dict[str, Any], penalised: bool | None) -> None:
    found = SETTINGS.translate({**settings, "actor_rollout_ref.rollout.n": 4})
    assert found.length_penalty is penalised
    assert found.shaped_reward is (True if penalised else None)


def test_a_whole_configuration_is_the_user_s_where_it_is_no_default(tmp_path: Path) -> None:
    verl = pytest.importorskip("verl")
    text = (Path(verl.__file__).parent / "trainer" / "config" / "_generated_ppo_trainer.yaml").read_text(
        encoding="utf-8"
    )
    found = read(tmp_path, text.replace("clip_ratio_high: 0.2", "clip_ratio_high: 0.28", 1), "config.yaml")
    assert (found.clip_high, found.prompts, found.mini_batch, found.updates, found.estimator) == (
        0.28,
        1024,
        256,
        4.0,
        "gae",
    )
    assert "clip_high" in found.user_settings
    assert not {"clip_low", "prompts", "kl_given", "temperature", "estimator"} & found.user_settings.keys()
    assert (found.unused, found.conflicts) == ((), ())


@pytest.mark.parametrize("text", ["actor_rollout_ref", "3 # actor_rollout_ref", "'actor_rollout_ref"])
def test_what_is_no_configuration_is_a_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(BrokenFileError):
        SETTINGS.read(tmp_path / "a.yaml")


FORK = """
loss_mode="kl_cov"
python -m recipe.dapo.main_dapo \\
    data.train_batch_size=256 \\
    actor_rollout_ref.rollout.n=8 \\
    actor_rollout_ref.actor.loss_mode=${loss_mode} \\
    actor_rollout_ref.actor.k_percent=0.2 \\
    actor_rollout_ref.actor.ppo_kl_coef=1 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.rollout.top_k=-1
"""


def test_the_keys_of_the_published_kl_cov_scripts(tmp_path: Path) -> None:
    found = read(tmp_path, FORK, "run.sh")
    assert (found.loss, found.covariance, found.covariance_share, found.top_k) == ("kl_cov", "kl-cov", 0.002, 0)
    assert found.user_settings["loss"] == f"{ACTOR}.loss_mode=kl_cov"
    assert found.unused == ()  # ppo_kl_coef is read
    plain = read(tmp_path, FORK.replace('loss_mode="kl_cov"', 'loss_mode="vanilla"'), "run.sh")
    assert [unused.setting for unused in plain.unused] == [f"{ACTOR}.k_percent=0.2", f"{ACTOR}.ppo_kl_coef=1"]
    unknown = read(tmp_path, FORK.replace('loss_mode="kl_cov"', ""), "run.sh")
    assert unknown.unread["loss"] == f"{ACTOR}.loss_mode=${{loss_mode}}"


def test_their_patches_are_in_the_same_keys(tmp_path: Path) -> None:
    config = read(tmp_path, FORK.replace('"kl_cov"', '"vanilla"'), "run.sh")
    assert SETTINGS.patch([Change("chain", "kl_cov"), Change("clip_high", 0.28)], config) == (
        f"{ACTOR}.loss_mode=kl_cov",
        f"{ACTOR}.k_percent=0.2",
        f"{ACTOR}.ppo_kl_coef=1.0",
        f"{ACTOR}.clip_ratio_high=0.28",
    )
    assert SETTINGS.patch([Change("chain", "thermostat")], config)[0].startswith("# this needs verl 0.9")


def test_settings_in_a_section_of_a_larger_file(tmp_path: Path) -> None:
    text = """
experiment: {name: x}
rl:
  verl:
    data: {train_batch_size: 64}
    actor_rollout_ref:
      actor: {ppo_mini_batch_size: 16}
      rollout: {n: 4}
"""
    found = read(tmp_path, text, "config.yaml")
    assert (found.group, found.prompts, found.updates) == (4, 64, 4.0)
    (tmp_path / "other.yaml").write_text("# as actor_rollout_ref.actor in verl\nnum_prompts_per_step: 8\n")
    assert not SETTINGS.recognises(tmp_path / "other.yaml", read_head(tmp_path / "other.yaml"))


def test_a_key_that_stands_twice_is_refused_by_omegaconf(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    text = "actor_rollout_ref:\n  rollout: {n: 4}\n  rollout: {n: 8}\n"
    (conflict,) = read(tmp_path, text, "config.yaml").conflicts
    assert (conflict.settings, conflict.consequence) == ("actor_rollout_ref.rollout (lines 2 and 3)", "refused")
    with pytest.raises(Exception, match="duplicate key"):
        omegaconf.OmegaConf.load(tmp_path / "config.yaml")
