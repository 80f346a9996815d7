"""What a configuration of verl says against itself: settings that nothing reads, and settings that do not go together."""

from __future__ import annotations

from collections.abc import Iterator

from breadth.adapters.configs import Settings
from breadth.adapters.verl.defaults import ACTOR, CLIPPED, DUAL, LOSS, MANAGERS, OVERLONG, ROLLOUT
from breadth.bridge.doctor.knobs import Clash, Idle

KL_LOSS, KL_REWARD = f"{ACTOR}.use_kl_loss", "algorithm.use_kl_in_reward"


def idle_settings(read: Settings) -> Iterator[Idle]:
    """Yield what the user set and verl does not read."""
    yield from _behind(read, f"{ACTOR}.kl_loss_coef", KL_LOSS, KL_REWARD)
    yield from _behind(read, "algorithm.kl_ctrl.kl_coef", KL_REWARD, KL_LOSS)
    yield from _clip_ratio(read)
    yield from _by_loss(read)
    threshold = "algorithm.rollout_correction.rollout_is_threshold"
    if threshold in read.own and read.off("algorithm.rollout_correction.rollout_is"):
        said = "algorithm.rollout_correction.rollout_is" in read.own
        yield Idle(read.says(threshold), "rollout_is names no weights to be cut at it", meant=not said)
    penalty = next((name for name in OVERLONG[:3] if read.switch(name)), None)
    manager = manager_of(read)
    if penalty is not None and manager == "naive":
        yield Idle(read.says(penalty), "the reward manager naive does not read it; dapo does", meant=True)


def manager_of(read: Settings) -> str | None:
    """Return what scores responses; None where that is not known."""
    named = [read.text(name) for name in MANAGERS if name in read.own]
    return named[0] if named else read.text(MANAGERS[0])


def _behind(read: Settings, name: str, switch: str, other: str) -> Iterator[Idle]:
    """Yield a coefficient whose switch is off; it is a left-over where the file turns it off itself, or prices the same by the other."""
    if name in read.own and read.number(name) and read.switch(switch) is False:
        why = f"{switch.rpartition('.')[2]} is off" + ("" if switch in read.own else " unless it is set")
        yield Idle(read.says(name), why, meant=switch not in read.own and not read.switch(other))


def _clip_ratio(read: Settings) -> Iterator[Idle]:
    """Yield clip_ratio where it differs from what the losses read in its place."""
    both = f"{ACTOR}.clip_ratio"
    value = read.number(both)
    if both not in read.own or value is None:
        return
    low, high = read.number(f"{both}_low"), read.number(f"{both}_high")
    if low is not None and high is not None and value not in (low, high):
        why = f"verl's losses read clip_ratio_low and clip_ratio_high, which are {low:g} and {high:g} here"
        yield Idle(read.says(both), why, meant=f"{both}_low" not in read.own and f"{both}_high" not in read.own)


def _by_loss(read: Settings) -> Iterator[Idle]:
    mode = read.text(f"{LOSS}.loss_mode")
    if mode is None or mode not in CLIPPED:
        return
    unread = {
        f"{ACTOR}.clip_ratio_low": not CLIPPED[mode],
        f"{ACTOR}.clip_ratio_high": not CLIPPED[mode],
        f"{ACTOR}.clip_ratio_c": mode not in DUAL,
        f"{LOSS}.clip_cov_ratio": mode != "clip_cov",
        f"{LOSS}.clip_cov_lb": mode != "clip_cov",
        f"{LOSS}.clip_cov_ub": mode != "clip_cov",
        f"{LOSS}.kl_cov_ratio": mode != "kl_cov",
        f"{LOSS}.ppo_kl_coef": mode != "kl_cov",
    }
    for name, unused in unread.items():
        if unused and name in read.own:
            yield Idle(read.says(name), f"loss_mode={mode} does not read it", meant=f"{LOSS}.loss_mode" not in read.own)


def clashes(read: Settings) -> Iterator[Clash]:
    """Yield settings that verl refuses together, or that its own documentation says do not go together."""
    if read.switch(KL_LOSS) and read.switch(KL_REWARD):
        yield Clash(
            read.says(KL_LOSS, KL_REWARD), "leaving the reference is paid for twice, in the loss and in the reward", weight="slight"
        )
    yield from _batches(read)
    averaged, scaled = f"{ACTOR}.loss_agg_mode", "algorithm.norm_adv_by_std_in_grpo"
    if read.text(averaged) == "seq-mean-token-sum-norm" and read.switch(scaled) and read.text("algorithm.adv_estimator") == "grpo":
        why = "Dr. GRPO takes both the length and the spread of rewards out of the average; the spread is still divided by"
        yield Clash(read.says(averaged, scaled), f"{why} without {scaled}=False (arXiv 2503.20783)", weight="slight")


def _batches(read: Settings) -> Iterator[Clash]:
    whole, part = "data.train_batch_size", f"{ACTOR}.ppo_mini_batch_size"
    prompts, mini, group = read.whole(whole), read.whole(part), read.whole(f"{ROLLOUT}.n")
    dynamic = read.switch(f"{ACTOR}.use_dynamic_bsz")
    if prompts and mini and whole in read.own:
        yield from _mini_batches(read.says(whole, part), prompts, mini, dynamic=dynamic, given=part in read.own)
    gpus = _gpus(read)
    if prompts and group and gpus and dynamic is False and whole in read.own and prompts * group % gpus:
        said = read.says(whole, f"{ROLLOUT}.n", "trainer.n_gpus_per_node", "trainer.nnodes")
        yield Clash(said, f"{prompts * group} rollouts cannot be shared out evenly among {gpus} devices", weight="refused")


def _mini_batches(said: str, prompts: int, mini: int, *, dynamic: bool | None, given: bool) -> Iterator[Clash]:
    """Hold a mini-batch against the generation it is cut from; with dynamic batches verl does not refuse a larger one, and pads."""
    if mini > prompts:
        why = f"a mini-batch of {mini} prompts{'' if given else ', the default,'} is larger than the {prompts} of a generation"
        yield Clash(said, why, weight="refused" if dynamic is False else "wrong" if given else "slight")
    elif given and prompts % mini:
        why = f"{prompts} prompts are no whole number of mini-batches of {mini}: the last one is short, or filled with padding"
        yield Clash(said, why, weight="slight")


def _gpus(read: Settings) -> int | None:
    each, nodes = read.whole("trainer.n_gpus_per_node"), read.whole("trainer.nnodes")
    return each * nodes if each and nodes else None
