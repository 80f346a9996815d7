"""ROLL's configuration read, translated and patched: the YAML of its RLVR and agentic pipelines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breadth.adapters.configs import (
    Settings,
    count_updates,
    duplicate_conflicts,
    find_unread_settings,
    flatten_table,
    is_expression,
    read_table,
    render_setting,
    render_yaml,
    resolve_references,
)
from breadth.base.errors import BrokenFileError
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import Conflict, TrainerConfig, UnusedSetting

TRAIN, SAMPLING = "actor_train.training_args", "actor_infer.generating_args"
GROUP, PROMPTS, CAP = "num_return_sequences_in_group", "rollout_batch_size", "response_length"
CONTEXT = "actor_infer.strategy_args.strategy_config.max_model_len"
ROLL_DEFAULTS: Mapping[str, Any] = {
    "ppo_epochs": 1,
    "adv_estimator": "gae",
    "pg_clip": 0.2,
    "pg_clip_low": 0.2,
    "pg_clip_high": 0.2,
    "use_pg_clip_range": False,
    "dual_clip_loss": False,
    "use_kl_loss": False,
    "kl_loss_coef": 0,
    "add_token_level_kl": False,
    "init_kl_coef": 0.2,
    "entropy_loss_coef": 0,
    "loss_agg_mode": "seq-mean-token-mean",
    "importance_sampling": "token",
    "max_len_mask": False,
    "add_len_reward": False,
    "async_generation_ratio": 0,
    "rollout_dump_dir": None,
    f"{SAMPLING}.temperature": 0.95,
    f"{SAMPLING}.top_p": 0.7,
    f"{SAMPLING}.top_k": 50,
    f"{SAMPLING}.repetition_penalty": 1.0,
}
"""Of ROLL 0.3, read from its source."""
ROLL_FIELDS: Mapping[str, str] = {
    "group": GROUP,
    "prompts": PROMPTS,
    "micro_batch": f"{TRAIN}.per_device_train_batch_size",
    "accumulation": f"{TRAIN}.gradient_accumulation_steps",
    "learning_rate": f"{TRAIN}.learning_rate",
    "estimator": "adv_estimator",
    "clip_low": "pg_clip_low",
    "clip_high": "pg_clip_high",
    "sequence_ratio": "importance_sampling",
    "kl": "kl_loss_coef",
    "kl_given": "kl_loss_coef",
    "entropy_bonus": "entropy_loss_coef",
    "aggregation": "loss_agg_mode",
    "temperature": f"{SAMPLING}.temperature",
    "top_p": f"{SAMPLING}.top_p",
    "top_k": f"{SAMPLING}.top_k",
    "repetition_penalty": f"{SAMPLING}.repetition_penalty",
    "max_completion_length": CAP,
    "max_prompt_length": "prompt_length",
    "context": CONTEXT,
    "mask_truncated": "max_len_mask",
    "length_penalty": "add_len_reward",
    "engine": "actor_infer.strategy_args.strategy_name",
    "logs_rollouts": "rollout_dump_dir",
    "model": "pretrain",
}
"""Field of `TrainerConfig` -> ROLL's setting."""
SWITCHES = ("use_kl_loss", "use_pg_clip_range")
"""Settings that decide whether others have an effect, and that no field of `TrainerConfig` holds."""
SAME_VALUE_FIELDS = frozenset(
    {
        "group",
        "prompts",
        "accumulation",
        "learning_rate",
        "entropy_bonus",
        "aggregation",
        "temperature",
        "top_p",
        "repetition_penalty",
        "mask_truncated",
        "max_completion_length",
    }
)
"""Fields with the same value in ROLL's setting."""
ROLL_KEYS = re.compile(rb"^(actor_train|actor_infer|rollout_batch_size|adv_estimator):", re.MULTILINE)


@dataclass(frozen=True)
class RollSettings:
    """Reads the YAML that ROLL's ``start_rlvr_pipeline.py`` and ``start_agentic_pipeline.py`` take."""

    trainer = "roll"
    """Name in the catalogue."""
    known_values = "ROLL prints every value as YAML when it starts: save that part of the log and name the file"
    """How to get a file with every value in it."""

    def recognises(self, path: Path, start: bytes) -> bool:
        """Recognise three of the keys that a ROLL pipeline has at its top."""
        return path.suffix in (".yaml", ".yml") and len(set(ROLL_KEYS.findall(start))) >= 3

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the settings of a file by dotted path, with references resolved."""
        found = read_table(path, exponents=True)
        if not isinstance(found, Mapping):
            raise BrokenFileError(path, "holds no table of settings.", "Give ROLL's YAML.")
        return resolve_references(dict(flatten_table(found)))

    def translate(self, config: Mapping[str, Any]) -> TrainerConfig:
        """Translate into a TrainerConfig; expressions are unknown."""
        own = resolve_references(dict(flatten_table(config)))
        read = Settings(own, ROLL_DEFAULTS if any(name in own for name in (GROUP, PROMPTS, "actor_train")) else {})
        wide, level = read.switch("use_pg_clip_range"), read.text("importance_sampling")
        clip = read.number("pg_clip")
        return TrainerConfig(
            group=read.whole(GROUP),
            prompts=read.whole(PROMPTS),
            updates=roll_updates(read),
            micro_batch=read.whole(ROLL_FIELDS["micro_batch"]),
            accumulation=read.whole(ROLL_FIELDS["accumulation"]),
            learning_rate=read.number(ROLL_FIELDS["learning_rate"]),
            estimator=read.text("adv_estimator"),
            clip_low=None if wide is None else read.number("pg_clip_low") if wide else clip,
            clip_high=None if wide is None else read.number("pg_clip_high") if wide else clip,
            clips=None if wide is None else True,
            dual_clip=1 + 2 * clip if read.switch("dual_clip_loss") and clip is not None else None,
            sequence_ratio=None if level is None else level == "seq",
            kl=roll_kl(read),
            kl_given=read.number("kl_loss_coef") if "kl_loss_coef" in own else None,
            entropy_bonus=read.number("entropy_loss_coef"),
            entropy_adaptive=False,
            entropy_share=1.0,
            covariance="",
            aggregation=read.text("loss_agg_mode"),
            temperature=read.number(f"{SAMPLING}.temperature"),
            top_p=read.number(f"{SAMPLING}.top_p"),
            top_k=read.top_k(f"{SAMPLING}.top_k"),
            repetition_penalty=read.number(f"{SAMPLING}.repetition_penalty"),
            max_completion_length=roll_cap(read),
            max_prompt_length=read.whole("prompt_length"),
            context=read.whole(CONTEXT),
            mask_truncated=read.switch("max_len_mask"),
            length_penalty=roll_length_penalty(read),
            dynamic_sampling=roll_dynamic_sampling(own),
            shaped_reward=roll_length_penalty(read),
            engine=read.text(ROLL_FIELDS["engine"]),
            logs_rollouts=None if not read.defaults else not read.is_off("rollout_dump_dir"),
            model=read.text("pretrain"),
            unused=tuple(roll_unused_settings(read)),
            conflicts=(*roll_conflicts(read), *duplicate_conflicts(own, "OmegaConf")),
            unread=roll_unread_settings(own),
            user_settings=roll_spelled_settings(own),
        )

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Render changes as lines of YAML to merge into the file."""
        settings: dict[str, Any] = {}
        for change in changes:
            settings |= render_change(change, config)
        return render_yaml(settings)


def roll_cap(read: Settings) -> int | None:
    """Return the cap on a response: ROLL takes sequence_length - prompt_length, whatever max_new_tokens says."""
    cap, whole, prompt = read.whole(CAP), read.whole("sequence_length"), read.whole("prompt_length")
    return cap if cap is not None else whole - prompt if whole is not None and prompt is not None else None


def roll_updates(read: Settings) -> float | None:
    """Return optimizer steps per generation; None for asynchronous rollouts, or where the devices are not known."""
    names = (PROMPTS, GROUP, ROLL_FIELDS["micro_batch"], ROLL_FIELDS["accumulation"], "ppo_epochs")
    prompts, group, rows, steps, epochs = (read.number(name) for name in names)
    workers = data_parallel_workers(read)
    lags = read.number("async_generation_ratio") != 0
    if lags or not prompts or not group or not rows or not steps or not epochs or not workers:
        return None
    return count_updates(prompts * group, rows * steps * workers, epochs)


def data_parallel_workers(read: Settings) -> int | None:
    """Return how many workers share a batch, for Megatron: devices / (tensor x pipeline x context parallelism)."""
    strategy, config = "actor_train.strategy_args.strategy_name", "actor_train.strategy_args.strategy_config"
    devices = re.fullmatch(r"list\(range\((\d+),\s*(\d+)\)\)", str(read.own.get("actor_train.device_mapping", "")))
    if devices is None or read.text(strategy) != "megatron_train":
        return None
    sizes = [
        read.whole(name) if name in read.own else 1
        for name in (f"{config}.{kind}_parallel_size" for kind in ("tensor_model", "pipeline_model", "context"))
    ]
    if any(not size for size in sizes):
        return None
    count, model = int(devices[2]) - int(devices[1]), 1
    for size in sizes:
        model *= size or 1
    return count // model if count > 0 and count % model == 0 else None


def roll_kl(read: Settings) -> float | None:
    """Return the KL coefficient, in the loss or in the reward; 0 if both are off."""
    in_loss, in_reward = read.switch("use_kl_loss"), read.switch("add_token_level_kl")
    if in_loss:
        return read.number("kl_loss_coef")
    if in_reward:
        return read.number("init_kl_coef")
    return None if in_loss is None or in_reward is None else 0.0


def roll_length_penalty(read: Settings) -> bool | None:
    """Whether the reward depends on length; None if no setting says so."""
    weights = [name for name in read.own if name.endswith(".response_length_penalty_coef")]
    return True if read.switch("add_len_reward") or any(read.number(name) for name in weights) else None


def roll_dynamic_sampling(own: Mapping[str, Any]) -> bool | None:
    """Whether groups are filtered and others sampled instead."""
    filters = any(".query_filter_config." in name for name in own)
    names = ("is_use_additional_prompts", "use_additional_prompts")
    return filters and any(own.get(name) is True for name in names) if own else None


def roll_unused_settings(read: Settings) -> Iterator[UnusedSetting]:
    """Yield settings of the user that ROLL does not read."""
    if read.switch("use_pg_clip_range") is False:
        named = "use_pg_clip_range" in read.own
        for name in ("pg_clip_low", "pg_clip_high"):
            if name in read.own and read.number(name) != read.number("pg_clip"):
                why = "use_pg_clip_range is off" + ("" if named else " unless it is set")
                yield UnusedSetting(read.describe(name), why, intended=not named)
    if "kl_loss_coef" in read.own and read.number("kl_loss_coef") and read.switch("use_kl_loss") is False:
        named = "use_kl_loss" in read.own
        why = "use_kl_loss is off" + ("" if named else " unless it is set")
        yield UnusedSetting(read.describe("kl_loss_coef"), why, intended=not named)
    tokens, cap = f"{SAMPLING}.max_new_tokens", roll_cap(read)
    if tokens in read.own and cap is not None and read.whole(tokens) not in (None, cap):
        why = f"ROLL sets it to the sequence's length less the prompt's, {cap:,} here"
        yield UnusedSetting(read.describe(tokens), why, intended=True)


def roll_conflicts(read: Settings) -> Iterator[Conflict]:
    """Yield settings that penalise the same thing twice."""
    if read.switch("use_kl_loss") and read.number("kl_loss_coef") and read.switch("add_token_level_kl"):
        why = "the KL to the reference is penalised twice, in the loss and in the reward"
        yield Conflict(read.describe("use_kl_loss", "add_token_level_kl"), why, consequence="slight")


def roll_unread_settings(own: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that are expressions."""
    found = find_unread_settings(own, ROLL_FIELDS, SWITCHES)
    steps = [name for name in (PROMPTS, GROUP, "ppo_epochs") if is_expression(own.get(name))]
    found |= {"updates": Settings(own).describe(*steps)} if steps else {}
    return {name: spelled for name, spelled in found.items() if name not in ("model", "engine", "logs_rollouts")}


def roll_spelled_settings(own: Mapping[str, Any]) -> dict[str, str]:
    """Return field of `TrainerConfig` -> the user's own spelling of it."""
    found = {field: render_setting(name, own[name]) for field, name in ROLL_FIELDS.items() if name in own}
    if CAP not in own and "sequence_length" in own:
        found["max_completion_length"] = render_setting("sequence_length", own["sequence_length"])
    if own.get("use_pg_clip_range") is not True:  # the bounds are not read then
        found = {field: text for field, text in found.items() if field not in ("clip_low", "clip_high")}
    steps = Settings(own).describe(PROMPTS, ROLL_FIELDS["micro_batch"], ROLL_FIELDS["accumulation"], "ppo_epochs")
    return found | ({"updates": steps} if steps else {})


def render_change(change: Change, config: TrainerConfig) -> dict[str, Any]:
    """Return ROLL's settings for one change."""
    value = change.value
    special: Mapping[str, Callable[[], dict[str, Any]]] = {
        "clip_low": lambda: {"use_pg_clip_range": True, "pg_clip_low": value},
        "clip_high": lambda: {"use_pg_clip_range": True, "pg_clip_high": value},
        "kl": lambda: {"use_kl_loss": True, "kl_loss_coef": value},
        "sequence_ratio": lambda: {"importance_sampling": "seq" if value else "token"},
        "top_k": lambda: {f"{SAMPLING}.top_k": value or -1},
        "updates": lambda: update_settings(int(value), config),
        "logs_rollouts": lambda: {"rollout_dump_dir": "rollouts" if value is True else value or None},
    }
    if change.setting in special:
        return special[change.setting]()
    return {ROLL_FIELDS[change.setting]: value} if change.setting in SAME_VALUE_FIELDS else {}


def update_settings(wanted: int, config: TrainerConfig) -> dict[str, Any]:
    """Accumulate fewer micro-batches, or iterate over a generation several times."""
    steps, now = config.accumulation, config.updates
    fewer = 0 if not steps or not now else int(steps * now / max(wanted, 1))
    return {ROLL_FIELDS["accumulation"]: fewer} if fewer >= 1 else {"ppo_epochs": wanted}


SETTINGS = RollSettings()
"""The dialect of the catalogue."""
