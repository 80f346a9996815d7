"""``drift``: the policy moves away from its reference faster than its earlier pace explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.evidence.run_course import LOST, score_fall, score_pays
from breadth.doctor.evidence.scores import excludes_rise, is_training_run
from breadth.doctor.finding import FINDING_SEVERITIES, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.measure.course import Course, Stretch
from breadth.measure.trends import Trend, trend
from breadth.measure.validate import FloatArray
from breadth.report.cells import format_number
from breadth.report.sections import Fact, Severity
from breadth.runs.reader import MetricSeries

DIVERGENCES = {"kl_reference": "the reference policy", "kl_old": "the policy that sampled"}
"""Divergences that are checked -> the policy each is measured from."""
MIN_SPIKES, MIN_SPIKE_SHARE = 3, 0.05
"""Steps, and share of them, with a divergence that makes no sense: fewer are unlucky batches."""


@dataclass(frozen=True)
class Drift:
    """The divergence has grown beyond what the run's earlier pace explains, or its penalty outweighs the reward.

    A growing divergence is how learning looks, and no level of it is wrong in itself. Near the reference it is a
    squared distance, so a policy that moves at constant pace makes it grow with the square of the steps; its square
    root is therefore examined. The pace is that of an earlier stretch (without the first eighth, where learning rates
    warm up), continued to the end at the upper end of its interval. It is drift when the last eighth exceeds that by a
    factor. While the score rises it is a note: fast learning moves fast. It misleads after a change of learning rate or
    data during the run, and a divergence estimated from few tokens has a heavy tail.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("train-inference-mismatch", "entropy-explosion", "reward-hacking")
    summary: ClassVar[str] = "the policy moved further from its reference than its past explains"
    first_step: ClassVar[str] = "raise the KL coefficient or lower the learning rate"

    beyond: float = 2.0
    """Factor above what the pace explains, if certain: 1.4 times the distance; less is what a learning-rate schedule
    does."""
    least: float = 0.02
    """Nats per token below which no growth matters: by Pinsker's inequality the two policies then differ by at most a
    tenth of the probability at a token."""
    earlier: tuple[float, float] = (0.5, 0.75)
    """End of the earlier stretch as a share of the run: half, and three quarters for a run that takes off late."""
    outweighs: float = 1.0
    """KL coefficient times divergence above which it is drift at any pace: advantages have a spread of one within a
    group, so the penalty at a token then outweighs them."""

    far: float = 1.0
    """Nats per token from the reference above which, if certain, it is drift at any pace unless the score rises with
    it: the policy then writes tokens that the reference would write one time in three at most."""

    absurd: float = 10.0
    """Nats per token above which, at one step in twenty of the run or of its last eighth, it is a warning whatever the
    score does: the reference would write such a token once in 20,000 times, and the estimate is then a few tokens'
    exponentials."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare the end with what the earlier pace explains."""
        if not is_training_run(evidence):
            return None
        logged = [name for name in DIVERGENCES if evidence.trend(name) is not None]
        found = [
            finding for finding in (self.check_divergence(evidence, name) for name in logged) if finding is not None
        ]
        if found:
            return min(found, key=lambda finding: FINDING_SEVERITIES.index(finding.severity))
        if not logged:
            return evidence.missing_metric("drift", "kl_reference")
        levels = [(name, evidence.course(name)) for name in logged]
        shown = [
            f"{evidence.logged_name(name)} is {round(course.end.level.value, 12):.2g}"  # nought has a logarithm here
            for name, course in levels
            if course
        ]
        return Excluded("drift", ", ".join(shown))

    def check_distance(self, evidence: Evidence, name: str, course: Course) -> Finding | None:
        """Return the finding for a policy that is far from its reference, now or on the way."""
        place = course.end if course.end.level.low > self.far else course.highest
        series = evidence.series(name)
        if series is None:
            return None
        absurd = self.has_spikes(series.values)
        if not absurd and (place.level.low <= self.far or course.start.level.low > self.far):
            return None
        place = course.highest if absurd else place
        fall = score_fall(evidence)
        pays = score_pays(evidence)
        fallen = fall is not None and fall.is_sure and fall.share >= LOST
        over = place is not course.end
        unknown = evidence.trend("reward") is None
        severity = Severity.NOTE if (pays or over or unknown) and not absurd else Severity.WARNING
        step = int(place.first)
        meanwhile = ", and the score shows no rise"
        if fallen or pays or unknown:
            meanwhile = " while the score fell" if fallen else "; the score rises with it" if pays else ""
        size = self.describe_size(series.values, place, over=over)
        return Finding(
            "drift",
            Severity.CRITICAL if fallen else severity,
            "likely",
            "training",
            f"The divergence from {DIVERGENCES[name]} {size}{meanwhile}.",
            (
                Fact("divergence at the start", course.start.level, "nats", evidence.describe_steps(name)),
                Fact("highest stretch", course.highest.level, "nats"),
                Fact("divergence now", course.end.level, "nats"),
            ),
            "The score rises again at this distance.",
            prescriptions=_prescriptions(evidence, step),
        )

    def describe_size(self, values: FloatArray, place: Stretch, *, over: bool) -> str:
        """Say how large a divergence is: by its spikes where they are frequent, else by a stretch."""
        if self.has_spikes(values):
            count, most = int((values > self.absurd).sum()), format_number(float(values.max()))
            return f"exceeds {self.absurd:g} nats per token at {count} of {len(values)} steps, {most} at most"
        size = f"{'was' if over else 'is'} {place.level.value:.2g} nats per token"
        return f"{size} at steps {place.first:,.0f} to {place.last:,.0f}" if over else size

    def has_spikes(self, values: FloatArray) -> bool:
        """Say whether an absurd divergence is frequent, over the whole run or by now."""
        return any(
            (part > self.absurd).sum() >= max(MIN_SPIKES, MIN_SPIKE_SHARE * len(part))
            for part in (values, values[-max(len(values) // 8, MIN_POINTS) :])
        )

    def check_divergence(self, evidence: Evidence, name: str) -> Finding | None:
        """Return the finding for one divergence; None where its pace explains it."""
        series, now, course = evidence.series(name), evidence.trend(name), evidence.course(name)
        if series is None or now is None or course is None:
            return None
        far = self.check_distance(evidence, name, course) if name == "kl_reference" else None
        if far is not None or now.end.low <= self.least:
            return far
        explained = max(min(extrapolate_pace(series, share) for share in self.earlier), self.least / self.beyond)
        price = (evidence.config.kl or 0.0) * now.end.low if name == "kl_reference" else 0.0
        if now.end.low <= self.beyond * explained and price <= self.outweighs:
            return None
        times = (
            f"{now.end.value / explained:.2g} times what its earlier pace explains"
            if now.end.low > self.beyond * explained
            else ""
        )
        paid = f"{price:.2g} of penalty per token, against advantages of about 1" if price > self.outweighs else ""
        score = evidence.late_trend("reward")
        step = evidence.first_step_past(name, self.beyond * explained, below=False) if times else None
        return Finding(
            "drift",
            drift_severity(score),
            "likely",
            "training",
            f"The divergence from {DIVERGENCES[name]} has grown to {now.end.value:.2g} nats per token,"
            f" {times or paid}{describe_score(score)}.",
            _facts(evidence, name, now, explained, score),
            "The learning rate or the data changed where it began to grow, or it falls again by itself while the"
            " score rises.",
            "" if step is None else f"It has exceeded that since step {step:,}.",
            _prescriptions(evidence, step),
        )


def extrapolate_pace(series: MetricSeries, share: float) -> float:
    """Return the largest divergence expected at the end if the distance had kept growing at its earlier pace."""
    begin, stop, eighth = len(series) // 8, int(share * len(series)), max(3, len(series) // 8)
    if stop - begin < MIN_POINTS:
        return np.inf
    steps, distance = series.steps[begin:stop], np.sqrt(np.maximum(series.values[begin:stop], 0.0))
    pace = trend(steps, distance)
    edge = max(3, len(steps) // 8)
    ahead = float(np.median(series.steps[-eighth:]) - np.median(steps[-edge:]))
    return float((pace.end.high + max(pace.slope.high, 0.0) * ahead) ** 2)


def drift_severity(score: Trend | None) -> Severity:
    """Return the severity by the score of the second half: falling is critical, not rising a warning, else a note."""
    if score is None or not excludes_rise(score):
        return Severity.NOTE
    return Severity.CRITICAL if score.verdict == "falling" else Severity.WARNING


def describe_score(score: Trend | None) -> str:
    """Say what the score does meanwhile."""
    words = {
        "falling": " while the score falls",
        "flat": " while the score stays flat",
        "rising": "; the score rises with it",
    }
    return "" if score is None else words.get(score.verdict, "")


def _facts(evidence: Evidence, name: str, now: Trend, explained: float, score: Trend | None) -> tuple[Fact, ...]:
    facts = [
        Fact(
            "divergence at the start", now.start, "nats", f"{evidence.describe_steps(name)}: median of the first eighth"
        ),
        Fact("divergence now", now.end, "nats", "median of the last eighth"),
    ]
    if np.isfinite(explained):
        facts.append(
            Fact(
                "what the earlier pace explains",
                explained,
                "nats",
                "at most, with its square root growing at the earlier pace",
            )
        )
    if evidence.config.kl:
        facts.append(Fact("KL coefficient", evidence.config.kl, "", evidence.config.describe("kl")))
    learning_rate = evidence.trend("learning_rate")
    if learning_rate is not None:
        facts.append(
            Fact(
                "learning rate",
                f"{learning_rate.start.value:.2g} to {learning_rate.end.value:.2g}",
                "",
                learning_rate.verdict,
            )
        )
    if score is not None:
        facts.append(Fact("change of the reward in the second half", score.change, "", score.verdict))
    return tuple(facts)


def _prescriptions(evidence: Evidence, step: int | None) -> tuple[Prescription, ...]:
    remedies = (
        prescriptions.lower_learning_rate(evidence),
        prescriptions.raise_kl_penalty(evidence),
        prescriptions.correct_mismatch(evidence),
    )
    return prescriptions.around_checkpoint(evidence, step, prescriptions.sort_by_lab_effect(remedies))


FINDING = Drift()
"""The check with its default thresholds."""
