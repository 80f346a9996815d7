"""``drift``: the policy runs away from its reference faster than its own pace so far explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.evidence.scores import excludes_rise, is_training_run
from breadth.doctor.finding import CheckResult, Finding, Loop, Prescription
from breadth.measure.trends import Trend, trend
from breadth.report.sections import Fact, Severity
from breadth.runs.reader import MetricSeries

DIVERGENCES = {"kl_reference": "the reference policy", "kl_old": "the policy that sampled"}
"""Divergences that are judged, and from whom each is."""


@dataclass(frozen=True)
class Drift:
    """The divergence has grown beyond what the run's earlier stretch explains, or its price outweighs the reward.

    A divergence that grows is how learning looks, and no level of it is wrong in itself. Near the reference it is a
    squared distance, so a policy that moves at a constant pace makes it grow with the square of the steps; what is
    judged is therefore its square root. The pace is that of an earlier stretch (the first eighth, where rates warm up,
    left out), continued to the end at the most its interval allows; it is drift when the last eighth lies beyond that
    by a factor. While the score rises it is a note: fast learning moves fast. It misleads after a change of the
    learning rate or of the data on the way, and a divergence estimated from few tokens has a heavy tail.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("train-inference-mismatch", "entropy-explosion", "reward-hacking")

    beyond: float = 2.0
    """Times what the pace explains that it lies above for sure: 1.4 times as far away; less is what a schedule of rates
    does.
    """
    least: float = 0.02
    """Nats a token below which no growth matters: by Pinsker's inequality the two policies then differ by at most a tenth of the
    probability at a token."""
    earlier: tuple[float, float] = (0.5, 0.75)
    """Where the earlier stretch ends, as a share of the run: at half, and at three quarters for a run that takes off
    late.
    """
    outweighs: float = 1.0
    """Price times divergence above which it is drift whatever the pace: advantages have a spread of one within a group, so the
    penalty at a token is then the larger part of what moves it."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare the end with what the earlier pace explains."""
        if not is_training_run(evidence):
            return None
        judged = [name for name in DIVERGENCES if evidence.trend(name) is not None]
        found = [one for one in (self.check_divergence(evidence, name) for name in judged) if one is not None]
        if found or judged:
            return found[0] if found else None
        return evidence.missing_metric("drift", "kl_reference")

    def check_divergence(self, evidence: Evidence, name: str) -> Finding | None:
        """Return the finding for one divergence; None where its pace explains it."""
        series, now = evidence.series(name), evidence.trend(name)
        if series is None or now is None or now.end.low <= self.least:
            return None
        explained = max(min(extrapolate_pace(series, share) for share in self.earlier), self.least / self.beyond)
        price = (evidence.config.kl or 0.0) * now.end.low if name == "kl_reference" else 0.0
        if now.end.low <= self.beyond * explained and price <= self.outweighs:
            return None
        times = (
            f"{now.end.value / explained:.2g} times what its own pace explains"
            if now.end.low > self.beyond * explained
            else ""
        )
        paid = f"{price:.2g} of penalty a token, against advantages of about 1" if price > self.outweighs else ""
        score = evidence.late_trend("reward")
        step = evidence.first_step_past(name, self.beyond * explained, below=False) if times else None
        return Finding(
            "drift",
            drift_severity(score),
            "likely",
            "training",
            f"The divergence from {DIVERGENCES[name]} has grown to {now.end.value:.2g} nats a token,"
            f" {times or paid}{_beside(score)}.",
            _facts(evidence, name, now, explained, score),
            "The learning rate or the data was changed where it began to grow, or it goes back by itself while the"
            " score rises.",
            "" if step is None else f"It has been beyond that since step {step:,}.",
            _prescriptions(evidence, step),
        )


def extrapolate_pace(series: MetricSeries, share: float) -> float:
    """Return the divergence to be expected at the end, at most, if the distance had grown on as it did in an earlier stretch."""
    begin, stop, eighth = len(series) // 8, int(share * len(series)), max(3, len(series) // 8)
    if stop - begin < MIN_POINTS:
        return np.inf
    steps, distance = series.steps[begin:stop], np.sqrt(np.maximum(series.values[begin:stop], 0.0))
    pace = trend(steps, distance)
    edge = max(3, len(steps) // 8)
    ahead = float(np.median(series.steps[-eighth:]) - np.median(steps[-edge:]))
    return float((pace.end.high + max(pace.slope.high, 0.0) * ahead) ** 2)


def drift_severity(score: Trend | None) -> Severity:
    """Judge by the score over the second half: a fall is critical, a rise excluded a warning, anything else a note."""
    if score is None or not excludes_rise(score):
        return Severity.NOTE
    return Severity.CRITICAL if score.verdict == "falling" else Severity.WARNING


def _beside(score: Trend | None) -> str:
    words = {
        "falling": " while the score falls",
        "flat": " while the score stands still",
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
                "at most, with its square root growing on as it did",
            )
        )
    if evidence.config.kl:
        facts.append(Fact("price of a nat", evidence.config.kl, "", evidence.config.describe("kl")))
    rate = evidence.trend("learning_rate")
    if rate is not None:
        facts.append(Fact("learning rate", f"{rate.start.value:.2g} to {rate.end.value:.2g}", "", rate.verdict))
    if score is not None:
        facts.append(Fact("change of the reward in the second half", score.change, "", score.verdict))
    return tuple(facts)


def _prescriptions(evidence: Evidence, step: int | None) -> tuple[Prescription, ...]:
    wanted = [
        prescriptions.lower_learning_rate(evidence),
        prescriptions.raise_kl_penalty(evidence),
        prescriptions.correct_mismatch(evidence),
        None if step is None else prescriptions.resume_from_checkpoint(step),
    ]
    return tuple(one for one in wanted if one is not None)


FINDING = Drift()
"""As the doctor asks it."""
