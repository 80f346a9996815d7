"""``stale-samples``: an asynchronous run trains on samples of weights that are too many updates old."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.run_course import severity_by_score
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.measure.course import Course
from breadth.report.sections import Fact


@dataclass(frozen=True)
class StaleSamples:
    """The samples are older, in updates of the weights, than the algorithm corrects for.

    The gradient is then that of another policy, and a clip cuts most of what would correct it. The mean age of the last
    eighth is compared with what is known to work, with and without importance weights between sampler and trainer;
    where the settings do not say which, an age between the two limits is open. It is a note while the score rises, for
    some objectives tolerate far older samples (M2PO, arXiv 2510.01161).
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ()
    summary: ClassVar[str] = "samples come from weights that are many updates old"
    first_step: ClassVar[str] = "limit how far the sampler may lag behind; correct with importance weights"

    corrected: float = 8.0
    """Mean age in updates that it certainly exceeds where importance weights correct it: with its decoupled objective
    AReaL holds the score of synchronous training up to 4 to 8 updates, and loses from there on (arXiv 2505.24298)."""
    uncorrected: float = 2.0
    """The same without a correction: prime-rl allows 2 updates by default, and AReaL's plain PPO already falls behind
    synchronous training at a few."""
    grown: float = 2.0
    """Factor over its own start from which on a growth of the age is mentioned: the trainer outruns the sampler."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare the mean age now with what the algorithm corrects for."""
        age, oldest = evidence.course("sample_age"), evidence.course("sample_age_max")
        corrects = evidence.config.correct_mismatch
        fine = self.corrected if corrects else self.uncorrected
        limit = self.uncorrected if corrects is False else self.corrected
        if age is None:
            return self.check_oldest(evidence, oldest, fine)
        shown = f"samples are {age.end.level.value:.2g} updates old (up to {age.end.level.high:.2g})"
        if age.end.level.low > limit:
            return self.report(evidence, age, oldest, limit)
        if age.end.level.high <= fine:
            return Excluded("stale-samples", shown)
        if corrects is None and age.end.level.low > fine:
            return CannotTell(
                "stale-samples",
                f"{shown}, and the settings do not say whether importance weights correct for it",
                "give the configuration too",
            )
        return CannotTell("stale-samples", shown, "log more steps", undecided=True)

    def check_oldest(self, evidence: Evidence, oldest: Course | None, limit: float) -> CheckResult:
        """Decide by the oldest sample of each step, where the mean age is not logged: it can only exclude."""
        if oldest is None:
            return None
        level = oldest.end.level
        if level.high <= limit:
            return Excluded("stale-samples", f"the oldest sample of a step is {level.value:.2g} updates old")
        return CannotTell(
            "stale-samples",
            f"the oldest sample of a step is {level.value:.2g} updates old, and the mean age is not logged",
            evidence.how_to_log("sample_age"),
        )

    def report(self, evidence: Evidence, age: Course, oldest: Course | None, limit: float) -> Finding:
        """Build the finding."""
        start, end = age.start.level, age.end.level
        grows = age.change(age.start, age.end).low > 0 and end.value > self.grown * start.value
        since = f", up from {start.value:.2g} at the start" if grows else ""
        corrects = evidence.config.correct_mismatch
        where = evidence.describe_steps("sample_age")
        facts = [Fact("mean age at the start", start, "updates", where), Fact("mean age now", end, "updates")]
        if oldest is not None:
            facts.append(Fact("oldest sample now", oldest.end.level, "updates", evidence.logged_name("sample_age_max")))
        if corrects is not None:
            facts.append(Fact("importance weights", "on" if corrects else "off"))
        return Finding(
            "stale-samples",
            severity_by_score(evidence),
            "likely",
            "training",
            f"Samples are {end.value:.2g} updates of the weights old{since}; up to {limit:g} are known to"
            f" work {'without' if corrects is False else 'with'} importance weights.",
            tuple(facts),
            "The score rises as fast per sample as with samples of the current weights.",
            prescriptions=_prescriptions(evidence, limit),
        )


def _prescriptions(evidence: Evidence, limit: float) -> tuple[Prescription, ...]:
    wanted = [
        prescriptions.limit_sample_age(limit),
        prescriptions.correct_mismatch(evidence),
        prescriptions.lower_learning_rate(evidence),
    ]
    return tuple(remedy for remedy in wanted if remedy is not None)


FINDING = StaleSamples()
"""The check with its default thresholds."""
