"""NeMo-RL's GRPO configuration read, translated and patched: its YAML, and overrides in Hydra's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breadth.adapters.configs import (
    Settings,
    count_updates,
    duplicate_conflicts,
    find_unread_settings,
    flatten_table,
    read_table,
    render_setting,
    resolve_references,
)
from breadth.base.errors import BrokenFileError
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig

CAP, CONTEXT = "policy.generation.max_new_tokens", "policy.max_total_sequence_length"
NEMO_RL_FIELDS: Mapping[str, str] = {
    "group": "grpo.num_generations_per_prompt",
    "prompts": "grpo.num_prompts_per_step",
    "micro_batch": "policy.train_micro_batch_size",
    "learning_rate": "policy.optimizer.kwargs.lr",
    "estimator": "grpo.adv_estimator.name",
    "clip_low": "loss_fn.ratio_clip_min",
    "clip_high": "loss_fn.ratio_clip_max",
    "dual_clip": "loss_fn.ratio_clip_c",
    "sequence_ratio": "loss_fn.sequence_level_importance_ratios",
    "kl": "loss_fn.reference_policy_kl_penalty",
    "kl_given": "loss_fn.reference_policy_kl_penalty",
    "temperature": "policy.generation.temperature",
    "top_p": "policy.generation.top_p",
    "top_k": "policy.generation.top_k",
    "max_completion_length": CAP,
    "mask_truncated": "grpo.overlong_filtering",
    "length_penalty": "grpo.reward_shaping.enabled",
    "dynamic_sampling": "grpo.use_dynamic_sampling",
    "correct_mismatch": "loss_fn.use_importance_sampling_correction",
    "engine": "policy.generation.backend",
    "model": "policy.model_name",
}
"""Field of `TrainerConfig` -> NeMo-RL's setting."""
DIRECT_FIELDS = frozenset(NEMO_RL_FIELDS) - {
    "kl_given",
    "estimator",
    "length_penalty",
    "engine",
    "max_completion_length",
    "model",
}
"""Fields whose value is that of the setting."""


@dataclass(frozen=True)
class NemoRlSettings:
    """Reads the YAML of ``examples/run_grpo.py``, not the file that a recipe names under ``defaults``."""

    trainer = "nemo-rl"
    """Name in the catalogue."""

    def recognises(self, path: Path, start: bytes) -> bool:
        """Recognise settings that only NeMo-RL has."""
        return path.suffix in (".yaml", ".yml") and (
            b"num_prompts_per_step" in start or b"num_generations_per_prompt" in start
        )

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the settings of a file by dotted path, with references resolved."""
        found = read_table(path, exponents=True)
        if not isinstance(found, Mapping):
            raise BrokenFileError(path, "holds no table of settings.", "Give NeMo-RL's YAML.")
        return resolve_references(dict(flatten_table(found)))

    def translate(self, config: Mapping[str, Any]) -> TrainerConfig:
        """Translate what is set; no defaults are assumed, since NeMo-RL keeps them in its YAML, not in its code."""
        own = resolve_references(dict(flatten_table(config)))
        read = Settings(own)
        shaped = read.switch("grpo.reward_shaping.enabled")
        packed = read.switch("policy.sequence_packing.enabled") or read.switch("policy.dynamic_batching.enabled")
        return TrainerConfig(
            group=read.whole(NEMO_RL_FIELDS["group"]),
            prompts=read.whole(NEMO_RL_FIELDS["prompts"]),
            updates=updates_per_generation(read),
            micro_batch=None if packed else read.whole(NEMO_RL_FIELDS["micro_batch"]),
            learning_rate=read.number(NEMO_RL_FIELDS["learning_rate"]),
            estimator=read.text(NEMO_RL_FIELDS["estimator"]),
            clip_low=read.number(NEMO_RL_FIELDS["clip_low"]),
            clip_high=read.number(NEMO_RL_FIELDS["clip_high"]),
            clips=(
                None
                if read.switch("loss_fn.disable_ppo_ratio") is None
                else not read.switch("loss_fn.disable_ppo_ratio")
            ),
            dual_clip=read.number(NEMO_RL_FIELDS["dual_clip"]),
            sequence_ratio=read.switch(NEMO_RL_FIELDS["sequence_ratio"]),
            kl=read.number(NEMO_RL_FIELDS["kl"]),
            kl_given=read.number(NEMO_RL_FIELDS["kl_given"]),
            loss="cispo" if read.switch("loss_fn.use_cispo") else None,
            covariance="",
            temperature=read.number(NEMO_RL_FIELDS["temperature"]),
            top_p=read.number(NEMO_RL_FIELDS["top_p"]),
            top_k=read.top_k(NEMO_RL_FIELDS["top_k"]),
            max_completion_length=read.whole(CAP),
            context=read.whole(CONTEXT),
            mask_truncated=read.switch(NEMO_RL_FIELDS["mask_truncated"]),
            length_penalty=shaped,
            dynamic_sampling=read.switch(NEMO_RL_FIELDS["dynamic_sampling"]),
            shaped_reward=True if shaped else None,
            correct_mismatch=read.switch(NEMO_RL_FIELDS["correct_mismatch"]),
            engine=read.text(NEMO_RL_FIELDS["engine"]),
            logs_rollouts=True,
            model=read.text(NEMO_RL_FIELDS["model"]),
            conflicts=tuple(duplicate_conflicts(own, "OmegaConf")),
            unread={
                name: text
                for name, text in find_unread_settings(own, NEMO_RL_FIELDS).items()
                if name not in ("model", "engine")
            },
            user_settings={
                field: render_setting(name, own[name]) for field, name in NEMO_RL_FIELDS.items() if name in own
            },
        )

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Render changes as Hydra overrides."""
        return tuple(dict.fromkeys(line for change in changes for line in render_overrides(change, config)))


def updates_per_generation(read: Settings) -> float | None:
    """Return optimizer steps per generation; None for asynchronous rollouts, which lag by more than updates."""
    prompts, group = read.number(NEMO_RL_FIELDS["prompts"]), read.number(NEMO_RL_FIELDS["group"])
    batch = read.number("policy.train_global_batch_size")
    if not prompts or not group or not batch or read.switch("grpo.async_grpo.enabled"):
        return None
    return count_updates(prompts * group, batch)


def render_overrides(change: Change, config: TrainerConfig) -> tuple[str, ...]:
    """Return the overrides for one change."""
    if change.setting == "updates":
        if not config.prompts or not config.group:
            return ()
        return (f"policy.train_global_batch_size={max(1, config.prompts * config.group // max(1, int(change.value)))}",)
    if change.setting == "max_completion_length":
        return (f"{CAP}={change.value}", f"{CONTEXT}={change.value + (config.max_prompt_length or 0)}")
    value = f"{change.value:g}" if isinstance(change.value, float) else str(change.value)
    return (f"{NEMO_RL_FIELDS[change.setting]}={value}",) if change.setting in DIRECT_FIELDS else ()


SETTINGS = NemoRlSettings()
"""The dialect of the catalogue."""
