"""``oscillation``: traces change their stated answer, and lose correct answers by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from breadth.base.errors import MeasureError
from breadth.doctor.evidence.record import FALSE_ALARM_RATE, SCORE_MARGIN, TUNE_COMMAND, Evidence, is_inference_run
from breadth.doctor.finding import CannotTell, Change, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.validate import FloatArray
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.doctor.evidence.sweeps import ArmTexts

_NAME = "oscillation"


@dataclass(frozen=True)
class Oscillation:
    """The answer changes inside a trace, for the worse.

    Every stated answer of a trace is followed. Correct answers given up minus those gained is exactly how much a
    trace's first stated answer scores above its last: the gain of stopping at once. It is a warning when that is
    certainly above zero for the policy in use, and a note when only other budgets show it. It is also a note when
    traces change their answer more often as the budget grows: length then buys doubt. All tests flip the signs of whole
    questions. Only stated answers are seen (boxes, tags, "the answer is"), not changes of mind in other words. A short
    check that restates the answer is no change.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ("over-thinking", "repetition-loops")
    summary: ClassVar[str] = "the answer changes inside a trace, for the worse"
    first_step: ClassVar[str] = "exit early when the model is sure"

    false_alarm_rate: float = FALSE_ALARM_RATE
    """Largest p-value, over all arms together, at which it is reported; ten checks together may alarm one healthy sweep
    in twenty."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Follow the answers of every arm."""
        if not is_inference_run(evidence):
            return None
        from breadth.doctor.evidence.sweeps import plain_samples

        samples = plain_samples(evidence, _NAME, needs_answers=False)
        if samples is None or isinstance(samples, CannotTell):
            return samples
        arms = answer_revisions(evidence)
        if not arms:
            return CannotTell(
                _NAME,
                "no text states an answer in a box, in a tag or after 'the answer is'",
                "ask for stated answers in --system",
            )
        losing = [arm for arm in arms if samples.labelled and arm.p_value * len(arms) <= self.false_alarm_rate]
        worst = max(losing, key=lambda arm: (arm.used, arm.given_up.value), default=None)
        if worst is not None:
            return report_losses(worst, arms)
        return self.check_growth(arms) or exclude_losses(arms, labelled=samples.labelled)

    def check_growth(self, arms: Sequence[ArmRevisions]) -> Finding | None:
        """Return the finding that traces change their answer more often as the budget grows; None where not."""
        forced = [arm for arm in arms if arm.budget is not None]
        if len(forced) < 2:
            return None
        slope, p_value = revision_slope(forced)
        if p_value > self.false_alarm_rate:
            return None
        first, last = forced[0], forced[-1]
        change = (
            f"{first.changing.value:.0%} of the traces at {first.budget:,} thinking tokens to {last.changing.value:.0%}"
            f" at {last.budget:,}"
        )
        return Finding(
            _NAME,
            Severity.NOTE,
            "strong",
            "inference",
            f"Traces that change their stated answer grow from {change}.",
            (Fact("rise per doubling of the budget", slope, "%", f"p = {p_value:.2g}"), *revision_facts(arms)),
            "The share of traces that change their answer is the same at all budgets.",
            "",
            _prescriptions(last, arms),
        )


def exclude_losses(arms: Sequence[ArmRevisions], *, labelled: bool) -> CheckResult:
    """Return that traces give up hardly more correct answers than they gain, or that too few show it."""
    if not labelled:
        return CannotTell(_NAME, "correct answers are not known", f"{TUNE_COMMAND}, with correct answers in FILE")
    worst = max(arms, key=lambda arm: arm.given_up.value)
    shown = (
        f"correct answers are given up {worst.lost} times and gained {worst.gained} times in {worst.traces} traces"
        f" ({worst.name})"
    )
    if worst.given_up.value < SCORE_MARGIN:
        return Excluded(_NAME, shown)
    return CannotTell(_NAME, shown, "more questions", undecided=True)


def report_losses(worst: ArmRevisions, arms: Sequence[ArmRevisions]) -> Finding:
    """Build the finding for the arm that loses the most correct answers."""
    points = 100 * worst.given_up.value
    return Finding(
        _NAME,
        Severity.WARNING if worst.used else Severity.NOTE,
        "strong",
        "inference",
        f"Correct answers are given up {worst.lost} times and gained {worst.gained} times inside traces"
        f" ({worst.name}).",
        (
            Fact(
                "first stated answer minus the last",
                worst.given_up,
                "%",
                f"score of {worst.traces} traces; p = {worst.p_value:.2g}",
            ),
            *revision_facts(arms),
        ),
        "On new questions traces gain as many correct answers after their first one as they give up.",
        f"The first stated answer scores {points:.1f} points more than the last.",
        _prescriptions(worst, arms),
    )


def revision_facts(arms: Sequence[ArmRevisions]) -> list[Fact]:
    """Return the share of traces that change their answer, arm by arm."""
    return [
        Fact(f"traces that change their answer, {arm.name}", arm.changing, "%", f"{arm.lost} lost, {arm.gained} gained")
        for arm in arms
    ]


def _prescriptions(worst: ArmRevisions, arms: Sequence[ArmRevisions]) -> tuple[Prescription, ...]:
    steady = [arm for arm in arms if arm.budget is not None and worst.budget is not None and arm.budget < worst.budget]
    best = max(steady, key=lambda arm: (arm.score, -(arm.budget or 0)), default=None)
    shorter = (
        None
        if best is None or best.budget is None or best.score < worst.score
        else Prescription(
            f"Limit thinking to {best.budget:,} tokens",
            f"{best.score:.0%} of the traces end correct there, {worst.score:.0%} here.",
            (Change("thinking_budget", best.budget),),
            source="arXiv 2506.04210; this sweep",
        )
    )
    leave = Prescription(
        "Answer as soon as the model is sure (strategy early-exit in policy.toml) instead of thinking further",
        "It tries an answer where the thinking turns ('Wait') and keeps one that is confident.",
        (),
        "An overconfident model stops too early; needs a server that continues a prefix and sends log-probs.",
        "DEER, arXiv 2504.15895",
    )
    return tuple(remedy for remedy in (shorter, leave) if remedy is not None)


@dataclass(frozen=True, eq=False)
class ArmRevisions:
    """What happens to the answers that one arm's traces state."""

    name: str
    """The arm."""
    budget: int | None
    """Thinking tokens it forces."""
    used: bool
    """Whether the policy in use samples this way."""
    traces: int
    """Traces read."""
    lost: int
    """Times a correct answer was given up."""
    gained: int
    """Times a correct answer was gained."""
    given_up: Interval
    """Lost minus gained per trace: how much the first stated answer scores above the last."""
    p_value: float
    """Probability of so many more losses than gains, if both were as likely."""
    changing: Interval
    """Share of traces that change their answer."""
    changed_by_question: FloatArray
    """The same by question."""
    score: float
    """Share of traces whose last stated answer is correct."""


def answer_revisions(evidence: Evidence) -> tuple[ArmRevisions, ...]:
    """Follow the stated answers of every arm whose texts state any."""
    from breadth.doctor.evidence.sweeps import arm_texts, policy_in_use, policy_spending

    policy = policy_in_use(evidence)
    spent = None if policy is None else policy_spending(policy, 1.0)
    budget = None if spent is None else spent.budget
    return tuple(
        arm_revisions
        for arm in arm_texts(evidence)
        if (arm_revisions := follow_answers(arm, used=arm.budget == budget)) is not None
    )


def revision_slope(arms: Sequence[ArmRevisions]) -> tuple[Interval, float]:
    """Return the growth of the share of changing traces per doubling of the budget, with its p-value."""
    doublings = np.log2([arm.budget or 1 for arm in arms])
    centred = doublings - doublings.mean()
    slopes = np.column_stack([arm.changed_by_question for arm in arms]) @ centred / float(centred @ centred)
    reach = 1 / float(np.abs(centred).max())
    return mean_interval(slopes, bounds=(-reach, reach)), one_sided_p_value(slopes)


def follow_answers(arm: ArmTexts, *, used: bool) -> ArmRevisions | None:
    """Follow the stated answers of one arm; None where its texts state none."""
    from breadth.measure.oscillation import extract_restatements, trace_oscillations

    try:
        traced = trace_oscillations(extract_restatements(arm.texts, arm.references))
    except MeasureError:
        return None
    where = traced.traces.astype(np.int64)
    lost, changed, right = (np.zeros(len(arm.texts)) for _ in range(3))
    lost[where], changed[where], right[where] = (
        traced.right_to_wrong - traced.wrong_to_right,
        traced.changes > 0,
        traced.final_right,
    )
    _, owner, each = np.unique(arm.questions, return_inverse=True, return_counts=True)
    given_up, share = (np.bincount(owner, values) / each for values in (lost, changed))
    return ArmRevisions(
        arm.name,
        arm.budget,
        used,
        len(arm.texts),
        int(traced.right_to_wrong.sum()),
        int(traced.wrong_to_right.sum()),
        mean_interval(given_up, bounds=(-1.0, 1.0)),
        one_sided_p_value(given_up),
        mean_interval(share, bounds=(0.0, 1.0)),
        share,
        float(right.mean()),
    )


def one_sided_p_value(values: FloatArray) -> float:
    """Return the p-value of the mean under random signs; 1 where the mean is not above zero."""
    from breadth.measure.paired_tests import paired_difference

    return paired_difference(values, np.zeros(len(values))).p_value / 2 if values.mean() > 0 else 1.0


FINDING = Oscillation()
"""The check with its default thresholds."""
