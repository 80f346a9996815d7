"""What the findings about configurations share: single points, and how several of them become one finding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.finding import Change, Prescription
from breadth.doctor.trainer_config import TrainerConfig, UnusedSetting
from breadth.report.plaintext import counted
from breadth.report.sections import Fact, Severity

NAMED = 3
"""Settings that a headline names; the others stand in the proof."""


@dataclass(frozen=True)
class Point:
    """One thing that is wrong with a configuration."""

    setting: str
    """The settings as the user's file spells them."""
    why: str
    """What is wrong, as the end of a sentence."""
    grave: bool
    """Whether it makes the finding a warning, and not a note."""
    remedy: Prescription | None = None
    """What to do about it."""


def severity(points: Sequence[Point]) -> Severity:
    """Return how bad the worst of them is."""
    return Severity.WARNING if any(one.grave for one in points) else Severity.NOTE


def headline(points: Sequence[Point], noun: str, does: str, do: str) -> str:
    """Return one sentence: how many there are, what they do, and the first by name, the gravest before others."""
    ordered = [one.setting for one in sorted(points, key=lambda one: not one.grave)]
    more = f" and {len(points) - NAMED} more" if len(points) > NAMED else ""
    return f"{counted(len(points), noun)} {does if len(points) == 1 else do}: {'; '.join(ordered[:NAMED])}{more}."


def proof(points: Sequence[Point]) -> tuple[Fact, ...]:
    """Return a fact for each."""
    return tuple(Fact(one.setting, one.why) for one in points)


def remedies_of(points: Sequence[Point]) -> tuple[Prescription, ...]:
    """Return what to do, each action once, those of grave points first."""
    found = {
        one.remedy.action: one.remedy for one in sorted(points, key=lambda one: not one.grave) if one.remedy is not None
    }
    return tuple(found.values())


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
    knobs = evidence.config
    if not knobs.on_policy:
        return
    more = _several(evidence)
    cispo = knobs.loss == "cispo"
    if (
        "clip_high" in knobs.user_settings
        and knobs.clips is not False
        and not cispo
        and (knobs.clip_high or 0) > (knobs.clip_low or 0.2)
    ):
        why = "every update is strictly on-policy: the ratio is 1, and no clip is reached"
        yield Point(knobs.describe("clip_high"), why, grave=True, remedy=more)
    if knobs.covariance == "kl-cov" or knobs.loss == "kl_cov":
        yield Point(
            knobs.describe("loss"), "KL-Cov has no gradient on strictly on-policy updates", grave=True, remedy=more
        )
    if "dual_clip" in knobs.user_settings and knobs.dual_clip is not None and knobs.clips is not False and not cispo:
        yield Point(
            knobs.describe("dual_clip"),
            "a cap on the ratio, which is 1 on strictly on-policy updates",
            grave=False,
            remedy=more,
        )
    loss = "gspo" if knobs.sequence_ratio else knobs.loss
    if loss in DRIFTING and ("loss" in knobs.user_settings or "sequence_ratio" in knobs.user_settings):
        said = knobs.user_settings.get("sequence_ratio" if knobs.sequence_ratio else "loss", knobs.describe("loss"))
        yield Point(said, f"{DRIFTING[loss]} only where the ratio has left 1", grave=loss.endswith("gppo"), remedy=more)


def _several(evidence: Evidence) -> Prescription:
    return Prescription(
        f"Take {prescriptions.SEVERAL} updates a generation",
        f"The ratio can then leave 1, and what works on it can act. Now: {evidence.config.describe('updates')}.",
        (Change("updates", prescriptions.SEVERAL),),
        "Each update is a little more off-policy than the one before.",
        "DAPO, arXiv 2503.14476; Entropy-Mechanism-of-RL#1",
    )


def _one_response(evidence: Evidence) -> Iterator[Point]:
    """Look for covariance in micro-batches of one: advantages are constant within a response, and alone it has a covariance of 0."""
    knobs = evidence.config
    if not knobs.covariance or knobs.micro_batch != 1 or knobs.estimator not in RESPONSE:
        return
    effect = "none is selected" if knobs.covariance == "clip-cov" else "rounding decides which are"
    why = (
        f"with one response in a micro-batch ({knobs.describe('micro_batch')}) the covariance of every token is 0, and"
        f" {effect}"
    )
    remedy = Prescription(
        "Rank the tokens of the whole batch, not of each micro-batch",
        "Covariances then compare responses with different advantages.",
        (Change("chain", knobs.covariance.replace("-", "_")),),
        source="arXiv 2505.22617; Entropy-Mechanism-of-RL#20",
    )
    yield Point(knobs.describe("covariance"), why, grave=True, remedy=remedy)


def _small_share(evidence: Evidence) -> Iterator[Point]:
    """Look for a share of less than one token of a micro-batch: one token is taken whatever it says."""
    knobs = evidence.config
    if (
        not knobs.covariance
        or not knobs.covariance_share
        or not knobs.micro_batch
        or knobs.micro_batch == 1
        or not knobs.max_completion_length
    ):
        return
    tokens = knobs.micro_batch * knobs.max_completion_length
    if knobs.covariance_share * tokens < 1:
        why = (
            f"{knobs.covariance_share:g} of at most {tokens:,} tokens in a micro-batch is less than one; one is taken"
            " all the same"
        )
        yield Point(f"the share of {knobs.covariance}, {knobs.covariance_share:g}", why, grave=False)


def _outside(evidence: Evidence) -> Iterator[Point]:
    """Look for a target that entropy has never crossed: below all of it nothing is paid, above all of it there is nothing but paying."""
    knobs, seen = evidence.config, evidence.series("entropy")
    kind = None if evidence.run is None else evidence.run.header.entropies.get("entropy")
    if not knobs.entropy_adaptive or knobs.entropy_target is None or seen is None or len(seen) < MIN_POINTS:
        return
    if kind is None or kind.aggregation != "token-mean" or (knobs.entropy_share or 1) < 1:
        return
    low, high, target = float(seen.values.min()), float(seen.values.max()), knobs.entropy_target
    said = knobs.user_settings.get("entropy_target", f"a target of {target:g} nats")
    if target < low:
        why = f"entropy has not been below {low:.3g} nats in {len(seen):,} steps: nothing was ever paid for"
        yield Point(said, why, grave=False, remedy=prescriptions.hold_entropy(float(seen.values[0])))
    elif target > high:
        why = (
            f"entropy has never been above {high:.3g} nats in {len(seen):,} steps: the coefficient rises at every one,"
            " and follows nothing"
        )
        yield Point(said, why, grave=True, remedy=prescriptions.hold_entropy(float(seen.values[0])))


def _switched_off(evidence: Evidence) -> Iterator[Point]:
    """Look for what the trainer's own switches turn off."""
    knobs = evidence.config
    for idle in knobs.unused:
        yield Point(
            idle.setting, idle.why, grave=idle.intended, remedy=_switch_on(idle, knobs) if idle.intended else None
        )


def _switch_on(idle: UnusedSetting, knobs: TrainerConfig) -> Prescription | None:
    if idle.setting == knobs.user_settings.get("kl_given") and knobs.kl_given:
        why = "The coefficient alone does nothing."
        return Prescription("Switch the price of leaving the reference on", why, (Change("kl", knobs.kl_given),))
    if knobs.length_penalty is False and "overlong" in idle.setting:
        why = "What scores responses now does not read the penalty."
        return Prescription("Let the penalty for length act", why, (Change("length_penalty", True),))
    return None


def _never_flat(evidence: Evidence) -> Iterator[Point]:
    """Look for dynamic sampling that seeks equal rewards: under a penalty for length hardly two are."""
    knobs = evidence.config
    if not knobs.dynamic_sampling or not knobs.shaped_reward or knobs.filter_metric not in SHAPED:
        return
    why = "groups are kept if their rewards differ, and a shaped reward differs between any two responses"
    remedy = Prescription(
        "Filter groups by whether answers are right",
        "Groups that are all right or all wrong then go, whatever their lengths.",
        (Change("dynamic_sampling", True),),
        source="DAPO, arXiv 2503.14476; trl#3708",
    )
    yield Point(knobs.describe("dynamic_sampling"), why, grave=True, remedy=remedy)


def _all_tokens(evidence: Evidence) -> Iterator[Point]:
    knobs = evidence.config
    if knobs.entropy_share == 1 and "entropy_share" in knobs.user_settings:
        yield Point(knobs.describe("entropy_share"), "the share of 1 keeps every token: nothing is masked", grave=False)


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


GROUPED = frozenset(
    {
        "grpo",
        "grpo_passk",
        "rloo",
        "opo",
        "gpg",
        "reinforce_plus_plus_baseline",
        "grpo_vectorized",
        "rloo_vectorized",
        "group_norm",
        "reinforce_baseline",
        "dr_grpo",
    }
)
"""Estimators that compare the responses of a prompt with one another."""
FILTERING = frozenset({"nemo-rl"})
"""Trainers that cut the distribution in the loss as the sampler did."""
WHOLE: dict[str, float] = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sampling knobs -> the value at which rollouts are drawn from the policy itself."""


def contradictions(evidence: Evidence) -> Iterator[Point]:
    """Yield every contradiction."""
    for clash in evidence.config.conflicts:
        ran = evidence.run is not None and clash.consequence == "refused"
        why = clash.why + {"refused": "; the trainer refuses to start"}.get(clash.consequence, "") * (not ran)
        yield Point(
            clash.settings,
            why + ("; the run started all the same" if ran else ""),
            grave=clash.consequence != "slight" and not ran,
        )
    rules: tuple[Callable[[TrainerConfig], Iterator[Point]], ...] = (
        _alone,
        _reversed,
        _inside,
        _greedy,
        _no_room,
        _masked,
    )
    for rule in rules:
        yield from rule(evidence.config)
    if evidence.dialect is None or evidence.dialect.trainer not in FILTERING:
        yield from _elsewhere(evidence.config)


def _alone(knobs: TrainerConfig) -> Iterator[Point]:
    """Look for groups of one, which have nothing to be compared with."""
    if knobs.group != 1 or knobs.estimator not in GROUPED or not {"group", "estimator"} & knobs.user_settings.keys():
        return
    said = "; ".join(dict.fromkeys((knobs.describe("estimator"), knobs.describe("group"))))
    why = f"{knobs.estimator} compares the responses of a prompt with one another, and there is one"
    remedy = Prescription(
        "Draw 8 rollouts of a prompt",
        "The advantage is what one response has over the others.",
        (Change("group", 8),),
        "Eight times the rollouts, or an eighth of the prompts.",
        "arXiv 2402.03300",
    )
    yield Point(said, why, grave=True, remedy=remedy)


def _reversed(knobs: TrainerConfig) -> Iterator[Point]:
    """Look for clip-higher turned round: likely tokens may fall further than unlikely ones may rise."""
    low, high = knobs.clip_low, knobs.clip_high
    if (
        low is None
        or high is None
        or knobs.clips is False
        or not {"clip_low", "clip_high"} <= knobs.user_settings.keys()
        or high >= low
    ):
        return
    why = f"the ratio may fall by {low:g} and rise by {high:g} only: clip-higher the wrong way round"
    remedy = Prescription(
        f"Exchange the two: {high:g} below, {low:g} above", "Unlikely tokens need the room.", _exchanged(low, high)
    )
    yield Point(f"{knobs.describe('clip_low')}; {knobs.describe('clip_high')}", why, grave=True, remedy=remedy)


def _exchanged(low: float, high: float) -> tuple[Change, ...]:
    return (Change("clip_low", high), Change("clip_high", low))


def _inside(knobs: TrainerConfig) -> Iterator[Point]:
    """Look for a cap on the ratio below the upper clip: it takes the clip's place."""
    if knobs.dual_clip is None or knobs.clip_high is None or not knobs.clips or "dual_clip" not in knobs.user_settings:
        return
    if knobs.loss in ("cispo", "dppo_tv", "dppo_kl") or knobs.dual_clip > 1 + knobs.clip_high:
        return
    why = f"a cap of {knobs.dual_clip:g} on the ratio lies inside the clip, which ends at {1 + knobs.clip_high:g}"
    remedy = Prescription(
        "Raise the cap to 3, or take it out", "It is for ratios far beyond the clip.", (Change("dual_clip", 3.0),)
    )
    yield Point(knobs.describe("dual_clip"), why, grave=True, remedy=remedy)


def _greedy(knobs: TrainerConfig) -> Iterator[Point]:
    """Look for rollouts without chance: all responses of a prompt are then one."""
    if knobs.temperature != 0 or "temperature" not in knobs.user_settings or knobs.group == 1:
        return
    remedy = Prescription(
        "Draw rollouts at a temperature of 1", "Responses must differ to be compared.", (Change("temperature", 1.0),)
    )
    yield Point(
        knobs.describe("temperature"),
        "all responses of a prompt are the same at a temperature of 0",
        grave=True,
        remedy=remedy,
    )


def _no_room(knobs: TrainerConfig) -> Iterator[Point]:
    """Look for completions that are cut by the sampler's room before they reach their cap."""
    if (
        knobs.max_completion_length is None
        or knobs.context is None
        or not {"max_completion_length", "context"} & knobs.user_settings.keys()
    ):
        return
    needed = knobs.max_completion_length + (knobs.max_prompt_length or 0)
    if needed <= knobs.context:
        return
    said = "; ".join(
        knobs.describe(knob)
        for knob in ("max_prompt_length", "max_completion_length", "context")
        if knob in knobs.user_settings
    )
    why = f"prompt and completion may have {needed:,} tokens, the sampler has room for {knobs.context:,}"
    remedy = Prescription(
        "Give the sampler room for both",
        "Long completions are cut below their cap.",
        (Change("max_completion_length", knobs.max_completion_length),),
    )
    yield Point(said, why, grave=True, remedy=remedy)


def _masked(knobs: TrainerConfig) -> Iterator[Point]:
    """Look for a penalty for length that never reaches the longest."""
    if knobs.mask_truncated and knobs.length_penalty:
        why = (
            "completions that were cut are left out of the loss, so the largest penalties for length are never learned"
            " from"
        )
        said = "; ".join(dict.fromkeys((knobs.describe("mask_truncated"), knobs.describe("length_penalty"))))
        yield Point(said, why, grave=False)


def _elsewhere(knobs: TrainerConfig) -> Iterator[Point]:
    """Look for rollouts drawn from another distribution than the one whose log-probs the loss takes, with nothing to weigh them."""
    uncorrected = knobs.correct_mismatch is False or (knobs.correct_mismatch is None and knobs.engine == "hf")
    bent = [
        knob
        for knob, whole in WHOLE.items()
        if knob in knobs.user_settings and getattr(knobs, knob) not in (None, whole)
    ]
    bent = [knob for knob in bent if knob != "top_p" or (knobs.top_p or 0) < 1]
    if not bent or not uncorrected:
        return
    why = (
        "rollouts are drawn from a part of the distribution, or from a bent one, and the loss takes them as drawn from"
        " all of it"
    )
    remedy = Prescription(
        "Draw rollouts from the whole distribution",
        "Tokens that are never drawn only lose: cutting the tail at every step narrows the policy.",
        tuple(Change(knob, WHOLE[knob]) for knob in bent),
        "More noise in the rollouts; correcting for the mismatch is the other way.",
        "DAPO trains at top_p 1, arXiv 2503.14476",
    )
    yield Point("; ".join(knobs.describe(knob) for knob in bent), why, grave=False, remedy=remedy)
