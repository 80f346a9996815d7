"""``over-thinking``: thinking goes on past the point where more of it costs score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from breadth.doctor.evidence.record import FALSE_ALARM_RATE, TUNE_COMMAND, Evidence, is_inference_run
from breadth.doctor.finding import CannotTell, Change, CheckResult, Finding, Loop, Prescription
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

    The largest budget is compared with the best smaller one on the same questions; the best is chosen anew in every
    resample, so that the luck of being best is allowed for (sign flips of whole questions). Where a policy is in use,
    the largest budget is the one that it forces, and where it takes one draw as it comes, that draw: then what counts
    is whether cutting it earlier scores more. A policy that votes is not judged here, for draws that vary more may vote
    better. Past the optimum answers vary more and more while the score falls (arXiv 2506.04210). Misleads where forced
    words ("Wait") are what harms, and not the length: then the budgets that the model fills by itself show no fall.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ("repetition-loops",)

    false_alarm_rate: float = FALSE_ALARM_RATE
    """Chance of such a fall without any from which down it is a warning; ten checks share the one healthy sweep in twenty that may be
    alarmed. Above it, up to the 5 % of the test itself, it is a note."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Test the curve up to what the policy in use thinks."""
        if not is_inference_run(evidence):
            return None
        from breadth.doctor.evidence.sweeps import plain_samples, sweep

        drawn, judged = plain_samples(evidence, _NAME), sweep(evidence)
        if drawn is None or isinstance(drawn, CannotTell):
            return drawn
        if judged is None:
            return CannotTell(_NAME, "thinking was not varied in this run", TUNE_COMMAND)
        spent = comparable_spending(evidence, judged)
        arms = arms_up_to_use(judged, spent)
        if len(arms) < 2:
            return (
                CannotTell(_NAME, "fewer than two thinking budgets were measured", f"{TUNE_COMMAND} --budgets")
                if spent is None
                else None
            )
        test = _tested(arms, judged)
        if test.is_positive:
            return self.report(evidence, judged, arms, test, spent)
        return (
            None
            if test.can_tell
            else CannotTell(_NAME, "too few questions differ between the budgets to see a fall", "more questions")
        )

    def report(
        self,
        evidence: Evidence,
        judged: TuningResult,
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
        start = "Thinking past the optimum harms" if spent is None else "The policy in use thinks past the optimum"
        more = float(last.tokens.mean() - peak.tokens.mean())
        return Finding(
            _NAME,
            Severity.WARNING if test.p_value <= self.false_alarm_rate else Severity.NOTE,
            "strong",
            "inference",
            f"{start}: {judged.evidence.score_name} falls {fall}.",
            _facts(judged, arms, test),
            f"On new questions thinking {describe_budget(last)} scores at least as much as at {peak.arm.budget or 0:,}.",
            f"{more:,.0f} tokens a question more than at the best budget, for {100 * test.fall.value:.1f} points less.",
            _prescriptions(evidence, judged, peak, last),
        )


def comparable_spending(evidence: Evidence, judged: TuningResult) -> Spending | None:
    """Return what the policy in use pays for; None where that is not known, or it draws otherwise than the sweep."""
    from breadth.doctor.evidence.sweeps import policy_in_use, policy_spending, sampling_differences

    policy = policy_in_use(evidence)
    if policy is None or sampling_differences(policy, judged.evidence.plan.policy):
        return None
    return policy_spending(policy, float(judged.evidence.plain.tokens.mean()))


def arms_up_to_use(judged: TuningResult, spent: Spending | None) -> tuple[ArmEvidence, ...]:
    """Return the arms to compare, what is in use last; the forced ones where nothing is known to be."""
    serial, plain = judged.evidence.serial, judged.evidence.plain
    if spent is None:
        return serial
    if spent.budget is not None:
        return tuple(arm for arm in serial if (arm.arm.budget or 0) <= spent.budget)
    natural = float(plain.tokens.mean())
    shorter = [arm for arm in serial if max(arm.arm.budget or 0, float(arm.tokens.mean())) < natural]
    return (*shorter, plain) if spent.width == 1 else ()


def _tested(arms: Sequence[ArmEvidence], judged: TuningResult) -> HumpTest:
    import numpy as np

    from breadth.measure.paired_tests import hump_test

    budgets = [float(arm.tokens.mean()) if arm.arm.budget is None else arm.arm.budget for arm in arms]
    return hump_test(
        budgets, np.column_stack([arm.scores.mean(axis=1) for arm in arms]), seed=judged.evidence.plan.seed
    )


def describe_budget(arm: ArmEvidence) -> str:
    """Name the thinking of an arm."""
    return (
        f"at {arm.arm.budget:,}" if arm.arm.budget is not None else f"as it comes, with {arm.tokens.mean():,.0f} tokens"
    )


def _facts(judged: TuningResult, arms: Sequence[ArmEvidence], test: HumpTest) -> tuple[Fact, ...]:
    questions = (
        f"{len(judged.evidence.questions)} questions, {len(arms)} budgets; each end is a one-sided bound at 95 %"
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
    evidence: Evidence, judged: TuningResult, peak: ArmEvidence, last: ArmEvidence
) -> tuple[Prescription, ...]:
    pair = next((one for one in judged.equal if one.budget == last.arm.budget and one.width > 1), None)
    vote = (
        None
        if pair is None or pair.difference.difference.low <= 0
        else Prescription(
            f"Spend the same tokens on a vote of {pair.width} draws in the place of one long trace",
            f"At {pair.serial_tokens:,.0f} tokens the vote scores {pair.parallel.value:.0%} and the trace"
            f" {pair.serial.value:.0%}.",
            (Change("votes", pair.width),),
            "Needs that many draws side by side, or that many times as long one after the other.",
            "arXiv 2506.04210; this sweep",
        )
    )
    held = cap_thinking(evidence, peak, last)
    first = vote is not None and pair is not None and pair.parallel.value > float(peak.scores.mean())
    return tuple(one for one in ((vote, held) if first else (held, vote)) if one is not None)


def cap_thinking(evidence: Evidence, peak: ArmEvidence, last: ArmEvidence) -> Prescription | None:
    """Hold thinking to a budget, by whatever way the server leaves; None where it leaves none."""
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
        " This server does not keep to a cap, so it is cut from outside: strategy budget-forcing, minimum = maximum."
        if ignored
        else ""
    )
    effect = (
        "A cap does not act under speculative decoding on most servers." if server.get("speculative") == "yes" else ""
    )
    return Prescription(
        f"Hold thinking to {budget:,} tokens",
        why,
        (Change("thinking_budget", budget),),
        effect,
        "arXiv 2501.19393; this sweep",
    )


FINDING = OverThinking()
"""As the doctor asks it."""
