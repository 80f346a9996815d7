"""slime's launch scripts read, translated and patched: the flags of ``train.py``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breadth.adapters.configs import (
    Settings,
    count_updates,
    find_unread_settings,
    is_expression,
    read_text,
    render_setting,
)
from breadth.adapters.scripts import script_arguments
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import Conflict, TrainerConfig, UnusedSetting

SLIME_DEFAULTS: Mapping[str, Any] = {
    "n_samples_per_prompt": 1,
    "micro_batch_size": 1,
    "use_dynamic_batch_size": False,
    "lr": 1e-6,
    "advantage_estimator": "grpo",
    "eps_clip": 0.2,
    "kl_coef": 0.0,
    "use_kl_loss": False,
    "kl_loss_coef": 0.0,
    "entropy_coef": 0.0,
    "normalize_advantages": False,
    "use_tis": False,
    "use_rollout_logprobs": False,
    "rollout_temperature": 1.0,
    "rollout_top_p": 1.0,
    "rollout_top_k": -1,
    "calculate_per_token_loss": False,
    "partial_rollout": False,
    "eval_interval": None,
    "dynamic_sampling_filter_path": None,
}
"""Of slime 0.3, read from its source, by the flag with underscores."""
SLIME_FIELDS: Mapping[str, str] = {
    "group": "n_samples_per_prompt",
    "prompts": "rollout_batch_size",
    "micro_batch": "micro_batch_size",
    "learning_rate": "lr",
    "estimator": "advantage_estimator",
    "clip_low": "eps_clip",
    "clip_high": "eps_clip_high",
    "dual_clip": "eps_clip_c",
    "sequence_ratio": "advantage_estimator",
    "kl": "kl_loss_coef",
    "kl_given": "kl_loss_coef",
    "entropy_bonus": "entropy_coef",
    "loss": "advantage_estimator",
    "temperature": "rollout_temperature",
    "top_p": "rollout_top_p",
    "top_k": "rollout_top_k",
    "max_completion_length": "rollout_max_response_len",
    "max_prompt_length": "rollout_max_prompt_len",
    "context": "rollout_max_context_len",
    "dynamic_sampling": "dynamic_sampling_filter_path",
    "correct_mismatch": "use_tis",
    "logs_rollouts": "save_debug_rollout_data",
    "model": "hf_checkpoint",
}
"""Field of `TrainerConfig` -> slime's flag, with underscores."""
SAME_VALUE_FIELDS = frozenset(
    {
        "group",
        "prompts",
        "micro_batch",
        "learning_rate",
        "clip_low",
        "clip_high",
        "dual_clip",
        "entropy_bonus",
        "temperature",
        "top_p",
        "max_completion_length",
    }
)
"""Fields whose value is that of the flag."""
UPDATE_FLAGS = ("rollout_batch_size", "n_samples_per_prompt", "global_batch_size", "num_steps_per_rollout")
"""Flags that the updates per generation follow from."""
SLIME_FLAG = re.compile(
    rb"--(rollout-max-response-len|num-rollout|rollout-batch-size|n-samples-per-prompt|num-steps-per-rollout"
    rb"|rollout-function-path|sglang-mem-fraction-static)\b"
)
LAGGING = "asynchronous"
"""Set by `SlimeSettings.read` for a script that starts ``train_async.py``."""
NORMALISED = ("reinforce_plus_plus", "reinforce_plus_plus_baseline")
"""Estimators that slime runs only with --normalize-advantages."""


@dataclass(frozen=True)
class SlimeSettings:
    """Reads the flags of slime's ``train.py`` and of its forks."""

    trainer = "slime"
    """Name in the catalogue."""
    known_values = "write the numbers into the script in place of the variables"
    """How to get a file with every value in it."""

    def recognises(self, path: Path, start: bytes) -> bool:
        """Recognise two flags that only slime has."""
        return path.suffix in (".sh", ".bash", ".txt") and len(set(SLIME_FLAG.findall(start))) >= 2

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the flags of a script, with underscores."""
        lags = re.search(r"\btrain_async\.py\b", read_text(path)) is not None
        return script_arguments(path) | ({LAGGING: True} if lags else {})

    def translate(self, config: Mapping[str, Any]) -> TrainerConfig:
        """Translate into a TrainerConfig; variables set elsewhere are unknown."""
        own = dict(config)
        read = Settings(own, SLIME_DEFAULTS if any(name in own for name in UPDATE_FLAGS) else {})
        estimator = read.text("advantage_estimator")
        upper = "eps_clip_high" if own.get("eps_clip_high") is not None else "eps_clip"
        return TrainerConfig(
            group=read.whole("n_samples_per_prompt"),
            prompts=read.whole("rollout_batch_size"),
            updates=slime_updates(read),
            micro_batch=None if read.switch("use_dynamic_batch_size") else read.whole("micro_batch_size"),
            learning_rate=read.number("lr"),
            estimator="grpo" if estimator in ("gspo", "cispo") else estimator,
            clip_low=read.number("eps_clip"),
            clip_high=read.number(upper),
            clips=None if estimator is None else True,
            dual_clip=read.number("eps_clip_c"),
            sequence_ratio=None if estimator is None else estimator == "gspo",
            kl=slime_kl(read),
            kl_given=read.number("kl_loss_coef") if "kl_loss_coef" in own else None,
            entropy_bonus=read.number("entropy_coef"),
            entropy_adaptive=False,
            entropy_share=1.0,
            loss=estimator if estimator in ("gspo", "cispo") else None,
            covariance="",
            temperature=read.number("rollout_temperature"),
            top_p=read.number("rollout_top_p"),
            top_k=read.top_k("rollout_top_k"),
            max_completion_length=read.whole("rollout_max_response_len"),
            max_prompt_length=read.whole("rollout_max_prompt_len"),
            context=read.whole("rollout_max_context_len"),
            dynamic_sampling=None if not read.defaults else not read.is_off("dynamic_sampling_filter_path"),
            correct_mismatch=read.switch("use_tis"),
            engine="sglang",
            logs_rollouts=None if not read.defaults else "save_debug_rollout_data" in own or "dump_details" in own,
            model=read.text("hf_checkpoint"),
            unused=tuple(slime_unused_flags(read)),
            conflicts=tuple(slime_conflicts(read)),
            unread=slime_unread_flags(own),
            user_settings={
                field: render_slime_flag(name, own[name])
                for field, name in {**SLIME_FIELDS, "updates": "global_batch_size"}.items()
                if name in own
            },
        )

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Render changes as flags."""
        return tuple(dict.fromkeys(line for change in changes for line in render_flags(change, config)))


def render_slime_flag(name: str, value: Any) -> str:
    """Return a flag with its value as in a script."""
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return flag
    values = value if isinstance(value, list) else [value]
    return render_setting(flag, " ".join(map(str, values))).replace("=", " ", 1).replace("'", "")


def slime_updates(read: Settings) -> float | None:
    """Return optimizer steps per generation; None where rollouts lag by more, or log-probs are the sampler's."""
    lags = LAGGING in read.own or read.switch("partial_rollout") or read.switch("use_rollout_logprobs")
    steps = read.number("num_steps_per_rollout")
    prompts, group, batch = (read.number(name) for name in UPDATE_FLAGS[:3])
    if lags or any(is_expression(read.own.get(name)) for name in ("partial_rollout", "use_rollout_logprobs")):
        return None
    if steps:
        return steps
    return count_updates(prompts * group, batch) if prompts and group and batch else None


def slime_kl(read: Settings) -> float | None:
    """Return the KL coefficient, in the loss or in the reward; 0 if both are off."""
    in_loss, in_reward = read.switch("use_kl_loss"), read.number("kl_coef")
    if in_loss:
        return read.number("kl_loss_coef")
    return None if in_loss is None else in_reward


def slime_unused_flags(read: Settings) -> Iterator[UnusedSetting]:
    """Yield flags that have no effect, with the reason."""
    if read.number("kl_loss_coef") and "kl_loss_coef" in read.own and read.switch("use_kl_loss") is False:
        flag = render_slime_flag("kl_loss_coef", read.own["kl_loss_coef"])
        yield UnusedSetting(flag, "--use-kl-loss is not given", intended=True)
    if "eval_prompt_data" in read.own and read.is_off("eval_interval"):
        flag = render_slime_flag("eval_prompt_data", read.own["eval_prompt_data"])
        yield UnusedSetting(flag, "they are not evaluated on while training without --eval-interval", intended=True)
    if "tis_clip" in read.own and read.switch("use_tis") is False:
        yield UnusedSetting(
            render_slime_flag("tis_clip", read.own["tis_clip"]), "--use-tis is not given", intended=True
        )


def slime_conflicts(read: Settings) -> Iterator[Conflict]:
    """Yield flags that slime refuses together, and rollouts that it would drop."""

    def spell(*names: str) -> str:
        return ", ".join(render_slime_flag(name, read.own[name]) for name in names if name in read.own)

    since = "slime 0.3"
    if read.number("kl_coef") and read.number("kl_loss_coef"):
        yield Conflict(spell("kl_coef", "kl_loss_coef"), "slime takes one of the two", "refused", since)
    if read.text("advantage_estimator") in NORMALISED and read.switch("normalize_advantages") is False:
        why = "this estimator needs --normalize-advantages"
        yield Conflict(spell("advantage_estimator"), why, "refused", since)
    if "advantage_estimator" in read.own and read.text("advantage_estimator") == "cispo":
        low = read.number("eps_clip")
        if low is not None and low < 1:
            why = (
                f"CISPO caps the weight from above only; this also holds it above {1 - low:g}; slime's authors set 1.0"
            )
            yield Conflict(spell("advantage_estimator", "eps_clip"), why, consequence="slight")
    prompts, group, batch = (read.whole(name) for name in UPDATE_FLAGS[:3])
    if not prompts or not group or not batch or read.own.get("num_steps_per_rollout") is not None:
        return
    rollouts, spelled = prompts * group, spell(*UPDATE_FLAGS[:3])
    if batch > rollouts:
        yield Conflict(spelled, f"a batch of {batch} is larger than the {rollouts} rollouts", "refused", since)
    elif rollouts % batch:
        why = f"{rollouts} rollouts are no whole number of batches of {batch}: {rollouts % batch} of them are dropped"
        yield Conflict(spelled, why, consequence="wrong")


def slime_unread_flags(own: Mapping[str, Any]) -> dict[str, str]:
    """Return the flags whose values are variables set elsewhere."""
    fields = {field: name for field, name in SLIME_FIELDS.items() if field not in ("model", "logs_rollouts")}
    found = find_unread_settings(own, fields, ["use_kl_loss", "eval_interval"])
    spelled = {field: fields.get(field, field) for field in found}
    steps = [name for name in UPDATE_FLAGS if is_expression(own.get(name))]
    spelled |= {"updates": steps[0]} if steps else {}
    return {field: render_slime_flag(name, own[name]) for field, name in spelled.items()}


def render_flags(change: Change, config: TrainerConfig) -> tuple[str, ...]:
    """Return the flags for one change."""
    value = f"{change.value:g}" if isinstance(change.value, float) else str(change.value)
    filter_path = "slime.rollout.filter_hub.dynamic_sampling_filters.check_reward_nonzero_std"
    special: Mapping[str, Callable[[], tuple[str, ...]]] = {
        "kl": lambda: ("--use-kl-loss", f"--kl-loss-coef {value}", "--kl-loss-type low_var_kl"),
        "updates": lambda: (update_flag(int(change.value), config),),
        "dynamic_sampling": lambda: (f"--dynamic-sampling-filter-path {filter_path}",) if change.value else (),
        "correct_mismatch": lambda: ("--use-tis",) if change.value else (),
        "top_k": lambda: (f"--rollout-top-k {change.value or -1}",),
        "sequence_ratio": lambda: (f"--advantage-estimator {'gspo' if change.value else 'grpo'}",),
        "logs_rollouts": lambda: ("--dump-details rollouts",) if change.value else (),
    }
    if change.setting in special:
        return special[change.setting]()
    flag = SLIME_FIELDS.get(change.setting, "").replace("_", "-")
    return (f"--{flag} {value}",) if change.setting in SAME_VALUE_FIELDS else ()


def update_flag(wanted: int, config: TrainerConfig) -> str:
    """Take more optimizer steps of one generation."""
    if not config.prompts or not config.group:
        return f"--num-steps-per-rollout {wanted}"
    return f"--global-batch-size {max(1, config.prompts * config.group // max(1, wanted))}"


SETTINGS = SlimeSettings()
"""The dialect of the catalogue."""
