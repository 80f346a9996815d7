"""OpenRLHF's launch scripts read, translated and patched: dotted flags since 0.11, and the older ones without dots."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breadth.adapters.configs import Settings, count_updates, find_unread_settings, is_expression, render_setting
from breadth.adapters.scripts import script_arguments
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig, UnusedSetting

OLDER_FLAGS: Mapping[str, str] = {
    "n_samples_per_prompt": "rollout.n_samples_per_prompt",
    "rollout_batch_size": "rollout.batch_size",
    "train_batch_size": "train.batch_size",
    "micro_train_batch_size": "train.micro_batch_size",
    "max_epochs": "train.max_epochs",
    "actor_learning_rate": "actor.adam.lr",
    "advantage_estimator": "algo.advantage.estimator",
    "eps_clip": "actor.eps_clip",
    "eps_clip_low_high": "actor.eps_clip_low_high",
    "dual_clip": "actor.dual_clip",
    "init_kl_coef": "algo.kl.init_coef",
    "entropy_loss_coef": "actor.entropy_coef",
    "policy_loss_type": "actor.policy_loss_type",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "max_new_tokens": "rollout.max_new_tokens",
    "generate_max_len": "rollout.max_new_tokens",
    "dynamic_filtering": "algo.dynamic_filtering_enable",
    "dynamic_filtering_reward_range": "algo.dynamic_filtering_range",
    "enable_vllm_is_correction": "algo.advantage.is_correction_enable",
    "overlong_buffer_len": "reward.overlong_buffer_len",
    "use_dynamic_batch": "train.dynamic_batch_enable",
    "async_train": "train.async_enable",
    "eval_steps": "eval.steps",
    "eval_dataset": "eval.dataset",
    "pretrain": "actor.model_name_or_path",
}
"""Flag before 0.11 -> its present name."""
DEFAULTS: Mapping[str, Any] = {
    "rollout.n_samples_per_prompt": 1,
    "rollout.batch_size": 1024,
    "train.batch_size": 128,
    "train.micro_batch_size": 1,
    "train.max_epochs": 1,
    "train.async_enable": False,
    "actor.adam.lr": 1e-6,
    "algo.advantage.estimator": "gae",
    "actor.eps_clip": 0.2,
    "actor.policy_loss_type": "ppo",
    "algo.kl.init_coef": 0.01,
    "rollout.temperature": 1.0,
    "rollout.top_p": 1.0,
    "algo.dynamic_filtering_enable": False,
    "algo.advantage.is_correction_enable": False,
    "eval.steps": -1,
}
"""Of OpenRLHF 0.11, read from its source; the same before."""
OPENRLHF_FIELDS: Mapping[str, str] = {
    "group": "rollout.n_samples_per_prompt",
    "prompts": "rollout.batch_size",
    "micro_batch": "train.micro_batch_size",
    "learning_rate": "actor.adam.lr",
    "estimator": "algo.advantage.estimator",
    "clip_low": "actor.eps_clip_low_high",
    "clip_high": "actor.eps_clip_low_high",
    "dual_clip": "actor.dual_clip",
    "kl": "algo.kl.init_coef",
    "kl_given": "algo.kl.init_coef",
    "entropy_bonus": "actor.entropy_coef",
    "loss": "actor.policy_loss_type",
    "sequence_ratio": "actor.policy_loss_type",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "max_completion_length": "rollout.max_new_tokens",
    "dynamic_sampling": "algo.dynamic_filtering_enable",
    "correct_mismatch": "algo.advantage.is_correction_enable",
    "length_penalty": "reward.overlong_buffer_len",
    "model": "actor.model_name_or_path",
}
"""Field of `TrainerConfig` -> OpenRLHF's flag."""
UPDATE_FLAGS = ("rollout.batch_size", "rollout.n_samples_per_prompt", "train.batch_size", "train.max_epochs")
"""Flags that the updates per generation follow from."""
SWITCH_FLAGS = frozenset({"dynamic_sampling", "correct_mismatch"})
"""Fields that are flags without a value."""
DIRECT_FLAGS = (
    frozenset(OPENRLHF_FIELDS)
    - SWITCH_FLAGS
    - {"clip_low", "clip_high", "kl_given", "estimator", "sequence_ratio", "length_penalty", "model"}
)
"""Fields whose value is that of the flag."""
OPENRLHF_FLAG = re.compile(
    rb"--(rollout\.n_samples_per_prompt|n_samples_per_prompt|algo\.kl\.init_coef|init_kl_coef|algo\.advantage\.estimator)\b"
)


@dataclass(frozen=True)
class OpenRlhfSettings:
    """Reads the flags of ``openrlhf.cli.train_ppo_ray``."""

    trainer = "openrlhf"
    """Name in the catalogue."""

    def recognises(self, path: Path, start: bytes) -> bool:
        """Recognise flags that only OpenRLHF has."""
        return path.suffix in (".sh", ".bash", ".txt") and OPENRLHF_FLAG.search(start) is not None

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the flags of a script, as spelled there."""
        return script_arguments(path)

    def translate(self, config: Mapping[str, Any]) -> TrainerConfig:
        """Translate the flags, older ones by their present names."""
        names = {OLDER_FLAGS.get(name, name): name for name in config}
        own = {name: config[spelling] for name, spelling in names.items()}
        read = Settings(own, DEFAULTS if any(name in own for name in OPENRLHF_FIELDS.values()) else {})
        low, high = clip_range(read)
        loss = read.text("actor.policy_loss_type")
        return TrainerConfig(
            group=read.whole("rollout.n_samples_per_prompt"),
            prompts=read.whole("rollout.batch_size"),
            updates=optimizer_steps(read),
            micro_batch=None if read.switch("train.dynamic_batch_enable") else read.whole("train.micro_batch_size"),
            learning_rate=read.number("actor.adam.lr"),
            estimator=read.text("algo.advantage.estimator"),
            clip_low=low,
            clip_high=high,
            clips=None if loss is None else True,
            dual_clip=read.number("actor.dual_clip"),
            sequence_ratio=None if loss is None else loss == "gspo",
            kl=read.number("algo.kl.init_coef"),
            kl_given=read.number("algo.kl.init_coef") if "algo.kl.init_coef" in own else None,
            entropy_bonus=read.number("actor.entropy_coef"),
            entropy_adaptive=False,
            entropy_share=1.0,
            loss=loss,
            covariance="",
            temperature=read.number("rollout.temperature"),
            top_p=read.number("rollout.top_p"),
            max_completion_length=read.whole("rollout.max_new_tokens"),
            length_penalty=True if read.number("reward.overlong_buffer_len") else None,
            shaped_reward=True if read.number("reward.overlong_buffer_len") else None,
            dynamic_sampling=read.switch("algo.dynamic_filtering_enable"),
            filter_metric="score",
            correct_mismatch=read.switch("algo.advantage.is_correction_enable"),
            engine="vllm",
            logs_rollouts=False,
            model=read.text("actor.model_name_or_path"),
            unused=tuple(unused_settings(read)),
            unread={field: render_flag(names[name], own[name]) for field, name in unread_flags(own).items()},
            user_settings={
                field: render_flag(names[name], own[name]) for field, name in OPENRLHF_FIELDS.items() if name in own
            },
        )

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Render changes as flags, in the spelling of the user's script."""
        older = bool(config.user_settings) and not any(
            "." in setting.partition(" ")[0] for setting in config.user_settings.values()
        )
        lines = dict.fromkeys(line for change in changes for line in flags_for(change, config, changes))
        back = {new: old for old, new in OLDER_FLAGS.items() if old != "generate_max_len"}
        return tuple(
            f"--{back.get(name, name) if older else name}{value}"
            for name, value in (line.split("|", 1) for line in lines)
        )


def unread_flags(own: Mapping[str, Any]) -> dict[str, str]:
    """Return our name, or OpenRLHF's, of the flags whose values are expressions -> the flag."""
    fields = {field: name for field, name in OPENRLHF_FIELDS.items() if field != "model"}
    found = {field: fields.get(field, field) for field in find_unread_settings(own, fields, ["eval.steps"])}
    steps = [name for name in UPDATE_FLAGS if is_expression(own.get(name))]
    return found | ({"updates": steps[0]} if steps else {})


def render_flag(name: str, value: Any) -> str:
    """Return a flag with its value as in a script."""
    if value is True:
        return f"--{name}"
    values = value if isinstance(value, list) else [value]
    return render_setting(f"--{name}", " ".join(map(str, values))).replace("=", " ", 1).replace("'", "")


def clip_range(read: Settings) -> tuple[float | None, float | None]:
    """Return the lower and upper clip range."""
    both = read.own.get("actor.eps_clip_low_high")
    if both is None:
        return read.number("actor.eps_clip"), read.number("actor.eps_clip")
    pair = Settings(dict(zip(("low", "high"), both if isinstance(both, list) else [both], strict=False)))
    return pair.number("low"), pair.number("high")


def optimizer_steps(read: Settings) -> float | None:
    """Return optimizer steps per generation; None for asynchronous rollouts, which lag by more than updates."""
    prompts, group, batch, epochs = (read.number(name) for name in UPDATE_FLAGS)
    if not prompts or not group or not batch or not epochs or read.switch("train.async_enable") is not False:
        return None
    return count_updates(prompts * group, batch, epochs)


def unused_settings(read: Settings) -> Iterator[UnusedSetting]:
    """Yield flags that have no effect, with the reason."""
    if "actor.eps_clip" in read.own and "actor.eps_clip_low_high" in read.own:
        yield UnusedSetting(
            render_flag("actor.eps_clip", read.own["actor.eps_clip"]),
            "eps_clip_low_high takes its place",
            intended=False,
        )
    every = read.number("eval.steps")
    if read.own.get("eval.dataset") not in (None, "") and every is not None and every < 0:
        yield UnusedSetting(
            render_flag("eval.dataset", read.own["eval.dataset"]),
            "nothing is evaluated while training: eval.steps is off"
            + ("" if "eval.steps" in read.own else " unless it is set"),
            intended="eval.steps" not in read.own,
        )
    if "algo.dynamic_filtering_range" in read.own and read.switch("algo.dynamic_filtering_enable") is False:
        value = read.own["algo.dynamic_filtering_range"]
        yield UnusedSetting(
            render_flag("algo.dynamic_filtering_range", value), "dynamic filtering is not switched on", intended=True
        )


def flags_for(change: Change, config: TrainerConfig, together: Sequence[Change]) -> list[str]:
    """Return the flags for a change as ``name| value``."""
    if change.setting in ("clip_low", "clip_high"):
        wanted = {other.setting: other.value for other in together}
        low = wanted.get("clip_low", 0.2 if config.clip_low is None else config.clip_low)
        high = wanted.get("clip_high", low if config.clip_high is None else config.clip_high)
        return [f"actor.eps_clip_low_high| {low:g} {high:g}"]
    if change.setting == "updates":
        if not config.prompts or not config.group:
            return [f"train.max_epochs| {int(change.value)}"]
        return [f"train.batch_size| {max(1, config.prompts * config.group // max(1, int(change.value)))}"]
    if change.setting in SWITCH_FLAGS:
        return [f"{OPENRLHF_FIELDS[change.setting]}|"] if change.value else []
    value = f"{change.value:g}" if isinstance(change.value, float) else str(change.value)
    return [f"{OPENRLHF_FIELDS[change.setting]}| {value}"] if change.setting in DIRECT_FLAGS else []


SETTINGS = OpenRlhfSettings()
"""The dialect of the catalogue."""
