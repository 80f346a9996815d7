"""``train-inference-mismatch``: the rollouts come from a different policy than the one that is trained on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import MIN_POINTS, Evidence, Window
from breadth.doctor.evidence.rollouts import (
    MIN_CLUSTERS,
    Ends,
    RecordedCounts,
    TokenSums,
    count_recorded,
    covers_training,
    token_logging_hint,
    token_sums,
    training_ends,
)
from breadth.doctor.finding import (
    FINDING_SEVERITIES,
    CannotTell,
    CheckResult,
    Confidence,
    Excluded,
    Finding,
    Loop,
    Prescription,
)
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


_NAME = "train-inference-mismatch"


@dataclass(frozen=True)
class TrainInferenceMismatch:
    """Trainer and sampler disagree about the same tokens.

    Three proofs, each enough. By the tokens alone: a token sampled from a policy p has E[-log p] = H(p) exactly, so the
    mean of -log p minus entropy, with an interval over rollouts, must contain 0. A certain excess means sampling at a
    higher temperature, from older weights or by an engine that computes differently; a certain deficit means a lower
    temperature or truncated sampling (top-p). By both log-probabilities of each token, where recorded: their mean
    difference is the divergence. By the trainer's own metric: a divergence beyond the scale of the entropy, or certain
    growth to several times its start that continues. Trainers log it in three units; each is converted to the
    divergence that it proves at least.

    It misleads where rollouts were dropped by outcome (tokens are then not used), where entropies have another
    temperature than log-probabilities (recorded temperatures that would explain it make it a note), and by as much as
    the policy moves between sampling and scoring when a generation gets several updates.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("contradictory-settings",)
    summary: ClassVar[str] = "trainer and sampler disagree about the same tokens"
    first_step: ClassVar[str] = "use the same temperature and weights; correct by importance weights"

    share: float = 0.05
    """Share of the entropy beyond which it is proven: tokens from the previous policy show the entropy lost since, and
    a run that loses 95 % of its entropy in 60 updates loses 5 % in one (ln 20 / 60). Multiplied by the updates per
    generation."""
    grown: float = 4.0
    """Factor over its start that a logged difference certainly exceeds: twice the difference of log-probabilities is
    four times the divergence, and trainers log either."""
    nats: float = 1000.0
    """Entropy that the tokens read must hold: a token of probability 1 in 20,000 has 10 nats, so even a policy with
    only such rare surprises has shown a hundred of them, and a resampled interval is reliable."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Try all three proofs and report the worst."""
        if evidence.run is None or not covers_training(evidence):
            return None
        attempts = [prove_by_metric(evidence, self.share, self.grown), *self.prove_by_tokens(evidence, evidence.run)]
        proofs = sorted(
            (attempt for attempt in attempts if isinstance(attempt, Proof)),
            key=lambda attempt: FINDING_SEVERITIES.index(attempt.severity),
        )
        if proofs:
            return describe_proofs(evidence, proofs)
        if None in attempts:
            return self.exclude(evidence, attempts)
        if evidence.config.engine == "hf":
            return Excluded(_NAME, "the trainer samples with its own weights, in one engine")
        reasons = dict.fromkeys(attempt for attempt in attempts if isinstance(attempt, str))
        return CannotTell(_NAME, "; ".join(reasons), evidence.how_to_log("mismatch") or token_logging_hint(evidence))

    def exclude(self, evidence: Evidence, attempts: list[ProofAttempt]) -> Excluded | CannotTell:
        """Return the number that shows no difference, by the logged metric first."""
        found, series = evidence.trend("mismatch"), evidence.series("mismatch")
        if attempts[0] is not None or found is None or series is None:
            allowed = self.share * max(1.0, evidence.config.updates or 1.0)
            return Excluded(_NAME, f"the tokens show no divergence above {allowed:.0%} of the entropy")
        shown = f"{evidence.logged_name('mismatch')} is {found.end.value:.2g}, {found.start.value:.2g} at the start"
        proven, grown = divergence_over_entropy(evidence, found), growth(series)
        is_far = proven is not None and proven.value > self.share
        if is_far or (grown is not None and grown.times.value > self.grown and grown.continues):
            return CannotTell(_NAME, f"{shown}; its noise leaves a mismatch open", "train longer", undecided=True)
        return Excluded(_NAME, shown)

    def prove_by_tokens(self, evidence: Evidence, run: Run) -> tuple[ProofAttempt, ...]:
        """Try the two proofs that need numbers of every token."""
        ends = training_ends(evidence)
        if ends is None or not {"logprobs", "old_logprobs"} & run.columns:
            return ("log-probabilities of the tokens are not recorded",)
        allowed = self.share * max(1.0, evidence.config.updates or 1.0)
        return prove_by_entropy(evidence, run, ends, allowed, self.nats), prove_by_logprobs(
            evidence, run, ends, allowed
        )


def describe_proofs(evidence: Evidence, proofs: list[Proof]) -> Finding:
    """Build the finding from all proofs, the worst first."""
    sign = next((proof.sign for proof in proofs if proof.sign), 0)
    whence = {
        1: ": sampled hotter, from older weights, or by an engine that computes differently",
        -1: ": sampled colder, or truncated (top-p, top-k)",
    }
    score = evidence.trend("reward")
    return Finding(
        _NAME,
        proofs[0].severity,
        proofs[0].confidence,
        "training",
        f"{proofs[0].headline}{whence.get(proofs[0].sign, '')}.",
        tuple(fact for proof in proofs for fact in proof.facts),
        "The trainer, given the same tokens, weights and temperature as the sampler, computes the same"
        " log-probabilities.",
        (
            ""
            if score is None
            else f"Over the same steps the reward went from {score.start.value:.3g} to {score.end.value:.3g}"
            f" ({score.verdict})."
        ),
        _prescriptions(evidence, sign),
    )


def _prescriptions(evidence: Evidence, sign: int) -> tuple[Prescription, ...]:
    known, two_engines = recorded_temperatures(evidence), evidence.config.engine != "hf"
    wanted = [
        prescriptions.match_temperature(*known) if known is not None and known[0] != known[1] else None,
        prescriptions.sample_full_distribution(evidence) if sign < 0 else None,
        prescriptions.correct_mismatch(evidence) if two_engines else None,
        prescriptions.match_precision() if two_engines else None,
        prescriptions.reduce_updates(evidence),
    ]
    return tuple(remedy for remedy in wanted if remedy is not None)


FINDING = TrainInferenceMismatch()
"""The check with its default thresholds."""
