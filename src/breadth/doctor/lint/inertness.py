"""Remedies that cannot act as a run is configured, one rule each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from breadth.doctor import remedies
from breadth.doctor.evidence import FEWEST, Evidence
from breadth.doctor.finding import Change, Prescription
from breadth.doctor.knobs import Idle, Knobs
from breadth.doctor.lint.points import Point

DRIFTING = {
    "gppo": "GPPO differs from a plain clip",
    "ce_gppo": "CE-GPPO differs from a plain clip",
    "gspo": "GSPO differs from the mean over a response",
    "cispo": "CISPO differs from the plain gradient",
    "sapo": "SAPO differs from the plain gradient",
    "geo_mean": "GMPO differs from the mean over a response",
}
"""Losses that are the plain policy gradient wherever the policy has not moved since it sampled -> how that is said."""
SHAPED = frozenset({"reward", "seq_reward", "seq_final_reward"})
"""Names under which trainers filter groups by what is trained on, penalties included."""
RESPONSE = frozenset(
    {"grpo", "grpo_passk", "rloo", "reinforce_plus_plus_baseline", "opo", "gpg", "grpo_vectorized", "rloo_vectorized"}
)
"""Estimators whose advantage is one number a response."""


def inert_points(evidence: Evidence) -> Iterator[Point]:
    """Yield every setting that does nothing here."""
    rules: tuple[Callable[[Evidence], Iterator[Point]], ...] = (
        _on_policy,
        _one_response,
        _small_share,
        _outside,
        _switched_off,
        _never_flat,
        _all_tokens,
        _speculative,
        _alternatives,
    )
    for rule in rules:
        yield from rule(evidence)


def _on_policy(evidence: Evidence) -> Iterator[Point]:
    """Look for what works on the ratio: with one update a generation it is 1 at every token."""
    knobs = evidence.knobs
    if not knobs.on_policy:
        return
    more = _several(evidence)
    cispo = knobs.loss == "cispo"
    if (
        "clip_high" in knobs.theirs
        and knobs.clips is not False
        and not cispo
        and (knobs.clip_high or 0) > (knobs.clip_low or 0.2)
    ):
        why = "every update is strictly on-policy: the ratio is 1, and no clip is reached"
        yield Point(knobs.given("clip_high"), why, grave=True, remedy=more)
    if knobs.covariance == "kl-cov" or knobs.loss == "kl_cov":
        yield Point(
            knobs.given("loss"), "KL-Cov has no gradient on strictly on-policy updates", grave=True, remedy=more
        )
    if "dual_clip" in knobs.theirs and knobs.dual_clip is not None and knobs.clips is not False and not cispo:
        yield Point(
            knobs.given("dual_clip"),
            "a cap on the ratio, which is 1 on strictly on-policy updates",
            grave=False,
            remedy=more,
        )
    loss = "gspo" if knobs.sequence_ratio else knobs.loss
    if loss in DRIFTING and ("loss" in knobs.theirs or "sequence_ratio" in knobs.theirs):
        said = knobs.theirs.get("sequence_ratio" if knobs.sequence_ratio else "loss", knobs.given("loss"))
        yield Point(said, f"{DRIFTING[loss]} only where the ratio has left 1", grave=loss.endswith("gppo"), remedy=more)


def _several(evidence: Evidence) -> Prescription:
    return Prescription(
        f"Take {remedies.SEVERAL} updates a generation",
        f"The ratio can then leave 1, and what works on it can act. Now: {evidence.knobs.given('updates')}.",
        (Change("updates", remedies.SEVERAL),),
        "Each update is a little more off-policy than the one before.",
        "DAPO, arXiv 2503.14476; Entropy-Mechanism-of-RL#1",
    )


def _one_response(evidence: Evidence) -> Iterator[Point]:
    """Look for covariance in micro-batches of one: advantages are constant within a response, and alone it has a covariance of 0."""
    knobs = evidence.knobs
    if not knobs.covariance or knobs.micro_batch != 1 or knobs.estimator not in RESPONSE:
        return
    effect = "none is selected" if knobs.covariance == "clip-cov" else "rounding decides which are"
    why = (
        f"with one response in a micro-batch ({knobs.given('micro_batch')}) the covariance of every token is 0, and"
        f" {effect}"
    )
    remedy = Prescription(
        "Rank the tokens of the whole batch, not of each micro-batch",
        "Covariances then compare responses with different advantages.",
        (Change("chain", knobs.covariance.replace("-", "_")),),
        source="arXiv 2505.22617; Entropy-Mechanism-of-RL#20",
    )
    yield Point(knobs.given("covariance"), why, grave=True, remedy=remedy)


def _small_share(evidence: Evidence) -> Iterator[Point]:
    """Look for a share of less than one token of a micro-batch: one token is taken whatever it says."""
    knobs = evidence.knobs
    if (
        not knobs.covariance
        or not knobs.covariance_share
        or not knobs.micro_batch
        or knobs.micro_batch == 1
        or not knobs.longest
    ):
        return
    tokens = knobs.micro_batch * knobs.longest
    if knobs.covariance_share * tokens < 1:
        why = (
            f"{knobs.covariance_share:g} of at most {tokens:,} tokens in a micro-batch is less than one; one is taken"
            " all the same"
        )
        yield Point(f"the share of {knobs.covariance}, {knobs.covariance_share:g}", why, grave=False)


def _outside(evidence: Evidence) -> Iterator[Point]:
    """Look for a target that entropy has never crossed: below all of it nothing is paid, above all of it there is nothing but paying."""
    knobs, seen = evidence.knobs, evidence.series("entropy")
    kind = None if evidence.run is None else evidence.run.header.entropies.get("entropy")
    if not knobs.entropy_adaptive or knobs.entropy_target is None or seen is None or len(seen) < FEWEST:
        return
    if kind is None or kind.aggregation != "token-mean" or (knobs.entropy_share or 1) < 1:
        return
    low, high, target = float(seen.values.min()), float(seen.values.max()), knobs.entropy_target
    said = knobs.theirs.get("entropy_target", f"a target of {target:g} nats")
    if target < low:
        why = f"entropy has not been below {low:.3g} nats in {len(seen):,} steps: nothing was ever paid for"
        yield Point(said, why, grave=False, remedy=remedies.hold_entropy(float(seen.values[0])))
    elif target > high:
        why = (
            f"entropy has never been above {high:.3g} nats in {len(seen):,} steps: the coefficient rises at every one,"
            " and follows nothing"
        )
        yield Point(said, why, grave=True, remedy=remedies.hold_entropy(float(seen.values[0])))


def _switched_off(evidence: Evidence) -> Iterator[Point]:
    """Look for what the trainer's own switches turn off."""
    knobs = evidence.knobs
    for idle in knobs.idle:
        yield Point(idle.setting, idle.why, grave=idle.meant, remedy=_switch_on(idle, knobs) if idle.meant else None)


def _switch_on(idle: Idle, knobs: Knobs) -> Prescription | None:
    if idle.setting == knobs.theirs.get("kl_given") and knobs.kl_given:
        why = "The coefficient alone does nothing."
        return Prescription("Switch the price of leaving the reference on", why, (Change("kl", knobs.kl_given),))
    if knobs.length_penalty is False and "overlong" in idle.setting:
        why = "What scores responses now does not read the penalty."
        return Prescription("Let the penalty for length act", why, (Change("length_penalty", True),))
    return None


def _never_flat(evidence: Evidence) -> Iterator[Point]:
    """Look for dynamic sampling that seeks equal rewards: under a penalty for length hardly two are."""
    knobs = evidence.knobs
    if not knobs.filter_flat or not knobs.shaped_reward or knobs.filter_metric not in SHAPED:
        return
    why = "groups are kept if their rewards differ, and a shaped reward differs between any two responses"
    remedy = Prescription(
        "Filter groups by whether answers are right",
        "Groups that are all right or all wrong then go, whatever their lengths.",
        (Change("filter_flat", True),),
        source="DAPO, arXiv 2503.14476; trl#3708",
    )
    yield Point(knobs.given("filter_flat"), why, grave=True, remedy=remedy)


def _all_tokens(evidence: Evidence) -> Iterator[Point]:
    knobs = evidence.knobs
    if knobs.entropy_share == 1 and "entropy_share" in knobs.theirs:
        yield Point(knobs.given("entropy_share"), "the share of 1 keeps every token: nothing is masked", grave=False)


def _speculative(evidence: Evidence) -> Iterator[Point]:
    """Look for a cap on thinking at a server that guesses tokens ahead, unless it was seen to keep to it."""
    policy, server = evidence.policy, evidence.server
    if policy is None or server is None or policy.sampling.thinking_tokens is None:
        return
    if server.get("speculative") == "yes" and server.get("thinking_cap") != "yes":
        why = "the server decodes speculatively, where caps on thinking are passed over"
        remedy = Prescription(
            "Start the server without speculative decoding, or cap the whole completion",
            "A cap on all tokens holds either way.",
            (Change("max_tokens", policy.sampling.max_tokens),),
            source="sglang#26330, vllm#43672",
        )
        yield Point(f"thinking_tokens = {policy.sampling.thinking_tokens}", why, grave=True, remedy=remedy)


def _alternatives(evidence: Evidence) -> Iterator[Point]:
    """Look for more alternatives than the server sends."""
    policy, server = evidence.policy, evidence.server
    most = None if server is None else server.get("top_logprobs")
    if policy is None or not isinstance(most, int):
        return
    wanted = max(policy.sampling.top_logprobs, 0 if policy.halt is None else policy.halt.top_logprobs)
    if wanted > most:
        why = "the server sends no log-probs" if most == 0 else f"the server was seen to send {most} at most"
        remedy = (
            None
            if most == 0
            else Prescription(f"Ask for {most} alternatives", "More are refused.", (Change("top_logprobs", most),))
        )
        yield Point(f"top_logprobs = {wanted}", why, grave=True, remedy=remedy)
