"""What each rule of a peer's doctor says in our words: the one table by which `benchmarks/doctor_peers.py` scores it.

Where a rule may mean more than one thing, it counts for all of them: the doubt is the peer's. Where one rule says
several things and tells them apart in its text, there is a line for each with the words it uses. A rule without labels
is still an alarm on a healthy run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One rule, or one of the things that it says."""

    name: str
    """What the peer calls it."""
    labels: frozenset[str]
    """Our findings that say the same; empty where none does."""
    why: str
    """Why these."""
    words: str = ""
    """Its text holds this."""


def _rule(name: str, labels: str, why: str, words: str = "") -> Rule:
    return Rule(name, frozenset(labels.split()), why, words)


RULES = {
    "rldoctor": (
        _rule("entropy_collapse", "entropy-collapse", "the same"),
        _rule(
            "advantage_collapse",
            "zero-variance-groups overly-hard",
            "groups of equal reward, called too hard",
            "too hard",
        ),
        _rule("advantage_collapse", "zero-variance-groups", "groups of equal reward, called too easy", "too easy"),
        _rule(
            "advantage_collapse",
            "zero-variance-groups overly-hard",
            "groups of equal reward, of no stated cause",
            "Most groups are degenerate",
        ),
        _rule("length_pathology", "truncation", "rollouts cut at the cap", "truncated"),
        _rule("length_pathology", "reward-hacking", "reward bought with length", "paid by the token"),
        _rule("length_pathology", "reward-hacking", "reward perhaps bought with length", "tracks reward closely"),
        _rule("length_pathology", "", "longer answers: none of ours", "Response length grew"),
        _rule("reward_hacking", "reward-hacking", "reward rises and the held-out score does not"),
        _rule(
            "reward_composition",
            "reward-hacking",
            "an auxiliary component drives the policy, or the task's own has no spread",
        ),
        _rule("kl_drift", "", "says that the policy does not move", "pinned to the reference"),
        _rule("kl_drift", "drift", "divergence from the reference", "KL has reached"),
        _rule("kl_drift", "drift", "divergence from the reference", "KL is"),
        _rule("clip_saturation", "drift", "updates leave the trust region"),
        _rule(
            "gradient_pathology",
            "zero-variance-groups overly-hard",
            "no gradient: it names equal rewards as the cause",
            "exactly zero gradient",
        ),
        _rule(
            "gradient_pathology", "zero-variance-groups overly-hard", "hardly any gradient: the same", "barely moving"
        ),
        _rule("gradient_pathology", "drift", "unstable updates", "spike"),
        _rule("gradient_pathology", "", "NaN: none of ours", "non-finite"),
        _rule("plateau", "saturation", "the score has stopped"),
    ),
    "rlprobe": (
        _rule("KL_BLOWUP", "drift", "divergence from the reference"),
        _rule("ENTROPY_COLLAPSE", "entropy-collapse", "the same"),
        _rule("REWARD_HACK_LENGTH", "reward-hacking", "reward bought with length"),
        _rule("FORMAT_GAMING", "reward-hacking", "one component saturates while the others stand still"),
        _rule("CLIP_SATURATION", "drift", "updates leave the trust region"),
        _rule("DEGENERATE_GROUPS", "zero-variance-groups overly-hard", "groups of equal reward; it names both causes"),
        _rule("ADV_COLLAPSE", "zero-variance-groups", "advantages near zero"),
        _rule("VALUE_DIVERGENCE", "", "a value head: none of ours"),
        _rule("GRAD_PATHOLOGY", "drift", "unstable updates"),
        _rule("TRUNCATION_STARVE", "truncation", "the same"),
        _rule("REPETITION_SPIRAL", "entropy-collapse degenerate-rollouts", "it calls loops a sign of collapse"),
        _rule(
            "REWARD_STD_DEATH",
            "zero-variance-groups overly-hard entropy-collapse saturation",
            "it names all of these as causes",
        ),
        _rule("REF_POLICY_DRIFT_ASYMMETRY", "drift", "divergence at certain positions"),
        _rule("THROUGHPUT_ROT", "", "time: none of ours"),
    ),
    "rlwatch": (
        _rule("entropy_collapse", "entropy-collapse", "the same"),
        _rule("kl_explosion", "drift", "divergence from the reference"),
        _rule("reward_hacking", "reward-hacking", "the same, told by the reward's variance"),
        _rule("advantage_variance", "drift", "unstable updates"),
        _rule("loss_nan", "", "NaN: none of ours"),
        _rule("gradient_norm_spike", "drift", "unstable updates"),
        _rule("reward_mean_drift", "reward-hacking", "it says that this may be hacking"),
    ),
    "zen-rl": (
        _rule("LR_TOO_HIGH", "drift", "divergence between updates above 5"),
        _rule("POLICY_COLLAPSE", "entropy-collapse", "the same"),
        _rule("ADVANTAGE_NOT_NORMALIZED", "", "a loss above 1: none of ours"),
    ),
}
"""Peer -> its rules; zen-rl's two on the reward are not asked (`benchmarks/doctor_peers.py`)."""


def labels(peer: str, name: str, words: str) -> frozenset[str]:
    """Return what a rule that fired says in our words; a rule that is not in the table is an error, not a miss."""
    said = [rule for rule in RULES[peer] if rule.name == name and rule.words in words]
    if not said:
        raise KeyError(f"{peer} says {name!r} ({words!r}), which has no line in benchmarks/peers/rules.py")
    return frozenset().union(*(rule.labels for rule in said))


def nameable(peer: str) -> frozenset[str]:
    """Return every finding of ours that a peer has a rule for."""
    return frozenset().union(*(rule.labels for rule in RULES[peer]))
