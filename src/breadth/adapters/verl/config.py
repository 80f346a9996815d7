"""verl's configuration: its defaults, its translation into a TrainerConfig, and what in it is unused or in conflict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from breadth.adapters.configs import (
    Settings,
    count_updates,
    duplicate_conflicts,
    flatten_table,
    is_expression,
    load_yaml,
    never_evaluated,
    read_table,
    render_setting,
    unread_settings,
)
from breadth.adapters.scripts import script_arguments
from breadth.base.errors import BrokenFileError
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import Conflict, TrainerConfig, UnusedSetting

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
    "trainer.save_freq": -1,
    "trainer.test_freq": -1,
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


def verl_unused_settings(read: Settings) -> Iterator[UnusedSetting]:
    """Yield settings of the user that verl does not read."""
    yield from _unused_without(read, f"{ACTOR}.kl_loss_coef", KL_LOSS, KL_REWARD)
    yield from _unused_without(read, "algorithm.kl_ctrl.kl_coef", KL_REWARD, KL_LOSS)
    yield from unread_clip_ratio(read)
    yield from _unused_by_loss(read)
    yield from never_evaluated(read, "data.val_files", "trainer.test_freq")
    threshold = "algorithm.rollout_correction.rollout_is_threshold"
    if threshold in read.own and read.is_off("algorithm.rollout_correction.rollout_is"):
        named = "algorithm.rollout_correction.rollout_is" in read.own
        yield UnusedSetting(
            read.describe(threshold), "rollout_is sets no weights that it could truncate", intended=not named
        )
    penalty = next((name for name in LENGTH_PENALTY_SWITCHES[:3] if read.switch(name)), None)
    manager = reward_manager(read)
    if penalty is not None and manager == "naive":
        yield UnusedSetting(
            read.describe(penalty), "the reward manager naive does not read it; dapo does", intended=True
        )


def verl_never_saved(read: Settings) -> Iterator[Conflict]:
    """Yield a run that saves no checkpoint, not even the last; verl's default."""
    name = "trainer.save_freq"
    every, planned = read.number(name), ("trainer.total_epochs", "trainer.total_training_steps")
    if every is None or every > 0 or not any(setting in read.own for setting in planned):
        return
    why = "no checkpoint is saved, not even the last: a collapsed run has nothing to go back to"
    spelled = read.describe(name, *planned)
    if name not in read.own:
        spelled = f"{spelled}; {name} left at its default, -1"
    yield Conflict(spelled, why, consequence="slight" if name in read.own else "wrong")


def reward_manager(read: Settings) -> str | None:
    """Return the name of the reward manager; None if unknown."""
    named = [read.text(name) for name in REWARD_MANAGERS if name in read.own]
    return named[0] if named else read.text(REWARD_MANAGERS[0])


def _unused_without(read: Settings, name: str, switch: str, other: str) -> Iterator[UnusedSetting]:
    """Yield a coefficient whose switch is off; a left-over if the file turns it off, or uses the other switch."""
    if name in read.own and read.number(name) and read.switch(switch) is False:
        why = f"{switch.rpartition('.')[2]} is off" + ("" if switch in read.own else " unless it is set")
        yield UnusedSetting(read.describe(name), why, intended=switch not in read.own and not read.switch(other))


def unread_clip_ratio(read: Settings) -> Iterator[UnusedSetting]:
    """Yield clip_ratio if it differs from clip_ratio_low and clip_ratio_high, which the losses read."""
    both = f"{ACTOR}.clip_ratio"
    value = read.number(both)
    if both not in read.own or value is None:
        return
    low, high = read.number(f"{both}_low"), read.number(f"{both}_high")
    if low is not None and high is not None and value not in (low, high):
        why = f"verl's losses read clip_ratio_low and clip_ratio_high, which are {low:g} and {high:g} here"
        yield UnusedSetting(
            read.describe(both), why, intended=f"{both}_low" not in read.own and f"{both}_high" not in read.own
        )


def _unused_by_loss(read: Settings) -> Iterator[UnusedSetting]:
    """Yield settings that the loss does not read."""
    mode = read.text(f"{LOSS}.loss_mode")
    if mode is None or mode not in VERL_CLIPPED_LOSSES:
        return
    unread = {
        f"{ACTOR}.clip_ratio_low": not VERL_CLIPPED_LOSSES[mode],
        f"{ACTOR}.clip_ratio_high": not VERL_CLIPPED_LOSSES[mode],
        f"{ACTOR}.clip_ratio_c": mode not in DUAL_CLIP_LOSSES,
        f"{LOSS}.clip_cov_ratio": mode != "clip_cov",
        f"{LOSS}.clip_cov_lb": mode != "clip_cov",
        f"{LOSS}.clip_cov_ub": mode != "clip_cov",
        f"{LOSS}.kl_cov_ratio": mode != "kl_cov",
        f"{LOSS}.ppo_kl_coef": mode != "kl_cov",
    }
    for name, unused in unread.items():
        if unused and name in read.own:
            yield UnusedSetting(
                read.describe(name), f"loss_mode={mode} does not read it", intended=f"{LOSS}.loss_mode" not in read.own
            )


def verl_conflicts(read: Settings) -> Iterator[Conflict]:
    """Yield settings that verl refuses together, or that its documentation advises against."""
    if read.switch(KL_LOSS) and read.switch(KL_REWARD):
        yield Conflict(
            read.describe(KL_LOSS, KL_REWARD),
            "the KL to the reference is penalised twice, in the loss and in the reward",
            consequence="slight",
        )
    yield from batch_conflicts(read)
    yield from verl_never_saved(read)
    averaged, scaled = f"{ACTOR}.loss_agg_mode", "algorithm.norm_adv_by_std_in_grpo"
    if (
        read.text(averaged) == "seq-mean-token-sum-norm"
        and read.switch(scaled)
        and read.text("algorithm.adv_estimator") == "grpo"
    ):
        why = (
            "Dr. GRPO takes both the length and the spread of rewards out of the average; the spread is still"
            " divided by"
        )
        yield Conflict(
            read.describe(averaged, scaled), f"{why} without {scaled}=False (arXiv 2503.20783)", consequence="slight"
        )


def batch_conflicts(read: Settings) -> Iterator[Conflict]:
    """Yield batch sizes that do not fit together."""
    whole, part = "data.train_batch_size", f"{ACTOR}.ppo_mini_batch_size"
    prompts, mini, group = read.whole(whole), read.whole(part), read.whole(f"{ROLLOUT}.n")
    dynamic = read.switch(f"{ACTOR}.use_dynamic_bsz")
    if prompts and mini and whole in read.own:
        yield from _mini_batch_conflicts(
            read.describe(whole, part), prompts, mini, dynamic=dynamic, given=part in read.own
        )
    per_node, nodes = read.whole("trainer.n_gpus_per_node"), read.whole("trainer.nnodes")
    gpus = per_node * nodes if per_node and nodes else None
    # with Megatron verl counts data-parallel workers, not devices
    counted = dynamic is False and whole in read.own and not uses_megatron(read)
    if counted and prompts and group and gpus and prompts * group % gpus:
        spelled = read.describe(whole, f"{ROLLOUT}.n", "trainer.n_gpus_per_node", "trainer.nnodes")
        yield Conflict(
            spelled,
            f"{prompts * group} rollouts cannot be distributed evenly over {gpus} devices",
            consequence="refused",
            since="verl 0.2",
        )


def uses_megatron(read: Settings) -> bool:
    """Say whether Megatron trains the actor."""
    named = [read.own.get(BASE_CONFIG), read.own.get(f"{ACTOR}.strategy"), read.own.get("model_engine")]
    return any("megatron" in str(name) for name in named) or any(".megatron." in name for name in read.own)


def _mini_batch_conflicts(
    spelled: str, prompts: int, mini: int, *, dynamic: bool | None, given: bool
) -> Iterator[Conflict]:
    """Compare mini-batch and generation; with dynamic batches verl does not refuse a larger one, but pads."""
    if mini > prompts:
        why = (
            f"a mini-batch of {mini} prompts{'' if given else ', the default,'} is larger than the {prompts} of a"
            " generation"
        )
        consequence: Literal["refused", "wrong", "slight"] = "wrong" if given else "slight"
        yield Conflict(spelled, why, consequence="refused" if dynamic is False else consequence, since="verl 0.3")
    elif given and prompts % mini:
        why = f"{prompts} prompts are no whole number of mini-batches of {mini}: the last one is short or padded"
        yield Conflict(spelled, why, consequence="slight")


@dataclass(frozen=True)
class VerlSettings:
    """Reads verl's YAML, the ``overrides.yaml`` that Hydra keeps, and launch scripts."""

    trainer = "verl"
    """Name in the catalogue."""
    known_values = "Hydra saves every value as outputs/DATE/TIME/.hydra/config.yaml where the run starts: name that file"
    """How to get a file with every value in it."""

    def recognises(self, path: Path, start: bytes) -> bool:
        """Recognise the table that only verl has; a log that prints it is not a configuration."""
        return VERL_TABLE.search(start) is not None and path.suffix in (".yaml", ".yml", ".json", ".sh", ".bash", ".txt")

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the settings of a file by dotted path, and the base configuration if the file names one."""
        if path.suffix in (".yaml", ".yml", ".json"):
            return read_settings_table(path)
        return {
            name: value
            for name, value in script_arguments(path).items()
            if name.startswith(SETTING_PREFIXES) or name == BASE_CONFIG
        }

    def translate(self, config: Mapping[str, Any]) -> TrainerConfig:
        """Translate into a TrainerConfig; expressions are unknown."""
        original = dict(flatten_table(config))
        everything = with_present_names(original)
        read = Settings(everything, VERL_DEFAULTS if has_known_base(everything) else {})
        given = Settings(nondefault_settings(everything), read.defaults)
        mode = read.text(f"{LOSS}.loss_mode")
        penalised = has_length_penalty(read)
        found = TrainerConfig(
            group=read.whole(f"{ROLLOUT}.n"),
            prompts=read.whole("data.train_batch_size"),
            mini_batch=read.whole(f"{ACTOR}.ppo_mini_batch_size"),
            updates=verl_updates(read),
            micro_batch=(
                None if read.switch(f"{ACTOR}.use_dynamic_bsz") else read.whole(f"{ACTOR}.ppo_micro_batch_size_per_gpu")
            ),
            learning_rate=read.number(f"{ACTOR}.optim.lr"),
            estimator=read.text("algorithm.adv_estimator"),
            clip_low=clip_bound(read, "low"),
            clip_high=clip_bound(read, "high"),
            clips=VERL_CLIPPED_LOSSES.get(mode) if mode is not None else None,
            dual_clip=read.number(f"{ACTOR}.clip_ratio_c"),
            sequence_ratio=None if mode not in VERL_CLIPPED_LOSSES else mode == "gspo",
            kl=kl_coefficient(read),
            kl_given=given.number(f"{ACTOR}.kl_loss_coef") if f"{ACTOR}.kl_loss_coef" in given.own else None,
            entropy_bonus=read.number(f"{ACTOR}.entropy_coeff"),
            entropy_adaptive=False,
            entropy_share=1.0,
            loss=read.text(f"{LOSS}.chain") if mode == "breadth" else mode,
            covariance=COVARIANCE_LOSSES.get(mode, "") if mode is not None else None,
            covariance_share=read.number(f"{LOSS}.{mode}_ratio") if mode in COVARIANCE_LOSSES else None,
            aggregation=read.text(f"{ACTOR}.loss_agg_mode"),
            temperature=read.number(f"{ROLLOUT}.temperature"),
            top_p=read.number(f"{ROLLOUT}.top_p"),
            top_k=read.top_k(f"{ROLLOUT}.top_k"),
            repetition_penalty=read.number(f"{ROLLOUT}.repetition_penalty"),
            max_completion_length=read.whole("data.max_response_length"),
            max_prompt_length=read.whole("data.max_prompt_length"),
            context=read.whole(f"{ROLLOUT}.max_model_len"),
            mask_truncated=False,
            length_penalty=penalised,
            dynamic_sampling=read.switch("algorithm.filter_groups.enable"),
            filter_metric=read.text("algorithm.filter_groups.metric"),
            shaped_reward=penalised or None,
            correct_mismatch=corrects_mismatch(read),
            engine=read.text(f"{ROLLOUT}.name"),
            logs_rollouts=logs_rollouts(read),
            model=read.text(VERL_FIELDS["model"]),
            thinking=read.switch(VERL_FIELDS["thinking"]),
            unused=tuple(verl_unused_settings(given)),
            conflicts=(*verl_conflicts(given), *duplicate_conflicts(everything, "OmegaConf")),
            unread=verl_unread_settings(everything),
            user_settings=verl_spelled_settings(given.own),
        )
        return spell_as_in(found, original, everything)

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Render changes as Hydra overrides, or as a chain where verl has no setting."""
        from breadth.adapters.verl.patch import render_patch  # it reads this file's tables

        return render_patch(changes, config)


def with_present_names(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with those of the KL-Cov fork under verl's present names, shares as fractions."""
    found = dict(own)
    for older, present in OWN_LOSS_KEYS.items():
        if older in own and present not in own:
            percent = Settings(own).number(older) if older.endswith("k_percent") else None
            found[present] = own[older] if percent is None else percent / 100
            del found[older]
    return found


def spell_as_in(config: TrainerConfig, original: Mapping[str, Any], present: Mapping[str, Any]) -> TrainerConfig:
    """Return a configuration that names the fork's settings as its file does."""
    spelled = {
        render_setting(new, present[new]): render_setting(old, original[old])
        for old, new in OWN_LOSS_KEYS.items()
        if old in original and new in present
    }
    if not spelled:
        return config

    def respell(text: str) -> str:
        for new, old in spelled.items():
            text = text.replace(new, old)
        return text

    return replace(
        config,
        unused=tuple(replace(setting, setting=respell(setting.setting)) for setting in config.unused),
        unread={name: respell(text) for name, text in config.unread.items()},
        user_settings={name: respell(text) for name, text in config.user_settings.items()},
    )


def verl_unread_settings(own: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that are expressions."""
    found = unread_settings(own, VERL_FIELDS, SWITCHES)
    steps = [name for name in UPDATE_SETTINGS if is_expression(own.get(name))]
    found |= {"updates": Settings(own).describe(*steps)} if steps else {}
    return {name: spelled for name, spelled in found.items() if name not in ("logs_rollouts", "model")}


def read_settings_table(path: Path) -> dict[str, Any]:
    """Read a table, or Hydra's list of overrides."""
    found = read_table(path, exponents=True)
    if isinstance(found, list):
        pairs = (str(line).lstrip("+").partition("=") for line in found)
        return {BASE_CONFIG: "not in this file"} | {
            name: parse_override(value) for name, equals, value in pairs if equals and not name.startswith("~")
        }
    if not isinstance(found, Mapping):
        raise BrokenFileError(
            path, "contains neither a table nor a list of overrides.", "Pass verl's YAML, or Hydra's overrides.yaml."
        )
    return dict(flatten_table(verl_section(found) or found))


def verl_section(table: Mapping[str, Any], depth: int = 0) -> Mapping[str, Any] | None:
    """Return the table that holds ``actor_rollout_ref``, which may be a section of a larger file."""
    if "actor_rollout_ref" in table or depth > MAX_SECTION_DEPTH:
        return table
    sections = (verl_section(inner, depth + 1) for inner in table.values() if isinstance(inner, Mapping))
    return next((found for found in sections if found is not None and "actor_rollout_ref" in found), None)


def parse_override(text: str) -> Any:
    """Return the value of an override; text that YAML cannot read stays text."""
    try:
        return load_yaml(text, exponents=True)
    except Exception:  # noqa: BLE001 - whatever a parser dislikes is a text
        return text


def has_known_base(own: Mapping[str, Any]) -> bool:
    """Whether the settings override verl's own configuration: they name no other base."""
    if not any(name.startswith("actor_rollout_ref.") for name in own):
        return False
    listed = own.get("defaults")
    named = [own[BASE_CONFIG]] if BASE_CONFIG in own else []
    named += [name for name in listed if isinstance(name, str) and name != "_self_"] if isinstance(listed, list) else []
    return all(isinstance(name, str) and name.rpartition("/")[2] in KNOWN_BASE_CONFIGS for name in named)


def nondefault_settings(own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the user set; of a complete configuration, as Hydra saves it, only non-default values."""
    if sum(name in own for name in VERL_DEFAULTS) < 0.8 * len(VERL_DEFAULTS):
        return own
    return {name: value for name, value in own.items() if VERL_DEFAULTS.get(name, BASE_CONFIG) != value}


def verl_updates(read: Settings) -> float | None:
    """Return updates per generation; None if rollouts are asynchronous or the old log-probs are the sampler's."""
    sampled = read.switch("algorithm.rollout_correction.bypass_mode") or read.switch(f"{ACTOR}.use_rollout_log_probs")
    if sampled or "async" in (read.text("trainer.v1.trainer_mode") or ""):
        return None
    prompts, mini = read.number("data.train_batch_size"), read.number(f"{ACTOR}.ppo_mini_batch_size")
    epochs = read.number(f"{ACTOR}.ppo_epochs")
    if not prompts or not mini or not epochs:
        return epochs if epochs is not None and epochs > 1 else None
    return count_updates(prompts, mini, epochs)


def clip_bound(read: Settings, side: str) -> float | None:
    """Return a bound; verl's losses read clip_ratio only if the bound of the side is null."""
    name = f"{ACTOR}.clip_ratio_{side}"
    absent = name not in read.own and not read.defaults
    return read.number(f"{ACTOR}.clip_ratio") if absent or read.own.get(name, "") is None else read.number(name)


def kl_coefficient(read: Settings) -> float | None:
    """Return the coefficient of the KL to the reference, in the loss or in the reward; 0 if both are off."""
    in_loss, in_reward = read.switch(f"{ACTOR}.use_kl_loss"), read.switch("algorithm.use_kl_in_reward")
    if in_loss:
        return read.number(f"{ACTOR}.kl_loss_coef")
    if in_reward:
        return read.number("algorithm.kl_ctrl.kl_coef")
    return None if in_loss is None or in_reward is None else 0.0


def has_length_penalty(read: Settings) -> bool | None:
    """Whether a length penalty acts: switched on, and read by the reward manager."""
    on = [read.switch(place) for place in LENGTH_PENALTY_SWITCHES if place in read.own]
    if not any(on):
        return None
    return None if read.switch(LENGTH_PENALTY_SWITCHES[3]) else reward_manager(read) != "naive"


def corrects_mismatch(read: Settings) -> bool | None:
    """Whether importance weights correct the mismatch between sampler and trainer; None if unknown."""
    name = "algorithm.rollout_correction.rollout_is"
    if read.number(f"{ACTOR}.tis_imp_ratio_cap"):
        return True
    return None if name not in read.own and not read.defaults else not read.is_off(name)


def logs_rollouts(read: Settings) -> bool | None:
    """Whether rollouts are dumped; None if unknown."""
    name = "trainer.rollout_data_dir"
    return None if name not in read.own and not read.defaults else not read.is_off(name)


def verl_spelled_settings(own: Mapping[str, Any]) -> dict[str, str]:
    """Return field of TrainerConfig -> the user's own spelling of it."""
    found = {field: render_setting(name, own[name]) for field, name in VERL_FIELDS.items() if name in own}
    steps = Settings(own).describe(*UPDATE_SETTINGS)
    return found | ({"updates": steps} if steps else {})


SETTINGS = VerlSettings()
"""The dialect of the catalogue."""
