"""``template-collapse``: the reasoning no longer depends on its prompt, which entropy cannot show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.run_course import severity_by_score
from breadth.doctor.evidence.scores import is_training_run
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.measure.course import Course, Stretch
from breadth.report.sections import Fact, Severity

MEASURE_COMMAND = "breadth measure mi RUN --model CHECKPOINT"
"""The command that measures it from rollouts."""


@dataclass(frozen=True)
class TemplateCollapse:
    """The mutual information of prompt and reasoning has fallen to nearly nothing.

    Every prompt then gets the same few templates. Entropy says how much the reasonings of one prompt differ, and may
    stay where it is. It is read from the logged mutual information, else from the share of reasonings whose own prompt
    is found again, above chance; each is compared with its own start. How bad it is depends on the score. It misleads
    where the prompts have become more alike, as in a curriculum: they cannot be distinguished, by any policy. Where
    neither is logged, `breadth measure mi` computes both from rollouts with a local model (RAGEN-2, arXiv 2604.06268).
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("zero-variance-groups", "entropy-explosion")
    summary: ClassVar[str] = "the reasoning no longer depends on its prompt"
    first_step: ClassVar[str] = "train on the prompts whose rewards differ; lower the entropy bonus"

    left: float = 0.2
    """Share of its start below which it certainly lies: of 16 prompts that were recognised without error (ln 16 nats),
    a fifth of the information distinguishes fewer than two."""
    steady: float = 1.5
    """Factor within which entropy counts as where it was: the band in which our own entropy controller holds it."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare mutual information with its start, else retrieval above chance."""
        if not is_training_run(evidence):
            return None
        results = [
            self.compare(evidence, name, course, floor)
            for name, floor in (("mutual_information", 0.0), ("prompt_retrieval", chance_level(evidence)))
            if floor is not None and (course := evidence.course(name)) is not None
        ]
        found = next((result for result in results if isinstance(result, Finding)), None)
        if found is not None or results:
            return found or results[0]
        if any(evidence.series(name) is not None for name in ("mutual_information", "prompt_retrieval")):
            return evidence.missing_metric("template-collapse", "mutual_information")
        run = evidence.run
        if run is None or not run.has_problems or "completion" not in run.columns:
            return None
        return CannotTell(
            "template-collapse", "mutual information of prompt and reasoning is not logged", MEASURE_COMMAND
        )

    def compare(self, evidence: Evidence, name: str, course: Course, floor: float) -> CheckResult:
        """Compare a measure, above its floor, with its own start."""
        start, end = course.start.level, course.end.level
        had, now = start.value - floor, end.value - floor
        logged = evidence.logged_name(name)
        if start.low <= floor:
            return CannotTell(
                "template-collapse",
                f"{logged} is not surely above {'chance' if floor else 'zero'} at the start: nothing could be lost",
                "score more prompts",
            )
        if end.high - floor < self.left * (start.low - floor):
            return self.report(evidence, name, course, floor, course.end)
        if course.lowest.level.high - floor < self.left * (start.low - floor):
            return self.report(evidence, name, course, floor, course.lowest)
        above = " above chance" if floor else ""
        shown = f"{logged} is {end.value:.2g} ({end.low:.2g} to {end.high:.2g}), {now / had:.0%} of its start{above}"
        if end.low - floor > self.left * had:
            return Excluded("template-collapse", shown)
        return CannotTell("template-collapse", shown, "score more prompts, or train longer", undecided=True)

    def report(self, evidence: Evidence, name: str, course: Course, floor: float, place: Stretch) -> Finding:
        """Build the finding for a stretch in which it has collapsed."""
        over = place is not course.end
        start, level = course.start.level.value - floor, place.level.value - floor
        step = course.first_past(floor + start / 2, below=True)
        share = max(level / start, 0.0)
        what = (
            f"The mutual information of prompt and reasoning {'fell' if over else 'has fallen'} to {share:.0%} of its"
            if name == "mutual_information"
            else f"The share of reasonings that show their own prompt {'fell' if over else 'has fallen'} to"
            f" {place.level.value:.0%}, where chance is {floor:.0%} and it was {course.start.level.value:.0%} at the"
        )
        when = f" at steps {place.first:,.0f} to {place.last:,.0f}, and came back" if over else ""
        return Finding(
            "template-collapse",
            Severity.NOTE if over else severity_by_score(evidence),
            "strong",
            "training",
            f"{what} start{when}{self.describe_entropy(evidence)}.",
            _facts(evidence, name, course),
            "Reasonings of different prompts, mixed, can be sorted back to their prompts by a reader.",
            "" if over or step is None else f"Half of it has been gone since step {step:,.0f}.",
            _prescriptions(evidence, None if over or step is None else int(step)),
        )

    def describe_entropy(self, evidence: Evidence) -> str:
        """Say where entropy is, if it is about where it was."""
        entropy = evidence.course("entropy")
        if entropy is None or entropy.start.level.value <= 0:
            return ""
        factor = entropy.end.level.value / entropy.start.level.value
        steady = 1 / self.steady < factor < self.steady
        return f", while entropy is at {factor:.0%} of its own" if steady else ""


def chance_level(evidence: Evidence) -> float | None:
    """Return how often a prompt is found by chance: as logged, else one over the number of prompts; None: not known."""
    chance, limit = evidence.series("prompt_retrieval_chance"), evidence.series("mutual_information_limit")
    if chance is not None:
        return float(chance.values.mean())
    return None if limit is None else math.exp(-float(limit.values.mean()))


def _facts(evidence: Evidence, name: str, course: Course) -> tuple[Fact, ...]:
    logged = evidence.logged_name(name)
    is_share = name == "prompt_retrieval"
    facts = [
        Fact(
            f"{'own prompt found' if is_share else 'mutual information'} {when}",
            stretch.level,
            "%" if is_share else "nats",
            f"{logged}, steps {stretch.first:,.0f} to {stretch.last:,.0f}",
        )
        for when, stretch in (("at the start", course.start), ("where lowest", course.lowest), ("now", course.end))
    ]
    limit, found, entropy = (
        evidence.series("mutual_information_limit"),
        None if is_share else evidence.course("prompt_retrieval"),
        evidence.course("entropy"),
    )
    if limit is not None:
        facts.append(Fact("the most it can be", float(limit.values[-1]), "nats", "logarithm of the number of prompts"))
    for label, other, unit in (("own prompt found", found, "%"), ("entropy", entropy, "nats")):
        if other is not None:
            facts += [
                Fact(f"{label} at the start", other.start.level, unit),
                Fact(f"{label} now", other.end.level, unit),
            ]
    return tuple(facts)


def _prescriptions(evidence: Evidence, step: int | None) -> tuple[Prescription, ...]:
    wanted = [
        prescriptions.filter_by_reward_variance(),
        prescriptions.lower_entropy_bonus(evidence),
        None if step is None else prescriptions.resume_from_checkpoint(step),
    ]
    return tuple(remedy for remedy in wanted if remedy is not None)


FINDING = TemplateCollapse()
"""The check with its default thresholds."""
