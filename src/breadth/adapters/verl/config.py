"""verl's configuration: its defaults, its translation into a TrainerConfig, and what in it is unused or in conflict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from breadth.adapters.configs import (
    Settings,
    count_updates,
    duplicate_conflicts,
    find_unread_settings,
    flatten_table,
    is_expression,
    load_yaml,
    read_table,
    render_setting,
)
from breadth.adapters.scripts import script_arguments
from breadth.adapters.verl.names import (
    ACTOR,
    BASE_CONFIG,
    COVARIANCE_LOSSES,
    KNOWN_BASE_CONFIGS,
    LENGTH_PENALTY_SWITCHES,
    LOSS,
    MAX_SECTION_DEPTH,
    OWN_LOSS_KEYS,
    ROLLOUT,
    SETTING_PREFIXES,
    SWITCHES,
    UPDATE_SETTINGS,
    VERL_CLIPPED_LOSSES,
    VERL_DEFAULTS,
    VERL_FIELDS,
    VERL_TABLE,
)
from breadth.adapters.verl.rules import reward_manager, verl_conflicts, verl_unused_settings
from breadth.base.errors import BrokenFileError
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig


@dataclass(frozen=True)
class VerlSettings:
    """Reads verl's YAML, the ``overrides.yaml`` that Hydra keeps, and launch scripts."""

    trainer = "verl"
    """Name in the catalogue."""
    known_values = (
        "Hydra saves every value as outputs/DATE/TIME/.hydra/config.yaml where the run starts: name that file"
    )
    """How to get a file with every value in it."""

    def recognises(self, path: Path, start: bytes) -> bool:
        """Recognise the table that only verl has; a log that prints it is not a configuration."""
        return VERL_TABLE.search(start) is not None and path.suffix in (
            ".yaml",
            ".yml",
            ".json",
            ".sh",
            ".bash",
            ".txt",
        )

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
    found = find_unread_settings(own, VERL_FIELDS, SWITCHES)
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
