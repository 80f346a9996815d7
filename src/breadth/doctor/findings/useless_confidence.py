"""``useless-confidence``: the confidence of a completion does not show whether it is correct."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from breadth.doctor.evidence.record import TUNE_COMMAND, Evidence, is_inference_run
from breadth.doctor.finding import CannotTell, Change, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.doctor.evidence.sweeps import PlainSamples
    from breadth.inference.confidence import ConfidenceGate

_NAME = "useless-confidence"


@dataclass(frozen=True)
class UselessConfidence:
    """Confidence does not rank correct completions above wrong ones of the same question.

    That ranking (AUROC within questions) is all that a vote by confidence can use. One half is chance. Reported when
    the whole 95 % interval lies below 0.6: there was enough data to see a useful confidence, and there is none. Where
    the interval holds both one half and 0.6, the doctor cannot tell. A high AUROC over all completions proves nothing:
    easy questions make confident completions. A warning where the policy in use weights by confidence, else a note. It
    misleads where log-probs are processed: then a different confidence was measured.
    """

    loop: ClassVar[Loop] = "inference"
    causes: ClassVar[tuple[str, ...]] = ("processed-logprobs",)
    summary: ClassVar[str] = "confidence does not rank right above wrong"
    first_step: ClassVar[str] = "do not weigh votes by it"

    useful: float = 0.6
    """AUROC that would be useful: keeping the more confident half of the completions then lifts accuracy from 50 % to
    57 % (normal scores 0.36 deviations apart); less is not worth the votes thrown away."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Rank the completions of each question by confidence."""
        if not is_inference_run(evidence):
            return None
        import numpy as np

        from breadth.doctor.evidence.sweeps import plain_samples

        samples, weighs = plain_samples(evidence, _NAME), _weighs(evidence)
        if samples is None or isinstance(samples, CannotTell):
            return samples
        if not np.isfinite(samples.confidences).any():
            missing = "the policy in use weights by confidence, and no confidences are recorded"
            return CannotTell(_NAME, missing, f"{TUNE_COMMAND} --logprobs") if weighs else None
        return self.decide(fit_confidence_gate(samples), samples, weighs=weighs)

    def decide(self, gate: ConfidenceGate | None, samples: PlainSamples, *, weighs: bool) -> CheckResult:
        """Return what the fitted gate shows."""
        from breadth.inference.confidence import MIN_GATE_QUESTIONS

        if gate is not None and gate.open:
            return Excluded(_NAME, f"AUROC within questions is {gate.within.value:.2f}")
        if gate is None or gate.questions < MIN_GATE_QUESTIONS:
            number = 0 if gate is None else gate.questions
            missing = (
                f"{number} questions have correct and wrong completions with confidences; {MIN_GATE_QUESTIONS} are"
                " needed"
            )
            return CannotTell(_NAME, missing, f"{TUNE_COMMAND} --logprobs, with questions that are sometimes solved")
        if gate.within.high >= self.useful:
            missing = (
                f"AUROC within questions is {gate.within.value:.2f} ({gate.within.low:.2f} to {gate.within.high:.2f}):"
                " useful or not"
            )
            return CannotTell(_NAME, missing, f"{TUNE_COMMAND} --logprobs, with more questions", undecided=True)
        return self.report(gate, samples, weighs=weighs)

    def report(self, gate: ConfidenceGate, samples: PlainSamples, *, weighs: bool) -> Finding:
        """Build the finding."""
        against = gate.within.high < 0.5
        relation = "is lower where the answer is correct" if against else "does not separate correct from wrong"
        return Finding(
            _NAME,
            Severity.WARNING if weighs else Severity.NOTE,
            "strong" if samples.labelled else "likely",
            "inference",
            f"Confidence {relation}: of a correct and a wrong completion of a question, the correct one is more"
            " confident in"
            f" {gate.within.value:.0%}.",
            (
                Fact("AUROC within questions", gate.within, "", f"{gate.questions} questions with both; 0.5 is chance"),
                Fact(
                    "AUROC over all",
                    gate.pooled,
                    "",
                    "high where easy questions make confident completions; helps no vote",
                ),
                Fact(
                    "completions",
                    gate.completions,
                    "",
                    samples.where if samples.labelled else f"{samples.where}; the most common answer counts as correct",
                ),
            ),
            f"On new questions the AUROC within questions is above {self.useful:g}.",
            "The vote in use weights by it." if weighs else "",
            (_plain_vote(weighs=weighs),),
        )


def _weighs(evidence: Evidence) -> bool:
    from breadth.doctor.evidence.sweeps import policy_in_use

    policy = policy_in_use(evidence)
    return policy is not None and "confidences" in policy.strategy.needs


def fit_confidence_gate(samples: PlainSamples) -> ConfidenceGate | None:
    """Fit the gate to the samples that have a confidence and a grade; None where there are none."""
    import numpy as np

    from breadth.inference.confidence import Gauge, fit_gate

    counted = (
        (samples.classes >= 0) & np.isfinite(samples.confidences) & ((samples.scores == 0) | (samples.scores == 1))
    )
    owners = np.broadcast_to(np.arange(samples.num_questions)[:, None], samples.classes.shape)
    if not counted.any():
        return None
    return fit_gate(
        samples.confidences[counted],
        samples.scores[counted] == 1,
        owners[counted],
        gauge=Gauge(),
        evidence="labelled" if samples.labelled else "self-consistent",
    )


def _plain_vote(*, weighs: bool) -> Prescription:
    return Prescription(
        (
            "Give every completion the same vote, whatever its confidence"
            if weighs
            else "Do not weight votes by confidence on this model"
        ),
        "A weight that does not follow correctness only throws votes away.",
        (Change("vote_confidence", False),),
        "Log-probs are then not needed, which saves time on most servers.",
        "deepconf#11; breadth's confidence gate",
    )


FINDING = UselessConfidence()
"""The check with its default thresholds."""
