"""``train-inference-mismatch``: the rollouts come from a different policy than the one that is trained on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.mismatch import (
    Proof,
    ProofAttempt,
    divergence_over_entropy,
    growth,
    prove_by_entropy,
    prove_by_logprobs,
    prove_by_metric,
    recorded_temperatures,
)
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.rollouts import covers_training, token_logging_hint, training_ends
from breadth.doctor.finding import FINDING_SEVERITIES, CannotTell, CheckResult, Excluded, Finding, Loop, Prescription
from breadth.runs.reader import Run

_NAME = "train-inference-mismatch"


@dataclass(frozen=True)
class TrainInferenceMismatch:
    """Trainer and sampler disagree about the same tokens.

    Three proofs, each enough. By the tokens alone: a token sampled from a policy p has E[-log p] = H(p) exactly, so the
    mean of -log p minus entropy, with an interval over rollouts, must contain 0. A certain excess means sampling at a
    higher temperature, from older weights or by an engine that computes differently; a certain deficit means a lower
    temperature or truncated sampling (top-p). By both log-probabilities of each token, where recorded: their mean
    difference is the divergence. By the trainer's own metric: a divergence beyond the scale of the entropy, or certain
    growth to several times its start that continues. Trainers log it in three units; each is converted to the
    divergence that it proves at least.

    It misleads where rollouts were dropped by outcome (tokens are then not used), where entropies have another
    temperature than log-probabilities (recorded temperatures that would explain it make it a note), and by as much as
    the policy moves between sampling and scoring when a generation gets several updates.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("contradictory-settings",)
    summary: ClassVar[str] = "trainer and sampler disagree about the same tokens"
    first_step: ClassVar[str] = "use the same temperature and weights; correct by importance weights"

    share: float = 0.05
    """Share of the entropy beyond which it is proven: tokens from the previous policy show the entropy lost since, and
    a run that loses 95 % of its entropy in 60 updates loses 5 % in one (ln 20 / 60). Multiplied by the updates per
    generation."""
    grown: float = 4.0
    """Factor over its start that a logged difference certainly exceeds: twice the difference of log-probabilities is
    four times the divergence, and trainers log either."""
    nats: float = 1000.0
    """Entropy that the tokens read must hold: a token of probability 1 in 20,000 has 10 nats, so even a policy with
    only such rare surprises has shown a hundred of them, and a resampled interval is reliable."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Try all three proofs and report the worst."""
        if evidence.run is None or not covers_training(evidence):
            return None
        attempts = [prove_by_metric(evidence, self.share, self.grown), *self.prove_by_tokens(evidence, evidence.run)]
        proofs = sorted(
            (attempt for attempt in attempts if isinstance(attempt, Proof)),
            key=lambda attempt: FINDING_SEVERITIES.index(attempt.severity),
        )
        if proofs:
            return describe_proofs(evidence, proofs)
        if None in attempts:
            return self.exclude(evidence, attempts)
        if evidence.config.engine == "hf":
            return Excluded(_NAME, "the trainer samples with its own weights, in one engine")
        reasons = dict.fromkeys(attempt for attempt in attempts if isinstance(attempt, str))
        return CannotTell(_NAME, "; ".join(reasons), evidence.how_to_log("mismatch") or token_logging_hint(evidence))

    def exclude(self, evidence: Evidence, attempts: list[ProofAttempt]) -> Excluded | CannotTell:
        """Return the number that shows no difference, by the logged metric first."""
        found, series = evidence.trend("mismatch"), evidence.series("mismatch")
        if attempts[0] is not None or found is None or series is None:
            allowed = self.share * max(1.0, evidence.config.updates or 1.0)
            return Excluded(_NAME, f"the tokens show no divergence above {allowed:.0%} of the entropy")
        shown = f"{evidence.logged_name('mismatch')} is {found.end.value:.2g}, {found.start.value:.2g} at the start"
        proven, grown = divergence_over_entropy(evidence, found), growth(series)
        is_far = proven is not None and proven.value > self.share
        if is_far or (grown is not None and grown.times.value > self.grown and grown.continues):
            return CannotTell(_NAME, f"{shown}; its noise leaves a mismatch open", "train longer", undecided=True)
        return Excluded(_NAME, shown)

    def prove_by_tokens(self, evidence: Evidence, run: Run) -> tuple[ProofAttempt, ...]:
        """Try the two proofs that need numbers of every token."""
        ends = training_ends(evidence)
        if ends is None or not {"logprobs", "old_logprobs"} & run.columns:
            return ("log-probabilities of the tokens are not recorded",)
        allowed = self.share * max(1.0, evidence.config.updates or 1.0)
        return prove_by_entropy(evidence, run, ends, allowed, self.nats), prove_by_logprobs(
            evidence, run, ends, allowed
        )


def describe_proofs(evidence: Evidence, proofs: list[Proof]) -> Finding:
    """Build the finding from all proofs, the worst first."""
    sign = next((proof.sign for proof in proofs if proof.sign), 0)
    whence = {
        1: ": sampled hotter, from older weights, or by an engine that computes differently",
        -1: ": sampled colder, or truncated (top-p, top-k)",
    }
    score = evidence.trend("reward")
    return Finding(
        _NAME,
        proofs[0].severity,
        proofs[0].confidence,
        "training",
        f"{proofs[0].headline}{whence.get(proofs[0].sign, '')}.",
        tuple(fact for proof in proofs for fact in proof.facts),
        "The trainer, given the same tokens, weights and temperature as the sampler, computes the same"
        " log-probabilities.",
        (
            ""
            if score is None
            else f"Over the same steps the reward went from {score.start.value:.3g} to {score.end.value:.3g}"
            f" ({score.verdict})."
        ),
        _prescriptions(evidence, sign),
    )


def _prescriptions(evidence: Evidence, sign: int) -> tuple[Prescription, ...]:
    known, two_engines = recorded_temperatures(evidence), evidence.config.engine != "hf"
    wanted = [
        prescriptions.match_temperature(*known) if known is not None and known[0] != known[1] else None,
        prescriptions.sample_full_distribution(evidence) if sign < 0 else None,
        prescriptions.correct_mismatch(evidence) if two_engines else None,
        prescriptions.match_precision() if two_engines else None,
        prescriptions.reduce_updates(evidence),
    ]
    return tuple(remedy for remedy in wanted if remedy is not None)


FINDING = TrainInferenceMismatch()
"""The check with its default thresholds."""
