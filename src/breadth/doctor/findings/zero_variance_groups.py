"""``zero-variance-groups``: all rollouts of a prompt get the same reward, so they cost compute and teach nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CheckResult, Finding, Loop, Prescription
from breadth.measure.intervals import Interval
from breadth.report.sections import Fact, Severity
from breadth.runs.outcomes import Outcomes, count_outcomes


@dataclass(frozen=True)
class ZeroVarianceGroups:
    """Most groups have no difference in reward, and so no advantage.

    By the trainer's own count. Says whether the flat groups are all wrong (too hard) or all correct (solved), where the
    score or the rollouts show it.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = (
        "overly-hard",
        "entropy-collapse",
        "entropy-explosion",
        "saturation",
        "truncation",
    )
    summary: ClassVar[str] = "most groups have equal rewards, so no advantage"
    first_step: ClassVar[str] = "filter or refill such groups; change the problems or the group size"

    half: float = 0.5
    """Share of flat groups above which, if certain, it is a warning: most rollouts are then wasted."""
    most: float = 0.8
    """Share above which it is critical: a step then learns from less than a fifth of its rollouts, and needs five times
    as many as one without flat groups."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Read the share of flat groups in the last eighth of the run."""
        flat = evidence.trend("zero_variance_groups")
        if flat is None:
            return evidence.missing_metric("zero-variance-groups", "zero_variance_groups")
        if flat.end.low <= self.half:
            return None
        side = side_of_flat_groups(evidence)
        series = evidence.series("zero_variance_groups")
        mean = 0.0 if series is None else float(series.values.mean())
        return Finding(
            "zero-variance-groups",
            Severity.CRITICAL if flat.end.low > self.most else Severity.WARNING,
            "strong",
            "training",
            f"{flat.end.value:.0%} of the groups have no difference in reward and teach nothing{_which(side)}.",
            _facts(evidence, flat.start, flat.end, side),
            "Resampling groups until their rewards differ makes the score rise no faster for the same rollouts.",
            f"Over the whole run {mean:.0%} of the rollouts were wasted: {mean / max(1 - mean, 1e-9):.1f} for each that"
            " taught something.",
            _prescriptions(evidence, side),
        )


@dataclass(frozen=True)
class _Side:
    wrong: float
    """Share of flat groups that are all wrong."""
    counted: bool
    """Whether that was counted, or read from the score."""


def side_of_flat_groups(evidence: Evidence) -> _Side | None:
    """Return whether flat groups are all wrong: counted in the last rollouts, else by a two-valued score."""
    if evidence.run is not None and evidence.windows:
        graded = count_outcomes(evidence.run, evidence.windows[-1].split)
        found = None if graded is None else count_sides(graded, evidence.windows[-1].first)
        if found is not None:
            return found
    score = evidence.trend("reward")
    levels = () if evidence.run is None else evidence.run.header.reward_levels
    if score is None or len(levels) != 2:
        return None
    low, high = min(levels), max(levels)
    return _Side(1 - (score.end.value - low) / (high - low), counted=False)


def count_sides(graded: Outcomes, first: int) -> _Side | None:
    """Count flat groups that are all wrong and all correct; None where there are none."""
    late = graded.steps >= first
    several = late & (graded.graded > 1)
    wrong, right = (
        int((several & (graded.correct == 0)).sum()),
        int((several & (graded.correct == graded.graded)).sum()),
    )
    return _Side(wrong / (wrong + right), counted=True) if wrong + right else None


def _which(side: _Side | None) -> str:
    if side is None or not abs(side.wrong - 0.5) >= 0.2:
        return ""
    return ", most of them all wrong" if side.wrong > 0.5 else ", most of them all correct"


def _facts(evidence: Evidence, start: Interval, end: Interval, side: _Side | None) -> tuple[Fact, ...]:
    facts = [
        Fact(
            "flat groups at the start",
            start,
            "%",
            f"{evidence.describe_steps('zero_variance_groups')}: median of the first eighth",
        ),
        Fact("flat groups now", end, "%", "median of the last eighth"),
    ]
    if side is not None:
        how = "counted in the last eighth of the rollouts" if side.counted else "by the two-valued reward"
        facts.append(Fact("share of them all wrong", side.wrong, "%", how))
    if evidence.config.group is not None:
        facts.append(Fact("rollouts per prompt", evidence.config.group, "", evidence.config.describe("group")))
    return tuple(facts)


def _prescriptions(evidence: Evidence, side: _Side | None) -> tuple[Prescription, ...]:
    chance = None if side is None else 1 - side.wrong
    wanted = [
        prescriptions.resample_zero_variance_groups(evidence),
        prescriptions.enlarge_groups(evidence, chance),
        None if side is None else prescriptions.filter_problems(easier=side.wrong > 0.5),
    ]
    return tuple(remedy for remedy in wanted if remedy is not None)


FINDING = ZeroVarianceGroups()
"""The check with its default thresholds."""
