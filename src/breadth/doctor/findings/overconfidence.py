"""``overconfidence``: on more and more problems all rollouts agree on one wrong answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence, Window
from breadth.doctor.evidence.rollouts import (
    MIN_CLUSTERS,
    Ends,
    Names,
    Shift,
    coverage_shift,
    covers_training,
    evaluation_ends,
    mean_shift,
    missing_answers,
    missing_rollouts,
)
from breadth.doctor.finding import CannotTell, CheckResult, Excluded, Finding, Loop, Need
from breadth.measure.validate import FloatArray
from breadth.report.sections import Fact, Severity

_NAME = "overconfidence"


@dataclass(frozen=True)
class Overconfidence:
    """Rollouts agree, and are wrong.

    Measured as the probability that four rollouts of a problem, drawn without replacement, all give the same wrong
    answer. Four alike is where a vote that wants to be 95 % sure stops, so no vote notices such a mistake, and in
    training such a group teaches nothing. Held-out rollouts are compared where there are any, else training rollouts;
    intervals resample problems.

    A policy that becomes sure also becomes sure where it is wrong: a certain rise alone is a note. It is a warning when
    fewer problems than at the start can be solved in as many tries. It misleads where the checker rejects correct
    answers.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("entropy-collapse", "fork-collapse", "reward-hacking", "diversity-transfer")
    needs: ClassVar[tuple[Need, ...]] = ("rollouts",)
    summary: ClassVar[str] = "rollouts agree and are wrong"
    first_step: ClassVar[str] = "reward calibration, or filter such groups"

    agree: int = 4
    """Rollouts that must agree: where a vote with a uniform prior is 95 % sure of its leader (1 - 1/2^5 = 0.97; three
    give 0.94)."""
    admitted: float = 0.05
    """Share of problems above which, if certain, it is reported: the error rate that such a vote accepts."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare how often rollouts agree on one wrong answer with the start."""
        if not covers_training(evidence):
            return None
        ends = evaluation_ends(evidence)
        if ends is None:
            return missing_rollouts(evidence, _NAME)
        lacking = missing_agreement(evidence, ends)
        if lacking is not None:
            return lacking
        wrong = agreement_shift(ends, self.agree, right=False)
        if wrong.problems < MIN_CLUSTERS:
            return CannotTell(
                _NAME,
                f"{wrong.problems} problems have {self.agree} rollouts at one end of the run; {MIN_CLUSTERS} are"
                " needed",
            )
        if wrong.change.low <= 0 or wrong.now.low <= self.admitted:
            shown = (
                f"{self.agree} rollouts agree on one wrong answer on {wrong.now.value:.0%} of the problems,"
                f" {wrong.start.value:.0%} at the start"
            )
            if wrong.change.value <= 0 or wrong.now.value <= self.admitted:
                return Excluded(_NAME, shown)
            return CannotTell(_NAME, f"{shown}; its noise hides whether it rises", "more problems", undecided=True)
        return self.report(evidence, ends, wrong)

    def report(self, evidence: Evidence, ends: Ends, wrong: Shift) -> Finding:
        """Build the finding."""
        right = agreement_shift(ends, self.agree, right=True)
        mistaken = [
            _share(*values) for values in ((wrong.now.value, right.now.value), (wrong.start.value, right.start.value))
        ]
        covered = coverage_shift(ends)
        fell = covered is not None and covered[1].change.high < 0
        coverage = (
            f", and pass@{covered[0]} has fallen by {-covered[1].change.value:.2g}"
            if covered is not None and fell
            else ""
        )
        wanted = (
            prescriptions.reward_calibration(),
            prescriptions.train_for_pass_at_k(),
            prescriptions.add_kl_penalty(evidence),
        )
        return Finding(
            _NAME,
            Severity.WARNING if fell else Severity.NOTE,
            "strong",
            "training",
            f"On {wrong.now.value:.0%} of the problems {self.agree} rollouts agree on one wrong answer, "
            f"up from {wrong.start.value:.0%} at the start{coverage}.",
            _facts(ends, wrong, right, self.agree),
            "Checked by hand, most answers that all rollouts agree on are correct, and the checker is wrong.",
            f"No vote finds the correct answer there: of the votes that stop at {self.agree} alike, {mistaken[0]:.0%}"
            " are"
            f" wrong now, {mistaken[1]:.0%} at the start.",
            prescriptions.sort_by_lab_effect(wanted),
        )


def missing_agreement(evidence: Evidence, ends: Ends) -> CannotTell | None:
    """Say why agreement cannot be counted; None where it can."""
    lacking = missing_answers(evidence, _NAME, ends)
    if lacking is None and ends.now.split == "train" and evidence.config.dynamic_sampling:
        return CannotTell(
            _NAME,
            "groups that agree were resampled, so they are not among the rollouts",
            "evaluate on held-out problems",
        )
    return lacking


def agreement_shift(ends: Ends, agree: int, *, right: bool) -> Shift:
    """Return how often so many rollouts agree, at the start and now."""
    return mean_shift(
        agreement_by_group(ends.start, agree, right=right), agreement_by_group(ends.now, agree, right=right)
    )


def agreement_by_group(window: Window, agree: int, *, right: bool) -> tuple[Names, FloatArray]:
    """Return problem and agreement of each group that is large enough.

    Agreement is the probability that so many of its rollouts share one answer, correct or wrong.
    """
    from breadth.measure.diversity import count_answers

    samples = window.samples
    side = samples.correct == 1 if right else samples.correct == 0
    counted = count_answers(samples.groups, np.where(side, window.classes, -1))
    alike, drawn = counted.counts.astype(np.float64), counted.samples.astype(np.float64)
    ways = np.prod([np.maximum(alike - taken, 0) for taken in range(agree)], axis=0)
    enough = drawn >= agree
    every = np.prod([np.where(enough, drawn - taken, 1.0) for taken in range(agree)], axis=0)
    first = np.unique(samples.groups, return_index=True)[1]
    names = np.array(samples.names, dtype=object)[samples.problems[first]]
    return names[enough], (counted.sums(ways) / every)[enough]


def _share(wrong: float, right: float) -> float:
    return wrong / (wrong + right) if wrong + right > 0 else 0.0


def _facts(ends: Ends, wrong: Shift, right: Shift, agree: int) -> tuple[Fact, ...]:
    return (
        Fact(
            f"{agree} agree and are wrong, at the start", wrong.start, "%", f"{ends.where}, {wrong.problems:,} problems"
        ),
        Fact(f"{agree} agree and are wrong, now", wrong.now, "%"),
        Fact("rise", wrong.change, "%"),
        Fact(f"{agree} agree and are correct, at the start", right.start, "%"),
        Fact(f"{agree} agree and are correct, now", right.now, "%"),
    )


FINDING = Overconfidence()
"""The check with its default thresholds."""
