"""TRL's configuration: its defaults, and its translation into a TrainerConfig."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breadth.adapters.configs import (
    EXPONENT,
    Settings,
    find_unread_settings,
    is_expression,
    read_table,
    render_setting,
    shallowest_leaves,
)
from breadth.adapters.notebooks import MAX_NOTEBOOK_BYTES
from breadth.adapters.scripts import UNPACKED, call_keywords, script_arguments
from breadth.adapters.trl.rules import trl_conflicts, trl_unused_settings
from breadth.base.errors import BrokenFileError
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig

TRL_MARKERS = frozenset(
    {"num_generations", "max_completion_length", "epsilon_high", "loss_type", "scale_rewards", "num_iterations"}
)
"""Settings typical of TRL's GRPO; a table with two of them is TRL's."""
TRL_DEFAULTS: Mapping[str, Any] = {
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
"""Of trl 1.16, checked against it by a test; beta, max_completion_length and top_k are left out: earlier versions had
other defaults.
"""
REMOVED_SETTINGS = frozenset(
    {"max_prompt_length", "vllm_device", "vllm_guided_decoding_regex", "use_liger_loss", "vllm_dtype"}
)
"""Settings that trl 1.16 no longer has: a file with one is for an earlier version."""
CHANGED_DEFAULTS = frozenset(
    {"loss_type", "temperature", "vllm_importance_sampling_correction", "vllm_importance_sampling_mode"}
)
"""Settings with another default in earlier versions."""
SIMILAR_NAMES = frozenset({"adam_epsilon", "epsilon_high", "num_generations_eval", "log_completions_hub_repo"})
"""Other settings of TRL whose name contains one of these."""
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "per_device_train_batch_size": ("batch_size", "train_batch_size", "micro_batch_size", "per_device_batch_size"),
    "gradient_accumulation_steps": ("grad_accum", "grad_accum_steps", "gradient_accumulation", "accumulation_steps"),
    "num_generations": ("group_size", "n_generations"),
    "learning_rate": ("lr",),
}
"""Names that scripts with their own tables use."""
TRL_FIELDS: Mapping[str, str] = {
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
    "max_completion_length": "max_completion_length",
    "max_prompt_length": "max_prompt_length",
    "context": "vllm_max_model_length",
    "mask_truncated": "mask_truncated_completions",
    "length_penalty": "reward_funcs",
    "engine": "use_vllm",
    "correct_mismatch": "vllm_importance_sampling_correction",
    "logs_rollouts": "log_completions",
}
"""Field of TrainerConfig -> field of GRPOConfig."""
SWITCHES = ("sync_ref_model",)
"""Settings that decide whether others have an effect, and that no field of TrainerConfig holds."""
UPDATE_SETTINGS = ("num_iterations", "steps_per_generation", "gradient_accumulation_steps")
"""Settings that the updates per generation follow from."""
OTHER_STAGES = re.compile(r"eval|valid|test|sft|infer|judge|teacher|critic|dpo", re.IGNORECASE)
"""Sections of a larger file that hold settings of something other than the GRPO run."""
MODEL_NAMES = ("model_name_or_path", "model_name", "base_model", "model_id", "model_path", "model")
"""Names under which files give the model that is trained."""


ROW_COUNTING_LOSSES = ("grpo", "sapo", "dr_grpo", "luspo")
"""Losses of TRL that divide by the number of responses, including those without a counted token."""
CONFIG_CLASSES = frozenset({"GRPOConfig"})
"""Classes whose keywords are settings."""
TRAINER_CLASSES = frozenset({"GRPOTrainer", "BreadthGRPOTrainer"})
"""Classes that get the model and the reward functions."""
TRAINER_ARGUMENTS = ("model", "reward_funcs")
"""Of the arguments of a trainer, those that we read; the rest are no settings."""
TRL_CLIPPED_LOSSES: Mapping[str, bool] = {
    **dict.fromkeys(("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo"), True),
    **dict.fromkeys(("sapo", "vespo"), False),
}
"""TRL's losses -> whether they clip the ratio."""
MARKER_PATTERNS = tuple(
    re.compile(rb"\b" + name.replace("_", "[_-]").encode() + rb"\b[\"']?\s*[:= ]") for name in TRL_MARKERS
)
"""Patterns of a file that sets one of TRL_MARKERS."""
AXOLOTL_GRPO = re.compile(rb"""^["']?rl["']?:\s*["']?(grpo|gdpo)\b""", re.MULTILINE)
"""axolotl's choice of GRPO; it keeps TRL's settings under ``trl:``."""
SCRIPTS = (".sh", ".bash", ".txt")


@dataclass(frozen=True)
class TrlSettings:
    """Reads ``GRPOConfig(...)`` in Python files and notebooks, YAML and JSON tables, and launch scripts."""

    trainer = "trl"
    """Name in the catalogue."""
    known_values = "in the script: open('grpo_config.json', 'w').write(config.to_json_string()); then name that file"
    """How to get a file with every value in it."""

    def recognises(self, path: Path, start: bytes) -> bool:
        """Recognise a call of GRPOConfig, or two settings typical of TRL's GRPO."""
        if path.suffix == ".py":
            return b"GRPOConfig(" in start
        if path.suffix == ".ipynb":
            return contains_anywhere(path, start, b"GRPOConfig(")
        if b"actor_rollout_ref" in start or b'"log_history"' in start or AXOLOTL_GRPO.search(start):
            return False
        if path.suffix in SCRIPTS and re.search(rb"\btrl\s+grpo\b", start):
            return True
        return sum(sign.search(start) is not None for sign in MARKER_PATTERNS) >= 2

    def read(self, path: Path) -> Mapping[str, Any]:
        """Return the settings of a file; in nested tables those that GRPOConfig knows, at any level."""
        if path.suffix in (".py", ".ipynb"):
            passed = call_keywords(path, TRAINER_CLASSES)
            return {name: passed[name] for name in TRAINER_ARGUMENTS if name in passed} | call_keywords(
                path, CONFIG_CLASSES
            )
        if path.suffix in SCRIPTS:
            return script_arguments(path)
        found = read_table(path)
        if not isinstance(found, Mapping):
            raise BrokenFileError(
                path, "contains no table of settings.", "Pass the file that GRPOConfig is built from."
            )
        return grpo_leaves(found)

    def translate(self, config: Mapping[str, Any]) -> TrainerConfig:
        """Translate into a TrainerConfig; computed values and values of the wrong type are unknown."""
        everything = shallowest_leaves(config)
        read = Settings(everything, applicable_defaults(everything))
        given = Settings(set_by_user(everything), read.defaults)
        loss, level = read.text("loss_type"), read.text("importance_sampling_level")
        adaptive = read.switch("use_adaptive_entropy")
        return TrainerConfig(
            group=read.whole("num_generations"),
            prompts=prompts_per_generation(read),
            updates=trl_updates(read),
            micro_batch=read.whole("per_device_train_batch_size"),
            accumulation=read.whole("gradient_accumulation_steps"),
            learning_rate=read.number("learning_rate"),
            estimator="grpo",
            clip_low=None if loss == "cispo" else read.number("epsilon"),
            clip_high=upper_clip(read, loss),
            clips=TRL_CLIPPED_LOSSES.get(loss) if loss is not None else None,
            dual_clip=read.number("delta"),
            sequence_ratio=None if level is None else level == "sequence",
            kl=read.number("beta"),
            kl_given=given.number("beta") if "beta" in given.own else None,
            entropy_bonus=read.number("entropy_coef"),
            entropy_adaptive=adaptive,
            entropy_target=read.number("entropy_target") if adaptive or "entropy_target" in given.own else None,
            entropy_share=read.number("top_entropy_quantile"),
            loss=loss,
            covariance="",
            aggregation=loss,
            temperature=read.number("temperature"),
            top_p=read.number("top_p"),
            top_k=read.top_k("top_k"),
            min_p=read.number("min_p"),
            repetition_penalty=read.number("repetition_penalty"),
            max_completion_length=read.whole("max_completion_length"),
            max_prompt_length=read.whole("max_prompt_length"),
            context=read.whole("vllm_max_model_length"),
            mask_truncated=read.switch("mask_truncated_completions"),
            length_penalty=trl_length_penalty(read),
            dynamic_sampling=False,
            shaped_reward=has_shaped_reward(read),
            correct_mismatch=read.switch("vllm_importance_sampling_correction") if read.switch("use_vllm") else None,
            engine={True: "vllm", False: "hf", None: None}[read.switch("use_vllm")],
            logs_rollouts=read.switch("log_completions"),
            model=next((name for key in MODEL_NAMES if (name := read.text(key))), None),
            thinking=read.switch("enable_thinking"),
            unused=tuple(trl_unused_settings(given)),
            conflicts=tuple(trl_conflicts(read, given)),
            text_numbers=numbers_as_text(given.own),
            unread=trl_unread_settings(everything),
            user_settings=trl_spelled_settings(given.own),
        )

    def patch(self, changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
        """Render changes as keywords of GRPOConfig, or as code with our trainer where TRL has no setting."""
        from breadth.adapters.trl.patch import render_patch  # it reads this file's tables

        return render_patch(changes, config)


def grpo_leaves(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of a file's tables by last name; those of the section with GRPO's settings win.

    A section of another stage (``eval``, ``sft``, ...) next to it has settings of the same names, so it is left out.
    """
    section = grpo_section(table)
    found = shallowest_leaves(drop_other_stages(table, section))
    return found if section is None else found | shallowest_leaves(section)


def grpo_section(table: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the nested table that holds the most of TRL_MARKERS; None if the file itself does, or none does."""
    sections = [inner for inner in table.values() if isinstance(inner, Mapping)]
    deeper = [found for inner in sections if (found := grpo_section(inner)) is not None]
    best = max([*sections, *deeper], key=lambda inner: len(TRL_MARKERS & inner.keys()), default=None)
    here = len(TRL_MARKERS & table.keys())
    return best if best is not None and len(TRL_MARKERS & best.keys()) > here else None


def drop_other_stages(table: Mapping[str, Any], section: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a table without the sections of other stages."""
    return {
        name: value
        for name, value in table.items()
        if not isinstance(value, Mapping) or value is section or not OTHER_STAGES.search(str(name))
    }


def trl_unread_settings(own: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that are expressions; ``**table`` from elsewhere may hold any of them."""
    found = find_unread_settings(own, TRL_FIELDS, SWITCHES)
    steps = [name for name in UPDATE_SETTINGS if is_expression(own.get(name))]
    found |= {"updates": Settings(own).describe(*steps)} if steps else {}
    found |= {UNPACKED: f"**{own[UNPACKED]}"} if UNPACKED in own else {}
    return {name: spelled for name, spelled in found.items() if name != "length_penalty"}


def contains_anywhere(path: Path, start: bytes, sign: bytes) -> bool:
    """Search a whole notebook: images may precede the cell."""
    if sign in start:
        return True
    try:
        with path.open("rb") as file:
            before = b""
            while file.tell() < MAX_NOTEBOOK_BYTES and (piece := file.read(1 << 20)):
                if sign in before[-len(sign) :] + piece:
                    return True
                before = piece
    except OSError:
        return False
    return False


def applicable_defaults(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults that apply to settings a file leaves out.

    None if it sets nothing of GRPO, or unpacks a table we cannot see. Excluded are changed defaults if the file has
    settings of earlier versions, and settings that the file has under another name.
    """
    if UNPACKED in own or not TRL_MARKERS & own.keys():
        return {}
    foreign = [key for key in own if key not in TRL_DEFAULTS and key not in SIMILAR_NAMES]
    renamed = {name for name in TRL_DEFAULTS if any(name in key or key in SYNONYMS.get(name, ()) for key in foreign)}
    unsure = renamed | (CHANGED_DEFAULTS if REMOVED_SETTINGS & own.keys() else set())
    return {name: value for name, value in TRL_DEFAULTS.items() if name not in unsure}


def set_by_user(own: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the user set; of complete saved arguments, only values that are not the default."""
    if sum(name in own for name in TRL_DEFAULTS) < 0.8 * len(TRL_DEFAULTS):
        return own
    accumulation = own.get("gradient_accumulation_steps", TRL_DEFAULTS["gradient_accumulation_steps"])
    derived = {"generation_batch_size"} | (
        {"steps_per_generation"} if own.get("steps_per_generation") == accumulation else set()
    )
    return {
        name: value for name, value in own.items() if TRL_DEFAULTS.get(name, UNPACKED) != value and name not in derived
    }


def trl_updates(read: Settings) -> float | None:
    """Return updates per generation: steps_per_generation / gradient_accumulation_steps * num_iterations.

    None if a generation would begin inside an optimizer step: then some of its rollouts are used longer.
    """
    accumulated, iterations = read.number("gradient_accumulation_steps"), read.number("num_iterations")
    steps = read.number("steps_per_generation")
    if steps is None and read.own.get("steps_per_generation") is None and read.own.get("generation_batch_size") is None:
        steps = accumulated
    if not steps or not accumulated or not iterations:
        return None
    every = steps * iterations
    return None if every < accumulated and accumulated % every else every / accumulated


def prompts_per_generation(read: Settings) -> int | None:
    """Return the prompts per generation, if the settings determine them."""
    rollouts, group = read.whole("generation_batch_size"), read.whole("num_generations")
    return rollouts // group if rollouts and group and rollouts % group == 0 else None


def upper_clip(read: Settings, loss: str | None) -> float | None:
    """Return the upper clip of the ratio minus 1; with cispo TRL's epsilon_high is the largest ratio itself."""
    name = "epsilon" if read.own.get("epsilon_high") is None else "epsilon_high"
    bound = read.number(name)
    return bound - 1 if bound is not None and loss == "cispo" else bound


def has_shaped_reward(read: Settings) -> bool | None:
    """Whether there are several rewards, by weights or names; functions passed in a script are unknown."""
    weights, names = read.own.get("reward_weights"), read.own.get("reward_funcs")
    if isinstance(weights, list):
        return sum(bool(weight) for weight in weights) > 1
    return True if isinstance(names, list) and len(names) > 1 else None


def trl_length_penalty(read: Settings) -> bool | None:
    """Whether a reward function penalises length, by its name; None if unknown."""
    names = read.own.get("reward_funcs")
    known = [str(name) for name in names] if isinstance(names, list) else [str(names)] if is_expression(names) else []
    penal = [name for name in known if "overlong" in name or ("len" in name and ("penal" in name or "punish" in name))]
    return True if penal else None


def numbers_as_text(own: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings whose number YAML read as text, such as 1e-6."""
    named = {name for name in own if name in TRL_DEFAULTS or name in TRL_FIELDS.values()}
    return {name: own[name] for name in sorted(named) if isinstance(own[name], str) and EXPONENT.fullmatch(own[name])}


def trl_spelled_settings(own: Mapping[str, Any]) -> dict[str, str]:
    """Return field of TrainerConfig -> the user's own spelling of it."""
    found = {field: render_setting(name, own[name]) for field, name in TRL_FIELDS.items() if name in own}
    model = next((name for name in MODEL_NAMES if isinstance(own.get(name), str)), None)
    found |= {} if model is None else {"model": render_setting(model, own[model])}
    steps = Settings(own).describe(*UPDATE_SETTINGS)
    return found | ({"updates": steps} if steps else {})


SETTINGS = TrlSettings()
"""The dialect of the catalogue."""
