"""``over-thinking``: thinking continues past the point where more of it lowers the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from breadth.doctor.evidence.record import FALSE_ALARM_RATE, SCORE_MARGIN, TUNE_COMMAND, Evidence, is_inference_run
from breadth.doctor.finding import CannotTell, Change, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.doctor.evidence.sweeps import Spending
    from breadth.measure.paired_tests import HumpTest
    from breadth.tuning.evidence import ArmEvidence
    from breadth.tuning.result import TuningResult

_NAME = "over-thinking"


@dataclass(frozen=True)
class OverThinking:
    """The score falls again as thinking grows.

    The largest budget is compared with the best smaller one on the same questions; the best is chosen again in every
    resample, which allows for the luck of being best (sign flips of whole questions). With a policy in use, the largest
    budget is the one that it forces; if it takes one sample as it comes, it is that sample, and the question is whether
    a shorter cap scores more. A policy that votes is not examined here: samples that vary more may vote better. Past
    the optimum, answers vary more while the score falls (arXiv 2506.04210). It misleads where forced words ("Wait") do
    the harm and not the length: budgets that the model fills by itself then show no fall.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ("repetition-loops",)
    summary: ClassVar[str] = "accuracy falls as thinking gets longer"
    first_step: ClassVar[str] = "cap thinking where it is best, or vote with the same tokens"

    false_alarm_rate: float = FALSE_ALARM_RATE
    """Largest p-value of the fall at which it is a warning; ten checks together may alarm one healthy sweep in twenty.
    Above it, up to the 5 % of the test itself, it is a note."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Test the curve up to the thinking of the policy in use."""
        if not is_inference_run(evidence):
            return None
        from breadth.doctor.evidence.sweeps import plain_samples, sweep

        samples, result = plain_samples(evidence, _NAME, needs_answers=False), sweep(evidence)
        if samples is None or isinstance(samples, CannotTell):
            return samples
        if result is None:
            return CannotTell(_NAME, "thinking was not varied in this run", TUNE_COMMAND)
        spent = comparable_spending(evidence, result)
        arms = arms_up_to_use(result, spent)
        if len(arms) < 2:
            if spent is None:
                return CannotTell(_NAME, "fewer than two thinking budgets were measured", f"{TUNE_COMMAND} --budgets")
            votes = spent.budget is None and spent.width > 1
            return None if votes else Excluded(_NAME, "no measured budget is smaller than the one in use")
        test = test_for_fall(arms, result)
        if test.is_positive:
            return self.report(evidence, result, arms, test, spent)
        if not test.can_tell:
            return CannotTell(_NAME, "too few questions differ between the budgets to show a fall", "more questions")
        gain = f"{0.0 - 100 * test.fall.value:+.1f} points against the best smaller one"
        shown = f"the last budget scores {gain} (p = {test.p_value:.2g})"
        if test.fall.value < SCORE_MARGIN:
            return Excluded(_NAME, shown)
        return CannotTell(_NAME, shown, "more questions", undecided=True)

    def report(
        self,
        evidence: Evidence,
        result: TuningResult,
        arms: Sequence[ArmEvidence],
        test: HumpTest,
        spent: Spending | None,
    ) -> Finding:
        """Build the finding."""
        best = test.accuracies.index(max(test.accuracies))
        peak, last = arms[best], arms[-1]
        fall = (
            f"from {test.accuracies[best]:.0%} at {peak.arm.budget or 0:,} thinking tokens to {test.accuracies[-1]:.0%}"
            f" {describe_budget(last)}"
        )
        start = (
            "Thinking past the optimum lowers the score"
            if spent is None
            else "The policy in use thinks past the optimum"
        )
        more = float(last.tokens.mean() - peak.tokens.mean())
        return Finding(
            _NAME,
            Severity.WARNING if test.p_value <= self.false_alarm_rate else Severity.NOTE,
            "strong",
            "inference",
            f"{start}: {result.evidence.score_name} falls {fall}.",
            _facts(result, arms, test),
            f"On new questions thinking {describe_budget(last)} scores at least as much as at"
            f" {peak.arm.budget or 0:,}.",
            f"{more:,.0f} {result.evidence.cost_unit} per question more than at the best budget, for"
            f" {100 * test.fall.value:.1f} points less.",
            _prescriptions(evidence, result, peak, last),
        )


def comparable_spending(evidence: Evidence, result: TuningResult) -> Spending | None:
    """Return what the policy in use spends; None where unknown, or where the sweep samples differently."""
    from breadth.doctor.evidence.sweeps import policy_in_use, policy_spending, sampling_differences

    policy = policy_in_use(evidence)
    if policy is None or (not evidence.is_evaluation and sampling_differences(policy, result.evidence.plan.policy)):
        return None
    return policy_spending(policy, float(result.evidence.plain.tokens.mean()))


def arms_up_to_use(result: TuningResult, spent: Spending | None) -> tuple[ArmEvidence, ...]:
    """Return the arms to compare, the one in use last; the forced ones where no policy is known."""
    serial, plain = result.evidence.serial, result.evidence.plain
    if spent is None:
        return serial
    if spent.budget is not None:
        return tuple(arm for arm in serial if (arm.arm.budget or 0) <= spent.budget)
    natural = float(plain.tokens.mean())
    shorter = [arm for arm in serial if max(arm.arm.budget or 0, float(arm.tokens.mean())) < natural]
    return (*shorter, plain) if spent.width == 1 else ()


def test_for_fall(arms: Sequence[ArmEvidence], result: TuningResult) -> HumpTest:
    """Test whether the score falls from the best smaller budget to the last."""
    import numpy as np

    from breadth.measure.paired_tests import hump_test

    budgets = [float(arm.tokens.mean()) if arm.arm.budget is None else arm.arm.budget for arm in arms]
    return hump_test(
        budgets, np.column_stack([arm.scores.mean(axis=1) for arm in arms]), seed=result.evidence.plan.seed
    )


def describe_budget(arm: ArmEvidence) -> str:
    """Name the thinking of an arm."""
    return (
        f"at {arm.arm.budget:,}"
        if arm.arm.budget is not None
        else f"without a cap, with {arm.tokens.mean():,.0f} tokens"
    )


def _facts(result: TuningResult, arms: Sequence[ArmEvidence], test: HumpTest) -> tuple[Fact, ...]:
    questions = (
        f"{len(result.evidence.questions)} questions, {len(arms)} budgets; each end is a one-sided bound at 95 %"
    )
    facts = [
        Fact("fall from the best smaller budget", test.fall, "%", questions),
        Fact("p", round(test.p_value, 4), "", test.method),
    ]
    return (
        *facts,
        *(
            Fact(arm.arm.name, score, "%", f"{arm.tokens.mean():,.0f} tokens")
            for arm, score in zip(arms, test.accuracies, strict=True)
        ),
    )


def _prescriptions(
    evidence: Evidence, result: TuningResult, peak: ArmEvidence, last: ArmEvidence
) -> tuple[Prescription, ...]:
    pair = next(
        (comparison for comparison in result.equal if comparison.budget == last.arm.budget and comparison.width > 1),
        None,
    )
    vote = (
        None
        if pair is None or pair.difference.difference.low <= 0
        else Prescription(
            f"Spend the same tokens on a vote of {pair.width} samples instead of one long trace",
            f"At {pair.serial_tokens:,.0f} tokens the vote scores {pair.parallel.value:.0%} and the trace"
            f" {pair.serial.value:.0%}.",
            (Change("votes", pair.width),),
            "Needs that many samples in parallel, or that many times the time in sequence.",
            "arXiv 2506.04210; this sweep",
        )
    )
    held = cap_thinking(evidence, peak, last)
    first = vote is not None and pair is not None and pair.parallel.value > float(peak.scores.mean())
    return tuple(remedy for remedy in ((vote, held) if first else (held, vote)) if remedy is not None)


def cap_thinking(evidence: Evidence, peak: ArmEvidence, last: ArmEvidence) -> Prescription | None:
    """Prescribe a thinking budget in a way that the server supports; None where it supports none."""
    server = evidence.server or {}
    ignored = server.get("thinking_cap") == "no"
    if ignored and server.get("prefix") == "no":
        return None
    budget = peak.arm.budget or 0
    why = (
        f"It scored {100 * float(peak.scores.mean() - last.scores.mean()):.1f} points more here than thinking"
        f" {describe_budget(last)}."
    )
    why += (
        " This server ignores caps, so the client cuts the thinking: strategy budget-forcing, minimum = maximum."
        if ignored
        else ""
    )
    effect = (
        "On most servers a cap has no effect under speculative decoding." if server.get("speculative") == "yes" else ""
    )
    return Prescription(
        f"Limit thinking to {budget:,} tokens",
        why,
        (Change("thinking_budget", budget),),
        effect,
        "arXiv 2501.19393; this sweep",
    )


FINDING = OverThinking()
"""The check with its default thresholds."""
