"""``entropy-explosion``: entropy rises while the score does not; the policy becomes random."""

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

    More exploration is no failure while it pays: what counts is a certain rise of entropy with a score that does not
    rise too. A certain doubling is always worth a warning: users see entropy rise first and the run die later
    (verl#2738).
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = (
        "train-inference-mismatch",
        "truncation",
        "no-op-settings",
        "contradictory-settings",
    )
    summary: ClassVar[str] = "entropy rose far above its own start"
    first_step: ClassVar[str] = "remove or cap the entropy bonus; lower the learning rate"

    risen: float = 1.5
    """Factor over the start that it certainly exceeds: the upper end of the band in which our own entropy controller
    holds it."""
    doubled: float = 2.0
    """Factor over the start that is a warning whatever the score does, and critical where it falls: twice the nats
    square the number of choices at every token."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Compare entropy with its start, and with the score."""
        entropy = evidence.trend("entropy")
        if entropy is None:
            return evidence.missing_metric("entropy-explosion", "entropy")
        if entropy.ratio is None:
            return CannotTell(
                "entropy-explosion", "entropy is not clearly above zero at the start, so it cannot be compared with it"
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
            f"Entropy has risen to {entropy.ratio.value:.3g} times its start{describe_score_trend(score)}.",
            _facts(evidence, entropy, score),
            "The score rises again while entropy stays at this level.",
            "" if step is None else f"It has been above {self.risen:g} times its start since step {step:,}.",
            _prescriptions(evidence, step),
        )

    def shows(self, entropy: Trend) -> bool:
        """Say whether a trend of entropy is an explosion."""
        return entropy.verdict == "rising" and entropy.ratio is not None and entropy.ratio.low > self.risen

    def severity(self, entropy: Trend, score: Trend | None) -> Severity:
        """Return how bad it is, by how far entropy rose and what the score does."""
        doubled = entropy.ratio is not None and entropy.ratio.low > self.doubled
        if score is not None and score.verdict == "rising":
            return Severity.WARNING if doubled else Severity.NOTE
        return Severity.CRITICAL if doubled and score is not None and score.verdict == "falling" else Severity.WARNING


def describe_score_trend(score: Trend | None) -> str:
    """Say what the score does meanwhile."""
    if score is None:
        return "; the score is not logged"
    words = {
        "rising": ", and the score rises with it",
        "falling": " while the score falls",
        "flat": " while the score stays flat",
    }
    return words.get(score.verdict, ", and the score shows no rise")


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
    return tuple(remedy for remedy in wanted if remedy is not None)


def has_two_engines(evidence: Evidence) -> bool:
    """Say whether a separate engine samples, or disagrees with the trainer."""
    apart = evidence.trend("mismatch")
    return evidence.config.engine in ("vllm", "sglang") or (apart is not None and apart.verdict == "rising")


FINDING = EntropyExplosion()
"""The check with its default thresholds."""
