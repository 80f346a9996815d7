"""``overfitting``: the training score rises or stays, and the held-out score falls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.evidence.run_course import ScoreFall, measure_held_out_fall, score_fall
from breadth.doctor.evidence.scores import ScoreChange, eval_score_change, is_training_run
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop
from breadth.report.cells import format_pair
from breadth.report.sections import Fact, Severity

MIN_LOST = 0.01
"""Share of the held-out problems that must surely be lost for a growth of errors to matter."""


@dataclass(frozen=True)
class Overfitting:
    """The held-out score has fallen from its best stretch while the training score has not.

    With eight evaluations or more: the end of the held-out score against its best stretch. With rollouts at a few
    evaluations: the last against the first, problem by problem. A training score that fell too makes it
    `score-collapse`. Near the top of a score between 0 and 1 the errors are compared: from 0.90 to 0.87 they grow by a
    third. It misleads where the held-out set is small and was evaluated at another temperature on the way.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = (
        "entropy-explosion",
        "truncation",
        "train-inference-mismatch",
        "drift",
        "reward-hacking",
        "entropy-collapse",
    )
    summary: ClassVar[str] = "the held-out score falls while the training score does not"
    first_step: ClassVar[str] = "go back to the best held-out checkpoint; bring more problems"

    lost: float = 0.1
    """Share of the best held-out score that must surely be gone: less is within what checkpoints differ by."""
    errors: float = 0.25
    """Growth of the errors of a score between 0 and 1, as a share, from which on less of the score may be gone: where
    most problems are solved, what is lost is small next to what is there."""
    far: float = 0.25
    """Share from which on it is critical: the level at which a falling score is a collapse."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare the held-out score with its best, and the training score with its own."""
        if not is_training_run(evidence):
            return None
        trained, held_out = score_fall(evidence), measure_held_out_fall(evidence)
        if trained is not None and trained.is_sure and trained.share >= self.far:
            return Excluded("overfitting", "the training score fell too")
        if held_out is None:
            return self.compare_ends(evidence, eval_score_change(evidence))
        matters = held_out.share >= self.lost or error_growth(held_out) >= self.errors
        if held_out.size.low > 0 and held_out.is_sure and matters:
            return self.report(trained, held_out)
        if held_out.most < self.far:
            return Excluded(
                "overfitting", f"the held-out score ends at most {max(held_out.most, 0.0):.0%} below its best"
            )
        return CannotTell(
            "overfitting",
            f"the held-out score ends {max(held_out.share, 0.0):.0%} below its best; its noise leaves"
            f" {held_out.describe_open()} open",
            "evaluate on more problems",
            undecided=True,
        )

    def compare_ends(self, evidence: Evidence, change: ScoreChange | None) -> CheckResult:
        """Decide by the first and the last evaluation."""
        if change is None:
            return CannotTell("overfitting", f"no held-out score at {MIN_POINTS} steps", evidence.how_to_log("eval"))
        share = -change.change.value / max(abs(change.start), 1e-12)
        shown = f"the held-out score changed by {change.change.value:+.2g} [{change.change.low:+.2g},"
        shown += f" {change.change.high:+.2g}], {change.where}"
        if share < self.lost:
            return Excluded("overfitting", shown)
        if change.verdict != "falling":
            return CannotTell("overfitting", shown, "evaluate on more problems", undecided=True)
        return Finding(
            "overfitting",
            Severity.CRITICAL if share >= self.far else Severity.WARNING,
            "strong",
            "training",
            f"The held-out score has fallen from {format_pair(change.start, change.end)} while training went on.",
            (Fact(f"change of {change.name}", change.change, "", change.where),),
            "Other held-out problems of the same kind show no fall.",
            prescriptions=(prescriptions.add_problems(),),
        )

    def report(self, trained: ScoreFall | None, held_out: ScoreFall) -> Finding:
        """Build the finding."""
        best, end = held_out.best, held_out.end
        facts = [
            Fact(
                "best held-out stretch", best.level, "", f"{held_out.name}, steps {best.first:,.0f} to {best.last:,.0f}"
            ),
            Fact("held-out score now", end.level, "", f"steps {end.first:,.0f} to {end.last:,.0f}"),
            Fact("fall", held_out.size, "", "allows for the choice of the best stretch"),
        ]
        if trained is not None:
            course = trained.course
            facts.append(
                Fact(
                    "training score",
                    f"{course.start.level.value:.3g} to {course.end.level.value:.3g}",
                    "",
                    trained.name,
                )
            )
        severity = Severity.CRITICAL if held_out.share >= self.far else Severity.WARNING
        return Finding(
            "overfitting",
            Severity.NOTE if held_out.was_low_before else severity,
            "strong",
            "training",
            f"The held-out score has fallen from {format_pair(best.level.value, end.level.value)}, while the training"
            " score has not.",
            tuple(facts),
            "Other held-out problems of the same kind show no fall.",
            f"Its best checkpoint was before step {best.last:,.0f}.",
            (prescriptions.go_back_to(int(best.last)), prescriptions.add_problems()),
        )


def error_growth(fall: ScoreFall) -> float:
    """Return by how much the errors have grown since the best stretch, as a share.

    0 where the score is no share of problems, and where less than one in a hundred was lost.
    """
    values, errors = fall.course.values, 1 - fall.best.level.value
    is_share = float(values.min()) >= 0 and float(values.max()) <= 1
    if not is_share or fall.size.low < MIN_LOST:
        return 0.0
    return fall.size.value / errors if errors > 0 else math.inf


FINDING = Overfitting()
"""The check with its default thresholds."""
