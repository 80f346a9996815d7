"""What a GRPO configuration of TRL says against itself: settings that nothing reads, and settings that do not go together."""

from __future__ import annotations

from collections.abc import Iterator

from breadth.adapters.configs import Settings, spelled
from breadth.bridge.doctor.knobs import Clash, Idle

CLIPPING = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
"""Losses that clip the ratio on both sides; sapo and vespo weigh it otherwise, cispo caps it above."""
FOLLOWING = ("entropy_target", "entropy_coef_min", "entropy_coef_max", "entropy_coef_delta")
"""Settings of the adaptive entropy bonus."""
CORRECTING = (
    "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode",
    "vllm_importance_sampling_cap",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min",
)


def idle_settings(given: Settings) -> Iterator[Idle]:
    """Yield what the user set and TRL does not read."""
    yield from _behind(given, FOLLOWING, "use_adaptive_entropy", "the coefficient follows a target only with use_adaptive_entropy=True")
    yield from _behind(given, CORRECTING, "use_vllm", "there is nothing to correct without use_vllm=True")
    yield from _behind(
        given, ("ref_model_mixup_alpha", "ref_model_sync_steps"), "sync_ref_model", "the reference stays without sync_ref_model"
    )
    yield from _by_loss(given)
    if given.switch("sync_ref_model") and given.number("beta") == 0:
        yield Idle(given.says("sync_ref_model"), "no reference policy is kept at beta=0", meant=True)


def _behind(given: Settings, names: tuple[str, ...], switch: str, why: str) -> Iterator[Idle]:
    """Yield settings whose switch is off; a switch that the file turns off itself says that they are left-overs."""
    said = given.says(*(name for name in names if given.own.get(name) not in (None, False)))
    if said and given.switch(switch) is False:
        yield Idle(said, why, meant=switch not in given.own)


def _by_loss(given: Settings) -> Iterator[Idle]:
    loss = given.text("loss_type")
    if loss is None:
        return
    unread = {
        "epsilon": loss not in CLIPPING,
        "epsilon_high": loss in ("sapo", "vespo"),
        "delta": loss not in CLIPPING,
        "sapo_temperature_neg": loss != "sapo",
        "sapo_temperature_pos": loss != "sapo",
    }
    for name, unused in unread.items():
        if unused and given.own.get(name) is not None:
            yield Idle(given.says(name), f"loss_type={loss!r} does not read it", meant="loss_type" not in given.own)


def clashes(read: Settings, given: Settings) -> Iterator[Clash]:
    """Yield settings that TRL refuses together, or that its documentation says do not go together."""
    group, rollouts = read.whole("num_generations"), read.whole("generation_batch_size")
    if rollouts and given.own.get("steps_per_generation") is not None and "generation_batch_size" in given.own:
        yield Clash(given.says("generation_batch_size", "steps_per_generation"), "TRL takes one of the two", weight="refused")
    if group and rollouts and rollouts % group:
        said = spelled("generation_batch_size", rollouts) + ", " + spelled("num_generations", group)
        yield Clash(said, f"{rollouts} rollouts of a generation make no whole groups of {group}", weight="refused")
    yield from _adaptive(read, given)
    loss, scale = given.text("loss_type"), given.own.get("scale_rewards")
    if loss == "dr_grpo" and "loss_type" in given.own and scale in (None, True, "group", "batch"):
        why = "Dr. GRPO takes both the length and the spread of rewards out of the average; the spread is still divided by"
        yield Clash(given.says("loss_type", "scale_rewards"), f"{why} without scale_rewards='none' (arXiv 2503.20783)", weight="slight")


def _adaptive(read: Settings, given: Settings) -> Iterator[Clash]:
    start, low, high = (read.number(name) for name in ("entropy_coef", "entropy_coef_min", "entropy_coef_max"))
    if not read.switch("use_adaptive_entropy") or start is None or low is None or high is None:
        return
    said = given.says("entropy_coef", "entropy_coef_min", "entropy_coef_max")
    if low > high:
        yield Clash(said, f"the smallest coefficient, {low:g}, is above the largest, {high:g}", weight="wrong")
    elif start > high:
        yield Clash(said, f"the coefficient starts at {start:g}, above its largest value, {high:g}", weight="wrong")
