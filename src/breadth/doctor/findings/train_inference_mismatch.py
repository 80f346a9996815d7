"""``train-inference-mismatch``: the rollouts were drawn from another policy than the one that they are scored and trained by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from breadth.doctor import prescriptions
from breadth.doctor.evidence.mismatch import (
    Proof,
    ProofAttempt,
    prove_by_entropy,
    prove_by_logprobs,
    prove_by_metric,
    recorded_temperatures,
)
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.rollouts import covers_training, token_logging_hint, training_ends
from breadth.doctor.finding import SEVERITIES, CannotTell, CheckResult, Finding, Loop, Prescription
from breadth.runs.reader import Run

NAME = "train-inference-mismatch"


@dataclass(frozen=True)
class TrainInferenceMismatch:
    """Trainer and sampler disagree about the same tokens.

    Three ways, each enough. By the tokens alone: one drawn from a policy p has E[-log p] = H(p) exactly, so the mean of
    -log p less entropy, with an interval over rollouts, must hold 0; a sure excess says that they were drawn hotter,
    from older weights or by an engine that computes otherwise, a sure lack that they were drawn colder or cut (top-p).
    By both log-probabilities of each token, where they were recorded: their mean difference is the divergence. By the
    trainer's own metric: a divergence beyond the scale of the entropy, or sure growth to several times its start that
    goes on; trainers log it in three units, each turned into the divergence that it proves at least.

    Misleads where rollouts were left out by their outcome (then the tokens are not asked), where entropies are of
    another temperature than log-probabilities (recorded temperatures that would explain it make it a note), and by as
    much as the policy moves between drawing and scoring when a generation is updated on several times.
    """

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ("contradictory-settings",)

    share: float = 0.05
    """Share of the entropy that is beyond doubt: tokens drawn from the policy before show the entropy lost since, and a run that loses
    95 % of its entropy in 60 updates loses 5 % in one (ln 20 / 60). Taken once for every update of a generation."""
    grown: float = 4.0
    """Times its start that a logged difference is above for sure: twice the difference of log-probabilities is four times the
    divergence, and trainers log either."""
    nats: float = 1000.0
    """Entropy that the tokens read must hold: a token of one chance in 20,000 takes 10 nats, so even a policy that is unsure by such rare
    surprises alone has shown a hundred of them, and an interval from resampling can be believed."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Look in all three ways and report the worst of what they prove."""
        if evidence.run is None or not covers_training(evidence):
            return None
        looked = [prove_by_metric(evidence, self.share, self.grown), *self.prove_by_tokens(evidence, evidence.run)]
        proofs = sorted(
            (one for one in looked if isinstance(one, Proof)), key=lambda one: SEVERITIES.index(one.severity)
        )
        if proofs:
            return describe_proofs(evidence, proofs)
        if None in looked or evidence.config.engine == "hf":
            return None
        reasons = dict.fromkeys(one for one in looked if isinstance(one, str))
        return CannotTell(NAME, "; ".join(reasons), evidence.logging_hint("mismatch") or token_logging_hint(evidence))

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
    sign = next((one.sign for one in proofs if one.sign), 0)
    whence = {
        1: ": drawn hotter, from older weights, or by an engine that computes otherwise",
        -1: ": drawn colder, or cut (top-p, top-k)",
    }
    score = evidence.trend("reward")
    return Finding(
        NAME,
        proofs[0].severity,
        proofs[0].confidence,
        "training",
        f"{proofs[0].headline}{whence.get(proofs[0].sign, '')}.",
        tuple(fact for one in proofs for fact in one.facts),
        "The trainer, given the same tokens, weights and temperature as the sampler, finds the same log-probabilities.",
        (
            ""
            if score is None
            else f"Meanwhile the reward went from {score.start.value:.3g} to {score.end.value:.3g} ({score.verdict})."
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
    return tuple(one for one in wanted if one is not None)


FINDING = TrainInferenceMismatch()
"""As the doctor asks it."""
