"""``zero-variance-groups``: all rollouts of a prompt get the same reward, so they cost compute and teach nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.run_course import SOLVED, has_risen, is_at_its_best, is_solved, score_pays
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.measure.course import Course
from breadth.measure.intervals import Interval, wilson
from breadth.report.sections import Fact, Severity
from breadth.runs.names import metric_words
from breadth.runs.outcomes import Outcomes, count_outcomes


@dataclass(frozen=True)
class ZeroVarianceGroups:
    """Most groups have no difference in reward, and so no advantage.

    By the trainer's own count, the mean of the last eighth; else by the spread of rewards within groups, where that has
    fallen to nothing. How bad it is depends on what the run learns: flat groups are a note while the score rises, where
    it is solved, and where some groups still differ in a run that has learned; else a warning. Says whether the flat
    groups are all wrong (too hard) or all correct (solved), where the score or the rollouts show it.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = (
        "overly-hard",
        "entropy-collapse",
        "entropy-explosion",
        "saturation",
        "truncation",
        "score-collapse",
    )
    summary: ClassVar[str] = "most groups have equal rewards, so no advantage"
    first_step: ClassVar[str] = "filter or refill such groups; change the problems or the group size"

    half: float = 0.5
    """Share of flat groups above which, if certain, it is reported: most rollouts are then wasted."""
    most: float = 0.8
    """Share above which it is critical: a step then learns from less than a fifth of its rollouts, and needs five times
    as many as one without flat groups."""
    nearly_all: float = 0.95
    """Share that must be excluded for a rising score to count: with one group in twenty left, it rises by luck."""
    narrow: float = 0.1
    """Share of its start below which, if certain, the spread of rewards within groups shows the same."""
    idle: float = 0.5
    """Share of the steps of the second half without any difference in reward from which on most groups are flat: a mean
    over groups is zero only if every group is flat."""
    solved: float = SOLVED
    """Level of a score between 0 and 1, or share of correct groups among the flat ones, above which they are solved."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Read the share of flat groups in the last eighth of the run."""
        flat = evidence.course("zero_variance_groups")
        if flat is None:
            return self.check_spread(evidence)
        level = flat.end.level
        shown = f"{level.value:.0%} of the groups are flat ({level.low:.0%} to {level.high:.0%})"
        if level.value <= self.half:
            return Excluded("zero-variance-groups", shown)
        if max(level.low, flat.late.level.low) <= self.half:
            return CannotTell("zero-variance-groups", shown, "more groups per step, or more steps", undecided=True)
        side = side_of_flat_groups(evidence)
        mean = float(flat.values.mean())
        ratio = f"{mean / (1 - mean):.1f}" if mean <= 0.99 else "more than 99"
        return Finding(
            "zero-variance-groups",
            self.severity(evidence, flat, side),
            "strong",
            "training",
            f"{level.value:.0%} of the groups have no difference in reward and teach nothing{_which(side)}.",
            _facts(evidence, flat, side),
            "Resampling groups until their rewards differ makes the score rise no faster for the same rollouts.",
            f"Over the whole run {mean:.0%} of the rollouts were wasted: {ratio} for each that taught something.",
            _prescriptions(evidence, side),
        )

    def severity(self, evidence: Evidence, flat: Course, side: _Side | None) -> Severity:
        """Return how bad it is, by what the run still learns; problems solved before it began teach it nothing."""
        level, risen = flat.end.level, has_risen(evidence)
        was_solved = min(flat.start.level.value, flat.early.level.low, flat.late.level.low) > self.most
        if was_solved and is_solved(evidence, self.solved):
            return Severity.WARNING
        counted_right = side is not None and side.counted and side.wrong < 1 - self.solved
        at_best = risen and is_at_its_best(evidence)
        if counted_right or at_best or is_solved(evidence, self.solved):
            return Severity.NOTE
        if risen and level.low <= self.most:
            return Severity.NOTE
        if score_pays(evidence) and level.high < self.nearly_all:
            return Severity.NOTE
        return Severity.CRITICAL if level.low > self.most else Severity.WARNING

    def count_idle_steps(self, evidence: Evidence) -> Interval:
        """Return the share of the steps of the second half at which the spread of rewards is zero."""
        series = evidence.series("reward_std")
        late = np.zeros(0) if series is None else series.values[len(series) // 2 :]
        return wilson(int((late <= 0).sum()), max(len(late), 1))

    def check_spread(self, evidence: Evidence) -> CheckResult:
        """Decide by the spread of rewards within groups, where flat groups are not counted."""
        spread = evidence.course("reward_std")
        if spread is None:
            return evidence.missing_metric("zero-variance-groups", "zero_variance_groups")
        start, end = spread.start.level, spread.end.level
        name = evidence.logged_name("reward_std")
        idle = self.count_idle_steps(evidence)
        at_best = has_risen(evidence) and is_at_its_best(evidence)
        if idle.low > self.idle and not is_solved(evidence, self.solved):
            loud = Severity.CRITICAL if idle.low > self.most else Severity.WARNING
            return Finding(
                "zero-variance-groups",
                Severity.NOTE if at_best or score_pays(evidence) else loud,
                "strong",
                "training",
                f"At {idle.value:.0%} of the steps of the second half no group had any difference in reward.",
                (Fact("steps without a difference", idle, "%", f"{name} is zero"),),
                "The score rises as fast as at the start.",
                prescriptions=_prescriptions(evidence, side_of_flat_groups(evidence)),
            )
        if end.high < self.narrow * start.low and not at_best and not is_solved(evidence, self.solved):
            return Finding(
                "zero-variance-groups",
                Severity.WARNING,
                "likely",
                "training",
                f"Rewards within groups differ by {end.value:.2g}, {end.value / start.value:.0%} of what they did at"
                " the start: little is left to learn from.",
                (
                    Fact(
                        "spread at the start",
                        start,
                        "",
                        f"{name}, steps {spread.start.first:,.0f} to {spread.start.last:,.0f}",
                    ),
                    Fact("spread now", end),
                ),
                "The score rises as fast as at the start.",
                prescriptions=_prescriptions(evidence, side_of_flat_groups(evidence)),
            )
        if idle.value > self.idle and not at_best and not is_solved(evidence, self.solved):
            shown = f"at {idle.value:.0%} of the steps of the second half no group had any difference in reward"
            return CannotTell(
                "zero-variance-groups", f"{shown} ({idle.low:.0%} to {idle.high:.0%})", "more steps", undecided=True
            )
        if end.low > self.narrow * start.value or start.value <= 0:
            return Excluded("zero-variance-groups", f"rewards within groups differ by {end.value:.2g}")
        return CannotTell(
            "zero-variance-groups",
            f"{metric_words('zero_variance_groups')} is not logged",
            evidence.how_to_log("zero_variance_groups"),
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


def _facts(evidence: Evidence, flat: Course, side: _Side | None) -> tuple[Fact, ...]:
    name = evidence.logged_name("zero_variance_groups")
    facts = [
        Fact(label, stretch.level, "%", f"{name}, steps {stretch.first:,.0f} to {stretch.last:,.0f}")
        for label, stretch in (("flat groups at the start", flat.start), ("flat groups now", flat.end))
    ]
    if side is not None:
        how = "counted in the last eighth of the rollouts" if side.counted else "by the two-valued reward"
        facts.append(Fact("share of them all wrong", side.wrong, "%", how))
    if evidence.config.group is not None:
        facts.append(Fact("rollouts per prompt", evidence.config.group, "", evidence.config.describe("group")))
    return tuple(facts)


HOPELESS = 0.9
"""Share of the flat groups that are all wrong above which easier problems come first."""


def _prescriptions(evidence: Evidence, side: _Side | None) -> tuple[Prescription, ...]:
    chance = None if side is None else 1 - side.wrong
    wanted = [
        prescriptions.resample_zero_variance_groups(evidence),
        prescriptions.enlarge_groups(evidence, chance),
        None if side is None else prescriptions.filter_problems(easier=side.wrong > 0.5),
    ]
    if side is not None and side.wrong > HOPELESS:
        wanted = [wanted[-1], *wanted[:-1]]  # other groups of the same problems are all wrong too
    return tuple(remedy for remedy in wanted if remedy is not None)


FINDING = ZeroVarianceGroups()
"""The check with its default thresholds."""
