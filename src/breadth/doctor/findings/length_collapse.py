"""``length-collapse``: completions have become so short that the work may be skipped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.evidence.run_course import LOST, has_risen, is_solved, score_fall, score_pays
from breadth.doctor.evidence.scores import ScoreChange, eval_score_change, excludes_rise, is_training_run
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.measure.change_points import run_collapse
from breadth.measure.course import Course, describe_course
from breadth.measure.intervals import Interval
from breadth.measure.trends import Trend, trend
from breadth.report.sections import Fact, Severity
from breadth.runs.reader import MetricSeries, Run

KEPT = 0.1
"""Share of its best that a score may have lost and still count as having risen."""


@dataclass(frozen=True)
class LengthCollapse:
    """The mean length has fallen below half of its own start.

    By the logged mean length, else by the tokens of rollouts: last eighth over first, with its interval. Shorter is
    often better: while the reward rises, and the held-out score with it, it is a note about brevity. It is a warning
    when no rise of either is shown, because a policy that has found an answer without the work shows it in its
    length before its score: in arXiv 2605.28388 one item with a lax check took the mean length from 511 to 46 tokens in
    58 steps, before accuracy moved. It misleads where the data, the prompt or the length cap changed during the run.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("reward-hacking", "degenerate-rollouts", "overly-hard")
    summary: ClassVar[str] = "mean length fell below half of its start"
    first_step: ClassVar[str] = "check the length penalty and the reward"

    short: float = 0.5
    """Share of the start below which, if certain, it is a collapse: the threshold of `breadth.measure.degeneracy`; the
    published case went to 0.09, and learning to stop in time rarely takes more than half."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare the mean length with its start, and with the scores."""
        if not is_training_run(evidence):
            return None
        series = mean_lengths(evidence)
        if series is None or len(series) < MIN_POINTS:
            return missing_lengths(evidence, series)
        length = trend(series.steps, series.values)
        course = describe_course(series.steps, series.values, by_log=True)
        if length.ratio is None or course is None:
            return CannotTell("length-collapse", "the mean length is not clearly above zero at the start")
        now, least = course.change(course.start, course.end), course.change(course.start, course.lowest)
        wanders = course.change_beyond_wander(course.start, course.end).high >= 1
        if now.high >= self.short or wanders:
            if now.value > self.short and least.high < self.short:
                return report_passing(evidence, course, least)
            shown = f"the mean length is at {now.value:.0%} of its start ({now.low:.0%} to {now.high:.0%})"
            if now.value > self.short:
                return Excluded("length-collapse", shown)
            return CannotTell("length-collapse", shown, "log more often", undecided=True)
        length = replace(length, ratio=now, start=course.start.level, end=course.end.level)
        score, evaluation = evidence.trend("reward"), eval_score_change(evidence)
        step = run_collapse(series.steps, np.maximum(series.values, 1e-9)).length_collapse
        return Finding(
            "length-collapse",
            length_severity(evidence, score, evaluation),
            "likely" if score is None and evaluation is None else "strong",
            "training",
            f"Completions have shrunk to {now.value:.0%} of their length at the start, "
            f"{length.end.value:,.0f} tokens instead of {length.start.value:,.0f}{describe_scores(score, evaluation)}.",
            _facts(evidence, series, length, score, evaluation),
            "Short completions are correct as often as long ones on the same problems, by a check that reads the work"
            " too.",
            cost_of_shortening(evidence, step),
            _prescriptions(evidence, step, length_severity(evidence, score, evaluation)),
        )


def report_passing(evidence: Evidence, course: Course, least: Interval) -> Finding:
    """Build the finding for completions that were short for a while and grew again."""
    low = course.lowest
    return Finding(
        "length-collapse",
        Severity.NOTE,
        "strong",
        "training",
        f"Completions had shrunk to {least.value:.0%} of their length at the start at steps {low.first:,.0f} to"
        f" {low.last:,.0f}, and are longer again.",
        (
            Fact("mean length at the start", course.start.level, "tokens", evidence.describe_steps("length")),
            Fact("shortest stretch", low.level, "tokens"),
            Fact("mean length now", course.end.level, "tokens"),
        ),
        "Prompts of that stretch ask for shorter answers.",
        prescriptions=(prescriptions.inspect_rewards(),),
    )


def mean_lengths(evidence: Evidence) -> MetricSeries | None:
    """Return the logged mean length by step, else that of the rollouts."""
    logged = evidence.series("length")
    if logged is not None and len(logged) >= MIN_POINTS:
        return logged
    return logged if evidence.run is None or "tokens" not in evidence.run.columns else rollout_lengths(evidence.run)


def rollout_lengths(run: Run) -> MetricSeries:
    """Return the mean tokens of the rollouts of each step."""
    table = run.query(
        "SELECT step, avg(tokens) AS mean FROM rollouts WHERE split = 'train' AND tokens > 0 GROUP BY step ORDER BY"
        " step"
    )
    return MetricSeries("length", table["step"].to_numpy(), table["mean"].to_numpy().astype(np.float64))


def missing_lengths(evidence: Evidence, series: MetricSeries | None) -> CheckResult:
    """Say which lengths are missing."""
    if series is None or evidence.series("length") is not None:
        return evidence.missing_metric("length-collapse", "length")
    return CannotTell(
        "length-collapse",
        f"rollouts have token counts at {len(series)} steps; {MIN_POINTS} are needed",
        "train longer",
    )


def length_severity(evidence: Evidence, score: Trend | None, evaluation: ScoreChange | None) -> Severity:
    """Return the severity by the scores: falling is critical, not rising a warning, rising a note."""
    fall = score_fall(evidence)
    has_fallen = fall is not None and fall.is_sure and fall.share >= LOST
    if has_fallen or any(change is not None and change.verdict == "falling" for change in (score, evaluation)):
        return Severity.CRITICAL
    if score is None and evaluation is None:
        return Severity.NOTE
    keeps = fall is not None and fall.share < KEPT
    held_out_stays = evaluation is not None and excludes_rise(evaluation)
    return (
        Severity.NOTE
        if ((has_risen(evidence) and keeps) or score_pays(evidence) or is_solved(evidence)) and not held_out_stays
        else Severity.WARNING
    )


def describe_scores(score: Trend | None, evaluation: ScoreChange | None) -> str:
    """Say what the reward and the held-out score do meanwhile."""
    words = {"rising": "rises", "falling": "falls", "flat": "stays flat", "cannot tell": "shows no rise"}
    parts = [f"the reward {words[score.verdict]}"] if score is not None else []
    parts += [f"the held-out score {words[evaluation.verdict]}"] if evaluation is not None else []
    return f", while {' and '.join(parts)}" if parts else "; the score is not logged"


def _facts(
    evidence: Evidence, series: MetricSeries, length: Trend, score: Trend | None, evaluation: ScoreChange | None
) -> tuple[Fact, ...]:
    where = evidence.describe_steps("length") or f"rollouts, steps {series.steps[0]:,} to {series.steps[-1]:,}"
    facts = [
        Fact("mean length at the start", length.start, "tokens", f"{where}: mean of the first eighth"),
        Fact("mean length now", length.end, "tokens", "mean of the last eighth"),
        Fact("share of the start", length.ratio, "%"),
    ]
    if score is not None:
        facts.append(Fact("change of the reward", score.change, "", score.verdict))
    if evaluation is not None:
        facts.append(
            Fact(f"change of {evaluation.name}", evaluation.change, "", f"{evaluation.verdict}, {evaluation.where}")
        )
    return tuple(facts)


def cost_of_shortening(evidence: Evidence, step: float | None) -> str:
    """Say when half of the length was gone and what the reward did since."""
    score = evidence.series("reward")
    if step is None:
        return ""
    when = f"Half of the length was gone at step {step:,.0f}"
    if score is None or min((score.steps < step).sum(), (score.steps >= step).sum()) < 3:
        return f"{when}."
    edge = max(3, len(score) // 16)
    then, now = np.median(score.values[score.steps < step][-edge:]), np.median(score.values[-edge:])
    return f"{when}; since then the reward went from {then:.3g} to {now:.3g}."


def _prescriptions(evidence: Evidence, step: float | None, severity: Severity) -> tuple[Prescription, ...]:
    if severity is Severity.NOTE:
        return (prescriptions.inspect_rewards(),)
    back = None if step is None else prescriptions.resume_from_checkpoint(int(step))
    return tuple(
        remedy
        for remedy in (prescriptions.inspect_rewards(), prescriptions.raise_kl_penalty(evidence), back)
        if remedy is not None
    )


FINDING = LengthCollapse()
"""The check with its default thresholds."""
