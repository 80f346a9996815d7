"""Lint of a configuration: settings that have no effect here, and settings that contradict each other, one rule each.

The rules know no trainer; what a trainer's own rules say comes with its `TrainerConfig` (``unused``, ``conflicts``).
Several issues become one finding: `issue_severity`, `issue_headline`, `issue_facts` and `issue_prescriptions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.finding import Change, Excluded, Prescription
from breadth.doctor.trainer_config import TrainerConfig, UnusedSetting
from breadth.report.plaintext import pluralize
from breadth.report.sections import Fact, Severity

MAX_NAMED_SETTINGS = 3
"""Settings that a headline names; the others are in the evidence."""


@dataclass(frozen=True)
class Issue:
    """One thing that is wrong with a configuration."""

    setting: str
    """The settings as the user's file spells them."""
    why: str
    """What is wrong, as the end of a sentence."""
    serious: bool
    """Whether it makes the finding a warning, and not a note."""
    prescription: Prescription | None = None
    """What to do about it."""


def issue_severity(issues: Sequence[Issue]) -> Severity:
    """Return the severity of the worst issue."""
    return Severity.WARNING if any(issue.serious for issue in issues) else Severity.NOTE


def issue_headline(issues: Sequence[Issue], noun: str, does: str, do: str) -> str:
    """Return one sentence with the number of issues, what they do and the first by name, serious ones first."""
    ordered = [issue.setting for issue in sorted(issues, key=lambda issue: not issue.serious)]
    more = f" and {len(issues) - MAX_NAMED_SETTINGS} more" if len(issues) > MAX_NAMED_SETTINGS else ""
    verb = does if len(issues) == 1 else do
    return f"{pluralize(len(issues), noun)} {verb}: {'; '.join(ordered[:MAX_NAMED_SETTINGS])}{more}."


def issue_facts(issues: Sequence[Issue]) -> tuple[Fact, ...]:
    """Return one fact per issue."""
    return tuple(Fact(issue.setting, issue.why) for issue in issues)


def exclude_issues(name: str, evidence: Evidence) -> Excluded | None:
    """Return that a check of settings found nothing in those that were read; None where none were."""
    settings = len(evidence.config.user_settings)
    return Excluded(name, f"{pluralize(settings, 'setting')} read") if settings else None


def issue_prescriptions(issues: Sequence[Issue]) -> tuple[Prescription, ...]:
    """Return the prescriptions, each action once, those of serious issues first."""
    by_action = {
        issue.prescription.action: issue.prescription
        for issue in sorted(issues, key=lambda issue: not issue.serious)
        if issue.prescription is not None
    }
    return tuple(by_action.values())


RATIO_LOSSES = {
    "gppo": "GPPO differs from a plain clip",
    "ce_gppo": "CE-GPPO differs from a plain clip",
    "gspo": "GSPO differs from the mean over a response",
    "cispo": "CISPO differs from the plain gradient",
    "sapo": "SAPO differs from the plain gradient",
    "geo_mean": "GMPO differs from the mean over a response",
}
"""Losses that equal the plain policy gradient while the policy has not moved since sampling -> how we put it."""
REWARD_FILTERS = frozenset({"reward", "seq_reward", "seq_final_reward"})
"""Trainers' names for filtering groups by the training reward, penalties included."""
RESPONSE_ESTIMATORS = frozenset(
    {"grpo", "grpo_passk", "rloo", "reinforce_plus_plus_baseline", "opo", "gpg", "grpo_vectorized", "rloo_vectorized"}
)
"""Estimators whose advantage is one number per response."""


def find_no_op_settings(evidence: Evidence) -> Iterator[Issue]:
    """Yield every setting that has no effect here."""
    rules: tuple[Callable[[Evidence], Iterator[Issue]], ...] = (
        check_on_policy,
        check_single_response,
        check_covariance_share,
        check_entropy_target,
        check_unused,
        check_shaped_reward,
        check_entropy_share,
        check_thinking_cap,
        check_top_logprobs,
    )
    for rule in rules:
        yield from rule(evidence)


def check_on_policy(evidence: Evidence) -> Iterator[Issue]:
    """Find settings that act on the ratio, which is 1 at every token with one update per generation."""
    config = evidence.config
    if not config.on_policy:
        return
    more = prescribe_updates(evidence)
    cispo = config.loss == "cispo"
    if (
        "clip_high" in config.user_settings
        and config.clips is not False
        and not cispo
        and (config.clip_high or 0) > (config.clip_low or 0.2)
    ):
        why = "every update is strictly on-policy: the ratio is 1, so nothing is clipped"
        yield Issue(config.describe("clip_high"), why, serious=True, prescription=more)
    if config.covariance == "kl-cov" or config.loss == "kl_cov":
        yield Issue(
            config.describe("loss"),
            "KL-Cov has no gradient on strictly on-policy updates",
            serious=True,
            prescription=more,
        )
    if "dual_clip" in config.user_settings and config.dual_clip is not None and config.clips is not False and not cispo:
        yield Issue(
            config.describe("dual_clip"),
            "a cap on the ratio, which is 1 on strictly on-policy updates",
            serious=False,
            prescription=more,
        )
    loss = "gspo" if config.sequence_ratio else config.loss
    if loss in RATIO_LOSSES and ("loss" in config.user_settings or "sequence_ratio" in config.user_settings):
        settings = config.user_settings.get(
            "sequence_ratio" if config.sequence_ratio else "loss", config.describe("loss")
        )
        yield Issue(
            settings,
            f"{RATIO_LOSSES[loss]} only where the ratio has left 1",
            serious=loss.endswith("gppo"),
            prescription=more,
        )


def prescribe_updates(evidence: Evidence) -> Prescription:
    """Take several updates per generation, which lets the ratio leave 1."""
    return Prescription(
        f"Take {prescriptions.UPDATES_PER_GENERATION} updates per generation",
        f"The ratio can then leave 1, so what acts on it takes effect. Now: {evidence.config.describe('updates')}.",
        (Change("updates", prescriptions.UPDATES_PER_GENERATION),),
        "Each update is a little more off-policy than the one before.",
        "DAPO, arXiv 2503.14476; Entropy-Mechanism-of-RL#1",
    )


def check_single_response(evidence: Evidence) -> Iterator[Issue]:
    """Find covariance selection in micro-batches of one response.

    Advantages are constant within a response, so alone it has a covariance of 0.
    """
    config = evidence.config
    if not config.covariance or config.micro_batch != 1 or config.estimator not in RESPONSE_ESTIMATORS:
        return
    effect = "no token is selected" if config.covariance == "clip-cov" else "rounding decides which tokens are selected"
    why = (
        f"with one response per micro-batch ({config.describe('micro_batch')}) the covariance of every token is 0, and"
        f" {effect}"
    )
    prescription = Prescription(
        "Rank the tokens over the whole batch, not within each micro-batch",
        "The covariance then compares responses with different advantages.",
        (Change("chain", config.covariance.replace("-", "_")),),
        source="arXiv 2505.22617; Entropy-Mechanism-of-RL#20",
    )
    yield Issue(config.describe("covariance"), why, serious=True, prescription=prescription)


def check_covariance_share(evidence: Evidence) -> Iterator[Issue]:
    """Find a share of less than one token per micro-batch: one token is selected regardless."""
    config = evidence.config
    if (
        not config.covariance
        or not config.covariance_share
        or not config.micro_batch
        or config.micro_batch == 1
        or not config.max_completion_length
    ):
        return
    tokens = config.micro_batch * config.max_completion_length
    if config.covariance_share * tokens < 1:
        why = (
            f"{config.covariance_share:g} of at most {tokens:,} tokens in a micro-batch is less than one; one token is"
            " selected regardless"
        )
        yield Issue(f"the share of {config.covariance}, {config.covariance_share:g}", why, serious=False)


def check_entropy_target(evidence: Evidence) -> Iterator[Issue]:
    """Find a target that entropy has never crossed, so the bonus was always off or always rising."""
    config, seen = evidence.config, evidence.series("entropy")
    kind = None if evidence.run is None else evidence.run.header.entropies.get("entropy")
    if not config.entropy_adaptive or config.entropy_target is None or seen is None or len(seen) < MIN_POINTS:
        return
    if kind is None or kind.aggregation != "token-mean" or (config.entropy_share or 1) < 1:
        return
    low, high, target = float(seen.values.min()), float(seen.values.max()), config.entropy_target
    settings = config.user_settings.get("entropy_target", f"a target of {target:g} nats")
    if target < low:
        why = f"entropy has not been below {low:.3g} nats in {len(seen):,} steps: the bonus was never on"
        yield Issue(settings, why, serious=False, prescription=prescriptions.hold_entropy(float(seen.values[0])))
    elif target > high:
        why = (
            f"entropy has never been above {high:.3g} nats in {len(seen):,} steps: the coefficient rises at every"
            " step and never adapts"
        )
        yield Issue(settings, why, serious=True, prescription=prescriptions.hold_entropy(float(seen.values[0])))


def check_unused(evidence: Evidence) -> Iterator[Issue]:
    """Find settings that the trainer's own switches turn off."""
    config = evidence.config
    for setting in config.unused:
        yield Issue(
            setting.setting,
            setting.why,
            serious=setting.intended,
            prescription=prescribe_switch(setting, config) if setting.intended else None,
        )


def prescribe_switch(unused: UnusedSetting, config: TrainerConfig) -> Prescription | None:
    """Switch on what an unused setting needs; None where we know no switch."""
    if unused.setting == config.user_settings.get("kl_given") and config.kl_given:
        why = "The coefficient alone does nothing."
        return Prescription("Switch the KL penalty to the reference on", why, (Change("kl", config.kl_given),))
    if config.length_penalty is False and "overlong" in unused.setting:
        why = "The reward function in use does not read the penalty."
        return Prescription("Switch the length penalty on", why, (Change("length_penalty", True),))
    return None


def check_shaped_reward(evidence: Evidence) -> Iterator[Issue]:
    """Find dynamic sampling on a shaped reward: with a length penalty hardly any two rewards are equal."""
    config = evidence.config
    if not config.dynamic_sampling or not config.shaped_reward or config.filter_metric not in REWARD_FILTERS:
        return
    why = "groups are kept if their rewards differ, and a shaped reward differs between any two responses"
    prescription = Prescription(
        "Filter groups by correctness instead of reward",
        "Groups that are all right or all wrong are then dropped, whatever their lengths.",
        (Change("dynamic_sampling", True),),
        source="DAPO, arXiv 2503.14476; trl#3708",
    )
    yield Issue(config.describe("dynamic_sampling"), why, serious=True, prescription=prescription)


def check_entropy_share(evidence: Evidence) -> Iterator[Issue]:
    """Find a share of high-entropy tokens that keeps all tokens."""
    config = evidence.config
    if config.entropy_share == 1 and "entropy_share" in config.user_settings:
        yield Issue(
            config.describe("entropy_share"), "a share of 1 keeps every token, so nothing is masked", serious=False
        )


def check_thinking_cap(evidence: Evidence) -> Iterator[Issue]:
    """Find a thinking cap at a server with speculative decoding, unless the probe saw the cap respected."""
    policy, server = evidence.policy, evidence.server
    if policy is None or server is None or policy.sampling.thinking_tokens is None:
        return
    if server.get("speculative") == "yes" and server.get("thinking_cap") != "yes":
        why = "the server decodes speculatively, which ignores thinking caps"
        prescription = Prescription(
            "Start the server without speculative decoding, or cap the whole completion",
            "A cap on all tokens works either way.",
            (Change("max_tokens", policy.sampling.max_tokens),),
            source="sglang#26330, vllm#43672",
        )
        yield Issue(
            f"thinking_tokens = {policy.sampling.thinking_tokens}", why, serious=True, prescription=prescription
        )


def check_top_logprobs(evidence: Evidence) -> Iterator[Issue]:
    """Find more top log-probs requested than the server returns."""
    policy, server = evidence.policy, evidence.server
    most = None if server is None else server.get("top_logprobs")
    if policy is None or not isinstance(most, int):
        return
    wanted = max(policy.sampling.top_logprobs, 0 if policy.halt is None else policy.halt.top_logprobs)
    if wanted > most:
        why = "the server returns no log-probs" if most == 0 else f"the server returned {most} at most"
        prescription = (
            None
            if most == 0
            else Prescription(f"Ask for {most} top log-probs", "More are refused.", (Change("top_logprobs", most),))
        )
        yield Issue(f"top_logprobs = {wanted}", why, serious=True, prescription=prescription)


GROUP_ESTIMATORS = frozenset(
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
FILTERING_TRAINERS = frozenset({"nemo-rl"})
"""Trainers whose loss applies the same sampling filters as the sampler."""
FULL_DISTRIBUTION: dict[str, float] = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Sampling settings -> the value at which rollouts are sampled from the policy itself."""


def find_contradictions(evidence: Evidence) -> Iterator[Issue]:
    """Yield every contradiction between settings."""
    for conflict in evidence.config.conflicts:
        ran = evidence.run is not None and conflict.consequence == "refused"
        refuses = f"{conflict.since} and later refuse" if conflict.since else "the trainer refuses"
        why = conflict.why + f"; {refuses} to start" * (conflict.consequence == "refused" and not ran)
        yield Issue(
            conflict.settings,
            why + ("; the run started anyway" if ran else ""),
            serious=conflict.consequence != "slight" and not ran,
        )
    rules: tuple[Callable[[TrainerConfig], Iterator[Issue]], ...] = (
        check_group_of_one,
        check_reversed_clip,
        check_dual_clip,
        check_greedy_rollouts,
        check_context_length,
        check_masked_penalty,
        check_short_cap,
        check_loss_name,
    )
    for rule in rules:
        yield from rule(evidence.config)
    if evidence.dialect is None or evidence.dialect.trainer not in FILTERING_TRAINERS:
        yield from check_sampling_filters(evidence.config)


def check_group_of_one(config: TrainerConfig) -> Iterator[Issue]:
    """Find groups of one, which have nothing to be compared with."""
    if (
        config.group != 1
        or config.estimator not in GROUP_ESTIMATORS
        or not {"group", "estimator"} & config.user_settings.keys()
    ):
        return
    settings = "; ".join(dict.fromkeys((config.describe("estimator"), config.describe("group"))))
    why = f"{config.estimator} compares the responses to one prompt with each other, and there is only one"
    prescription = Prescription(
        "Sample 8 rollouts per prompt",
        "The advantage of a response is relative to the others in its group.",
        (Change("group", 8),),
        "Eight times the rollouts, or an eighth of the prompts.",
        "arXiv 2402.03300",
    )
    yield Issue(settings, why, serious=True, prescription=prescription)


def check_reversed_clip(config: TrainerConfig) -> Iterator[Issue]:
    """Find clip-higher the wrong way round: an upper clip tighter than the lower one."""
    low, high = config.clip_low, config.clip_high
    if (
        low is None
        or high is None
        or config.clips is False
        or config.loss == "cispo"  # its weight needs no lower bound, so authors write a very wide one
        or not {"clip_low", "clip_high"} <= config.user_settings.keys()
        or high >= low
    ):
        return
    why = f"the ratio may fall by {low:g} but rise by only {high:g}: clip-higher the wrong way round"
    prescription = Prescription(
        f"Swap the two: {high:g} below, {low:g} above",
        "Unlikely tokens need room to rise.",
        (Change("clip_low", high), Change("clip_high", low)),
    )
    yield Issue(
        f"{config.describe('clip_low')}; {config.describe('clip_high')}", why, serious=True, prescription=prescription
    )


def check_dual_clip(config: TrainerConfig) -> Iterator[Issue]:
    """Find a dual clip below the upper clip, which it then replaces."""
    if (
        config.dual_clip is None
        or config.clip_high is None
        or not config.clips
        or "dual_clip" not in config.user_settings
    ):
        return
    if config.loss in ("cispo", "dppo_tv", "dppo_kl") or config.dual_clip > 1 + config.clip_high:
        return
    why = f"a cap of {config.dual_clip:g} on the ratio lies inside the clip, which ends at {1 + config.clip_high:g}"
    prescription = Prescription(
        "Raise the cap to 3, or remove it", "It is meant for ratios far beyond the clip.", (Change("dual_clip", 3.0),)
    )
    yield Issue(config.describe("dual_clip"), why, serious=True, prescription=prescription)


def check_greedy_rollouts(config: TrainerConfig) -> Iterator[Issue]:
    """Find greedy rollouts: all responses to a prompt are then the same."""
    if config.temperature != 0 or "temperature" not in config.user_settings or config.group == 1:
        return
    prescription = Prescription(
        "Sample rollouts at a temperature of 1", "Responses must differ to be compared.", (Change("temperature", 1.0),)
    )
    yield Issue(
        config.describe("temperature"),
        "all responses to a prompt are the same at a temperature of 0",
        serious=True,
        prescription=prescription,
    )


def check_context_length(config: TrainerConfig) -> Iterator[Issue]:
    """Find a context length of the sampler that truncates completions below their cap."""
    if (
        config.max_completion_length is None
        or config.context is None
        or not {"max_completion_length", "context"} & config.user_settings.keys()
    ):
        return
    needed = config.max_completion_length + (config.max_prompt_length or 0)
    if needed <= config.context:
        return
    settings = "; ".join(
        config.describe(name)
        for name in ("max_prompt_length", "max_completion_length", "context")
        if name in config.user_settings
    )
    why = f"prompt and completion may have {needed:,} tokens, but the sampler's context holds {config.context:,}"
    prescription = Prescription(
        "Raise the sampler's context length to hold both",
        "Long completions are truncated below their cap.",
        (Change("max_completion_length", config.max_completion_length),),
    )
    yield Issue(settings, why, serious=True, prescription=prescription)


def check_masked_penalty(config: TrainerConfig) -> Iterator[Issue]:
    """Find a length penalty that masking keeps from the longest completions."""
    if config.mask_truncated and config.length_penalty:
        why = "truncated completions are masked in the loss, so the largest length penalties are never learned from"
        settings = "; ".join(dict.fromkeys((config.describe("mask_truncated"), config.describe("length_penalty"))))
        yield Issue(settings, why, serious=False)


def check_sampling_filters(config: TrainerConfig) -> Iterator[Issue]:
    """Find sampling filters that the loss does not know of, with no correction of the mismatch."""
    uncorrected = config.correct_mismatch is False or (config.correct_mismatch is None and config.engine == "hf")
    filtered = [
        name
        for name, neutral in FULL_DISTRIBUTION.items()
        if name in config.user_settings and getattr(config, name) not in (None, neutral)
    ]
    filtered = [name for name in filtered if name != "top_p" or (config.top_p or 0) < 1]
    if not filtered or not uncorrected:
        return
    why = (
        "rollouts are sampled from a filtered or reweighted distribution, and the loss treats them as samples from the"
        " full one"
    )
    prescription = Prescription(
        "Sample rollouts from the full distribution",
        "Tokens that are never sampled can only lose probability: cutting the tail at every step narrows the policy.",
        tuple(Change(name, FULL_DISTRIBUTION[name]) for name in filtered),
        "Noisier rollouts; the alternative is to correct the mismatch.",
        "DAPO trains at top_p 1, arXiv 2503.14476",
    )
    yield Issue("; ".join(config.describe(name) for name in filtered), why, serious=False, prescription=prescription)


LONG_THINKERS = re.compile(
    r"R1-Distill|DeepSeek-R1|R1-0528|QwQ|DeepScaleR|OpenThinker|Skywork-OR1|Magistral|JustRL|Nemotron.*Reason"
    r"|Phi-4.*reasoning|[-_/]Thinking",
    re.IGNORECASE,
)
"""Names of models that think for thousands of tokens whatever the template says."""
HYBRID_THINKERS = re.compile(
    r"Qwen3(\.\d)?-\d+(\.\d+)?B(-A\d+B)?(-(FP8|AWQ|GPTQ|unsloth|bnb|4bit|Int\d)\b.*)?/?$", re.IGNORECASE
)
"""Names of models that think unless the chat template switches it off; Base, Instruct and Coder models do not."""
SHORT_CAP = 4096
"""Tokens that such a model's first drafts exceed: DeepScaleR's R1-Distill-Qwen-1.5B began at 5,500 on average."""


def check_short_cap(config: TrainerConfig) -> Iterator[Issue]:
    """Find a cap on completions that a model known to think long will hit at once."""
    name, cap = config.model, config.max_completion_length
    if not name or not cap or cap > SHORT_CAP or "max_completion_length" not in config.user_settings:
        return
    if not LONG_THINKERS.search(name) and (config.thinking is False or not HYBRID_THINKERS.search(name)):
        return
    why = (
        f"{name.rstrip('/').rpartition('/')[2]} is known to think for thousands of tokens, and what is longer than"
        f" {cap:,} is truncated and scored as wrong"
    )
    prescription = Prescription(
        "Allow 8,192 tokens or more, or switch thinking off in the chat template",
        "R1-Distill-Qwen-1.5B began at 5,500 tokens on average; Qwen3's authors recommend room for 32,768.",
        (Change("max_completion_length", 8192),),
        "Memory and time grow with the longest completion.",
        "DeepScaleR, 2025; model card of Qwen3",
    )
    settings = "; ".join(dict.fromkeys((config.describe("model"), config.describe("max_completion_length"))))
    yield Issue(settings, why, serious=False, prescription=prescription)


def check_loss_name(config: TrainerConfig) -> Iterator[Issue]:
    """Find verl's loss ``dro``, which shares its name with another method."""
    if config.loss == "dro" and "loss" in config.user_settings:
        why = "verl's dro is Direct Reward Optimization, not the DRO with R3 of arXiv 2506.13351"
        yield Issue(config.describe("loss"), why, serious=False)
