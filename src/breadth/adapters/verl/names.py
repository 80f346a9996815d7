"""Names and defaults of verl's settings, and what its losses read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

ACTOR, ROLLOUT, LOSS = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.actor.policy_loss"
VERL_TABLE = re.compile(rb"^[^#\n]*\bactor_rollout_ref[.:\"']", re.MULTILINE)
"""The table that only verl has, other than in a comment."""
SETTING_PREFIXES = (
    "actor_rollout_ref.",
    "algorithm.",
    "data.",
    "trainer.",
    "reward",
    "critic.",
    "custom_reward_function.",
)
"""Prefixes of verl's settings."""
BASE_CONFIG = "config_name"
"""Key of the base configuration that the settings override."""
KNOWN_BASE_CONFIGS = frozenset({"ppo_trainer", "ppo_megatron_trainer", "dapo_trainer", "dapo_megatron_trainer"})
"""Base configurations with these defaults; with another one, settings that are not set are unknown."""
VERL_DEFAULTS: Mapping[str, Any] = {
    f"{ROLLOUT}.n": 1,
    "data.train_batch_size": 1024,
    "data.max_prompt_length": 512,
    "data.max_response_length": 512,
    f"{ACTOR}.ppo_mini_batch_size": 256,
    f"{ACTOR}.ppo_epochs": 1,
    f"{ACTOR}.use_dynamic_bsz": False,
    f"{ACTOR}.optim.lr": 1e-6,
    f"{ACTOR}.clip_ratio": 0.2,
    f"{ACTOR}.clip_ratio_low": 0.2,
    f"{ACTOR}.clip_ratio_high": 0.2,
    f"{ACTOR}.clip_ratio_c": 3.0,
    f"{ACTOR}.use_kl_loss": False,
    f"{ACTOR}.kl_loss_coef": 0.001,
    f"{ACTOR}.loss_agg_mode": "token-mean",
    f"{LOSS}.loss_mode": "vanilla",
    f"{LOSS}.clip_cov_ratio": 0.0002,
    f"{LOSS}.clip_cov_lb": 1.0,
    f"{LOSS}.clip_cov_ub": 5.0,
    f"{LOSS}.kl_cov_ratio": 0.0002,
    f"{LOSS}.ppo_kl_coef": 0.1,
    f"{ROLLOUT}.temperature": 1.0,
    f"{ROLLOUT}.top_p": 1,
    f"{ROLLOUT}.top_k": -1,
    "algorithm.adv_estimator": "gae",
    "algorithm.norm_adv_by_std_in_grpo": True,
    "algorithm.filter_groups.enable": False,
    "algorithm.filter_groups.metric": "reward",
    "algorithm.use_kl_in_reward": False,
    "algorithm.kl_ctrl.kl_coef": 0.001,
    "algorithm.rollout_correction.rollout_is": None,
    "algorithm.rollout_correction.rollout_is_threshold": 2.0,
    "algorithm.rollout_correction.bypass_mode": False,
    "reward.reward_manager.name": "naive",
    "trainer.rollout_data_dir": None,
    "data.val_files": "~/data/rlhf/gsm8k/test.parquet",
    "trainer.save_freq": -1,
    "trainer.test_freq": -1,
    "trainer.total_epochs": 30,
    "trainer.total_training_steps": None,
}
"""Of verl 0.9, checked against it by a test; ``entropy_coeff`` is left out, because earlier versions had 0.001."""
VERL_FIELDS: Mapping[str, str] = {
    "group": f"{ROLLOUT}.n",
    "prompts": "data.train_batch_size",
    "mini_batch": f"{ACTOR}.ppo_mini_batch_size",
    "micro_batch": f"{ACTOR}.ppo_micro_batch_size_per_gpu",
    "learning_rate": f"{ACTOR}.optim.lr",
    "estimator": "algorithm.adv_estimator",
    "clip_low": f"{ACTOR}.clip_ratio_low",
    "clip_high": f"{ACTOR}.clip_ratio_high",
    "dual_clip": f"{ACTOR}.clip_ratio_c",
    "kl": f"{ACTOR}.kl_loss_coef",
    "kl_given": f"{ACTOR}.kl_loss_coef",
    "entropy_bonus": f"{ACTOR}.entropy_coeff",
    "loss": f"{LOSS}.loss_mode",
    "covariance": f"{LOSS}.loss_mode",
    "aggregation": f"{ACTOR}.loss_agg_mode",
    "temperature": f"{ROLLOUT}.temperature",
    "top_p": f"{ROLLOUT}.top_p",
    "top_k": f"{ROLLOUT}.top_k",
    "repetition_penalty": f"{ROLLOUT}.repetition_penalty",
    "max_completion_length": "data.max_response_length",
    "max_prompt_length": "data.max_prompt_length",
    "context": f"{ROLLOUT}.max_model_len",
    "dynamic_sampling": "algorithm.filter_groups.enable",
    "filter_metric": "algorithm.filter_groups.metric",
    "correct_mismatch": "algorithm.rollout_correction.rollout_is",
    "engine": f"{ROLLOUT}.name",
    "logs_rollouts": "trainer.rollout_data_dir",
    "model": "actor_rollout_ref.model.path",
    "thinking": "data.apply_chat_template_kwargs.enable_thinking",
}
"""Field of TrainerConfig -> verl's setting."""
UPDATE_SETTINGS = ("data.train_batch_size", f"{ACTOR}.ppo_mini_batch_size", f"{ACTOR}.ppo_epochs")
"""Settings that the updates per generation follow from."""
MAX_SECTION_DEPTH = 4
"""Levels of sections that verl's settings are looked for in."""
OWN_LOSS_KEYS: Mapping[str, str] = {
    **{
        f"{ACTOR}.{name}": f"{LOSS}.{name}"
        for name in ("loss_mode", "clip_cov_ratio", "clip_cov_lb", "clip_cov_ub", "kl_cov_ratio", "ppo_kl_coef")
    },
    f"{ACTOR}.k_percent": f"{LOSS}.kl_cov_ratio",
}
"""Keys of the fork that published KL-Cov and Clip-Cov (Entropy-Mechanism-of-RL) -> verl's own since 0.4.1; its
``k_percent`` is in percent."""
COVARIANCE_LOSSES: Mapping[str, Literal["clip-cov", "kl-cov"]] = {"clip_cov": "clip-cov", "kl_cov": "kl-cov"}
"""Losses of verl that select tokens by covariance."""
VERL_CLIPPED_LOSSES: Mapping[str, bool] = {
    **dict.fromkeys(("vanilla", "gspo", "clip_cov", "geo_mean", "cispo", "dppo_tv", "dppo_kl"), True),
    **dict.fromkeys(("kl_cov", "sapo", "gpg", "dro"), False),
}
"""verl's losses -> whether they read clip_ratio_low and clip_ratio_high."""
DUAL_CLIP_LOSSES = ("vanilla", "dppo_tv", "dppo_kl")
"""Losses that read clip_ratio_c."""
LENGTH_PENALTY_SWITCHES = (
    "reward_model.overlong_buffer.enable",
    "reward.reward_kwargs.overlong_buffer_cfg.enable",
    "reward_model.reward_kwargs.overlong_buffer_cfg.enable",
    "custom_reward_function.overlong_buffer.enable",
)
"""Switches of a length penalty in verl's versions and recipes."""
REWARD_MANAGERS = ("reward.reward_manager.name", "reward_model.reward_manager", "reward_manager.name")
"""Settings that name the reward manager in verl's versions; of verl's own only ``dapo`` reads a length penalty."""
VERL_GROUP_ESTIMATORS = frozenset(
    {"grpo", "grpo_passk", "rloo", "reinforce_plus_plus_baseline", "opo", "gpg", "grpo_vectorized", "rloo_vectorized"}
)
"""Estimators of verl that compare the responses of a prompt; their advantage is one number per response."""


KL_LOSS, KL_REWARD = f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward"


SWITCHES = (KL_LOSS, KL_REWARD, *REWARD_MANAGERS, *LENGTH_PENALTY_SWITCHES, "trainer.test_freq")
"""Settings that decide whether others have an effect, and that no field of `TrainerConfig` holds."""
