"""``no-op-settings``: settings that have no effect as this run is configured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.finding import (
    CannotTell,
    Change,
    CheckResult,
    Confidence,
    Finding,
    Loop,
    Need,
    Prescription,
)
from breadth.doctor.lint import (
    Issue,
    cannot_read,
    describe_unread,
    exclude_issues,
    issue_facts,
    issue_headline,
    issue_prescriptions,
    issue_severity,
)
from breadth.doctor.trainer_config import TrainerConfig, UnusedSetting
from breadth.report.sections import Fact

_NAME = "no-op-settings"


@dataclass(frozen=True)
class NoOpSettings:
    """Settings that have no effect as this run is configured.

    Checked: clip-higher, a dual clip, KL-Cov, GPPO or another loss of the ratio where every update is strictly
    on-policy; covariance with one response per micro-batch, or with a share of less than one token; an entropy target
    that the run's entropy has never crossed; a coefficient whose switch is off, a setting that the chosen loss or
    reward manager does not read; held-out problems that are never evaluated on; dynamic sampling on a shaped
    reward; a share of tokens that is all of them; a cap on thinking under speculative decoding; more top log-probs
    than the server sends.

    A warning where the user plainly relies on the setting, a note where it looks like a left-over: a coefficient whose
    own switch is off. It misleads where a fork of the trainer reads settings that the original ignores; only the
    original is known here.
    """

    loop: ClassVar[Loop] = "configuration"
    causes: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[Need, ...]] = ("settings",)
    summary: ClassVar[str] = "settings that do nothing in this configuration"
    first_step: ClassVar[str] = "remove them, or switch on what they need"
    reads_server: ClassVar[bool] = True

    def check(self, evidence: Evidence) -> CheckResult:
        """Apply the rules."""
        points = tuple(find_no_op_settings(evidence))
        if points:
            return describe_points(evidence, points)
        unread = missing_updates(evidence) or cannot_read(_NAME, evidence, find_no_op_settings, switches=True)
        return unread or exclude_issues(_NAME, evidence)


def describe_points(evidence: Evidence, points: tuple[Issue, ...]) -> Finding:
    """Build the finding."""
    config, remedies = evidence.config, issue_prescriptions(points)
    drifting = any(change.setting == "updates" for remedy in remedies for change in remedy.changes)
    updates = (
        [
            Fact(
                "updates per generation",
                config.updates,
                "",
                f"{config.describe('updates')}; everything else at its default",
            )
        ]
        if drifting and config.updates is not None
        else []
    )
    return Finding(
        _NAME,
        issue_severity(points),
        _confidence(evidence),
        "configuration",
        issue_headline(points, "setting", "has no effect here", "have no effect here"),
        (*issue_facts(points), *updates, *describe_unread(evidence, find_no_op_settings, switches=True)),
        "The loss on the same batch, or the reply to the same request, changes when one of them is changed.",
        _cost(evidence),
        (*remedies, *_leftovers(points)),
    )


def _confidence(evidence: Evidence) -> Confidence:
    """Return ``certain`` for arithmetic on settings, ``strong`` for what was observed of entropies and servers."""
    seen = evidence.config.entropy_adaptive or evidence.policy is not None
    return "strong" if seen else "certain"


def _cost(evidence: Evidence) -> str:
    longest = None if evidence.run is None else evidence.series("reward") or evidence.series("entropy")
    return "" if longest is None else f"None of them had any effect in the {longest.steps[-1]:,} steps so far."


def _leftovers(points: tuple[Issue, ...]) -> tuple[Prescription, ...]:
    left = [point.setting for point in points if point.prescription is None]
    if not left:
        return ()
    return (
        Prescription(
            "Remove settings without effect, or turn on what they need",
            f"They only mislead: {'; '.join(left)}.",
        ),
    )


def missing_updates(evidence: Evidence) -> CannotTell | None:
    """Say that the number of updates per generation is not known, where a setting hangs on it; else None."""
    config = evidence.config
    if (
        config.updates is None
        and "clip_high" in config.user_settings
        and (config.clip_high or 0) > (config.clip_low or 0.2)
        and config.clips
    ):
        missing = (
            f"the number of updates per generation is not known: {config.describe('clip_high')} has an effect from two"
            " on"
        )
        return CannotTell(
            _NAME, missing, f"now {config.user_settings['updates']}" if "updates" in config.user_settings else ""
        )
    return None


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


FINDING = NoOpSettings()
"""The check with its default thresholds."""
