"""TRL's own rules: settings that it does not read, given the others, and settings that it refuses together."""

from __future__ import annotations

import math
from collections.abc import Iterator

from breadth.adapters.configs import Settings, duplicate_conflicts, render_setting
from breadth.doctor.trainer_config import Conflict, UnusedSetting

COMMON_PROCESSES = (1, 2, 4, 8)
"""Numbers of processes that nearly every run has one of."""
TWO_SIDED_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
"""Losses that clip the ratio on both sides; sapo and vespo weight it differently, cispo caps it from above."""
ADAPTIVE_SETTINGS = ("entropy_target", "entropy_coef_min", "entropy_coef_max", "entropy_coef_delta")
"""Settings of the adaptive entropy bonus."""
CORRECTION_SETTINGS = (
    "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode",
    "vllm_importance_sampling_cap",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min",
)


def trl_unused_settings(given: Settings) -> Iterator[UnusedSetting]:
    """Yield settings of the user that TRL does not read."""
    yield from _unused_without(
        given,
        ADAPTIVE_SETTINGS,
        "use_adaptive_entropy",
        "the coefficient follows a target only with use_adaptive_entropy=True",
    )
    yield from _unused_without(
        given, CORRECTION_SETTINGS, "use_vllm", "there is nothing to correct without use_vllm=True"
    )
    yield from _unused_without(
        given,
        ("ref_model_mixup_alpha", "ref_model_sync_steps"),
        "sync_ref_model",
        "the reference stays without sync_ref_model",
    )
    yield from _unused_by_loss(given)
    if given.switch("sync_ref_model") and given.number("beta") == 0:
        yield UnusedSetting(given.describe("sync_ref_model"), "no reference policy is kept at beta=0", intended=True)


def _unused_without(given: Settings, names: tuple[str, ...], switch: str, why: str) -> Iterator[UnusedSetting]:
    """Yield settings whose switch is off; if the file itself turns it off, they are left-overs."""
    spelled = given.describe(*(name for name in names if given.own.get(name) not in (None, False)))
    if spelled and given.switch(switch) is False:
        yield UnusedSetting(spelled, why, intended=switch not in given.own)


def _unused_by_loss(given: Settings) -> Iterator[UnusedSetting]:
    """Yield settings that the loss does not read."""
    loss = given.text("loss_type")
    if loss is None:
        return
    unread = {
        "epsilon": loss not in TWO_SIDED_LOSSES,
        "epsilon_high": loss in ("sapo", "vespo"),
        "delta": loss not in TWO_SIDED_LOSSES,
        "sapo_temperature_neg": loss != "sapo",
        "sapo_temperature_pos": loss != "sapo",
    }
    for name, unused in unread.items():
        if unused and given.own.get(name) is not None:
            yield UnusedSetting(
                given.describe(name), f"loss_type={loss!r} does not read it", intended="loss_type" not in given.own
            )


def trl_conflicts(read: Settings, given: Settings) -> Iterator[Conflict]:
    """Yield settings that TRL refuses together, or that its documentation advises against."""
    group, rollouts = read.whole("num_generations"), read.whole("generation_batch_size")
    if rollouts and given.own.get("steps_per_generation") is not None and "generation_batch_size" in given.own:
        yield Conflict(
            given.describe("generation_batch_size", "steps_per_generation"),
            "TRL accepts one of the two",
            consequence="refused",
            since="TRL 0.18",
        )
    if group and rollouts and rollouts % group:
        spelled = render_setting("generation_batch_size", rollouts) + ", " + render_setting("num_generations", group)
        yield Conflict(
            spelled,
            f"{rollouts} rollouts per generation are not a multiple of groups of {group}",
            consequence="refused",
            since="TRL 0.18",
        )
    yield from partial_groups(read, given)
    yield from sampling_conflicts(read, given)
    yield from duplicate_conflicts(read.own)
    yield from adaptive_conflicts(read, given)
    loss, scale = given.text("loss_type"), given.own.get("scale_rewards")
    if loss == "dr_grpo" and "loss_type" in given.own and scale in (None, True, "group", "batch"):
        why = (
            "Dr. GRPO takes both the length and the spread of rewards out of the average; the spread is still"
            " divided by"
        )
        yield Conflict(
            given.describe("loss_type", "scale_rewards"),
            f"{why} without scale_rewards='none' (arXiv 2503.20783)",
            consequence="slight",
        )


def partial_groups(read: Settings, given: Settings) -> Iterator[Conflict]:
    """Yield a group size that divides the rollouts of a generation on no usual number of processes.

    A generation has per_device_train_batch_size x steps_per_generation x processes rollouts; TRL 0.15 and 0.16 had even
    fewer: per_device_train_batch_size x processes.
    """
    sizes = ("num_generations", "per_device_train_batch_size", "steps_per_generation", "gradient_accumulation_steps")
    group, rows = read.whole("num_generations"), read.whole("per_device_train_batch_size")
    steps = read.whole("steps_per_generation" if given.own.get("steps_per_generation") is not None else sizes[-1])
    if not group or not rows or not steps or group < 2 or read.own.get("generation_batch_size") is not None:
        return
    known = read.whole("num_processes") or read.whole("nproc_per_node")
    counts = (known,) if known else COMMON_PROCESSES
    if not any(name in given.own for name in sizes) or any(rows * steps * count % group == 0 for count in counts):
        return
    lacking = group // math.gcd(group, rows * steps)
    where = f"{known} processes" if known else "1, 2, 4 or 8 processes"
    why = f"{rows * steps} rollouts per process and generation make no whole groups of {group} on {where}"
    yield Conflict(
        given.describe(*sizes),
        f"{why}: that takes a multiple of {lacking} processes",
        consequence="refused",
        since="TRL 0.15",
    )


def sampling_conflicts(read: Settings, given: Settings) -> Iterator[Conflict]:
    """Yield a top_k that the sampler does not take: -1 is vLLM's word for all tokens, transformers' is 0 or None."""
    if given.number("top_k") == -1 and read.switch("use_vllm") is False:
        why = (
            "transformers wants 0 or None for all tokens and fails on -1, which is vLLM's word, at the first generation"
        )
        yield Conflict(given.describe("top_k", "use_vllm"), why, consequence="wrong")


def adaptive_conflicts(read: Settings, given: Settings) -> Iterator[Conflict]:
    """Yield bounds of the adaptive entropy coefficient that contradict each other."""
    start, low, high = (read.number(name) for name in ("entropy_coef", "entropy_coef_min", "entropy_coef_max"))
    if not read.switch("use_adaptive_entropy") or start is None or low is None or high is None:
        return
    spelled = given.describe("entropy_coef", "entropy_coef_min", "entropy_coef_max")
    if low > high:
        yield Conflict(
            spelled, f"the smallest coefficient, {low:g}, is above the largest, {high:g}", consequence="wrong"
        )
    elif start > high:
        yield Conflict(
            spelled, f"the coefficient starts at {start:g}, above its largest value, {high:g}", consequence="wrong"
        )
