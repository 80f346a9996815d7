"""Changes worded for verl: Hydra overrides, or a chain of ours where verl has no setting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from breadth.adapters.verl.config import ACTOR, COVARIANCES, FIELDS, GROUPED, LOSS, ROLLOUT
from breadth.doctor.finding import Change
from breadth.doctor.trainer_config import TrainerConfig

PLAIN = frozenset(FIELDS) - {"kl", "kl_given", "covariance", "filter_metric", "max_prompt_length", "estimator"}
"""Knobs whose value is the setting's."""
MOST = 100_000
"""Prompts of a mini-batch that are tried at most: nobody has more."""
CHAIN = "/absolute/path/of/chain.toml"
"""Where the user puts a chain; every node of the run reads it."""


def render_patch(changes: Sequence[Change], knobs: TrainerConfig) -> tuple[str, ...]:
    """Return one override a line; a chain's file follows, behind a comment that says so."""
    overrides = [line for change in changes for line in change_overrides(change, knobs, changes)]
    target = next((change for change in changes if change.setting == "entropy_target"), None)
    chain = [] if target is None else ["# chain.toml:", *target_chain(float(target.value), knobs)]
    return (*dict.fromkeys(overrides), *chain)


def change_overrides(change: Change, knobs: TrainerConfig, together: Sequence[Change]) -> Sequence[str]:
    value = change.value
    words: Mapping[str, Callable[[], Sequence[str]]] = {
        "updates": lambda: _updates(int(value), _prompts(knobs, together), knobs),
        "kl": lambda: (f"{ACTOR}.use_kl_loss=True", f"{ACTOR}.kl_loss_coef={value:g}"),
        "correct_mismatch": lambda: _correction() if value else ("algorithm.rollout_correction.rollout_is=null",),
        "dynamic_sampling": lambda: filter_overrides(knobs) if value else ("algorithm.filter_groups.enable=False",),
        "chain": lambda: recipe_overrides(str(value), knobs),
        "entropy_target": lambda: (*chain_overrides(CHAIN, knobs), *_no_bonus(knobs)),
        "logs_rollouts": lambda: (f"trainer.rollout_data_dir={'rollouts' if value is True else value or 'null'}",),
        "max_completion_length": lambda: _longest(int(value), knobs),
        "length_penalty": lambda: penalty_overrides(knobs) if value else (),
        "covariance_share": lambda: (f"{LOSS}.{knobs.loss}_ratio={_hydra(value)}",) if knobs.covariance else (),
        "top_k": lambda: (f"{ROLLOUT}.top_k={value or -1}",),
        "repetition_penalty": lambda: (f"++{ROLLOUT}.repetition_penalty={_hydra(value)}",),
    }
    if change.setting in words:
        return words[change.setting]()
    return (f"{FIELDS[change.setting]}={_hydra(value)}",) if change.setting in PLAIN else ()


def _hydra(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _prompts(knobs: TrainerConfig, together: Sequence[Change]) -> int | None:
    wanted = next((change.value for change in together if change.setting == "prompts"), knobs.prompts)
    return None if wanted is None else int(wanted)


def _updates(wanted: int, prompts: int | None, knobs: TrainerConfig) -> tuple[str, ...]:
    """Cut a generation into about as many mini-batches, all of one size; where it is too small, go over it several times."""
    sizes = [size for size in range(1, min((prompts or 0) // max(wanted, 1), MOST) + 1) if (prompts or 0) % size == 0]
    once = (f"{ACTOR}.ppo_epochs=1",) if "ppo_epochs" in knobs.user_settings.get("updates", "") else ()
    return (f"{ACTOR}.ppo_mini_batch_size={sizes[-1]}", *once) if sizes else (f"{ACTOR}.ppo_epochs={wanted}",)


def _correction() -> tuple[str, ...]:
    return (
        f"{ROLLOUT}.calculate_log_probs=True",
        "algorithm.rollout_correction.rollout_is=token",
        "algorithm.rollout_correction.rollout_is_threshold=2.0",
    )


def filter_overrides(knobs: TrainerConfig) -> tuple[str, ...]:
    if knobs.shaped_reward:
        return (
            "algorithm.filter_groups.enable=True",
            "algorithm.filter_groups.metric=acc",
            "# the reward function must return acc beside score: with a shaped reward hardly any group is flat",
        )
    return ("algorithm.filter_groups.enable=True", "algorithm.filter_groups.metric=reward")


def _longest(wanted: int, knobs: TrainerConfig) -> tuple[str, ...]:
    room = wanted + (knobs.max_prompt_length or 0)
    more = (f"{ROLLOUT}.max_model_len={room}",) if knobs.context is not None and knobs.context < room else ()
    return (f"data.max_response_length={wanted}", *more)


def penalty_overrides(knobs: TrainerConfig) -> tuple[str, ...]:
    """Let verl's dapo manager score responses, which alone reads a penalty for length; with DAPO's, where none is set up."""
    manager = "reward.reward_manager.name=dapo"
    if knobs.length_penalty is not None or knobs.max_completion_length is None:
        return (manager,)
    place = "++reward.reward_kwargs"
    numbers = {"enable": True, "len": max(1, knobs.max_completion_length // 4), "penalty_factor": 1.0, "log": False}
    lines = [f"{place}.overlong_buffer_cfg.{name}={value}" for name, value in numbers.items()]
    return (manager, *lines, f"{place}.max_resp_len={knobs.max_completion_length}")


def recipe_overrides(recipe: str, knobs: TrainerConfig) -> tuple[str, ...]:
    """Use verl's own loss where it has the same, with the paper's numbers; but it cannot rank a micro-batch of one response."""
    if recipe in COVARIANCES and knobs.micro_batch != 1:
        numbers = {
            "kl_cov": (f"{LOSS}.kl_cov_ratio=0.002", f"{LOSS}.ppo_kl_coef=1.0"),
            "clip_cov": (f"{ACTOR}.clip_ratio_low=1.0", f"{ACTOR}.clip_ratio_high=1.0"),
        }
        return (f"{LOSS}.loss_mode={recipe}", *numbers[recipe])
    return chain_overrides(recipe, knobs)


def chain_overrides(chain: str, knobs: TrainerConfig) -> tuple[str, ...]:
    """Run a chain under our trainer, with verl's own clips and averaging where the chain expects them."""
    lines = [
        f"{LOSS}._target_=breadth.adapters.verl.loss.BreadthLoss",
        f"+{LOSS}.chain={chain}",
        f"{LOSS}.loss_mode=breadth",
        "trainer.v1.trainer_mode=breadth",
        f"{ACTOR}.calculate_entropy=True",
    ]
    lines += ["algorithm.adv_estimator=grpo"] if knobs.estimator == "gae" and chain != CHAIN else []
    lines += [f"{FIELDS[knob]}=0.2" for knob in ("clip_low", "clip_high") if getattr(knobs, knob) not in (None, 0.2)]
    lines += [f"{ACTOR}.clip_ratio_c=3.0"] if knobs.dual_clip not in (None, 3.0) else []
    lines += [f"{ACTOR}.loss_agg_mode=token-mean"] if knobs.aggregation not in (None, "token-mean") else []
    return tuple(lines)


def _no_bonus(knobs: TrainerConfig) -> tuple[str, ...]:
    return (f"{ACTOR}.entropy_coeff=0",) if knobs.entropy_bonus else ()


def target_chain(target: float, knobs: TrainerConfig) -> list[str]:
    """Return the chain that holds entropy at a target, with the user's own clip."""
    clip = [
        f"{name} = {value:g}"
        for name, value in (("low", knobs.clip_low), ("high", knobs.clip_high))
        if value is not None
    ]
    grouped = knobs.estimator is None or knobs.estimator in GROUPED
    tables = [
        *([['kind = "group-advantage"']] if grouped else []),
        ['kind = "clipped-policy"', *clip],
        ['kind = "entropy-target"', f"target = {target:g}"],
    ]
    return [*(line for table in tables for line in ("[[mechanisms]]", *table)), "[reduction]", 'by = "token-mean"']
