"""``entropy-explosion``: entropy rises while the score does not; the policy is becoming random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, CheckResult, Finding, Loop, Prescription
from breadth.measure.trends import Trend
from breadth.report.sections import Fact, Severity


@dataclass(frozen=True)
class EntropyExplosion:
    """Entropy has risen far above its own start.

    Exploring more is no failure while it pays: what counts is a sure rise beside a score that does not rise with it. A
    sure doubling is worth a warning in any case: users see entropy rise first and the run die later (verl#2738).
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = (
        "train-inference-mismatch",
        "truncation",
        "no-op-settings",
        "contradictory-settings",
    )

    risen: float = 1.5
    """Times the start that it is above for sure: where the band ends that our own thermostat holds entropy in."""
    doubled: float = 2.0
    """Times the start that is a warning whatever the score does, and critical where it falls: twice the nats square the number of choices
    at every token."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare entropy with its start, and look at the score beside it."""
        entropy = evidence.trend("entropy")
        if entropy is None:
            return evidence.missing_metric("entropy-explosion", "entropy")
        if entropy.ratio is None:
            return CannotTell(
                "entropy-explosion", "entropy is not clearly above zero at the start: it cannot be compared with it"
            )
        if not self.shows(entropy):
            return None
        score = evidence.trend("reward")
        step = evidence.first_step_past("entropy", self.risen * entropy.start.value, below=False)
        return Finding(
            "entropy-explosion",
            self.severity(entropy, score),
            "likely" if score is None else "strong",
            "training",
            f"Entropy has risen to {entropy.ratio.value:.3g} times its start{_beside(score)}.",
            _facts(evidence, entropy, score),
            "The score rises again while entropy stays where it is.",
            "" if step is None else f"It has been above {self.risen:g} times its start since step {step:,}.",
            _prescriptions(evidence, step),
        )

    def shows(self, entropy: Trend) -> bool:
        """Say whether a series of entropies has exploded."""
        return entropy.verdict == "rising" and entropy.ratio is not None and entropy.ratio.low > self.risen

    def severity(self, entropy: Trend, score: Trend | None) -> Severity:
        """Return how bad it is, by how far entropy rose and what the score does."""
        doubled = entropy.ratio is not None and entropy.ratio.low > self.doubled
        if score is not None and score.verdict == "rising":
            return Severity.WARNING if doubled else Severity.NOTE
        return Severity.CRITICAL if doubled and score is not None and score.verdict == "falling" else Severity.WARNING


def _beside(score: Trend | None) -> str:
    if score is None:
        return "; whether the score follows is not logged"
    words = {
        "rising": ", and the score rises with it",
        "falling": " while the score falls",
        "flat": " while the score stays where it was",
    }
    return words.get(score.verdict, " and no rise of the score is shown")


def _facts(evidence: Evidence, entropy: Trend, score: Trend | None) -> tuple[Fact, ...]:
    facts = [
        Fact(
            "entropy at the start",
            entropy.start,
            "nats",
            f"{evidence.describe_steps('entropy')}: median of the first eighth",
        ),
        Fact("entropy now", entropy.end, "nats", "median of the last eighth"),
    ]
    if entropy.ratio is not None:
        facts.append(Fact("times the start", entropy.ratio))
    if score is not None:
        facts.append(Fact("reward", f"{score.start.value:.3g} to {score.end.value:.3g}", "", score.verdict))
    return tuple(facts)


def _prescriptions(evidence: Evidence, step: int | None) -> tuple[Prescription, ...]:
    cut = evidence.trend("truncated")
    wanted = [
        prescriptions.lower_entropy_bonus(evidence),
        prescriptions.lower_upper_clip(evidence),
        prescriptions.mask_truncated(evidence) if cut is not None and cut.verdict == "rising" else None,
        prescriptions.correct_mismatch(evidence) if has_two_engines(evidence) else None,
        prescriptions.lower_learning_rate(evidence),
        None if step is None else prescriptions.resume_from_checkpoint(step),
    ]
    return tuple(one for one in wanted if one is not None)


def has_two_engines(evidence: Evidence) -> bool:
    """Say whether a sampler of its own draws, or is seen to disagree with the trainer."""
    apart = evidence.trend("mismatch")
    return evidence.config.engine in ("vllm", "sglang") or (apart is not None and apart.verdict == "rising")


FINDING = EntropyExplosion()
"""As the doctor asks it."""
