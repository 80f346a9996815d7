"""Render changes for TRL: keywords of GRPOConfig, or our trainer instead of TRL's where it has no setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from breadth.adapters.trl.config import ROW_COUNTING_LOSSES, TRL_FIELDS
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig

COEFFICIENT_STEP, MAX_COEFFICIENT = 1e-4, 0.005
"""Increment and maximum of the entropy coefficient in Skywork-OR1's scripts (arXiv 2505.22312); TRL's own 0.005 and 1
outweigh any reward.
"""
REPLACED = (
    "loss",
    "clip_low",
    "clip_high",
    "dual_clip",
    "sequence_ratio",
    "entropy_bonus",
    "entropy_adaptive",
    "entropy_share",
    "kl",
)
"""Fields that our objective sets instead of GRPOConfig."""
SAME_VALUE_FIELDS = frozenset(TRL_FIELDS) - {
    "kl_given",
    "prompts",
    "length_penalty",
    "engine",
    "max_prompt_length",
}
"""Fields with the same value in GRPOConfig."""


def render_patch(changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
    """Return one call of GRPOConfig with every keyword, then the lines TRL has no keyword for."""
    keywords: dict[str, Any] = {}
    lines: list[str] = []
    for change in changes:
        more_keywords, more_lines = change_keywords(change, config)
        keywords |= more_keywords
        lines += more_lines
    call = f"GRPOConfig({', '.join(f'{name}={value!r}' for name, value in keywords.items())})"
    return (*([call] if keywords else []), *dict.fromkeys(lines))


def change_keywords(change: Change, config: TrainerConfig) -> tuple[dict[str, Any], list[str]]:
    """Return the keywords and the lines of one change."""
    if change.setting == "chain":
        return {}, objective_lines(repr(str(change.value)), config)
    if change.setting == "dynamic_sampling":
        return filter_keywords(config) if change.value else ({}, [])
    if change.setting == "group":
        return group_keywords(int(change.value), config)
    special = special_keywords(change, config)
    if special is not None:
        return special, []
    return ({TRL_FIELDS[change.setting]: change.value} if change.setting in SAME_VALUE_FIELDS else {}), []


def special_keywords(change: Change, config: TrainerConfig) -> dict[str, Any] | None:
    """Return the keywords of a field that is not one keyword with the same value; None for any other."""
    value = change.value
    words: Mapping[str, Any] = {
        "updates": lambda: update_keywords(int(value), config),
        "prompts": lambda: {} if config.group is None else {"generation_batch_size": int(value) * config.group},
        "clip_high": lambda: {"epsilon_high": round(1 + value, 6) if config.loss == "cispo" else value},
        "entropy_adaptive": lambda: adaptive_keywords(config) if value else {"use_adaptive_entropy": False},
        "correct_mismatch": lambda: (
            {"vllm_importance_sampling_correction": bool(value)} if config.engine == "vllm" else {}
        ),
        "sequence_ratio": lambda: {"importance_sampling_level": "sequence" if value else "token"},
        "engine": lambda: {"use_vllm": value == "vllm"},
        "max_completion_length": lambda: length_keywords(int(value), config),
    }
    return words[change.setting]() if change.setting in words else None


def update_keywords(wanted: int, config: TrainerConfig) -> dict[str, Any]:
    """Take more optimizer steps on larger generations; if their size is fixed, iterate over them several times."""
    if config.accumulation is None or "prompts" in config.user_settings:
        return {"num_iterations": wanted}
    once = {"num_iterations": 1} if "num_iterations" in config.user_settings.get("updates", "") else {}
    return {"steps_per_generation": wanted * config.accumulation, **once}


def adaptive_keywords(config: TrainerConfig) -> dict[str, Any]:
    """Switch on the adaptive entropy bonus."""
    start = {"entropy_coef": 0.0} if config.entropy_bonus else {}
    return {
        "use_adaptive_entropy": True,
        **start,
        "entropy_coef_delta": COEFFICIENT_STEP,
        "entropy_coef_max": MAX_COEFFICIENT,
    }


def length_keywords(wanted: int, config: TrainerConfig) -> dict[str, Any]:
    """Set the maximum completion length, and the context of vLLM if it is too small."""
    room = wanted + (config.max_prompt_length or 0)
    more = {"vllm_max_model_length": room} if config.context is not None and config.context < room else {}
    return {"max_completion_length": wanted, **more}


def group_keywords(wanted: int, config: TrainerConfig) -> tuple[dict[str, Any], list[str]]:
    """Set the group size; TRL needs whole groups per generation, so accumulate more micro-batches if necessary."""
    found: dict[str, Any] = {"num_generations": wanted}
    micro, accumulation = config.micro_batch, config.accumulation
    if (
        not micro
        or not accumulation
        or "prompts" in config.user_settings
        or "steps_per_generation" in config.user_settings.get("updates", "")
    ):
        return found, [
            f"# per_device_train_batch_size x steps_per_generation x processes must be a multiple of {wanted}"
        ]
    more = next(times for times in range(1, wanted + 1) if micro * accumulation * times % wanted == 0)
    return found | ({"gradient_accumulation_steps": accumulation * more} if more > 1 else {}), []


def objective_lines(objective: str, config: TrainerConfig, imports: Sequence[str] = (), also: str = "") -> list[str]:
    """Return the lines that use our trainer with an objective."""
    lines = [*(imports or ["from breadth import BreadthGRPOTrainer"])]
    lines.append(f"trainer = BreadthGRPOTrainer(..., objective={objective}{also})  # instead of GRPOTrainer")
    replaced = [
        TRL_FIELDS[field] for field in REPLACED if field in config.user_settings and (field != "kl" or config.kl)
    ]
    if replaced and not imports:
        lines.append(f"# take {', '.join(replaced)} out of GRPOConfig: the objective sets them")
    return lines


def filter_keywords(config: TrainerConfig) -> tuple[dict[str, Any], list[str]]:
    """Drop zero-variance groups by our trainer."""
    imports = (
        "from breadth import BreadthGRPOTrainer",
        "from breadth.training import Chain, FlatFilter, GroupAdvantage",
    )
    grader = ', correct="<name of the reward function that grades>"' if config.shaped_reward else ""
    lines = objective_lines("Chain((GroupAdvantage(), FlatFilter()))", config, imports, grader)
    keywords = {"loss_type": "dapo"} if config.loss in ROW_COUNTING_LOSSES else {}
    return keywords, [*lines, "# zero-variance groups leave the loss; TRL cannot sample others instead"]
