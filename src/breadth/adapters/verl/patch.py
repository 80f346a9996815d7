"""Render changes for verl: Hydra overrides, or a chain of ours where verl has no setting."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from breadth.adapters.verl.names import ACTOR, COVARIANCE_LOSSES, LOSS, ROLLOUT, VERL_FIELDS, VERL_GROUP_ESTIMATORS
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig

SAME_VALUE_SETTINGS = frozenset(VERL_FIELDS) - {
    "kl",
    "kl_given",
    "covariance",
    "filter_metric",
    "max_prompt_length",
    "estimator",
    "model",
    "thinking",
}
"""Fields with the same value in verl's setting."""
MAX_MINI_BATCH = 100_000
"""Largest mini-batch considered, in prompts."""
CHAIN = "/absolute/path/of/chain.toml"
"""Path of the user's chain; every node of the run reads it."""


def render_patch(changes: Sequence[Change], config: TrainerConfig) -> tuple[str, ...]:
    """Return one override per line; a chain's file follows after a comment."""
    overrides = [line for change in changes for line in change_overrides(change, config, changes)]
    target = next((change for change in changes if change.setting == "entropy_target"), None)
    chain = [] if target is None else ["# chain.toml:", *target_chain(float(target.value), config)]
    return (*dict.fromkeys(spell_for_fork(overrides, config)), *chain)


def spell_for_fork(overrides: Sequence[str], config: TrainerConfig) -> list[str]:
    """Return overrides under the names of the KL-Cov fork where the user's file has those."""
    if not config.user_settings.get("loss", "").startswith(f"{ACTOR}.loss_mode"):
        return list(overrides)
    if any("BreadthLoss" in line for line in overrides):
        return ["# this needs verl 0.9; the file is for the fork that published KL-Cov", *overrides]
    percent = re.compile(rf"^{re.escape(LOSS)}\.kl_cov_ratio=(.+)$")
    named = [percent.sub(lambda match: f"{ACTOR}.k_percent={100 * float(match[1]):g}", line) for line in overrides]
    return [line.replace(f"{LOSS}.", f"{ACTOR}.") for line in named]


def change_overrides(change: Change, config: TrainerConfig, changes: Sequence[Change]) -> Sequence[str]:
    """Return the overrides of one change."""
    value = change.value
    renderers: Mapping[str, Callable[[], Sequence[str]]] = {
        "updates": lambda: update_overrides(int(value), prompts_after(config, changes), config),
        "kl": lambda: (f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef={value:g}"),
        "correct_mismatch": lambda: (
            correction_overrides() if value else ("algorithm.rollout_correction.rollout_is=null",)
        ),
        "dynamic_sampling": lambda: filter_overrides(config) if value else ("algorithm.filter_groups.enable=False",),
        "chain": lambda: recipe_overrides(str(value), config),
        "entropy_target": lambda: (
            *chain_overrides(CHAIN, config),
            *((f"{ACTOR}.entropy_coeff=0",) if config.entropy_bonus else ()),
        ),
        "logs_rollouts": lambda: (f"trainer.rollout_data_dir={'rollouts' if value is True else value or 'null'}",),
        "max_completion_length": lambda: length_overrides(int(value), config),
        "length_penalty": lambda: penalty_overrides(config) if value else (),
        "covariance_share": lambda: (f"{LOSS}.{config.loss}_ratio={render_value(value)}",) if config.covariance else (),
        "top_k": lambda: (f"{ROLLOUT}.top_k={value or -1}",),
        "repetition_penalty": lambda: (f"++{ROLLOUT}.repetition_penalty={render_value(value)}",),
    }
    if change.setting in renderers:
        return renderers[change.setting]()
    return (f"{VERL_FIELDS[change.setting]}={render_value(value)}",) if change.setting in SAME_VALUE_SETTINGS else ()


def render_value(value: Any) -> str:
    """Return a value as Hydra reads it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def prompts_after(config: TrainerConfig, changes: Sequence[Change]) -> int | None:
    """Return the prompts per generation after the changes."""
    wanted = next((change.value for change in changes if change.setting == "prompts"), config.prompts)
    return None if wanted is None else int(wanted)


def update_overrides(wanted: int, prompts: int | None, config: TrainerConfig) -> tuple[str, ...]:
    """Split a generation into about as many equal mini-batches; if it is too small, iterate over it several times."""
    sizes = [
        size
        for size in range(1, min((prompts or 0) // max(wanted, 1), MAX_MINI_BATCH) + 1)
        if (prompts or 0) % size == 0
    ]
    once = (f"{ACTOR}.ppo_epochs=1",) if "ppo_epochs" in config.user_settings.get("updates", "") else ()
    return (f"{ACTOR}.ppo_mini_batch_size={sizes[-1]}", *once) if sizes else (f"{ACTOR}.ppo_epochs={wanted}",)


def correction_overrides() -> tuple[str, ...]:
    """Switch on importance weights for the mismatch between sampler and trainer."""
    return (
        f"{ROLLOUT}.calculate_log_probs=True",
        "algorithm.rollout_correction.rollout_is=token",
        "algorithm.rollout_correction.rollout_is_threshold=2.0",
    )


def filter_overrides(config: TrainerConfig) -> tuple[str, ...]:
    """Switch on dynamic sampling of groups."""
    if config.shaped_reward:
        return (
            "algorithm.filter_groups.enable=True",
            "algorithm.filter_groups.metric=acc",
            "# the reward function must return acc along with score: with a shaped reward hardly any group is flat",
        )
    return ("algorithm.filter_groups.enable=True", "algorithm.filter_groups.metric=reward")


def length_overrides(wanted: int, config: TrainerConfig) -> tuple[str, ...]:
    """Set the maximum response length, and the context of the engine if it is too small."""
    room = wanted + (config.max_prompt_length or 0)
    more = (f"{ROLLOUT}.max_model_len={room}",) if config.context is not None and config.context < room else ()
    return (f"data.max_response_length={wanted}", *more)


def penalty_overrides(config: TrainerConfig) -> tuple[str, ...]:
    """Use verl's dapo reward manager, the only one with a length penalty; with DAPO's penalty if none is set."""
    manager = "reward.reward_manager.name=dapo"
    if config.length_penalty is not None or config.max_completion_length is None:
        return (manager,)
    place = "++reward.reward_kwargs"
    numbers = {"enable": True, "len": max(1, config.max_completion_length // 4), "penalty_factor": 1.0, "log": False}
    lines = [f"{place}.overlong_buffer_cfg.{name}={value}" for name, value in numbers.items()]
    return (manager, *lines, f"{place}.max_resp_len={config.max_completion_length}")


def recipe_overrides(recipe: str, config: TrainerConfig) -> tuple[str, ...]:
    """Use verl's own loss if it has the same, with the paper's numbers; but it cannot rank a micro-batch of one."""
    if recipe in COVARIANCE_LOSSES and config.micro_batch != 1:
        numbers = {
            "kl_cov": (f"{LOSS}.kl_cov_ratio=0.002", f"{LOSS}.ppo_kl_coef=1.0"),
            "clip_cov": (f"{ACTOR}.clip_ratio_low=1.0", f"{ACTOR}.clip_ratio_high=1.0"),
        }
        return (f"{LOSS}.loss_mode={recipe}", *numbers[recipe])
    return chain_overrides(recipe, config)


def chain_overrides(chain: str, config: TrainerConfig) -> tuple[str, ...]:
    """Run a chain with our trainer, with verl's clips and averaging at the values the chain expects."""
    lines = [
        f"{LOSS}._target_=breadth.adapters.verl.loss.BreadthLoss",
        f"+{LOSS}.chain={chain}",
        f"{LOSS}.loss_mode=breadth",
        "trainer.v1.trainer_mode=breadth",
        f"{ACTOR}.calculate_entropy=True",
    ]
    lines += ["algorithm.adv_estimator=grpo"] if config.estimator == "gae" and chain != CHAIN else []
    lines += [
        f"{VERL_FIELDS[field]}=0.2" for field in ("clip_low", "clip_high") if getattr(config, field) not in (None, 0.2)
    ]
    lines += [f"{ACTOR}.clip_ratio_c=3.0"] if config.dual_clip not in (None, 3.0) else []
    lines += [f"{ACTOR}.loss_agg_mode=token-mean"] if config.aggregation not in (None, "token-mean") else []
    return tuple(lines)


def target_chain(target: float, config: TrainerConfig) -> list[str]:
    """Return the chain that keeps entropy at a target, with the user's own clip."""
    clip = [
        f"{name} = {value:g}"
        for name, value in (("low", config.clip_low), ("high", config.clip_high))
        if value is not None
    ]
    grouped = config.estimator is None or config.estimator in VERL_GROUP_ESTIMATORS
    tables = [
        *([['kind = "group-advantage"']] if grouped else []),
        ['kind = "clipped-policy"', *clip],
        ['kind = "entropy-target"', f"target = {target:g}"],
    ]
    return [*(line for table in tables for line in ("[[mechanisms]]", *table)), "[reduction]", 'by = "token-mean"']
