"""How far the sampling policy is from the trained one, and proofs that the two differ.

The proofs use the logged metric, the entropy of the sampled tokens, or the log-probabilities of both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from breadth.doctor.evidence.record import MIN_POINTS as MIN_POINTS
from breadth.doctor.evidence.record import Evidence, Window
from breadth.doctor.evidence.rollouts import MIN_CLUSTERS, Ends, RecordedCounts, TokenSums, count_recorded, token_sums
from breadth.doctor.finding import FINDING_SEVERITIES, Confidence
from breadth.measure.intervals import UNBOUNDED, Interval, Resamples, resample
from breadth.measure.trends import Trend, log_trend
from breadth.report.sections import Fact, Severity
from breadth.runs.reader import MetricSeries, Run

Bound: TypeAlias = Callable[[float], float]

MISMATCH_UNITS: dict[str, tuple[str, Bound]] = {
    "sampling/sampling_logp_difference/mean": ("mean |difference of log-probabilities|", lambda apart: apart**2 / 2),
    "train_rollout_logprob_abs_diff": ("mean |difference of log-probabilities|", lambda apart: apart**2 / 2),
    "rollout_probs_diff_mean": ("mean |difference of probabilities|", lambda apart: 2 * apart**2),
    **dict.fromkeys(
        ("mismatch_kl/all/mean", "vllm_kl", "gen_kl_error", "kl_sample_train_v2"), ("divergence", lambda apart: apart)
    ),
}
"""Suffix of a trainer's metric -> its unit, and the divergence in nats per token that it proves at least.

A mean of |log p - log q| of d proves d^2 / 2 to second order (the divergence is half the mean square). A mean |p - q|
of d proves 2 d^2 by Pinsker: the token itself is an event whose two probabilities differ by that much.
"""
MIN_RECORDED_SHARE = 0.99
"""Share of the rollouts that must have their lists: one in a hundred left out moves a mean by about a percent at most.
"""


def proven_divergence(theirs: str) -> tuple[str, Bound] | None:
    """Return a metric's unit and the divergence it proves; None where its unit is not known."""
    return next((unit for name, unit in MISMATCH_UNITS.items() if theirs == name or theirs.endswith(f"/{name}")), None)


def divergence_over_entropy(evidence: Evidence, found: Trend) -> Interval | None:
    """Return the divergence that the logged metric proves now, over the entropy; None where either is missing.

    The entropy is the larger of start and now: a policy that has become sure of nearly everything has little entropy
    and the same rounding errors.
    """
    unit, entropy = proven_divergence(evidence.logged_name("mismatch")), evidence.trend("entropy")
    if unit is None or entropy is None:
        return None
    scale = max(entropy.start, entropy.end, key=lambda level: level.value)
    if scale.low <= 0:
        return None
    low, value, high = (unit[1](max(end, 0.0)) for end in (found.end.low, found.end.value, found.end.high))
    return Interval(value / scale.value, low / scale.high, high / scale.low, method="ends of both intervals")


@dataclass(frozen=True)
class Growth:
    """How a positive metric has grown."""

    times: Interval
    """Now over the start."""
    continues: bool
    """Whether it still rises over the second half of the run."""


def growth(series: MetricSeries) -> Growth | None:
    """Return how many times its start a metric is, on the logarithm; None where it is not always above 0."""
    half = len(series) // 2
    if half < MIN_POINTS or series.values.min() <= 0:
        return None
    whole, since = log_trend(series.steps, series.values), log_trend(series.steps[half:], series.values[half:])
    return None if whole.ratio is None else Growth(whole.ratio, whole.verdict == since.verdict == "rising")


def recorded_temperatures(evidence: Evidence) -> tuple[float, float] | None:
    """Return the temperatures of entropies and of rollouts; None unless both are recorded."""
    kind = None if evidence.run is None else evidence.run.header.entropies.get("entropy")
    scored, drawn = None if kind is None else kind.temperature, evidence.config.temperature
    return None if scored is None or drawn is None else (scored, drawn)


@dataclass(frozen=True)
class Surprise:
    """Surprise of a window's tokens, compared with the entropy of the policy they should come from."""

    excess: Interval
    """Mean of -log p minus entropy, nats per token: 0 for tokens sampled from p, whatever p is."""
    share: Interval
    """The same as a share of the entropy."""
    nats: float
    """Entropy of all tokens read."""
    mean_gap: float
    """Mean of |-log p - entropy|: 0 where the recorded entropy is really minus the log-probability."""
    rollouts: int
    """Rollouts read."""
    tokens: int
    """Tokens read."""


def surprise(run: Run, window: Window) -> Surprise | None:
    """Compare how surprising tokens are with their entropy; None without both lists.

    Given its prefix, a token sampled from p has ``E[-log p] = H(p)``. So the sum over a rollout is a martingale that
    ends at a stopping time, its mean is 0 for every prompt, and rollouts are independent: the interval resamples them.
    For tokens sampled from q instead, the mean is ``H(q) - H(p) + KL(q || p)``.
    """
    terms = {"gap": "-{0} - entropy", "nats": "entropy", "apart": "abs(-{0} - entropy)"}
    for name in ("logprob", "old_logprob"):
        sums = token_sums(run, window, {ours: term.format(name) for ours, term in terms.items()}, (name, "entropy"))
        if len(sums):
            break
    else:
        return None
    found = resample_rollouts(sums)
    return Surprise(
        found.ratio("gap", "tokens", UNBOUNDED),
        found.ratio("gap", "nats", UNBOUNDED),
        float(sums.sums["nats"].sum()),
        float(sums.sums["apart"].sum() / sums.tokens.sum()),
        len(sums),
        int(sums.tokens.sum()),
    )


def divergence(run: Run, window: Window) -> Interval | None:
    """Return KL(sampler || trainer) over the sampler's entropy, both from its samples; None below ten rollouts."""
    sums = token_sums(
        run, window, {"apart": "old_logprob - logprob", "nats": "-old_logprob"}, ("old_logprob", "logprob")
    )
    return resample_rollouts(sums).ratio("apart", "nats", UNBOUNDED) if len(sums) >= MIN_CLUSTERS else None


def resample_rollouts(sums: TokenSums) -> Resamples:
    """Resample whole rollouts: their token sums are independent."""
    return resample({**sums.sums, "tokens": sums.tokens}, np.arange(len(sums)))


def selection_bias(evidence: Evidence, run: Run, window: Window) -> str:
    """Say why the rollouts may have been selected by outcome, which biases token means; empty where not.

    Of a problem that is solved 95 times in 100, only groups with a failure survive a filter for flat groups, and
    failures are surprising.
    """
    if evidence.config.dynamic_sampling:
        return "groups without a difference in reward were resampled, so the rest was selected by outcome"
    column = "logprobs" if "logprobs" in run.columns else "old_logprobs"
    found: RecordedCounts = count_recorded(run, window, column)
    if found.with_column < MIN_RECORDED_SHARE * found.rollouts:
        return (
            f"only {found.with_column:,} of {found.rollouts:,} rollouts have their log-probabilities, and which ones"
            " may"
            " depend on the outcome"
        )
    if evidence.config.dynamic_sampling is None and not found.flat:
        return (
            "no group has equal rewards or advantages, so groups may have been dropped by outcome, and no setting"
            " rules that out"
        )
    return ""


@dataclass(frozen=True)
class Proof:
    """What one kind of evidence proves."""

    severity: Severity
    """Its severity."""
    confidence: Confidence
    """Its confidence."""
    headline: str
    """The start of a headline, with its number."""
    facts: tuple[Fact, ...]
    """The numbers."""
    sign: int = 0
    """1: sampled hotter than scored, -1: colder, 0: unknown."""


ProofAttempt: TypeAlias = Proof | str | None
"""A proof; or why this proof was not possible; or None: possible, and nothing found."""


def prove_by_metric(evidence: Evidence, share: float, times: float) -> ProofAttempt:
    """Use the logged metric: a divergence above a share of the entropy, or continuing growth beyond ``times``."""
    found, series = evidence.trend("mismatch"), evidence.series("mismatch")
    if found is None or series is None:
        return evidence.missing_metric("", "mismatch").missing
    theirs, proven, grown = evidence.logged_name("mismatch"), divergence_over_entropy(evidence, found), growth(series)
    facts = _metric_facts(evidence, found, proven, grown)
    if proven is None and grown is None:
        return f"{theirs} can be compared neither with the entropy nor with its own start"
    if proven is not None and proven.low > share:
        headline = f"By {theirs} trainer and sampler diverge by at least {proven.value:.0%} of the entropy"
        return Proof(mismatch_severity(evidence, beyond=True), "strong", headline, facts)
    if grown is not None and grown.times.low > times and grown.continues:
        headline = (
            f"By {theirs} trainer and sampler differ {grown.times.value:.3g} times as much as at the start, and the"
            " difference"
            " still grows"
        )
        return Proof(mismatch_severity(evidence, beyond=False), "likely", headline, facts)
    return None


def prove_by_entropy(evidence: Evidence, run: Run, ends: Ends, allowed: float, nats: float) -> ProofAttempt:
    """Compare the surprise of tokens with their entropy, where they hold at least ``nats``."""
    found, kind = surprise(run, ends.now), run.header.entropies.get("entropy")
    if found is None:
        return "entropies of the tokens are not recorded along with their log-probabilities"
    if (kind is not None and kind.estimator not in ("exact", "unknown")) or found.mean_gap <= 1e-6:
        return "the recorded entropy is not taken over the whole vocabulary"
    if found.nats < nats or found.rollouts < MIN_CLUSTERS:
        return f"the tokens of {found.rollouts} rollouts hold {found.nats:,.0f} nats together; {nats:,.0f} are needed"
    if not is_beyond(found.share, allowed):
        return None
    chosen = selection_bias(evidence, run, ends.now)
    if chosen:
        return f"tokens differ from their entropy, but {chosen}"
    sign = 1 if found.share.value > 0 else -1
    sure = kind is not None and kind.estimator == "exact"
    harmless = temperatures_explain(evidence, sign) or not (sure or is_new_since_start(run, ends, found.share, allowed))
    return Proof(
        Severity.NOTE if harmless else mismatch_severity(evidence, beyond=True),
        "strong" if sure and evidence.config.on_policy and not harmless else "likely",
        f"Tokens are {abs(found.share.value):.0%} {'more' if sign > 0 else 'less'} surprising than their own entropy"
        " allows",
        _token_facts(evidence, found, ends),
        sign,
    )


def _metric_facts(evidence: Evidence, found: Trend, proven: Interval | None, grown: Growth | None) -> tuple[Fact, ...]:
    facts = [
        Fact(
            "difference at the start",
            found.start,
            "",
            f"{evidence.describe_steps('mismatch')}: median of the first eighth",
        ),
        Fact("difference now", found.end, "", "median of the last eighth"),
    ]
    if grown is not None:
        facts.append(Fact("times the start", grown.times))
    unit = proven_divergence(evidence.logged_name("mismatch"))
    if proven is not None and unit is not None:
        facts.append(
            Fact(
                "divergence it proves, share of the entropy",
                proven,
                "%",
                f"the metric is a {unit[0]}; entropy the larger of then and now",
            )
        )
    return tuple(facts)


def prove_by_logprobs(evidence: Evidence, run: Run, ends: Ends, allowed: float) -> ProofAttempt:
    """Compare the log-probabilities that trainer and sampler give to the same tokens."""
    found = divergence(run, ends.now) if {"logprobs", "old_logprobs"} <= run.columns else None
    if found is None:
        return "only one of trainer and sampler has its log-probabilities recorded"
    if not found.low > allowed:
        return None
    headline = f"The sampler is {found.value:.0%} of its entropy away from the trainer"
    fact = Fact(
        "divergence, share of the entropy", found, "%", f"log-probabilities of both for the tokens of {ends.now.name}"
    )
    return Proof(
        mismatch_severity(evidence, beyond=True), "strong" if evidence.config.on_policy else "likely", headline, (fact,)
    )


def is_new_since_start(run: Run, ends: Ends, now: Interval, allowed: float) -> bool:
    """Say whether it appeared during the run; a different unit or estimator would show from the first step."""
    then = surprise(run, ends.start)
    if then is None or is_beyond(then.share, allowed):
        return False
    return then.share.high < now.low or now.high < then.share.low


def is_beyond(share: Interval, allowed: float) -> bool:
    """Say whether an interval lies outside of plus or minus ``allowed``."""
    return share.low > allowed or share.high < -allowed


def mismatch_severity(evidence: Evidence, *, beyond: bool) -> Severity:
    """Return a worse severity where the score falls, a milder one where importance weights correct it."""
    falls = any(
        score is not None and score.verdict == "falling"
        for score in (evidence.trend("reward"), evidence.late_trend("reward"))
    )
    level = 2 - int(beyond) - int(falls) + int(bool(evidence.config.correct_mismatch))
    return FINDING_SEVERITIES[min(level, 2)]


def temperatures_explain(evidence: Evidence, sign: int) -> bool:
    """Say whether the recorded temperatures alone would explain the sign."""
    found = recorded_temperatures(evidence)
    return found is not None and (found[1] - found[0]) * sign > 0


def _token_facts(evidence: Evidence, found: Surprise, ends: Ends) -> tuple[Fact, ...]:
    facts = [
        Fact(
            "surprise minus entropy",
            found.excess,
            "nats",
            f"{found.tokens:,} tokens of {found.rollouts:,} rollouts, {ends.now.name}",
        ),
        Fact(
            "the same, share of the entropy", found.share, "%", "0 for tokens sampled from the policy that scores them"
        ),
    ]
    known = recorded_temperatures(evidence)
    if known is not None:
        why = "equal, so they explain nothing" if known[0] == known[1] else "they differ, which alone may explain it"
        facts.append(Fact("temperature of entropies and of rollouts", f"{known[0]:g}, {known[1]:g}", "", why))
    if evidence.config.top_p is not None and evidence.config.top_p < 1:
        facts.append(Fact("top-p of the rollouts", evidence.config.top_p, "", evidence.config.describe("top_p")))
    return tuple(facts)
