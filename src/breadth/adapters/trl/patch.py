"""Changes worded for TRL: keywords of GRPOConfig, or our trainer in the place of TRL's where it has no setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from breadth.adapters.trl.config import FIELDS
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig

STEP, MOST = 1e-4, 0.005
"""How fast the entropy bonus moves and how far, of Skywork-OR1's scripts (arXiv 2505.22312); TRL's own 0.005 and 1
outweigh any reward.
"""
ROW_COUNTING = ("grpo", "sapo", "dr_grpo", "luspo")
"""Losses of TRL that divide by all responses, those that are dropped included."""
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
"""Knobs that an objective of ours has in the place of TRL's."""
PLAIN = frozenset(FIELDS) - {"kl_given", "prompts", "length_penalty", "engine", "max_prompt_length"}
"""Knobs whose value is the field's."""


def render_patch(changes: Sequence[Change], knobs: TrainerConfig) -> tuple[str, ...]:
    """Return one call of GRPOConfig with every keyword, then what TRL has no keyword for."""
    keywords: dict[str, Any] = {}
    lines: list[str] = []
    for change in changes:
        more, said = change_keywords(change, knobs)
        keywords |= more
        lines += said
    call = f"GRPOConfig({', '.join(f'{name}={value!r}' for name, value in keywords.items())})"
    return (*([call] if keywords else []), *dict.fromkeys(lines))


def change_keywords(change: Change, knobs: TrainerConfig) -> tuple[dict[str, Any], list[str]]:
    if change.setting == "chain":
        return {}, objective_lines(repr(str(change.value)), knobs)
    if change.setting == "dynamic_sampling":
        return _drop_flat(knobs) if change.value else ({}, [])
    if change.setting == "group":
        return group_keywords(int(change.value), knobs)
    special = special_keywords(change, knobs)
    if special is not None:
        return special, []
    return ({FIELDS[change.setting]: change.value} if change.setting in PLAIN else {}), []


def special_keywords(change: Change, knobs: TrainerConfig) -> dict[str, Any] | None:
    """Return the keywords of a knob that is not one field with the same value."""
    value = change.value
    words: Mapping[str, Any] = {
        "updates": lambda: _updates(int(value), knobs),
        "prompts": lambda: {} if knobs.group is None else {"generation_batch_size": int(value) * knobs.group},
        "clip_high": lambda: {"epsilon_high": round(1 + value, 6) if knobs.loss == "cispo" else value},
        "entropy_adaptive": lambda: _adaptive(knobs) if value else {"use_adaptive_entropy": False},
        "correct_mismatch": lambda: (
            {"vllm_importance_sampling_correction": bool(value)} if knobs.engine == "vllm" else {}
        ),
        "sequence_ratio": lambda: {"importance_sampling_level": "sequence" if value else "token"},
        "engine": lambda: {"use_vllm": value == "vllm"},
        "max_completion_length": lambda: _longest(int(value), knobs),
    }
    return words[change.setting]() if change.setting in words else None


def _updates(wanted: int, knobs: TrainerConfig) -> dict[str, Any]:
    """Take more optimizer steps on larger generations, each rollout once; where their size is fixed, go over them several times."""
    if knobs.accumulation is None or "prompts" in knobs.user_settings:
        return {"num_iterations": wanted}
    once = {"num_iterations": 1} if "num_iterations" in knobs.user_settings.get("updates", "") else {}
    return {"steps_per_generation": wanted * knobs.accumulation, **once}


def _adaptive(knobs: TrainerConfig) -> dict[str, Any]:
    start = {"entropy_coef": 0.0} if knobs.entropy_bonus else {}
    return {"use_adaptive_entropy": True, **start, "entropy_coef_delta": STEP, "entropy_coef_max": MOST}


def _longest(wanted: int, knobs: TrainerConfig) -> dict[str, Any]:
    room = wanted + (knobs.max_prompt_length or 0)
    more = {"vllm_max_model_length": room} if knobs.context is not None and knobs.context < room else {}
    return {"max_completion_length": wanted, **more}


def group_keywords(wanted: int, knobs: TrainerConfig) -> tuple[dict[str, Any], list[str]]:
    """TRL asks for whole groups in a generation: accumulate more micro-batches where the present ones do not hold them."""
    found: dict[str, Any] = {"num_generations": wanted}
    micro, accumulation = knobs.micro_batch, knobs.accumulation
    if (
        not micro
        or not accumulation
        or "prompts" in knobs.user_settings
        or "steps_per_generation" in knobs.user_settings.get("updates", "")
    ):
        return found, [
            f"# per_device_train_batch_size x steps_per_generation x processes must be a multiple of {wanted}"
        ]
    more = next(times for times in range(1, wanted + 1) if micro * accumulation * times % wanted == 0)
    return found | ({"gradient_accumulation_steps": accumulation * more} if more > 1 else {}), []


def objective_lines(objective: str, knobs: TrainerConfig, imports: Sequence[str] = (), also: str = "") -> list[str]:
    lines = [*(imports or ["from breadth import BreadthGRPOTrainer"])]
    lines.append(f"trainer = BreadthGRPOTrainer(..., objective={objective}{also})  # in the place of GRPOTrainer")
    theirs = [FIELDS[knob] for knob in REPLACED if knob in knobs.user_settings and (knob != "kl" or knobs.kl)]
    if theirs and not imports:
        lines.append(f"# take {', '.join(theirs)} out of GRPOConfig: the objective has its own")
    return lines


def _drop_flat(knobs: TrainerConfig) -> tuple[dict[str, Any], list[str]]:
    imports = (
        "from breadth import BreadthGRPOTrainer, Chain",
        "from breadth.training.credit.flat_filter import FlatFilter",
        "from breadth.training.credit.group_advantage import GroupAdvantage",
    )
    grader = ', correct="<name of the reward function that grades>"' if knobs.shaped_reward else ""
    lines = objective_lines("Chain((GroupAdvantage(), FlatFilter()))", knobs, imports, grader)
    keywords = {"loss_type": "dapo"} if knobs.loss in ROW_COUNTING else {}
    return keywords, [*lines, "# flat groups leave the loss; TRL has no way to draw others in their place"]
