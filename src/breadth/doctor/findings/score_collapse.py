"""``score-collapse``: the score has fallen far below its own best stretch and stayed there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.run_course import LOST, RunEvent, ScoreFall, events_before, score_fall, tell_story
from breadth.doctor.evidence.scores import is_training_run
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.report.cells import format_pair
from breadth.report.sections import Fact, Severity


@dataclass(frozen=True)
class ScoreCollapse:
    """The score lies far below its own best stretch.

    By the mean of the last eighth against the best eighth or quarter of the run. The fall
    is measured against what there was to lose: the best level, or the way to it from the start if that is longer, so a
    score may be negative. It must exceed both the noise of the points and, where it is less than half, slow wander. A
    run that was as low before and came back gets a note. What else moved just before the score fell is listed, as it
    may be the cause. It misleads where problems got harder or the reward was changed during the run.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = (
        "numerical-failure",
        "entropy-explosion",
        "entropy-collapse",
        "train-inference-mismatch",
        "drift",
        "truncation",
        "length-collapse",
        "template-collapse",
        "stale-samples",
        "wrong-advantages",
    )
    summary: ClassVar[str] = "the score fell far below its own best stretch"
    first_step: ClassVar[str] = "go back to the checkpoint before the fall, then remove what moved first"

    lost: float = LOST
    """Share of the best level that must be gone: a reader of the plot calls it a fall, and no plateau or dip of the
    healthy runs in our fixtures reaches it."""
    half: float = 0.5
    """Share from which on it is critical: more is lost than is left."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare the end of the score with its best stretch."""
        if not is_training_run(evidence):
            return None
        fall = score_fall(evidence)
        if fall is None:
            return evidence.missing_metric("score-collapse", "reward")
        if fall.share < self.lost and fall.most < self.lost:
            return Excluded("score-collapse", f"the end lies at most {max(0.0, fall.most):.0%} below the best stretch")
        if fall.share < self.lost or not fall.is_sure:
            return CannotTell(
                "score-collapse",
                f"the end of {fall.name} lies {max(0.0, fall.share):.0%} below its best stretch, and its noise leaves"
                f" {fall.describe_open()} open",
                "larger batches, or more steps",
                undecided=True,
            )
        return self.report(evidence, fall)

    def report(self, evidence: Evidence, fall: ScoreFall) -> Finding:
        """Build the finding."""
        best, end = fall.best.level.value, fall.end.level.value
        since = "" if fall.half_step is None else f" since step {fall.half_step:,.0f}"
        severity = Severity.CRITICAL if fall.share >= self.half else Severity.WARNING
        before = events_before(evidence, fall.half_step)
        return Finding(
            "score-collapse",
            Severity.NOTE if fall.was_low_before else severity,
            "strong" if fall.size.low > 0 and not fall.was_low_before else "likely",
            "training",
            f"The score has fallen from {format_pair(best, end)}{since}: {min(fall.share, 9.99):.0%} of its best is"
            " gone.",
            _facts(fall, before, tell_story(evidence)),
            "The checkpoint of the best stretch scores no better on the same problems, or the problems got harder.",
            describe_cost(fall),
            _prescriptions(evidence, fall, before),
        )


def describe_cost(fall: ScoreFall) -> str:
    """Say how much of the run came after the best stretch."""
    steps = fall.course.steps
    rest = steps[-1] - fall.best.last
    share = rest / max(float(steps[-1] - steps[0]), 1.0)
    return f"The {rest:,.0f} steps after the best stretch, {share:.0%} of the run, made it worse." if rest > 0 else ""


def _facts(fall: ScoreFall, before: tuple[RunEvent, ...], story: str) -> tuple[Fact, ...]:
    best, end = fall.best, fall.end
    facts = [
        Fact("best stretch", best.level, "", f"{fall.name}, steps {best.first:,.0f} to {best.last:,.0f}"),
        Fact("now", end.level, "", f"steps {end.first:,.0f} to {end.last:,.0f}"),
        Fact("fall", fall.size, "", "allows for the choice of the best stretch"),
    ]
    if story:
        facts.append(Fact("what happened", story))
    if before:
        facts.append(Fact("moved before it fell", "; ".join(event.text for event in before), "", "may be the cause"))
    if fall.was_low_before:
        facts.append(Fact("seen before", "it was as low before, and came back"))
    return tuple(facts)


def _prescriptions(evidence: Evidence, fall: ScoreFall, before: tuple[RunEvent, ...]) -> tuple[Prescription, ...]:
    """Go back, then change what moved first; a lower learning rate where nothing did."""
    moved = {event.metric for event in before}
    wanted = [
        prescriptions.raise_length_cap(evidence) if "truncated" in moved else None,
        prescriptions.raise_kl_penalty(evidence) if "kl_reference" in moved else None,
        prescriptions.correct_mismatch(evidence) if "mismatch" in moved else None,
        prescriptions.inspect_rewards() if "length" in moved else None,
    ]
    causes = [remedy for remedy in wanted if remedy is not None]
    if not causes or moved & {"entropy", "grad_norm"}:
        causes.append(prescriptions.lower_learning_rate(evidence))
    return (prescriptions.go_back_to(int(fall.best.last)), *causes)


FINDING = ScoreCollapse()
"""The check with its default thresholds."""
