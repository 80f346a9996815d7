"""``no-learning``: nothing moves the policy, or nothing has moved its score."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.evidence.run_course import SOLVED, is_at_its_best, is_solved
from breadth.doctor.evidence.scores import is_training_run, logged_eval_score
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.measure.course import Course, describe_course
from breadth.measure.intervals import Interval, t_critical
from breadth.measure.trends import Trend, trend
from breadth.report.sections import Fact, Severity
from breadth.runs.reader import MetricSeries


@dataclass(frozen=True)
class NoLearning:
    """The run does not learn: no gradient, no difference in reward, no learning rate, or a score that never moved.

    Five proofs are arithmetic: over the last half of the run, or all of it, the gradient norm is zero, the rewards
    within groups never differ, the highest reward of a step is its lowest, the learning rate is zero, or a score stays
    equal to the last digit below its best. A score that has one value at most points of every quarter is stuck, at its
    best or not. The last is measured: over the whole run, at least thirty steps, a rise of the score that matters is
    excluded, and the score leaves room. A score that rose and stopped is `saturation`, one that fell is
    `score-collapse`. A signal that is logged as zero while the score surely rises is rounded, as a learning rate of
    1e-6 in three decimals. It misleads where the learning signal does not come from this score, and in the first steps
    of a long warm-up.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = (
        "numerical-failure",
        "overly-hard",
        "truncation",
        "zero-variance-groups",
        "no-op-settings",
        "contradictory-settings",
        "wrong-advantages",
    )
    summary: ClassVar[str] = "no gradient, no difference in reward, or a score that never moved"
    first_step: ClassVar[str] = "read twenty rollouts with their rewards; check the learning rate"

    zero: float = 1e-7
    """Gradient norm below which there is no gradient: with a learning rate of 1e-6 no bfloat16 weight moves."""
    steps: int = 30
    """Steps from which on a flat score is a finding: many runs take off later than after twenty."""
    points: int = 20
    """Logged points that this takes."""
    room: float = SOLVED
    """Level of a score between 0 and 1 above which it is solved: there is nothing left to learn."""
    rise: float = 0.1
    """Rise of the score, as a share of its level, that must be excluded, or else one as large as the scatter of its
    points: what a reader of the plot calls a rise."""
    visible: float = 0.25
    """Rise between the ends, as a share of the start, that nobody calls flat where it is half of the scatter too,
    however wide its interval is."""
    hint: float = 0.1
    """p-value of a steady rise, of this or of the held-out score, below which a score is not called flat: what takes
    off looks like noise at first."""
    dead: float = 0.95
    """Share of the steps at which no group may differ in reward."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Look for a signal first, then for its effect on the score."""
        if evidence.run is None or not is_training_run(evidence):
            return None
        score = evidence.course("reward")
        missing = find_missing_signal(evidence, self.zero, self.dead)
        dead = missing or find_frozen_score(evidence)
        is_done = is_solved(evidence, self.room) or is_at_its_best(evidence)
        if dead is not None and not has_moved(score, dead[2]) and not is_done:
            return report_dead(evidence, *dead, has_signal=missing is None)
        whole = evidence.trend("reward")
        if score is None or whole is None:
            return evidence.missing_metric("no-learning", "reward")
        if is_solved(evidence, self.room):
            return Excluded("no-learning", f"the score is {score.end.level.value:.3g}: solved")
        stuck = find_stuck_value(score, self.points)
        if stuck is not None and not has_moved(score, score.start.first):
            return report_stuck(evidence, score, *stuck)
        return self.check_score(evidence, score, whole)

    def check_score(self, evidence: Evidence, score: Course, whole: Trend) -> CheckResult:
        """See whether the score moved at all."""
        moved, best = score.change(score.start, score.end), score.change(score.start, score.highest)
        scatter = score.noise.sd
        matters = max(self.rise * abs(score.start.level.value), scatter, 1e-12)
        is_steady = whole.verdict in ("rising", "falling") and whole.p_value < SURE
        is_sure = moved.low > 0 or moved.high < 0 or is_steady
        if is_sure and abs(moved.value) >= min(self.rise * abs(score.start.level.value) / 2, scatter):
            steadily = (
                "" if moved.low > 0 or moved.high < 0 else f", {whole.verdict} steadily (p = {whole.p_value:.2g})"
            )
            return Excluded("no-learning", f"the score {describe(moved)}{steadily}")
        if best.low > 0 and best.value >= matters:
            return Excluded("no-learning", f"the score rose by {best.value:.2g} on the way")
        held_out = logged_eval_score(evidence)
        # A steady rise shows half of itself between the means of the two halves, which have less noise than the ends.
        highest_rise = min(moved.high, 2 * score.change(score.early, score.late).high, highest_linear_rise(score))
        hints = (whole.tau > 0 and whole.p_value < self.hint) or (held_out is not None and self.hints_at_rise(held_out))
        seems_to_rise = moved.value > max(self.visible * abs(score.start.level.value), scatter / 2)
        is_flat = highest_rise < matters and not hints and not seems_to_rise
        steps = score.steps[-1] - score.steps[0] + 1
        if is_flat and len(score.values) >= self.points and steps >= self.steps:
            return report_flat(evidence, score, moved)
        return CannotTell(
            "no-learning",
            f"over {len(score.values)} points the score {describe(moved)}; a rise of {matters:.2g} would matter",
            "train longer",
            undecided=True,
        )

    def hints_at_rise(self, held_out: MetricSeries) -> bool:
        """Say whether a held-out score may rise: training batches differ, held-out problems stay the same."""
        if len(held_out) < MIN_POINTS:
            return False
        found = trend(held_out.steps, held_out.values)
        return found.tau > 0 and found.p_value < self.hint


REWARD_ENDS = tuple(
    re.compile(rf"(?:^|/)(?:{end}[_/](?:rewards?|score)|(?:rewards?|score)[_/]{end})$") for end in ("min", "max")
)
"""Names of the lowest and the highest reward of a step."""
SURE = 0.05
"""p-value of a steady rise or fall below which it is one."""
STUCK = 0.5
"""Share of the points of each quarter at which a score may have one value: more, and most batches teach nothing."""
NO_RATE = 1e-10
"""Learning rate that moves no weight: a millionth of what full fine-tuning uses."""


def has_moved(score: Course | None, since: float) -> bool:
    """Say whether the score surely rose although a signal is logged as zero all along: the log rounds it then."""
    if score is None or since > score.start.first:
        return False
    return score.change(score.start, score.end).low > 0 or score.change(score.start, score.highest).low > 0


def highest_linear_rise(score: Course) -> float:
    """Return the upper end of the rise of a straight line through all points, over the whole run."""
    places = np.linspace(-0.5, 0.5, len(score.values))
    weight, noise = float(places @ places), score.noise
    sluggish = (1 + noise.autocorrelation) / (1 - noise.autocorrelation)
    error = noise.sd * math.sqrt(sluggish / weight)
    return float(places @ score.values) / weight + t_critical(noise.degrees_of_freedom, 0.95) * error


def reward_range(evidence: Evidence) -> MetricSeries | None:
    """Return how far the highest reward of a step is above the lowest; None where they are not logged."""
    logged = () if evidence.run is None else evidence.run.metric_names()
    ends = [next((name for name in logged if pattern.search(name.casefold())), None) for pattern in REWARD_ENDS]
    low, high = (None if name is None else evidence.series(name) for name in ends)
    if low is None or high is None or not np.array_equal(low.steps, high.steps):
        return None
    return MetricSeries("the range of the rewards", low.steps, high.values - low.values)


def find_missing_signal(evidence: Evidence, zero: float, dead: float) -> tuple[str, Fact, float] | None:
    """Return which signal is missing, the number that shows it, and since when."""
    for name, level, text in (
        ("grad_norm", zero, "The gradient is zero"),
        ("reward_std", 1e-9, "The rewards of a group never differ"),
        ("reward_range", 1e-9, "The highest reward of a step is its lowest"),
        ("learning_rate", NO_RATE, "The learning rate is zero"),
    ):
        series = reward_range(evidence) if name == "reward_range" else evidence.series(name)
        if series is None or len(series) < MIN_POINTS:
            continue
        still = np.abs(series.values) <= level
        half = len(series) // 2
        if name == "learning_rate" and not still[: max(len(series) - 1, 1)].all():
            continue  # a schedule ends at zero by design
        if still[half:].mean() >= dead:
            moving = np.flatnonzero(~still)
            begin = 0 if not len(moving) or still.mean() >= dead else int(moving[-1]) + 1
            since = float(series.steps[min(begin, len(series) - 1)])
            share = float(still.mean())
            what = series.name if name == "reward_range" else evidence.logged_name(name)
            where = f"{what} is zero at {share:.0%} of {len(series)} steps"
            return text, Fact("steps without a signal", share, "%", where), since
    return None


def find_frozen_score(evidence: Evidence) -> tuple[str, Fact, float] | None:
    """Return that a score is equal to the last digit over half of the run or more, and not at its best.

    Training batches differ, so their score is equal by chance at no two steps in a row; a held-out score that never
    changes comes from a policy that does not.
    """
    for series in (evidence.series("reward"), evidence.series("accuracy"), logged_eval_score(evidence)):
        course = None if series is None else describe_course(series.steps, series.values)
        if series is None or course is None or course.frozen is None:
            continue
        still = int((series.steps >= course.frozen).sum())
        value, best = float(series.values[-1]), float(series.values.max())
        is_done = SOLVED <= value <= best <= 1 or value == best > float(series.values[0])
        if still >= max(MIN_POINTS, len(series) / 2) and not is_done:
            where = f"{still} of {len(series)} points in a row are {value:.3g}"
            fact = Fact("points without a change", still / len(series), "%", where)
            return f"The score ({evidence.logged_name(series.name)}) is equal to the last digit", fact, course.frozen
    return None


def find_stuck_value(score: Course, points: int) -> tuple[float, float] | None:
    """Return the value that a score has, to the last digit, at most points of each quarter, and its share.

    Scores of training batches are means over rollouts: they are equal so often where all rollouts get the same reward.
    """
    values = score.values
    found, counts = np.unique(values, return_counts=True)
    most = float(found[np.argmax(counts)])
    quarters = [float((quarter == most).mean()) for quarter in np.array_split(values, 4)]
    return (most, float((values == most).mean())) if len(values) >= points and min(quarters) > STUCK else None


def report_stuck(evidence: Evidence, score: Course, value: float, share: float) -> Finding:
    """Build the finding for a score that has one and the same value nearly all the time."""
    return Finding(
        "no-learning",
        Severity.WARNING,
        "strong",
        "training",
        f"The score is {value:.3g}, to the last digit, at {share:.0%} of {len(score.values)} points, from the first to"
        " the last.",
        (
            Fact("points of one value", share, "%", evidence.describe_steps("reward")),
            Fact("change", score.change(score.start, score.end)),
        ),
        "Rewards differ within groups at most steps.",
        "Where all rollouts of a group get the same reward, nothing is learned from them.",
        _flat_prescriptions(evidence),
    )


def report_dead(evidence: Evidence, text: str, fact: Fact, since: float, *, has_signal: bool) -> Finding:
    """Build the finding for a run without a signal, or whose score shows nothing of one."""
    series = evidence.series("reward")
    first = 0.0 if series is None else float(series.steps[0])
    when = "from the first step on" if since <= first else f"since step {since:,.0f}"
    score = evidence.course("reward")
    facts = [fact]
    if score is not None:
        facts.append(
            Fact(
                "score",
                f"{score.start.level.value:.3g} to {score.end.level.value:.3g}",
                "",
                evidence.describe_steps("reward"),
            )
        )
    return Finding(
        "no-learning",
        Severity.CRITICAL,
        "strong" if has_signal else "certain",
        "training",
        f"{text} {when}, at {fact.value:.0%} of the steps: the policy"
        f" {'no longer changes its answers' if has_signal else 'cannot change'}.",
        tuple(facts),
        "The weights of two later checkpoints differ.",
        "Every step since then cost its rollouts and changed nothing.",
        _dead_prescriptions(evidence, None if since <= first else int(since)),
    )


def report_flat(evidence: Evidence, score: Course, moved: Interval) -> Finding:
    """Build the finding for a score that never moved."""
    steps = evidence.describe_steps("reward")
    return Finding(
        "no-learning",
        Severity.WARNING,
        "strong",
        "training",
        f"The score has not moved in {len(score.values)} points: {score.start.level.value:.3g} at the start,"
        f" {score.end.level.value:.3g} now.",
        (
            Fact("score at the start", score.start.level, "", f"{steps}: mean of the first eighth"),
            Fact("score now", score.end.level, "", "mean of the last eighth"),
            Fact("change", moved),
        ),
        "The held-out score rises over the same steps.",
        "No step of the run improved the score.",
        _flat_prescriptions(evidence),
    )


def describe(moved: Interval) -> str:
    """Say how far a score moved, with its interval."""
    return f"changed by {moved.value:+.2g} ({moved.low:+.2g} to {moved.high:+.2g})"


def _dead_prescriptions(evidence: Evidence, since: int | None) -> tuple[Prescription, ...]:
    rate = evidence.series("learning_rate")
    if rate is not None and len(rate) and not (np.abs(rate.values) > NO_RATE).any():
        return (prescriptions.set_learning_rate(),)
    wanted = [
        None if since is None else prescriptions.go_back_to(since - 1),
        prescriptions.inspect_signal(),
        prescriptions.filter_problems(easier=True) if since is None else prescriptions.lower_learning_rate(evidence),
    ]
    return tuple(remedy for remedy in wanted if remedy is not None)


def _flat_prescriptions(evidence: Evidence) -> tuple[Prescription, ...]:
    cut = evidence.course("truncated")
    wanted = [
        prescriptions.inspect_signal(),
        prescriptions.raise_length_cap(evidence) if cut is not None and cut.end.level.low > 0.1 else None,
        prescriptions.raise_learning_rate(evidence),
        prescriptions.filter_problems(easier=True),
    ]
    return tuple(remedy for remedy in wanted if remedy is not None)


FINDING = NoLearning()
"""The check with its default thresholds."""
