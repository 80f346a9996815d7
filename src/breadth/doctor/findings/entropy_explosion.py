"""``entropy-explosion``: entropy rises while the score does not; the policy becomes random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.rollouts import truncated_entropy_ratio
from breadth.doctor.evidence.run_course import LOST, SURE_LEVEL, first_beyond, score_fall, tell_story
from breadth.doctor.finding import CannotTell, CheckResult, Finding, Loop, Prescription
from breadth.doctor.findings.entropy_collapse import DOUBLED, exclude_by_ratio
from breadth.measure.course import Course
from breadth.measure.intervals import Interval
from breadth.measure.trends import Trend
from breadth.report.cells import format_factor
from breadth.report.sections import Fact, Severity

TRUNCATED_ABOVE = 1.2
"""Factor by which the entropy of truncated rollouts surely exceeds the others' for them to carry the rise: the tail of
any long text may be a little more uncertain."""


@dataclass(frozen=True)
class EntropyExplosion:
    """Entropy has risen far above its own start, now or on the way.

    Both the end and the highest stretch are compared with the start. More exploration is no failure while it pays: a
    rise is a note as long as the score surely rises with it, unless it is fourfold. What has doubled beyond measurement
    noise needs no trend: entropy that explodes and then dies has none. A peak that came back while the score did not
    fall is a note. Users see entropy rise first and the run die later (verl#2738).
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = (
        "train-inference-mismatch",
        "truncation",
        "no-op-settings",
        "contradictory-settings",
    )
    summary: ClassVar[str] = "entropy rose far above its own start"
    first_step: ClassVar[str] = "remove or cap the entropy bonus; lower the learning rate"

    risen: float = 1.5
    """Factor over the start that it exceeds by the best estimate: the upper end of the band in which our own entropy
    controller holds it."""
    surely: float = 1.25
    """Factor that it certainly exceeds then, where it surely rises over the whole run."""
    doubled: float = DOUBLED
    """Factor over the start that needs no trend, and is critical where the score falls: twice the nats square the
    number of choices at every token."""
    fourfold: float = 4.0
    """Factor over the start that is a warning even while the score rises."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare entropy with its start, and with the score."""
        entropy, course = evidence.trend("entropy"), evidence.course("entropy")
        if entropy is None or course is None:
            return evidence.missing_metric("entropy-explosion", "entropy")
        if entropy.ratio is None:
            return CannotTell(
                "entropy-explosion", "entropy is not clearly above zero at the start, so it cannot be compared with it"
            )
        peak = course.change(course.start, course.highest)
        wanders = course.change_beyond_wander(course.start, course.highest, level=SURE_LEVEL).low <= 1
        if wanders or (not self.shows(entropy) and peak.low <= self.doubled):
            return exclude_by_ratio(
                "entropy-explosion",
                entropy.ratio,
                entropy.ratio.high < self.doubled,
                f"at most {entropy.ratio.high:.0%}",
            )
        return self.report(evidence, entropy, peak, course)

    def shows(self, entropy: Trend) -> bool:
        """Say whether a trend of entropy is an explosion."""
        ratio = entropy.ratio
        if ratio is None:
            return False
        return ratio.low > self.doubled or (
            entropy.verdict == "rising" and ratio.value > self.risen and ratio.low > self.surely
        )

    def report(self, evidence: Evidence, entropy: Trend, peak: Interval, course: Course) -> Finding:
        """Build the finding."""
        score, fall, now = evidence.trend("reward"), score_fall(evidence), entropy.ratio
        has_fallen = fall is not None and fall.is_sure and fall.share >= LOST
        over = now is None or now.high < self.risen
        factor = peak if now is None or (over or peak.value > 1.5 * now.value) else now
        step = first_beyond(course, self.risen)
        when = f" at steps {course.highest.first:,.0f} to {course.highest.last:,.0f}" if factor is peak else ""
        since = f", and came down again{' as the score fell' if has_fallen else ''}" if over else ""
        return Finding(
            "entropy-explosion",
            self.severity(factor, score, over=over, has_fallen=has_fallen),
            "likely" if score is None else "strong",
            "training",
            f"Entropy {'rose' if when else 'has risen'} to {format_factor(factor.value)} times its start{when}"
            f"{since or describe_score_trend(score)}.",
            _facts(evidence, course, factor, score),
            "The score rises again while entropy stays at this level.",
            "" if step is None else f"It passed {self.risen:g} times its start at step {step:,.0f}.",
            _prescriptions(evidence, None if step is None else int(step)),
        )

    def severity(self, factor: Interval, score: Trend | None, *, over: bool, has_fallen: bool) -> Severity:
        """Return how bad it is, by how far entropy rose and what the score does."""
        falls = has_fallen or (score is not None and score.verdict == "falling")
        if falls:
            return Severity.CRITICAL if factor.low > self.doubled else Severity.WARNING
        if over or (score is not None and score.verdict == "rising" and factor.low <= self.fourfold):
            return Severity.NOTE
        return Severity.WARNING


def describe_score_trend(score: Trend | None) -> str:
    """Say what the score does meanwhile."""
    if score is None:
        return "; the score is not logged"
    words = {
        "rising": ", and the score rises with it",
        "falling": " while the score falls",
        "flat": " while the score stays flat",
    }
    return words.get(score.verdict, ", and the score shows no rise")


def _facts(evidence: Evidence, course: Course, factor: Interval, score: Trend | None) -> tuple[Fact, ...]:
    name = evidence.logged_name("entropy")
    facts = [
        Fact(label, stretch.level, "nats", f"{name}, steps {stretch.first:,.0f} to {stretch.last:,.0f}")
        for label, stretch in (
            ("entropy at the start", course.start),
            ("highest stretch", course.highest),
            ("entropy now", course.end),
        )
    ]
    facts.append(Fact("times the start", factor))
    if score is not None:
        facts.append(Fact("reward", f"{score.start.value:.3g} to {score.end.value:.3g}", "", score.verdict))
    if (ratio := attribute_to_truncated(evidence)) is not None:
        facts.append(Fact("entropy of truncated rollouts, times the others'", ratio, "", "per token, now"))
    if story := tell_story(evidence):
        facts.append(Fact("what happened", story))
    return tuple(facts)


def _prescriptions(evidence: Evidence, step: int | None) -> tuple[Prescription, ...]:
    cut, mask = evidence.trend("truncated"), prescriptions.mask_truncated(evidence)
    leads = attribute_to_truncated(evidence) is not None
    wanted = [
        mask if leads else None,
        prescriptions.lower_entropy_bonus(evidence),
        prescriptions.lower_upper_clip(evidence),
        mask if not leads and cut is not None and cut.verdict == "rising" else None,
        prescriptions.correct_mismatch(evidence) if has_two_engines(evidence) else None,
        prescriptions.lower_learning_rate(evidence),
    ]
    return prescriptions.around_checkpoint(evidence, step, prescriptions.sort_by_lab_effect(wanted))


def attribute_to_truncated(evidence: Evidence) -> Interval | None:
    """Return how much higher the entropy of truncated rollouts is, where they carry its rise (verl#2738); else None.

    More are truncated than at the start, and they surely have the higher entropy. Where they are masked, they are not
    in the loss and cannot be the cause.
    """
    cut = evidence.trend("truncated")
    if cut is None or cut.verdict != "rising" or evidence.config.mask_truncated:
        return None
    ratio = truncated_entropy_ratio(evidence)
    return ratio if ratio is not None and ratio.low > TRUNCATED_ABOVE else None


def has_two_engines(evidence: Evidence) -> bool:
    """Say whether a separate engine samples, or disagrees with the trainer."""
    apart = evidence.trend("mismatch")
    return evidence.config.engine in ("vllm", "sglang") or (apart is not None and apart.verdict == "rising")


FINDING = EntropyExplosion()
"""The check with its default thresholds."""
