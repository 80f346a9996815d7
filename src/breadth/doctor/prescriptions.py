"""Everything the doctor can prescribe for training: the loss, the rollouts and the data.

Each prescription carries the settings that let it act in this configuration, its side effect and its source.
"""

from __future__ import annotations

from collections.abc import Iterable

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.run_course import LOST, length_cap, score_fall
from breadth.doctor.finding import Change, Prescription
from breadth.doctor.lab_effects import LAB_EFFECTS, LabRank

KL_PENALTY = 0.01
"""KL coefficient to begin with: between what large models are trained with (verl's default 0.001, DeepSeekMath's 0.04)
and the lab's 0.15, on a logarithmic scale.
"""
CANNOT_REFILL = frozenset({"trl"})
"""Trainers that can drop zero-variance groups but sample no others instead; their advantage is zero already."""
MAX_MASKED = 0.8
"""Share of truncated completions above which masking them is no remedy: less than a fifth would be left."""
CLIP_HIGH = 0.28
"""Upper clip of DAPO (arXiv 2503.14476)."""
UPDATES_PER_GENERATION = 4
"""Updates per generation that let the ratio leave 1.

DAPO takes 16, and each further update is more off-policy; the lab's experiments take four.
"""
ENTROPY_TARGET_SHARE = 0.7
"""Share of the initial entropy to hold, as in the lab's arm `entropy-target`; 1 would forbid learning."""


def sort_by_lab_effect(remedies: Iterable[Prescription | None]) -> tuple[Prescription, ...]:
    """Order the remedies that answer one finding by what the lab found; Nones are left out.

    First those that kept more pass@64 with no significant loss of pass@1, then those not measured, in the order given,
    then those for which nothing was shown, and at last those with a significant loss; measured ones by the change of
    pass@64.
    """

    def place(remedy: Prescription) -> tuple[int, float]:
        effect = LAB_EFFECTS.get(remedy.effect)
        return (LabRank.NOT_MEASURED, 0.0) if effect is None else (effect.rank, -effect.pass_at_64.value)

    return tuple(sorted((remedy for remedy in remedies if remedy is not None), key=place))


def raise_upper_clip(evidence: Evidence) -> Prescription | None:
    """Raise the upper clip; adds several updates per generation where there is one, since no clip acts otherwise."""
    config = evidence.config
    if config.clip_high is not None and config.clip_high >= CLIP_HIGH:
        return None
    changes = [Change("clip_high", CLIP_HIGH)]
    why = "Unlikely tokens can then gain more before they are clipped, so the policy narrows more slowly."
    if config.on_policy:
        changes.append(Change("updates", UPDATES_PER_GENERATION))
        why += (
            " With one update per generation the ratio is always 1 and no clip acts, so it needs"
            f" {UPDATES_PER_GENERATION}."
        )
    elif config.on_policy is None:
        why += " It acts only with more than one update per generation, and this run's number is not known."
    return Prescription(
        f"Raise the upper clip to {CLIP_HIGH}",
        why,
        tuple(changes),
        "Entropy may rise without bound late in a run, so watch it.",
        "DAPO, arXiv 2503.14476",
        effect="clip-higher",
    )


def add_kl_cov(evidence: Evidence) -> Prescription:
    """Penalize the few tokens that use up the entropy; adds updates where they are strictly on-policy."""
    changes = [Change("chain", "kl_cov")]
    why = (
        "A few tokens with a high covariance of log-probability and advantage cause nearly all of the entropy loss;"
        " KL-Cov penalizes only those."
    )
    if evidence.config.on_policy:
        changes.append(Change("updates", UPDATES_PER_GENERATION))
        why += (
            f" On strictly on-policy updates its gradient is zero, so it needs {UPDATES_PER_GENERATION} per generation."
        )
    return Prescription(
        "Add KL-Cov to hold the tokens that use up the entropy",
        why,
        tuple(changes),
        "On some models entropy surges after long training (Entropy-Mechanism-of-RL#20).",
        "arXiv 2505.22617",
        effect="kl-cov",
    )


def hold_entropy(start: float) -> Prescription:
    """Let the entropy bonus follow a target inside the range of this run."""
    target = float(f"{ENTROPY_TARGET_SHARE * start:.2g}")
    return Prescription(
        f"Hold entropy at {target:g} nats, {ENTROPY_TARGET_SHARE:.0%} of this run's start",
        "The coefficient rises only while entropy is below the target, so it costs nothing when it is not needed.",
        (Change("entropy_adaptive", True), Change("entropy_target", target)),
        "It rewards entropy on every token; where the uncertainty is about results, not routes, it costs score.",
        "Skywork OR1, arXiv 2505.22312",
        effect="entropy-target",
    )


def add_kl_penalty(evidence: Evidence) -> Prescription | None:
    """Add a KL penalty to the reference policy; None where there is one."""
    if evidence.config.kl:
        return None
    return Prescription(
        f"Add a KL penalty to the reference policy, {KL_PENALTY:g} to begin with",
        "It keeps the answers that the base model can give. The lab's coefficient is for a tiny model that moves far"
        " from its base; large models are trained with 0.001 to 0.04, so start between and raise it, up to the lab's,"
        " while entropy still falls.",
        (Change("kl", KL_PENALTY),),
        "One more forward pass per step, and a limit on how far training can go.",
        "ProRL, arXiv 2505.24864; DeepSeekMath, arXiv 2402.03300; breadth's four corners",
        effect="anchor",
    )


def lower_learning_rate(evidence: Evidence, share: float = 1 / 3) -> Prescription:
    """Lower the learning rate, by default to a third."""
    rate = evidence.config.learning_rate
    wanted = None if not rate else float(f"{rate * share:.1g}")
    return Prescription(
        "Lower the learning rate" + (" to a third" if wanted is None else f" from {rate:g} to {wanted:g}"),
        "What now happens within a few steps then happens slowly enough to correct.",
        () if wanted is None else (Change("learning_rate", wanted),),
        "Training is slower.",
    )


def set_learning_rate() -> Prescription:
    """Give the optimizer a learning rate above zero."""
    return Prescription(
        "Give the optimizer a learning rate above zero, and check its schedule",
        "At a rate of zero no gradient moves the policy; a resumed schedule may already be at its end.",
    )


def resume_from_checkpoint(step: int) -> Prescription:
    """Resume from a checkpoint before the damage."""
    return Prescription(
        f"Resume from the last checkpoint before step {step:,}, with one of the changes above",
        "This run will not recover what it lost.",
    )


def go_back_to(step: int) -> Prescription:
    """Resume from the checkpoint of the best stretch, before anything else is tried."""
    return Prescription(
        f"Go back to the last checkpoint up to step {step:,}",
        "What the policy has lost since then no setting brings back; change the cause before you resume.",
    )


def around_checkpoint(
    evidence: Evidence, step: int | None, remedies: tuple[Prescription, ...]
) -> tuple[Prescription, ...]:
    """Add the way back before a step: first where the run is dead, that is its score has surely fallen; else last."""
    fall = score_fall(evidence)
    if fall is not None and fall.is_sure and fall.share >= LOST:
        return (go_back_to(int(fall.best.last)), *remedies)
    return remedies if step is None else (*remedies, resume_from_checkpoint(step))


def lower_entropy_bonus(evidence: Evidence) -> Prescription | None:
    """Lower an entropy bonus tenfold; None where there is none."""
    bonus = evidence.config.entropy_bonus
    if bonus == 0:
        return None
    action = (
        "If there is an entropy bonus, lower it tenfold"
        if bonus is None
        else f"Lower the entropy bonus from {bonus:g} to {bonus / 10:g}"
    )
    return Prescription(
        f"{action}, or make it adaptive",
        "A constant bonus that outweighs the reward drives the policy to random tokens.",
        () if bonus is None else (Change("entropy_bonus", bonus / 10),),
        source="verl#2738; arXiv 2505.22312",
    )


def lower_upper_clip(evidence: Evidence) -> Prescription | None:
    """Lower an upper clip that is wider than the lower one."""
    config = evidence.config
    if config.on_policy or config.clip_high is None or config.clip_low is None or config.clip_high <= config.clip_low:
        return None
    return Prescription(
        f"Lower the upper clip from {config.clip_high:g} to {config.clip_low:g}",
        "A wide upper clip lets unlikely tokens grow without limit.",
        (Change("clip_high", config.clip_low),),
        source="DAPO, arXiv 2503.14476",
    )


def correct_mismatch(evidence: Evidence) -> Prescription | None:
    """Correct the mismatch between trainer and sampler by truncated importance weights; None where both are one."""
    if evidence.config.correct_mismatch or evidence.config.engine == "hf":
        return None
    return Prescription(
        "Weight rollouts by truncated importance sampling between trainer and sampler",
        "Trainer and sampler disagree about the same tokens; without weights the gradient belongs to another policy.",
        (Change("correct_mismatch", True),),
        "More variance, and a few weights are truncated.",
        "Truncated importance sampling, Yao et al. 2025; verl#6780",
    )


def raise_length_cap(evidence: Evidence) -> Prescription:
    """Allow completions twice as long as by the settings or, without them, as the log shows."""
    cap = length_cap(evidence)
    longest = None if cap is None else round(cap)
    wanted = None if longest is None else 2 * longest
    return Prescription(
        "Allow longer completions" + (f": {wanted:,} tokens instead of {longest:,}" if wanted else ""),
        "A truncated completion has no answer and is scored as wrong, however good its start.",
        () if wanted is None else (Change("max_completion_length", wanted),),
        "Memory and time grow with the longest completion.",
        "verl#2738",
    )


def mask_truncated(evidence: Evidence) -> Prescription | None:
    """Mask truncated completions in the loss, unless hardly any would be left to learn from."""
    cut = evidence.course("truncated")
    mostly_cut = cut is not None and cut.end.level.value > MAX_MASKED
    if evidence.config.mask_truncated or mostly_cut:
        return None
    return Prescription(
        "Mask truncated completions in the loss",
        "Their reward says nothing about their content; it only adds noise to the gradient.",
        (Change("mask_truncated", True),),
        "Nothing then teaches the policy to be brief; add a soft length penalty for that.",
        "DAPO (overlong filtering), arXiv 2503.14476",
    )


def resample_zero_variance_groups(evidence: Evidence) -> Prescription | None:
    """Resample groups without variance in reward (dynamic sampling); more prompts where the trainer cannot."""
    if evidence.config.dynamic_sampling:
        return None
    if trainer_of(evidence) in CANNOT_REFILL:
        return take_more_prompts(evidence)
    return Prescription(
        "Resample groups whose rewards are all equal (dynamic sampling)",
        "Their advantage is zero: they cost compute and teach nothing.",
        (Change("dynamic_sampling", True),),
        "More rollouts per step; with a shaped reward hardly any group has zero variance and the filter does nothing.",
        "DAPO (dynamic sampling), arXiv 2503.14476; trl#3708",
    )


def trainer_of(evidence: Evidence) -> str:
    """Return the name of the trainer, by its settings or its log; empty where it is not known."""
    if evidence.dialect is not None:
        return evidence.dialect.trainer
    return "" if evidence.run is None else evidence.run.header.trainer


def take_more_prompts(evidence: Evidence) -> Prescription:
    """Take twice the prompts per update, where the trainer samples no others instead of zero-variance groups."""
    config = evidence.config
    fixed = "prompts" in config.user_settings or "steps_per_generation" in config.user_settings.get("updates", "")
    changes = () if config.accumulation is None or fixed else (Change("accumulation", 2 * config.accumulation),)
    return Prescription(
        "Take twice the prompts per update",
        "Your trainer samples no other groups instead of those with zero variance, and their advantage is zero already:"
        " dropping them changes nothing. More prompts bring more groups that teach.",
        changes,
        "Twice the rollouts per update.",
        "trl#3708",
    )


def enlarge_groups(evidence: Evidence, chance: float | None) -> Prescription | None:
    """Sample more rollouts per prompt."""
    group = evidence.config.group
    if group is None or group >= 16:
        return None
    wanted = max(8, 2 * group)
    why = "A larger group is less often all right or all wrong."
    if chance is not None and 0 < chance < 1:
        flat = [chance**size + (1 - chance) ** size for size in (group, wanted)]
        why += (
            f" At a score of {chance:.2f} on every problem, {flat[0]:.0%} of groups of {group} would have zero"
            f" variance, against {flat[1]:.0%} of groups of {wanted}."
        )
    return Prescription(
        f"Sample {wanted} rollouts per prompt instead of {group}",
        why,
        (Change("group", wanted),),
        "Fewer prompts for the same number of rollouts.",
        "jsboige/CoursIA#10603",
    )


def filter_problems(*, easier: bool) -> Prescription:
    """Remove problems that are never, or always, solved and add easier, or harder, ones."""
    word = "never solves" if easier else "always solves"
    return Prescription(
        f"Remove problems that the policy {word} in 16 tries, and add {'easier' if easier else 'harder'} ones",
        "A policy learns from the problems that it solves sometimes.",
        (),
        "Takes 16 rollouts of every problem once; keep an unfiltered control set.",
        "verifiers#363, open-r1#637",
    )


def raise_kl_penalty(evidence: Evidence) -> Prescription | None:
    """Triple the KL penalty to the reference policy, or add one."""
    price = evidence.config.kl
    if not price:
        return add_kl_penalty(evidence)
    wanted = float(f"{3 * price:.1g}")
    return Prescription(
        f"Raise the KL penalty to the reference policy from {price:g} to {wanted:g}",
        "The penalty grows with the distance, so a policy that has begun to drift is held where penalty and advantage"
        " balance.",
        (Change("kl", wanted),),
        "It limits how far training can go.",
    )


def raise_learning_rate(evidence: Evidence) -> Prescription | None:
    """Double the learning rate; None where it is not known."""
    rate = evidence.config.learning_rate
    if not rate:
        return None
    wanted = float(f"{2 * rate:.2g}")
    return Prescription(
        f"Raise the learning rate from {rate:g} to {wanted:g}",
        "Rewards still differ within groups and entropy is left: there is something to learn, and the steps may be too"
        " small.",
        (Change("learning_rate", wanted),),
        "Entropy falls faster: watch it, and undo this if the KL to the reference jumps.",
    )


def inspect_signal() -> Prescription:
    """Look at rollouts with their rewards, and at what reaches the optimizer."""
    return Prescription(
        "Read twenty rollouts with their rewards: do right answers get more, and do the texts end?",
        "Most runs that learn nothing have a reward that cannot be earned, an answer that cannot be read, or a frozen"
        " adapter.",
    )


def inspect_rewards() -> Prescription:
    """Look for the loophole in the reward and close it."""
    return Prescription(
        "Compare twenty of the newest rollouts with the highest reward to their reference answers, and close the"
        " loophole they use",
        "When the reward rises and what it measures does not, the policy exploits something the checker lets through.",
        (),
        "The reward drops when the checker gets stricter; compare runs only by a held-out score.",
        "arXiv 2605.28388: one item with a lax checker took the mean length from 511 to 46 tokens in 58 steps",
    )


def pay_only_correct(component: str) -> Prescription:
    """Tie a component that carries the rise to the goal."""
    return Prescription(
        f"Pay {component} only where the answer is right, or lower its weight",
        "It pays without the goal, and it is easier to get: the policy learns it first and may stop there.",
        (),
        "Where no answer is right yet, nothing is paid at all: easier problems first.",
    )


def stop_training(step: int) -> Prescription:
    """Stop at the step where the score stopped rising."""
    return Prescription(
        f"Stop, and keep a checkpoint from about step {step:,}",
        "The steps since then cost as much as those before, and moved the score by less than its noise.",
    )


def add_problems() -> Prescription:
    """Add problems of medium difficulty that the policy has not seen."""
    return Prescription(
        "Add problems that the policy has not seen and solves in 2 to 12 of 16 tries",
        "Rewards still differ within groups, yet these problems teach nothing more; new ones need new skills.",
        (),
        "The training score then changes its meaning: compare on a held-out set.",
        "verifiers#363, open-r1#637",
    )


def match_temperature(scored: float, sampled: float) -> Prescription:
    """Sample at the temperature that the trainer takes log-probs at."""
    return Prescription(
        f"Sample rollouts at the temperature of the trainer's log-probs: {scored:g} instead of {sampled:g}",
        "At two temperatures the same logits are two policies, and every ratio compares one with the other.",
        (Change("temperature", scored),),
        "Entropy and length change with the temperature: compare scores only from this change on.",
        "breadth's Temperature plan; vLLM returns raw log-probs unless --logprobs-mode is set",
    )


def sample_full_distribution(evidence: Evidence) -> Prescription | None:
    """Sample from all tokens; None where top-p is already 1."""
    top_p = evidence.config.top_p
    if top_p is not None and top_p >= 1:
        return None
    now = "" if top_p is None else f" instead of {top_p:g}"
    return Prescription(
        f"Sample rollouts from the full distribution: top-p 1{now}, no top-k, no min-p",
        "Filtered tokens are never sampled but keep their probability in training, so every ratio is biased.",
        (Change("top_p", 1.0),),
        "A few more nonsense tokens are sampled.",
    )


def match_precision() -> Prescription:
    """Run trainer and sampler in the same precision."""
    return Prescription(
        "Run trainer and sampler in the same precision: float16 in both, or float32 for the last layer of both",
        "bfloat16 keeps 8 bits of a logit, and the two engines round differently.",
        (),
        "float16 needs loss scaling; a float32 last layer takes memory.",
        "arXiv 2510.26788",
    )


def reduce_updates(evidence: Evidence) -> Prescription | None:
    """Take one update per generation; None where that is so, or not known."""
    updates = evidence.config.updates
    if updates is None or updates <= 1:
        return None
    return Prescription(
        f"Take 1 update per generation instead of {updates:g}",
        "From the second update on, the tokens come from an older policy.",
        (Change("updates", 1),),
        "Fewer updates for the same rollouts, and clips no longer act.",
        "Entropy-Mechanism-of-RL#20",
    )


def hold_fork_entropy() -> Prescription:
    """Hold the entropy of the forking tokens."""
    return Prescription(
        "Hold the entropy of the forking tokens in a band around its initial value",
        "It acts only where the policy chooses between routes, not on mechanical tokens; it works on on-policy updates"
        " too.",
        (Change("chain", "thermostat"),),
        "A floor above what the task needs keeps the policy from committing, so watch the reward.",
        "breadth's fork thermostat, after arXiv 2506.01939",
        effect="thermostat",
    )


def train_on_forks() -> Prescription:
    """Train only on the forking tokens."""
    return Prescription(
        "Train only on the 20% of tokens with the highest entropy",
        "In the paper this raised the score of a 32B model, while the other 80% of tokens alone lowered it.",
        (Change("chain", "forking"),),
        "The gain grows with model size: about none at 8B.",
        "arXiv 2506.01939",
        effect="forking",
    )


def drop_degenerate_successes() -> Prescription:
    """Give right but degenerate rollouts no advantage."""
    return Prescription(
        "Give no advantage to right rollouts that loop, repeat their answer or skip the work",
        "A rewarded shortcut is learned first; wrong rollouts and honest successes stay as they are.",
        (Change("chain", "guarded"),),
        "If it fires on more than a few percent, fix the data or the checker instead.",
        "breadth's degenerate guard, after arXiv 2605.28388",
    )


def reward_calibration() -> Prescription:
    """Reward calibrated confidence with a Brier term."""
    return Prescription(
        "Let the policy state its confidence and add a Brier term to the reward: right - (confidence - right)^2",
        "A reward for correctness alone pays a lucky guess like knowledge, and an overconfident guess like an honest"
        " doubt.",
        (),
        "Completions must state a confidence; those that do not must get no reward.",
        "arXiv 2507.16806; breadth.training.BrierReward",
    )


def add_answer_bonus() -> Prescription:
    """Add a bonus for rare answers."""
    return Prescription(
        "Add a bonus for answers that are rare on their problem so far",
        "A problem that is never solved gives no reward, so only a bonus keeps the policy from repeating one answer.",
        (),
        "Answers that cannot be parsed must get no bonus, or the policy explores by breaking the format.",
        "arXiv 2509.06941; breadth.training.OutcomeBonus",
        effect="ucb",
    )


def train_for_pass_at_k() -> Prescription:
    """Train for pass@k for a while."""
    return Prescription(
        "Train for pass@k for a while, then for pass@1 again",
        "A group is scored by its best rollout, so identical rollouts earn less.",
        (Change("chain", "passk"),),
        "Meanwhile pass@1 rises more slowly.",
        "arXiv 2508.10751",
    )


def mix_formats(kind: str) -> Prescription:
    """Mix in training data of another format."""
    return Prescription(
        f"Mix in data that is not {kind}: at least a third, on the same kind of problem",
        "The format of the data decides how a policy explores (several options early, or one route deep), far more than"
        " its subject.",
        (),
        "Check that the reward function parses every format.",
        "arXiv 2505.10185",
    )


def filter_by_reward_variance() -> Prescription:
    """Train on the prompts whose rewards differ most."""
    return Prescription(
        "Train each step on the smallest set of prompts that holds 90% of the summed reward variance",
        "Prompts whose rollouts all score alike give no gradient, while penalties and bonuses pull on them as on any"
        " other, the same way for every prompt: that is what wipes out the differences between prompts.",
        (),
        "Fewer prompts per step; a step without any variance is skipped.",
        "RAGEN-2, arXiv 2604.06268 (its top-p filter, 0.9, without groups of zero variance)",
    )


def limit_sample_age(updates: float) -> Prescription:
    """Keep the sampler close to the trainer."""
    return Prescription(
        f"Let samples be at most {updates:g} updates old",
        "The older the weights that wrote a sample, the less it says of the policy that is trained. The limit is"
        " max_head_offpolicyness in AReaL, max_async_level in prime-rl and staleness_threshold in verl's asynchronous"
        " trainer.",
        (),
        "The trainer waits more often for samples.",
        "AReaL, arXiv 2505.24298",
    )
