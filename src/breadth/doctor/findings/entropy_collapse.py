"""``entropy-collapse``: the policy has used up its entropy, and with it the ability to learn by exploring."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.run_course import fit_run_law, is_memorised, is_solved, score_pays
from breadth.doctor.evidence.scores import is_supervised
from breadth.doctor.finding import CannotTell, CheckResult, Confidence, Excluded, Finding, Loop, Prescription
from breadth.measure.course import Course
from breadth.measure.intervals import Interval
from breadth.measure.trends import Trend
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.measure.entropy import LawFit

DOUBLED = 2.0
"""Factor over its start from which on entropy has exploded; that of ``entropy-explosion``."""


@dataclass(frozen=True)
class EntropyCollapse:
    """Entropy fell to a small part of its own start.

    Measured on the logarithm of the logged entropy, its last eighth against its start: that it falls, beyond what slow
    random drift would do, and how far. The start is the first eighth, or its first part where entropy had fallen within
    that already. Entropy that is certainly below half of its start is gone whatever the trend; no trend is required
    there, and the confidence is "likely". Intervals decide whether it is reported, the best estimate decides how bad it
    is. No absolute value is required, because trainers log at least four different numbers under this name. A fall is
    what learning looks like. It is a collapse when so much is gone that little is left to trade for score, or when the
    score is not seen to rise while it falls; where the score is solved it has done its work, and is a note, unless
    every problem was trained on so often that its score is one of memory. Entropy that first rose to a multiple of its
    start and then died is an explosion: more of it is no remedy.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("train-inference-mismatch", "narrow-data-format", "overly-hard")
    summary: ClassVar[str] = "entropy fell to a small part of its own start"
    first_step: ClassVar[str] = "raise the upper clip, hold entropy at a target, or add a KL penalty"

    floor: float = 0.7
    """Share of the start below which it is reported, if certain: the lower end of the band in which our own entropy
    controller holds it."""
    half: float = 0.5
    """Share below which it is a warning unless the score is shown to rise over the second half of the run: most of the
    entropy is gone, and nothing more is gained for it. A score that was not logged, or at too few steps, counts against
    nobody."""
    low: float = 0.25
    """Share below which it is a warning even while the score rises: with 73 % of the entropy used, the runs of arXiv
    2505.22617 had reached 76 % of their total gain."""
    spent: float = 0.1
    """Share below which it is critical: with 93 % used they had reached 94 %."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare entropy with its start."""
        if is_supervised(evidence):
            return None  # there it is meant to fall
        entropy = evidence.trend("entropy")
        if entropy is None:
            return evidence.missing_metric("entropy-collapse", "entropy")
        if entropy.ratio is None:
            return CannotTell(
                "entropy-collapse", "entropy is not clearly above zero at the start, so it cannot be compared with it"
            )
        course = evidence.course("entropy")
        if course is None or has_exploded_first(course):
            return Excluded("entropy-collapse", "entropy rose to a multiple of its start before it fell")
        left = self.share_of_start(entropy.ratio, course)
        if not self.shows(replace(entropy, ratio=left)):
            return exclude_by_ratio("entropy-collapse", left, left.low > self.half, f"at least {left.low:.0%}")
        score = evidence.late_trend("reward")
        law = believable_law(evidence)
        if score is not None and score.verdict == "rising":
            left = entropy.ratio  # what a policy sheds in its first steps, before it learns, costs it nothing
        return Finding(
            "entropy-collapse",
            Severity.NOTE
            if is_solved(evidence) and not is_memorised(evidence)
            else self.severity(left, score, pays=score_pays(evidence)),
            _confidence(evidence) if entropy.verdict == "falling" else "likely",
            "training",
            f"Entropy has fallen to {left.value:.0%} of its start{describe_late_score(score)}.",
            (*_facts(evidence, course, left, score), *_law_facts(law)),
            "The same policy's entropy on the prompts of the first steps, at the same temperature, is as high as it was"
            " then.",
            cost_since_half(evidence, self.half * course.start.level.value),
            _prescriptions(evidence, course.start.level.value, self.floor),
        )

    def share_of_start(self, ratio: Interval, course: Course) -> Interval:
        """Return the share that is left, of the first steps where entropy fell within the first eighth."""
        first = course.change(course.start, course.end)
        return first if first.high < ratio.low else ratio

    def shows(self, entropy: Trend) -> bool:
        """Say whether a trend of entropy is a collapse."""
        return entropy.ratio is not None and entropy.ratio.high < (
            self.floor if entropy.verdict == "falling" else self.half
        )

    def severity(self, left: Interval, score: Trend | None, *, pays: bool) -> Severity:
        """Return how bad it is: by the best estimate, but for the half, which must be gone for sure."""
        if left.value < self.spent:
            return Severity.CRITICAL
        if left.value < self.low or (left.high < self.half and score is not None and not pays):
            return Severity.WARNING
        return Severity.NOTE


def describe_late_score(score: Trend | None) -> str:
    """Say what the score does over the second half."""
    if score is None:
        return ""
    if score.verdict == "cannot tell":
        return ", and the score shows no rise over the second half"
    return ", while the score still rises" if score.verdict == "rising" else ", and the score has stopped rising"


def _confidence(evidence: Evidence) -> Confidence:
    run = evidence.run
    kind = None if run is None else run.header.entropies.get("entropy")
    return "strong" if kind is not None and kind.aggregation == "token-mean" else "likely"


def has_exploded_first(course: Course) -> bool:
    """Say whether entropy had surely doubled before it fell."""
    peak = course.change(course.start, course.highest)
    return peak.low > DOUBLED and course.highest.last < course.end.first


def exclude_by_ratio(name: str, ratio: Interval, is_excluded: bool, limit: str) -> CheckResult:
    """Return that a share or factor of the start excludes a finding, or does not."""
    shown = f"entropy is at {ratio.value:.0%} of its start ({ratio.low:.0%} to {ratio.high:.0%})"
    if is_excluded:
        return Excluded(name, f"{shown}, {limit}")
    return CannotTell(name, shown, "log more often, or train longer", undecided=True)


def _facts(evidence: Evidence, course: Course, ratio: Interval, late: Trend | None) -> tuple[Fact, ...]:
    start, end = course.start, course.end
    facts = [
        Fact(
            "entropy at the start",
            start.level,
            "nats",
            f"{evidence.logged_name('entropy')}, steps {start.first:,.0f} to {start.last:,.0f}",
        ),
        Fact("entropy now", end.level, "nats", f"steps {end.first:,.0f} to {end.last:,.0f}"),
        Fact("share of the start", ratio, "%"),
    ]
    epochs = evidence.series("epoch")
    if epochs is not None and is_memorised(evidence):
        facts.append(
            Fact("passes over the training problems", float(epochs.values[-1]), "", "their score is of memory")
        )
    score = evidence.trend("reward")
    if score is not None:
        facts.append(
            Fact("reward", f"{score.start.value:.3g} to {score.end.value:.3g}", "", describe_directions(score, late))
        )
    return tuple(facts)


def describe_directions(score: Trend, late: Trend | None) -> str:
    """Describe the score's direction over the whole run and, where it differs, over the second half."""
    if late is None or late.verdict == score.verdict:
        return score.verdict
    shown = "no direction is shown" if late.verdict == "cannot tell" else late.verdict
    return f"{score.verdict}; over the second half {shown}"


def believable_law(evidence: Evidence) -> LawFit | None:
    """Return the fitted entropy law; None where it may not be believed."""
    found = None if evidence.run is None else fit_run_law(evidence.run)
    return None if found is None or found[1] else found[0]


def _law_facts(law: LawFit | None) -> list[Fact]:
    if law is None:
        return []
    facts = [
        Fact(
            "predicted score when entropy is used up",
            law.ceiling,
            "",
            "R = b - a exp(H), arXiv 2505.22617, fitted to this run",
        )
    ]
    if law.steps_left is not None and math.isfinite(law.steps_left.high):
        facts.append(Fact("predicted steps until then", law.steps_left))
    return facts


def cost_since_half(evidence: Evidence, level: float) -> str:
    """Say what the steps since entropy had halved have gained."""
    step, score, entropy = (
        evidence.first_step_past("entropy", level, below=True),
        evidence.series("reward"),
        evidence.series("entropy"),
    )
    if step is None or score is None or entropy is None:
        return ""
    before, after = score.values[score.steps < step], score.values[score.steps >= step]
    if len(before) < 3 or len(after) < 3:
        return f"Half of it was gone at step {step:,}."
    edge = max(3, len(score) // 16)
    then, now = float(np.median(before[-edge:])), float(np.median(after[-edge:]))
    since = f"the {entropy.steps[-1] - step:,} steps since then moved the reward from {then:.3g} to {now:.3g}"
    return f"Half of it was gone at step {step:,}; {since}."


def _prescriptions(evidence: Evidence, start: float, floor: float) -> tuple[Prescription, ...]:
    step = evidence.first_step_past("entropy", floor * start, below=True)
    kind = None if evidence.run is None else evidence.run.header.entropies.get("entropy")
    per_token = kind is not None and kind.aggregation == "token-mean"
    remedies = (
        prescriptions.add_kl_penalty(evidence),
        prescriptions.hold_entropy(start) if per_token else None,
        prescriptions.raise_upper_clip(evidence),
        prescriptions.add_kl_cov(evidence),
    )
    back = () if step is None else (prescriptions.resume_from_checkpoint(step),)
    return (*prescriptions.sort_by_lab_effect(remedies), *back)


FINDING = EntropyCollapse()
"""The check with its default thresholds."""
