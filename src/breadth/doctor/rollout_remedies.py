"""What can be prescribed about how rollouts are drawn and which of them are learned from; what steers the loss is in `remedies`."""

from __future__ import annotations

from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import Change, Prescription


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
    top_p = evidence.knobs.top_p
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
    updates = evidence.knobs.updates
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
