"""Whether the model's confidence may be used in the chosen vote: the gate, and the vote by confidence beside the plain one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from breadth.inference.confidence import ConfidenceGate, Gauge, fit_gate
from breadth.inference.records import Candidate
from breadth.inference.replay import replay
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy
from breadth.measure.answers import answer_key
from breadth.measure.paired_tests import PairedComparison
from breadth.tuning.evidence import Evidence

REPEATS = 10
"""Random orders in which the samples of each question are replayed."""


@dataclass(frozen=True)
class ConfidenceFit:
    """What the sweep says about confidence."""

    gate: ConfidenceGate
    """Whether it tells right answers from wrong ones of the same question."""
    strategy: Strategy | None
    """The vote by confidence, where its gain is shown (the interval leaves out zero); None to keep the plain vote."""
    change: PairedComparison | None
    """Score of the vote by confidence less that of the plain one; None when the gate is shut or there is no vote."""


def fit_confidence(evidence: Evidence, width: int) -> ConfidenceFit | None:
    """Fit the gate, and try the vote by confidence when it is open; None when the sweep asked for no log-probs."""
    plain = evidence.plain
    readable = (plain.classes >= 0) & np.isfinite(plain.confidences)
    whole = (plain.worth == 0) | (plain.worth == 1)  # a tie in the agreement says neither right nor wrong
    counted = readable & whole
    if not counted.any():
        return None
    rows = np.broadcast_to(np.arange(len(plain.classes))[:, None], plain.classes.shape)
    gate = fit_gate(
        plain.confidences[counted],
        plain.worth[counted] == 1,
        rows[counted],
        gauge=Gauge(),
        evidence="labelled" if evidence.labelled else "self-consistent",
        model=evidence.plan.policy.model,
    )
    if not gate.open or width < 2:
        return ConfidenceFit(gate, None, None)
    change = _change(evidence, width, gate)
    # It draws the whole width, where the plain vote may stop early: a gain must be shown to be worth that.
    gains = change.difference.low > 0 and math.isfinite(change.difference.low)
    return ConfidenceFit(gate, ConfidenceVote(width, gate=gate) if gains else None, change)


def _change(evidence: Evidence, width: int, gate: ConfidenceGate) -> PairedComparison:
    votes = {"confidence": ConfidenceVote(width, gate=gate), "plain": Vote(width)}
    plain = evidence.plain
    stored, right = {}, {}
    for place, question in enumerate(evidence.questions):
        stored[question] = [_candidate(evidence, place, number) for number in range(plain.classes.shape[1])]
        right[question] = [bool(worth > 0) for worth in plain.worth[place]]
    return replay(stored, votes, correct=right, repeats=REPEATS, seed=evidence.plan.seed).difference(
        "confidence", "plain", "accuracy"
    )


def _candidate(evidence: Evidence, place: int, number: int) -> Candidate:
    """Rebuild a sample as far as a vote looks at it: one token that is as sure as the whole was has every statistic of the gauge."""
    plain = evidence.plain
    answer, confidence = plain.answers[place][number], plain.confidences[place, number]
    sure = None if np.isnan(confidence) else np.array([confidence], dtype=np.float32)
    return Candidate(
        "",
        answer,
        answer_key(answer),
        tokens=int(plain.tokens[place, number]),
        confidences=sure,
        model=evidence.plan.policy.model,
    )
