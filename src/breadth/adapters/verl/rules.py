"""verl's own rules: settings that it does not read, given the others, and settings that it refuses together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from breadth.adapters.configs import Settings, check_evaluation
from breadth.adapters.verl.names import (
    ACTOR,
    BASE_CONFIG,
    DUAL_CLIP_LOSSES,
    KL_LOSS,
    KL_REWARD,
    LENGTH_PENALTY_SWITCHES,
    LOSS,
    REWARD_MANAGERS,
    ROLLOUT,
    VERL_CLIPPED_LOSSES,
)
from breadth.doctor.trainer_config import Conflict, UnusedSetting


def verl_unused_settings(read: Settings) -> Iterator[UnusedSetting]:
    """Yield settings of the user that verl does not read."""
    yield from _unused_without(read, f"{ACTOR}.kl_loss_coef", KL_LOSS, KL_REWARD)
    yield from _unused_without(read, "algorithm.kl_ctrl.kl_coef", KL_REWARD, KL_LOSS)
    yield from unread_clip_ratio(read)
    yield from _unused_by_loss(read)
    yield from check_evaluation(read, "data.val_files", "trainer.test_freq")
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


def check_saving(read: Settings) -> Iterator[Conflict]:
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
    yield from check_saving(read)
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
