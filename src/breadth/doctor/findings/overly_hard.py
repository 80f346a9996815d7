"""``overly-hard``: most groups are all wrong, so nothing is learned from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.evidence.scores import (
    BOUNDED_MEASURES,
    accuracy_by_step,
    component_name,
    is_component,
    is_training_run,
    means_correctness,
    printable,
)
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.measure.course import Course, describe_course
from breadth.measure.intervals import Interval, mean_interval, quotient, resample
from breadth.measure.trends import Trend, trend
from breadth.report.cells import format_pair
from breadth.report.sections import Fact, Severity
from breadth.runs.outcomes import Outcomes, count_outcomes
from breadth.runs.reader import MetricSeries


@dataclass(frozen=True)
class OverlyHard:
    """The problems are too hard for this policy: most groups have no correct answer, and the score does not rise.

    Counted where rollouts are graded: the share of groups without a correct answer in the second half of the steps,
    with an interval over problems. The last few steps alone have few groups, and where only they are all wrong the
    policy broke, not the problems. Otherwise by arithmetic: with a two-valued reward and groups of G, at least (1 -
    score)^G of the groups are all wrong, and more where problems differ. A run that starts low and rises is not
    reported, unless right answers stay next to nothing. Nor is one that shows no rise yet, but whose best estimate
    would bring half of the groups to a correct answer in as many steps again. Training on problems that are never
    solved does not only waste rollouts: it lowered benchmark scores by 1 to 11 points (arXiv 2605.28388). It misleads
    where answers are correct and the checker cannot read them: look at some texts first.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("truncation", "entropy-explosion", "train-inference-mismatch")
    summary: ClassVar[str] = "most groups have no correct answer, and the score does not rise"
    first_step: ClassVar[str] = "start with easier problems, or draw larger groups"

    half: float = 0.5
    """Share of all-wrong groups above which, if certain, it is a warning: most rollouts are then wasted."""
    most: float = 0.8
    """Share above which it is critical: a step learns from less than a fifth of its rollouts."""
    hint: float = 0.1
    """p-value of a steady rise below which nothing is reported: a score that takes off looks like noise at first, so a
    weaker test than elsewhere is enough to hold the verdict back."""
    cut: float = 0.1
    """Share of truncated completions above which, if certain, the cap is prescribed first: the level at which
    `truncation` warns."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Count groups that are all wrong, and see whether the score rises."""
        if evidence.run is None or not is_training_run(evidence):
            return None
        graded = count_outcomes(evidence.run)
        nothing = next(find_nothing_right(evidence), None)
        if nothing is not None:
            return nothing
        score, width = score_trend(evidence, graded)
        if score is not None and score.verdict == "rising":
            return Excluded("overly-hard", "the score rises")
        hard = count_all_wrong(graded) or self.estimate_by_score(evidence)
        if not isinstance(hard, AllWrongGroups):
            return hard
        if hard.share.low <= self.half:
            shown = (
                f"{hard.share.value:.0%} of the groups are all wrong ({hard.share.low:.0%} to {hard.share.high:.0%})"
            )
            if hard.share.value <= self.half:
                return Excluded("overly-hard", shown)
            return CannotTell("overly-hard", shown, "train longer", undecided=True)
        if score is None:
            return CannotTell(
                "overly-hard", f"fewer than {MIN_POINTS} steps do not show whether the score rises", "train longer"
            )
        if score.verdict == "cannot tell" and (self._hints(score) or self.leaves_room(hard, score, width)):
            share = f"{hard.share.value:.0%} of the groups are all wrong, but a rise that would end it is not excluded"
            return CannotTell("overly-hard", f"{share}: the score {score.reason}", "train longer")
        return self.report(evidence, hard, score)

    def _hints(self, score: Trend) -> bool:
        return score.tau > 0 and score.p_value < self.hint

    def leaves_room(self, hard: AllWrongGroups, score: Trend, width: float) -> bool:
        """Say whether a rise at its estimated pace would bring half of the groups to a correct answer in as many steps.

        The middles of the two halves lie half a run apart. If the fastest rise that noise allows were used, few runs of
        less than a hundred steps would ever be called too hard.
        """
        rise = score.change.high if hard.rise is None else 2 * width * hard.rise.value
        return rise >= width * hard.gain_needed(self.half)

    def estimate_by_score(self, evidence: Evidence) -> AllWrongGroups | CannotTell | Excluded:
        """Bound the share of all-wrong groups by the score, where that has two values and no group is resampled."""
        reward, group = evidence.trend("reward"), evidence.config.group
        levels = () if evidence.run is None else evidence.run.header.reward_levels
        if reward is None:
            return evidence.missing_metric("overly-hard", "reward")
        if len(levels) == 2 and group and group > 1 and not evidence.config.dynamic_sampling:
            return lower_bound_all_wrong(reward.end, levels, group)
        flat = evidence.trend("zero_variance_groups")
        if flat is not None and flat.end.high < self.half:
            return Excluded("overly-hard", f"at most {flat.end.high:.0%} of the groups have equal rewards")
        needed = (
            "whether groups are all wrong is not logged: rollouts with a grade, or with a two-valued reward, would"
            " show it"
        )
        return CannotTell("overly-hard", needed, evidence.how_to_log("rollouts"))

    def report(self, evidence: Evidence, hard: AllWrongGroups, score: Trend) -> Finding:
        """Build the finding."""
        share = hard.share.value
        groups = f"{'' if hard.groups or share > 0.995 else 'at least '}{share:.0%} of the groups"
        ratio = f"{share / (1 - share):.1f}" if share <= 0.99 else "more than 99"
        wasted = f"{ratio} rollouts were wasted for each that could teach something"
        return Finding(
            "overly-hard",
            Severity.CRITICAL if hard.share.low > self.most else Severity.WARNING,
            "strong",
            "training",
            f"{groups[0].upper()}{groups[1:]} have no correct answer, and the score does not rise.",
            _facts(evidence, hard, score),
            "The same problems, sampled 64 times each with a longer cap and a second checker, are solved by some of the"
            " rollouts.",
            f"In the second half {wasted}.",
            self._prescriptions(evidence, hard),
        )

    def _prescriptions(self, evidence: Evidence, hard: AllWrongGroups) -> tuple[Prescription, ...]:
        cut = evidence.trend("truncated")
        wanted = [
            prescriptions.raise_length_cap(evidence) if cut is not None and cut.end.low > self.cut else None,
            prescriptions.filter_problems(easier=True),
            prescriptions.enlarge_groups(evidence, hard.accuracy),
            prescriptions.resample_zero_variance_groups(evidence),
        ]
        return tuple(remedy for remedy in wanted if remedy is not None)


MAX_EVER = 0.05
"""Share of the steps at which something may have been right: luck, or the beginning of learning, which goes on."""
MIN_ZERO, MIN_ZERO_AT_BEST = 0.2, 0.05
"""Share of the steps at exactly zero that shows that zero means wrong, and the same where it is the highest value."""
MIN_NEVER = 20
"""Steps at which nothing was right, from which on that is no bad luck: with one right rollout in a hundred and 16 a
step, it would happen once in 25 times."""

HARDLY = 0.05
"""Share of right answers below which, for sure and at its best, next to nothing is right: one in twenty."""
SHARE_NAMES = re.compile(rf"(?<![a-z])(?:accuracy$|acc$|exact_match|{BOUNDED_MEASURES})(?![a-z@])")
"""Names of scores that reach 1 by their definition; what a reward for being correct pays is up to its author."""
MIN_HARDLY = 50
"""Logged steps from which on that counts: many runs begin there and take off."""


def find_nothing_right(evidence: Evidence) -> Iterator[Finding]:
    """Yield findings of an accuracy, or a component of the reward that means correct, that is at nothing all along."""
    names = () if evidence.run is None else evidence.run.metric_names()
    for name in names:
        if name == "accuracy" or (is_component(name) and means_correctness(component_name(name))):
            series = evidence.series(name)
            if series is None or len(series) < MIN_NEVER:
                continue
            if is_never_right(series):
                yield report_never_right(series)
            elif SHARE_NAMES.search(name.casefold()) and (course := find_low_course(series)) is not None:
                yield report_hardly_right(series, course)


def is_never_right(series: MetricSeries) -> bool:
    """Say whether a score is hardly ever above zero, and often exactly zero: on a scale where zero means wrong.

    Where wrong is -1 and right 1, batches lie anywhere between, and hardly ever at zero; where right is zero, a score
    that is learned rises to it.
    """
    above, at_zero = float((series.values > 0).mean()), float((series.values == 0).mean())
    if above > MAX_EVER or at_zero < (MIN_ZERO if above else MIN_ZERO_AT_BEST):
        return False
    return not (series.values < 0).any() or trend(series.steps, series.values).verdict != "rising"


def find_low_course(series: MetricSeries) -> Course | None:
    """Return the course of a share that stays at next to nothing; None for any other score.

    Its best stretch is there too, and so it would be after as many steps again: from 0.01 to 0.02 is a rise, and still
    nothing.
    """
    values = series.values
    if len(series) < MIN_HARDLY or float(values.min()) < 0 or not 0 < float(values.max()) <= 1:
        return None
    course = describe_course(series.steps, values)
    if course is None or course.highest.level.high >= HARDLY:
        return None
    ahead = 2 * course.end.level.value - course.start.level.value
    return course if ahead < HARDLY else None


def report_hardly_right(series: MetricSeries, course: Course) -> Finding:
    """Build the finding for a correctness that stays at next to nothing."""
    name, start, end = printable(component_name(series.name)), course.start.level.value, course.end.level.value
    return Finding(
        "overly-hard",
        Severity.WARNING,
        "strong",
        "training",
        f"Next to nothing is ever right: {name} went from {format_pair(start, end)} in {len(series)} logged steps,"
        " where 1 is all.",
        (
            Fact(f"{name} at its best", course.highest.level, "", "the highest stretch"),
            Fact(f"{name} now", course.end.level, "", f"steps {course.end.first:,.0f} to {course.end.last:,.0f}"),
        ),
        "The checker accepts a right answer that is written by hand in the expected format.",
        "Whatever the reward gained, next to none of it is in right answers.",
        (prescriptions.inspect_signal(), prescriptions.filter_problems(easier=True)),
    )


def report_never_right(series: MetricSeries) -> Finding:
    """Build the finding for a correctness that was hardly ever above zero."""
    name, right = printable(component_name(series.name)), int((series.values > 0).sum())
    steps = f"steps {series.steps[0]:,} to {series.steps[-1]:,}"
    headline = (
        f"Hardly any rollout was ever right: {name} is above 0 at {right} of {len(series)} logged steps."
        if right
        else f"No rollout was ever right: {name} is {'0' if not series.values.any() else 'never above 0'} at all"
        f" {len(series)} logged steps."
    )
    return Finding(
        "overly-hard",
        Severity.WARNING,
        "strong",
        "training",
        headline,
        (Fact(name, float(series.values.max()), "", f"{steps}: the highest value"),),
        "The checker accepts a right answer that is written by hand in the expected format.",
        "Whatever the reward gained, none of it is in right answers.",
        (prescriptions.inspect_signal(), prescriptions.filter_problems(easier=True)),
    )


def score_trend(evidence: Evidence, graded: Outcomes | None) -> tuple[Trend | None, float]:
    """Return the trend of accuracy, which no format bonus can move, else of the reward; and its width."""
    right = None if graded is None else accuracy_by_step(graded)
    if right is not None and len(right) >= MIN_POINTS:
        return trend(right.steps, right.values), 1.0
    levels = () if evidence.run is None else evidence.run.header.reward_levels
    return evidence.trend("reward"), max(levels) - min(levels) if len(levels) == 2 else 0.0


def _facts(evidence: Evidence, hard: AllWrongGroups, score: Trend) -> tuple[Fact, ...]:
    how = (
        f"counted in {hard.groups:,} groups of the second half"
        if hard.groups
        else "a lower bound by the score; more where problems differ"
    )
    facts = [Fact("groups that are all wrong", hard.share, "%", how)]
    if hard.start is not None:
        facts.append(Fact("before", hard.start, "%", "counted in the first half"))
    facts.append(
        Fact("rollouts per prompt", hard.group, "", evidence.config.describe("group") if evidence.config.group else "")
    )
    facts.append(Fact("correct rollouts", hard.accuracy, "%"))
    facts.append(
        Fact(
            "change of the score",
            score.change,
            "",
            f"{score.verdict}, {evidence.describe_steps('reward') or 'by graded rollouts'}",
        )
    )
    return tuple(facts)


@dataclass(frozen=True)
class AllWrongGroups:
    """Groups without a correct answer."""

    share: Interval
    """Share of the groups of the second half."""
    start: Interval | None
    """The same of the first half; None where it was not counted."""
    accuracy: float
    """Share of correct rollouts in the second half."""
    group: float
    """Rollouts per group."""
    groups: int
    """Groups it was counted in; 0 where it is a bound."""
    rise: Interval | None = None
    """Gain of accuracy from the first half to the second; None where it was not counted."""

    def gain_needed(self, share: float) -> float:
        """Return the gain of accuracy after which at most a share of the groups would be all wrong.

        If problems were alike, (1 - p)^G of the groups would be: so p must reach 1 - share^(1/G).
        """
        return max(1 - float(share ** (1 / self.group)) - self.accuracy, 0.0)


def count_all_wrong(graded: Outcomes | None) -> AllWrongGroups | None:
    """Count in the first and the second half of the steps; None where no group of two or more is graded."""
    if graded is None or not (graded.graded > 1).any():
        return None
    several = graded.graded > 1
    groups = Outcomes(graded.steps[several], graded.problems[several], graded.graded[several], graded.correct[several])
    steps = np.unique(groups.steps)
    half = len(steps) // 2
    early, late = groups.select_steps(steps[:half]), groups.select_steps(steps[half:])
    several_steps = len(steps) > 1
    return AllWrongGroups(
        share_all_wrong(late),
        share_all_wrong(early) if several_steps else None,
        float(late.correct.sum() / late.graded.sum()),
        float(np.median(late.graded)),
        len(late),
        accuracy_gain(early, late) if several_steps else None,
    )


def lower_bound_all_wrong(score: Interval, levels: tuple[float, ...], group: int) -> AllWrongGroups:
    """Bound by the mean of a two-valued reward: at least (1 - p)^G, and more where problems differ (Jensen)."""
    low, width = min(levels), max(levels) - min(levels)
    value, high, low_end = (min(max((end - low) / width, 0.0), 1.0) for end in (score.value, score.high, score.low))
    share = Interval(
        (1 - value) ** group,
        (1 - high) ** group,
        (1 - low_end) ** group,
        score.level,
        "(1 - score)^G of the score's interval",
    )
    return AllWrongGroups(share, None, value, float(group), 0)


def share_all_wrong(groups: Outcomes) -> Interval:
    """Return the share of all-wrong groups; groups of a problem are averaged first: they are not independent."""
    _, place = np.unique(groups.problems.astype(str), return_inverse=True)
    return mean_interval(np.bincount(place, groups.correct == 0) / np.bincount(place), bounds=(0.0, 1.0))


def accuracy_gain(early: Outcomes, late: Outcomes) -> Interval:
    """Compare accuracies, resampling whole problems: counts say more than medians of a few small shares."""
    zeros = np.zeros(len(early)), np.zeros(len(late))
    columns = {
        "right 0": np.concatenate([early.correct, zeros[1]]),
        "drawn 0": np.concatenate([early.graded, zeros[1]]),
        "right 1": np.concatenate([zeros[0], late.correct]),
        "drawn 1": np.concatenate([zeros[0], late.graded]),
    }
    found = resample(columns, np.concatenate([early.problems, late.problems]).astype(str))
    return found.interval(
        lambda of: quotient(of["right 1"], of["drawn 1"]) - quotient(of["right 0"], of["drawn 0"]),
        "drawn 1",
        (-1.0, 1.0),
    )


FINDING = OverlyHard()
"""The check with its default thresholds."""
