"""``useless-confidence``: how sure a completion is says nothing about whether it is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from breadth.doctor.evidence.record import TUNE_COMMAND, Evidence, is_inference_run
from breadth.doctor.finding import CannotTell, Change, CheckResult, Finding, Loop, Prescription
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.doctor.evidence.sweeps import PlainSamples
    from breadth.inference.confidence import ConfidenceGate

_NAME = "useless-confidence"


@dataclass(frozen=True)
class UselessConfidence:
    """Confidence does not rank right completions above wrong ones of the same question.

    That ranking (AUROC within questions) is all a vote by confidence has to go by. One half is chance. Found when the
    whole 95 % interval lies below 0.6, so that there was enough to see a useful one and none is there; where the
    interval holds both one half and 0.6, it cannot be told. A high AUROC over all completions proves nothing, for easy
    questions make sure completions. A warning where the policy in use weighs by confidence, else a note. Misleads where
    log-probs are processed: then another confidence was judged.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ("processed-logprobs",)

    useful: float = 0.6
    """AUROC that would be of use: keeping the surer half of the completions then lifts the share of right ones from 50 % to 57 % (normal
    scores 0.36 deviations apart); less is not worth the votes thrown away."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Rank the completions of each question by confidence."""
        if not is_inference_run(evidence):
            return None
        import numpy as np

        from breadth.doctor.evidence.sweeps import plain_samples

        drawn, weighs = plain_samples(evidence, _NAME), _weighs(evidence)
        if drawn is None or isinstance(drawn, CannotTell):
            return drawn
        if not np.isfinite(drawn.confidences).any():
            missing = "the policy in use weighs by confidence, and no confidences are there to judge it by"
            return CannotTell(_NAME, missing, f"{TUNE_COMMAND} --logprobs") if weighs else None
        return self.decide(fit_confidence_gate(drawn), drawn, weighs=weighs)

    def decide(self, gate: ConfidenceGate | None, drawn: PlainSamples, *, weighs: bool) -> CheckResult:
        """Return what the fitted gate shows."""
        from breadth.inference.confidence import MIN_GATE_QUESTIONS

        if gate is not None and gate.open:
            return None
        if gate is None or gate.questions < MIN_GATE_QUESTIONS:
            number = 0 if gate is None else gate.questions
            missing = (
                f"{number} questions have right and wrong completions with confidences; {MIN_GATE_QUESTIONS} are needed"
            )
            return CannotTell(_NAME, missing, f"{TUNE_COMMAND} --logprobs, with questions that are sometimes solved")
        if gate.within.high >= self.useful:
            missing = (
                f"AUROC within questions is {gate.within.value:.2f} ({gate.within.low:.2f} to {gate.within.high:.2f}):"
                " useful or not"
            )
            return CannotTell(_NAME, missing, f"{TUNE_COMMAND} --logprobs, with more questions")
        return self.report(gate, drawn, weighs=weighs)

    def report(self, gate: ConfidenceGate, drawn: PlainSamples, *, weighs: bool) -> Finding:
        """Build the finding."""
        against = gate.within.high < 0.5
        told = "is lower where the answer is right" if against else "does not tell right from wrong"
        return Finding(
            _NAME,
            Severity.WARNING if weighs else Severity.NOTE,
            "strong" if drawn.labelled else "likely",
            "inference",
            f"Confidence {told}: of a right and a wrong completion of a question the right one is surer in"
            f" {gate.within.value:.0%}.",
            (
                Fact("AUROC within questions", gate.within, "", f"{gate.questions} questions with both; 0.5 is chance"),
                Fact(
                    "AUROC over all",
                    gate.pooled,
                    "",
                    "high where easy questions make for sure completions; helps no vote",
                ),
                Fact(
                    "completions",
                    gate.completions,
                    "",
                    drawn.where if drawn.labelled else f"{drawn.where}; right is the commonest answer",
                ),
            ),
            f"On new questions the AUROC within questions is above {self.useful:g}.",
            "The vote in use weighs by it." if weighs else "",
            (_plain_vote(weighs=weighs),),
        )


def _weighs(evidence: Evidence) -> bool:
    from breadth.doctor.evidence.sweeps import policy_in_use

    policy = policy_in_use(evidence)
    return policy is not None and "confidences" in policy.strategy.needs


def fit_confidence_gate(drawn: PlainSamples) -> ConfidenceGate | None:
    """Fit the gate to the samples that have a confidence and a grade; None where there are none."""
    import numpy as np

    from breadth.inference.confidence import Gauge, fit_gate

    counted = (drawn.classes >= 0) & np.isfinite(drawn.confidences) & ((drawn.scores == 0) | (drawn.scores == 1))
    owners = np.broadcast_to(np.arange(drawn.num_questions)[:, None], drawn.classes.shape)
    if not counted.any():
        return None
    return fit_gate(
        drawn.confidences[counted],
        drawn.scores[counted] == 1,
        owners[counted],
        gauge=Gauge(),
        evidence="labelled" if drawn.labelled else "self-consistent",
    )


def _plain_vote(*, weighs: bool) -> Prescription:
    return Prescription(
        (
            "Let completions vote alike, whatever their confidence"
            if weighs
            else "Do not weigh votes by confidence on this model"
        ),
        "A weight that does not follow being right only throws votes away.",
        (Change("vote_confidence", False),),
        "Log-probs need then not be asked for, which saves time on most servers.",
        "deepconf#11; breadth's confidence gate",
    )


FINDING = UselessConfidence()
"""As the doctor asks it."""
