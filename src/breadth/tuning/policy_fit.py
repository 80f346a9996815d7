"""When the chosen vote may stop early: stop rules replayed over the draws of the sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from breadth.inference.confidence import ConfidenceGate, Gauge, fit_gate
from breadth.inference.records import Candidate
from breadth.inference.stopping.beta_lead import BetaLead
from breadth.inference.stopping.risk import Risk
from breadth.inference.stopping.rule import StopRule
from breadth.inference.stopping.shape_library import ShapeLibrary
from breadth.inference.stored_replay import Figure, replay
from breadth.inference.stored_votes import StoredVotes
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.confidence_vote import ConfidenceVote
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy
from breadth.measure.answers import answer_key
from breadth.measure.curves import one_standard_error_choice
from breadth.measure.intervals import Interval, mean_interval
from breadth.measure.paired_tests import PairedComparison, paired_difference
from breadth.measure.validate import FloatArray
from breadth.tuning.evidence import SweepEvidence

STOP_REPEATS = 50
"""Random orders in which the draws of each question are replayed."""
IN_FLIGHT = 8
"""Draws an adaptive vote keeps in flight at most: its default."""
BETA_THRESHOLDS = (0.8, 0.9, 0.95, 0.99)
"""Thresholds tried of the Beta rule."""
STATED_RISKS = (0.02, 0.05)
"""Stated risks tried of the rule with a library of the questions' answer shapes."""
MIN_LIBRARY_QUESTIONS = 40
"""Questions from which a library is fitted; with fewer, what it does not know counts for too much."""
STOP_FOLDS = 5
"""Parts of the questions: each is replayed with the library of the others."""
FULL_VOTE = "never"
"""Name of the vote that never stops early."""


@dataclass(frozen=True)
class StopOption:
    """A stop rule on the chosen vote."""

    name: str
    """What it is called in the report."""
    strategy: Strategy
    """The vote with this rule."""
    score: Interval
    """Its score over random orders of the draws."""
    draws: Interval
    """Draws started for a question, those cancelled in flight counted whole."""
    tokens: float
    """Tokens those write: each question's draws by what its own samples write, for hard questions take more of both."""
    agreement: Interval
    """How often it answers as the vote over all stored draws does."""
    change: PairedComparison
    """Its score less that of the whole vote."""


@dataclass(frozen=True)
class StopFit:
    """The rule to use, and all that were tried."""

    chosen: StopOption
    """The cheapest within one standard error of the best."""
    tried: tuple[StopOption, ...]
    """All, cheapest first."""


def fit_stop(evidence: SweepEvidence, width: int) -> StopFit:
    """Choose when a vote of ``width`` may stop: the cheapest rule whose score is within one standard error of the best, paired.

    Every rule sees the same draws in the same random orders. Draws still in flight when a vote is decided are charged
    whole. A rule with a library is replayed on questions its library was not fitted to; the one that is kept gets the
    library of all.
    """
    votes = _stored(evidence)
    fitted = int((votes.counts.sum(axis=1) > 0).sum()) >= MIN_LIBRARY_QUESTIONS
    played = _played(votes, width, evidence.plan.seed, fitted=fitted)
    final = _strategies(width, _library(votes) if fitted else ShapeLibrary())
    each = evidence.plain.tokens.mean(axis=1)
    options = sorted(
        (_option(name, final[name], played, width, each) for name in final), key=lambda option: option.tokens
    )
    table = np.column_stack([played[option.name]["accuracy"] for option in options])
    costs = np.array([option.tokens for option in options]) * (1 + 1e-9 * np.arange(len(options)))
    value = one_standard_error_choice(costs, table, replicates=40).budget.value
    return StopFit(options[int(np.argmin(np.abs(costs - value)))], tuple(options))


def _stored(evidence: SweepEvidence) -> StoredVotes:
    plain = evidence.plain
    return StoredVotes.from_classes(
        plain.classes, correct=plain.scores, tokens=plain.tokens, questions=evidence.questions
    )


def _played(votes: StoredVotes, width: int, seed: int, *, fitted: bool) -> dict[str, dict[Figure, FloatArray]]:
    """Return every figure of every rule, one value a question, each fold replayed with what the others know."""
    fold = np.random.default_rng(seed).permutation(len(votes.questions)) % STOP_FOLDS
    together: dict[str, dict[Figure, FloatArray]] = {}
    for part in sorted(set(fold.tolist())):
        library = _library(votes.subset(fold != part)) if fitted else ShapeLibrary()
        outcomes = replay(
            votes.subset(fold == part), _strategies(width, library), repeats=STOP_REPEATS, seed=seed
        ).outcomes
        for name, outcome in outcomes.items():
            for figure, values in outcome.by_question.items():
                column = together.setdefault(name, {}).setdefault(figure, np.zeros(len(fold)))
                column[fold == part] = values
    return together


def _library(votes: StoredVotes) -> ShapeLibrary:
    return ShapeLibrary.fit(votes.counts.tolist())


def _strategies(width: int, library: ShapeLibrary) -> Mapping[str, Strategy]:
    rules: dict[str, StopRule] = {f"Beta lead {threshold:g}": BetaLead(threshold) for threshold in BETA_THRESHOLDS}
    if not library.empty:
        rules |= {f"risk {risk:.0%}": Risk(risk, library, width) for risk in STATED_RISKS}
    flying = min(IN_FLIGHT, width)
    return {FULL_VOTE: Vote(width)} | {name: AdaptiveVote(width, flying, rule) for name, rule in rules.items()}


def _option(
    name: str, strategy: Strategy, played: Mapping[str, Mapping[Figure, FloatArray]], width: int, each: FloatArray
) -> StopOption:
    figures = played[name]
    draws = mean_interval(figures["started"], bounds=(1.0, float(width))) if name != FULL_VOTE else _exactly(width)
    score, agreement = (mean_interval(figures[part], bounds=(0.0, 1.0)) for part in ("accuracy", "agreement"))
    change = paired_difference(figures["accuracy"], played[FULL_VOTE]["accuracy"])
    return StopOption(name, strategy, score, draws, float((figures["started"] * each).mean()), agreement, change)


def _exactly(width: int) -> Interval:
    return Interval(width, width, width, 0.95, "as asked")


CONFIDENCE_REPEATS = 10
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


def fit_confidence(evidence: SweepEvidence, width: int) -> ConfidenceFit | None:
    """Fit the gate, and try the vote by confidence when it is open; None when the sweep asked for no log-probs."""
    plain = evidence.plain
    readable = (plain.classes >= 0) & np.isfinite(plain.confidences)
    whole = (plain.scores == 0) | (plain.scores == 1)  # a tie in the agreement says neither right nor wrong
    counted = readable & whole
    if not counted.any():
        return None
    rows = np.broadcast_to(np.arange(len(plain.classes))[:, None], plain.classes.shape)
    gate = fit_gate(
        plain.confidences[counted],
        plain.scores[counted] == 1,
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


def _change(evidence: SweepEvidence, width: int, gate: ConfidenceGate) -> PairedComparison:
    votes = {"confidence": ConfidenceVote(width, gate=gate), "plain": Vote(width)}
    plain = evidence.plain
    stored, right = {}, {}
    for place, question in enumerate(evidence.questions):
        stored[question] = [_candidate(evidence, place, number) for number in range(plain.classes.shape[1])]
        right[question] = [bool(worth > 0) for worth in plain.scores[place]]
    return replay(stored, votes, correct=right, repeats=CONFIDENCE_REPEATS, seed=evidence.plan.seed).difference(
        "confidence", "plain", "accuracy"
    )


def _candidate(evidence: SweepEvidence, place: int, number: int) -> Candidate:
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
