"""What can be prescribed, each with what lets it act in the user's configuration, its side effect and who found that it helps."""

from __future__ import annotations

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Change, Prescription

CLIP_HIGH = 0.28
"""Upper clip of DAPO (arXiv 2503.14476)."""
SEVERAL = 4
"""Updates a generation that let a ratio leave 1: DAPO takes 16, and each more is more off-policy; four is what the
lab's remedies take.
"""
KEEP = 0.7
"""Share of the start's entropy to hold: what the lab's arm `entropy-target` holds; 1 would forbid learning."""


def clip_higher(evidence: Evidence) -> Prescription | None:
    """Let likely tokens be raised less than unlikely ones; inert without several updates a generation, which then comes with it."""
    knobs = evidence.config
    if knobs.clip_high is not None and knobs.clip_high >= CLIP_HIGH:
        return None
    changes = [Change("clip_high", CLIP_HIGH)]
    why = "Unlikely tokens can then gain more before the clip cuts them off, so the policy narrows more slowly."
    if knobs.on_policy:
        changes.append(Change("updates", SEVERAL))
        why += f" With one update a generation the ratio is always 1 and no clip acts, so it needs {SEVERAL}."
    elif knobs.on_policy is None:
        why += " It acts only with more than one update a generation; whether this run has them is not known."
    return Prescription(
        f"Raise the upper clip to {CLIP_HIGH}",
        why,
        tuple(changes),
        "Entropy may rise without bound late in a run; watch it.",
        "DAPO, arXiv 2503.14476",
    )


def kl_cov(evidence: Evidence) -> Prescription:
    """Hold the few tokens that take the entropy; inert on strictly on-policy updates."""
    changes = [Change("chain", "kl_cov")]
    why = (
        "A handful of tokens with a high covariance of log-probability and advantage takes nearly all of the entropy;"
        " this holds them."
    )
    if evidence.config.on_policy:
        changes.append(Change("updates", SEVERAL))
        why += f" On strictly on-policy updates its gradient is zero, so it needs {SEVERAL} a generation."
    return Prescription(
        "Hold the tokens that take the entropy with KL-Cov",
        why,
        tuple(changes),
        "After long training entropy may surge on some models (Entropy-Mechanism-of-RL#20).",
        "arXiv 2505.22617",
    )


def hold_entropy(start: float) -> Prescription:
    """Let the bonus follow a target inside the range that this run has seen."""
    target = float(f"{KEEP * start:.2g}")
    return Prescription(
        f"Hold entropy at {target:g} nats, {KEEP:.0%} of this run's start",
        "The coefficient rises only while entropy lies below the target, so nothing is paid where it is not needed.",
        (Change("entropy_adaptive", True), Change("entropy_target", target)),
        "It pays for all tokens alike: where the doubt is about results and not about routes, it costs score.",
        "Skywork OR1, arXiv 2505.22312",
    )


def anchor(evidence: Evidence) -> Prescription | None:
    """Put a price on leaving the reference policy."""
    if evidence.config.kl:
        return None
    return Prescription(
        "Put a small price on leaving the reference policy",
        "It keeps the answers that the base can still give; in the lab it kept more pass@64, more votes and more score"
        " than plain GRPO.",
        (Change("kl", 0.001),),
        "One more forward pass a step, and a cap on how far training can go; raise it tenfold if nothing changes.",
        "ProRL, arXiv 2505.24864; breadth's four corners",
    )


def smaller_rate(evidence: Evidence, share: float = 1 / 3) -> Prescription:
    """Take smaller steps."""
    rate = evidence.config.learning_rate
    wanted = None if not rate else float(f"{rate * share:.1g}")
    return Prescription(
        "Lower the learning rate" + (" to a third" if wanted is None else f" from {rate:g} to {wanted:g}"),
        "What happens here in steps then happens slowly enough to be steered.",
        () if wanted is None else (Change("learning_rate", wanted),),
        "Slower.",
    )


def go_back(step: int) -> Prescription:
    """Return to a checkpoint."""
    return Prescription(
        f"Go on from the last checkpoint before step {step:,}, with one of the changes above",
        "What was lost is not learned again by the same run.",
    )


def no_bonus(evidence: Evidence) -> Prescription | None:
    """Switch an entropy bonus off."""
    bonus = evidence.config.entropy_bonus
    if bonus == 0:
        return None
    action = (
        "If there is an entropy bonus, lower it tenfold"
        if bonus is None
        else f"Lower the entropy bonus from {bonus:g} to {bonus / 10:g}"
    )
    return Prescription(
        f"{action}, or let it follow a target",
        "A constant bonus that outweighs the reward makes the policy random.",
        () if bonus is None else (Change("entropy_bonus", bonus / 10),),
        source="verl#2738; arXiv 2505.22312",
    )


def lower_clip(evidence: Evidence) -> Prescription | None:
    """Take an upper clip back that is wider than the lower one."""
    knobs = evidence.config
    if knobs.on_policy or knobs.clip_high is None or knobs.clip_low is None or knobs.clip_high <= knobs.clip_low:
        return None
    return Prescription(
        f"Lower the upper clip from {knobs.clip_high:g} to {knobs.clip_low:g}",
        "A wide upper clip lets unlikely tokens grow without end.",
        (Change("clip_high", knobs.clip_low),),
        source="DAPO, arXiv 2503.14476",
    )


def correct_mismatch(evidence: Evidence) -> Prescription | None:
    """Weigh the difference between trainer and sampler away."""
    if evidence.config.correct_mismatch:
        return None
    return Prescription(
        "Weigh rollouts by how likely the trainer finds what the sampler drew, truncated",
        "Trainer and sampler disagree about the same tokens; without weights the gradient is that of another policy.",
        (Change("correct_mismatch", True),),
        "More variance; a few rollouts are cut.",
        "Truncated importance sampling, Yao et al. 2025; verl#6780",
    )


def raise_cap(evidence: Evidence) -> Prescription:
    """Allow longer completions."""
    longest = evidence.config.max_completion_length
    wanted = None if longest is None else 2 * longest
    return Prescription(
        "Allow longer completions" + (f": {wanted:,} tokens in the place of {longest:,}" if wanted else ""),
        "A cut completion has no answer and is scored as wrong, however good its beginning.",
        () if wanted is None else (Change("max_completion_length", wanted),),
        "Memory and time grow with the longest completion.",
        "verl#2738",
    )


def mask_truncated(evidence: Evidence) -> Prescription | None:
    """Leave cut completions out of the loss."""
    if evidence.config.mask_truncated:
        return None
    return Prescription(
        "Leave completions that were cut out of the loss",
        "Their reward says nothing about what they say; it is noise in the gradient.",
        (Change("mask_truncated", True),),
        "Nothing then teaches the policy to be brief; a soft penalty for length does.",
        "DAPO (overlong filtering), arXiv 2503.14476",
    )


def draw_anew(evidence: Evidence) -> Prescription | None:
    """Draw groups anew that teach nothing."""
    if evidence.config.dynamic_sampling:
        return None
    return Prescription(
        "Drop groups whose rewards are all equal and draw others in their place",
        "Their advantage is zero: they are paid for and teach nothing.",
        (Change("dynamic_sampling", True),),
        "More rollouts are drawn for a step; with a shaped reward no group is ever flat and the filter does nothing.",
        "DAPO (dynamic sampling), arXiv 2503.14476; trl#3708",
    )


def larger_groups(evidence: Evidence, chance: float | None) -> Prescription | None:
    """Draw more rollouts of a prompt."""
    group = evidence.config.group
    if group is None or group >= 16:
        return None
    wanted = max(8, 2 * group)
    why = "A larger group is less often all right or all wrong."
    if chance is not None and 0 < chance < 1:
        flat = [chance**size + (1 - chance) ** size for size in (group, wanted)]
        why += (
            f" At a score of {chance:.2f} on every problem {flat[0]:.0%} of groups of {group} would be flat,"
            f" {flat[1]:.0%} of {wanted}."
        )
    return Prescription(
        f"Draw {wanted} rollouts of a prompt in the place of {group}",
        why,
        (Change("group", wanted),),
        "Fewer prompts for the same rollouts.",
        "jsboige/CoursIA#10603",
    )


def choose_problems(*, easier: bool) -> Prescription:
    """Change what is trained on."""
    word = "never solves" if easier else "always solves"
    return Prescription(
        f"Leave out problems that the policy {word} in 16 tries, and add {'easier' if easier else 'harder'} ones",
        "What a policy learns from is what it solves sometimes.",
        (),
        "Needs 16 rollouts of every problem once; keep a control set that is not filtered.",
        "verifiers#363, open-r1#637",
    )


def stronger_anchor(evidence: Evidence) -> Prescription | None:
    """Raise the price of leaving the reference policy, or put one on it."""
    price = evidence.config.kl
    if not price:
        return anchor(evidence)
    wanted = float(f"{3 * price:.1g}")
    return Prescription(
        f"Raise the price of leaving the reference policy from {price:g} to {wanted:g}",
        "The pull back grows with the distance, so a policy that has begun to run away is held where price and"
        " advantage balance.",
        (Change("kl", wanted),),
        "A cap on how far training can go.",
    )


def larger_rate(evidence: Evidence) -> Prescription | None:
    """Take larger steps."""
    rate = evidence.config.learning_rate
    if not rate:
        return None
    wanted = float(f"{2 * rate:.2g}")
    return Prescription(
        f"Raise the learning rate from {rate:g} to {wanted:g}",
        "Groups still differ in reward and entropy is left: there is something to learn from, and the steps may be too"
        " small to do so.",
        (Change("learning_rate", wanted),),
        "Entropy falls faster; watch it, and go back when the divergence from the reference jumps.",
    )


def second_check() -> Prescription:
    """Make the reward harder to win without being right."""
    return Prescription(
        "Read twenty of the newest rollouts with the highest reward beside their reference answers, and close the way"
        " they win by",
        "A reward that rises while what it stands for does not is being won by something the check lets through.",
        (),
        "The reward falls when the check gets stricter; compare runs by a held-out score only.",
        "arXiv 2605.28388: one item with a lax checker took the mean length from 511 to 46 tokens in 58 steps",
    )


def stop_here(step: int) -> Prescription:
    """Stop where nothing more is gained."""
    return Prescription(
        f"Stop, and keep a checkpoint of about step {step:,}",
        "What came after cost as much a step as what came before, and moved the score by less than can be told from"
        " nothing.",
    )


def fresh_problems() -> Prescription:
    """Train on problems that still teach."""
    return Prescription(
        "Add problems that the policy has not seen and solves in 2 to 12 of 16 tries",
        "Groups of these problems still differ, and yet nothing more is learned from them; new ones ask for something"
        " new.",
        (),
        "A score on other problems cannot be compared with the old one: keep a held-out set.",
        "verifiers#363, open-r1#637",
    )


def same_temperature(scored: float, drawn: float) -> Prescription:
    """Draw at the temperature that scores."""
    return Prescription(
        f"Draw rollouts at the temperature that log-probabilities are taken at: {scored:g} in the place of {drawn:g}",
        "Divided by different temperatures, the same logits are two policies, and every ratio is one between them.",
        (Change("temperature", scored),),
        "Entropy and length change with the temperature: compare scores with those of the new start only.",
        "breadth's Temperature plan; vllm: log-probs are raw unless --logprobs-mode says otherwise",
    )


def whole_distribution(evidence: Evidence) -> Prescription | None:
    """Draw from all tokens; not where they are drawn from all of them already."""
    top_p = evidence.config.top_p
    if top_p is not None and top_p >= 1:
        return None
    now = "" if top_p is None else f" in the place of {top_p:g}"
    return Prescription(
        f"Draw rollouts from the whole distribution: top-p 1{now}, no top-k, no min-p",
        "Cut tokens are never drawn but keep their probability in training: what was drawn looks likelier than it was.",
        (Change("top_p", 1.0),),
        "A few more nonsense tokens are drawn.",
    )


def same_precision() -> Prescription:
    """Let both engines round alike."""
    return Prescription(
        "Let trainer and sampler compute in the same precision: float16 in both, or float32 for the last layer of both",
        "bfloat16 keeps 8 bits of a logit, and two engines round them differently.",
        (),
        "float16 needs loss scaling; float32 on the last layer takes memory.",
        "arXiv 2510.26788",
    )


def fewer_updates(evidence: Evidence) -> Prescription | None:
    """Update once a generation; None where that is so, or not known."""
    updates = evidence.config.updates
    if updates is None or updates <= 1:
        return None
    return Prescription(
        f"Update once a generation, not {updates:g} times",
        "The second update already scores tokens that another policy drew.",
        (Change("updates", 1),),
        "Fewer updates for the same rollouts; clips no longer act.",
        "Entropy-Mechanism-of-RL#20",
    )


def hold_forks() -> Prescription:
    """Hold entropy where the policy decides."""
    return Prescription(
        "Hold the entropy of the forking tokens in a band around this run's start",
        "It pays only where the policy decides between routes, and leaves mechanical tokens alone; it acts on on-policy"
        " updates too.",
        (Change("chain", "thermostat"),),
        "A floor above what the task needs keeps the policy from committing: watch the reward.",
        "breadth's fork thermostat, after arXiv 2506.01939",
    )


def train_on_forks() -> Prescription:
    """Take the loss on the forking tokens only."""
    return Prescription(
        "Take the loss on the fifth of the tokens with the most entropy only",
        "In the paper it raised what a 32B model came to, where the other four fifths alone lowered it.",
        (Change("chain", "forking"),),
        "The gain grew with the model: about none at 8B.",
        "arXiv 2506.01939",
    )


def guard_successes() -> Prescription:
    """Take the reward from successes that look like accidents."""
    return Prescription(
        "Take the advantage from right rollouts that loop, repeat their answer or skip the work",
        "A shortcut that is rewarded is learned first; this leaves what is wrong and what is honest alone.",
        (Change("chain", "guarded"),),
        "Where it fires on more than a few per cent, mend the data or the checker instead.",
        "breadth's degenerate guard, after arXiv 2605.28388",
    )


def score_confidence() -> Prescription:
    """Pay for knowing when it is wrong."""
    return Prescription(
        "Let the policy state its confidence and add a Brier term to the reward: right - (confidence - right)^2",
        "A reward for being right alone pays a guess as well as knowledge, and a sure guess no worse than an honest"
        " doubt.",
        (),
        "Completions must state a confidence, and one that does not must earn nothing.",
        "arXiv 2507.16806; breadth.training.credit.brier_reward",
    )


def pay_for_other_answers() -> Prescription:
    """Pay for answers that a problem has seldom been given."""
    return Prescription(
        "Add a bonus for answers that a problem has seldom been given so far",
        "What is never right gets no reward, so nothing but a bonus keeps the policy from giving one answer to it for"
        " ever.",
        (),
        "An answer that cannot be read must get none, or breaking the format becomes exploring.",
        "arXiv 2509.06941; breadth.training.credit.outcome_bonus",
    )


def train_for_coverage() -> Prescription:
    """Reward groups for holding a right rollout at all."""
    return Prescription(
        "Train for pass@k for a while, then for pass@1 again",
        "A group earns by its best rollout, so that rollouts that all do the same earn less.",
        (Change("chain", "passk"),),
        "pass@1 rises more slowly meanwhile.",
        "arXiv 2508.10751",
    )


def mix_formats(kind: str) -> Prescription:
    """Let the data be written in more than one way."""
    return Prescription(
        f"Mix in data that is not {kind}: at least a third, on the same kind of problem",
        "The format of the data sets how a policy explores (several options early, or one route deep) far more than its"
        " subject does.",
        (),
        "Check that the reward can read every format.",
        "arXiv 2505.10185",
    )
