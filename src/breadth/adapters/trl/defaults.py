"""What TRL takes for settings that are left out, and under which names ours go there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TELLING = frozenset({"num_generations", "max_completion_length", "epsilon_high", "loss_type", "scale_rewards", "num_iterations"})
"""Settings that GRPO of TRL has and others seldom do; two of them make a table TRL's."""
DEFAULTS: Mapping[str, Any] = {
    "num_generations": 8,
    "num_iterations": 1,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "learning_rate": 1e-6,
    "epsilon": 0.2,
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "entropy_target": 0.2,
    "entropy_coef_min": 0.0,
    "entropy_coef_max": 1.0,
    "entropy_coef_delta": 0.005,
    "top_entropy_quantile": 1.0,
    "importance_sampling_level": "token",
    "loss_type": "dapo",
    "sapo_temperature_neg": 1.05,
    "sapo_temperature_pos": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "mask_truncated_completions": False,
    "sync_ref_model": False,
    "ref_model_mixup_alpha": 0.6,
    "ref_model_sync_steps": 512,
    "use_vllm": False,
    "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "sequence_mask",
    "vllm_importance_sampling_clip_max": 3.0,
    "log_completions": False,
}
"""Of trl 1.16, checked against it by a test; beta, max_completion_length and top_k are left out: earlier versions had them otherwise."""
OLDER = frozenset({"max_prompt_length", "vllm_device", "vllm_guided_decoding_regex", "use_liger_loss", "vllm_dtype"})
"""Settings that trl 1.16 no longer has: what sets one is for an earlier version."""
CHANGED = frozenset({"loss_type", "temperature", "vllm_importance_sampling_correction", "vllm_importance_sampling_mode"})
"""Defaults that earlier versions had otherwise."""
SIBLINGS = frozenset({"adam_epsilon", "epsilon_high", "num_generations_eval", "log_completions_hub_repo"})
"""Other settings of TRL's in which the name of one of these stands."""
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "per_device_train_batch_size": ("batch_size", "train_batch_size", "micro_batch_size", "per_device_batch_size"),
    "gradient_accumulation_steps": ("grad_accum", "grad_accum_steps", "gradient_accumulation", "accumulation_steps"),
    "num_generations": ("group_size", "n_generations"),
    "learning_rate": ("lr",),
}
"""What scripts with tables of their own call them."""
FIELDS: Mapping[str, str] = {
    "group": "num_generations",
    "prompts": "generation_batch_size",
    "learning_rate": "learning_rate",
    "accumulation": "gradient_accumulation_steps",
    "micro_batch": "per_device_train_batch_size",
    "clip_low": "epsilon",
    "clip_high": "epsilon_high",
    "dual_clip": "delta",
    "sequence_ratio": "importance_sampling_level",
    "kl": "beta",
    "kl_given": "beta",
    "entropy_bonus": "entropy_coef",
    "entropy_adaptive": "use_adaptive_entropy",
    "entropy_target": "entropy_target",
    "entropy_share": "top_entropy_quantile",
    "loss": "loss_type",
    "aggregation": "loss_type",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "longest": "max_completion_length",
    "longest_prompt": "max_prompt_length",
    "context": "vllm_max_model_length",
    "mask_truncated": "mask_truncated_completions",
    "length_penalty": "reward_funcs",
    "engine": "use_vllm",
    "correct_mismatch": "vllm_importance_sampling_correction",
    "logs_rollouts": "log_completions",
}
"""Our knob -> the field of GRPOConfig."""
