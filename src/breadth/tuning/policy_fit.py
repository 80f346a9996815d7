"""What the chosen vote needs fitted: a stop rule, replayed over the samples of the sweep, and the confidence gate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from breadth.inference.confidence import ConfidenceGate, Gauge, fit_gate
from breadth.inference.records import Candidate
from breadth.inference.stopping.posterior import BetaLead
from breadth.inference.stopping.risk import Risk
from breadth.inference.stopping.rule import StopRule
from breadth.inference.stopping.shapes import ShapeLibrary
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
"""Random orders in which the samples of each question are replayed."""
IN_FLIGHT = 8
"""Samples an adaptive vote keeps in flight at most: its default."""
BETA_THRESHOLDS = (0.8, 0.9, 0.95, 0.99)
"""Thresholds tried of the Beta rule."""
STATED_RISKS = (0.02, 0.05)
"""Stated risks tried with a library of the questions' answer shapes."""
MIN_LIBRARY_QUESTIONS = 40
"""Fewest questions to fit a library from; with fewer, its prior for unlike questions weighs too much."""
STOP_FOLDS = 5
"""Parts of the questions: each is replayed with the library of the others."""
FULL_VOTE = "never"
"""Name of the vote that never stops early."""


@dataclass(frozen=True)
class StopOption:
    """A stop rule on the chosen vote."""

    name: str
    """Name in the report."""
    strategy: Strategy
    """The vote with this rule."""
    score: Interval
    """Score over random orders of the samples."""
    draws: Interval
    """Samples started for a question, those cancelled in flight counted whole."""
    tokens: float
    """Tokens of those samples, each question at its own mean: hard questions take more of them and longer ones."""
    agreement: Interval
    """How often its answer is that of the vote over all stored samples."""
    change: PairedComparison
    """Score less that of the full vote."""


@dataclass(frozen=True)
class StopFit:
    """The rule to use, and all that were tried."""

    chosen: StopOption
    """The cheapest within one standard error of the best."""
    tried: tuple[StopOption, ...]
    """Every rule tried, cheapest first."""


def fit_stop(evidence: SweepEvidence, width: int) -> StopFit:
    """Choose when a vote of ``width`` may stop: the cheapest rule within one standard error of the best, paired.

    Every rule sees the same samples in the same random orders. Samples still in flight when a vote is decided are
    charged in full. A rule with a library is replayed on questions its library was not fitted to; the one that is kept
    gets the library of all.
    """
    plain = evidence.plain
    votes = StoredVotes.from_classes(
        plain.classes, correct=plain.scores, tokens=plain.tokens, questions=evidence.questions
    )
    fitted = int((votes.counts.sum(axis=1) > 0).sum()) >= MIN_LIBRARY_QUESTIONS
    replayed = replay_folds(votes, width, evidence.plan.seed, fitted=fitted)
    final = candidate_strategies(width, fit_library(votes) if fitted else ShapeLibrary())
    each = plain.tokens.mean(axis=1)
    options = sorted(
        (score_stop_rule(name, final[name], replayed, width, each) for name in final), key=lambda option: option.tokens
    )
    table = np.column_stack([replayed[option.name]["accuracy"] for option in options])
    costs = np.array([option.tokens for option in options]) * (1 + 1e-9 * np.arange(len(options)))
    value = one_standard_error_choice(costs, table, replicates=40).budget.value
    return StopFit(options[int(np.argmin(np.abs(costs - value)))], tuple(options))


def replay_folds(votes: StoredVotes, width: int, seed: int, *, fitted: bool) -> dict[str, dict[Figure, FloatArray]]:
    """Return every figure of every rule per question, each fold replayed with the library of the others."""
    fold = np.random.default_rng(seed).permutation(len(votes.questions)) % STOP_FOLDS
    figures: dict[str, dict[Figure, FloatArray]] = {}
    for part in sorted(set(fold.tolist())):
        library = fit_library(votes.subset(fold != part)) if fitted else ShapeLibrary()
        outcomes = replay(
            votes.subset(fold == part), candidate_strategies(width, library), repeats=STOP_REPEATS, seed=seed
        ).outcomes
        for name, outcome in outcomes.items():
            for figure, values in outcome.by_question.items():
                column = figures.setdefault(name, {}).setdefault(figure, np.zeros(len(fold)))
                column[fold == part] = values
    return figures


def fit_library(votes: StoredVotes) -> ShapeLibrary:
    """Fit the answer shapes of stored votes."""
    return ShapeLibrary.fit(votes.counts.tolist())


def candidate_strategies(width: int, library: ShapeLibrary) -> Mapping[str, Strategy]:
    """Return the vote with every stop rule to try, and without one."""
    rules: dict[str, StopRule] = {f"Beta lead {threshold:g}": BetaLead(threshold) for threshold in BETA_THRESHOLDS}
    if not library.empty:
        rules |= {f"risk {risk:.0%}": Risk(risk, library, width) for risk in STATED_RISKS}
    in_flight = min(IN_FLIGHT, width)
    return {FULL_VOTE: Vote(width)} | {name: AdaptiveVote(width, in_flight, rule) for name, rule in rules.items()}


def score_stop_rule(
    name: str, strategy: Strategy, replayed: Mapping[str, Mapping[Figure, FloatArray]], width: int, each: FloatArray
) -> StopOption:
    """Return one rule with its score, samples and tokens from the replays."""
    figures = replayed[name]
    draws = Interval(width, width, width, 0.95, "as asked")
    if name != FULL_VOTE:
        draws = mean_interval(figures["started"], bounds=(1.0, float(width)))
    score, agreement = (mean_interval(figures[part], bounds=(0.0, 1.0)) for part in ("accuracy", "agreement"))
    change = paired_difference(figures["accuracy"], replayed[FULL_VOTE]["accuracy"])
    return StopOption(name, strategy, score, draws, float((figures["started"] * each).mean()), agreement, change)


CONFIDENCE_REPEATS = 10
"""Random orders in which the samples of each question are replayed."""


@dataclass(frozen=True)
class ConfidenceFit:
    """The confidence gate, and whether a vote by confidence gains."""

    gate: ConfidenceGate
    """Evidence that confidence tells right answers from wrong ones of the same question."""
    strategy: Strategy | None
    """The vote by confidence, where its gain is shown (the interval excludes zero); None to keep the plain vote."""
    change: PairedComparison | None
    """Score of the vote by confidence less that of the plain one; None when the gate is shut or there is no vote."""


def fit_confidence(evidence: SweepEvidence, width: int) -> ConfidenceFit | None:
    """Fit the gate, and try the vote by confidence when it is open; None when the sweep has no log-probs."""
    plain = evidence.plain
    readable = (plain.classes >= 0) & np.isfinite(plain.confidences)
    whole = (plain.scores == 0) | (plain.scores == 1)  # a tie in the agreement is neither right nor wrong
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
    change = compare_confidence_vote(evidence, width, gate)
    # It samples the full width, where the plain vote may stop early: a gain must be shown to be worth that.
    gains = change.difference.low > 0 and math.isfinite(change.difference.low)
    return ConfidenceFit(gate, ConfidenceVote(width, gate=gate) if gains else None, change)


def compare_confidence_vote(evidence: SweepEvidence, width: int, gate: ConfidenceGate) -> PairedComparison:
    """Replay the vote by confidence and the plain one over the same samples; return the paired difference."""
    votes = {"confidence": ConfidenceVote(width, gate=gate), "plain": Vote(width)}
    plain = evidence.plain
    stored, right = {}, {}
    for place, question in enumerate(evidence.questions):
        stored[question] = [rebuild_candidate(evidence, place, number) for number in range(plain.classes.shape[1])]
        right[question] = [bool(score > 0) for score in plain.scores[place]]
    return replay(stored, votes, correct=right, repeats=CONFIDENCE_REPEATS, seed=evidence.plan.seed).difference(
        "confidence", "plain", "accuracy"
    )


def rebuild_candidate(evidence: SweepEvidence, place: int, number: int) -> Candidate:
    """Rebuild a sample as far as a vote reads it: one token with the whole's confidence gives every gauge's value."""
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
