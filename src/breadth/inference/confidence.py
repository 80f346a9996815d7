"""How sure a completion was, from the log-probs of its tokens, and the gate: it counts only where it tells right from wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from breadth.base.checks import require
from breadth.base.errors import MeasureError
from breadth.inference.records import Candidate, Sampling
from breadth.inference.voting import Poll, majority
from breadth.measure.calibration import auroc
from breadth.measure.intervals import Interval, resample
from breadth.measure.validate import BoolArray, FloatArray, as_booleans, as_finite, as_floats, check_same_length

CONFIDENCE_MEASURES = ("lowest", "bottom", "tail", "mean")
LOGPROB_FLOOR = -50.0
"""Log-probs below this are clipped to it.

Servers send masked tokens as minus infinity, as -9999 or as the least float there is; a raw
log-prob among the first 20 hardly falls this low, and one token must not outweigh the other thousands of a window."""
_BOTTOM = 0.1


@dataclass(frozen=True)
class Gauge:
    """How the confidence of a whole completion is read from its tokens.

    With C the confidence of a token (see `token_confidence`) and G the mean of C over each ``window`` tokens in a row,
    overlapping: lowest = the least G; bottom = the mean of the lowest tenth of all G, at least one; tail = the mean of
    C over the last ``window`` tokens; mean = the mean of C over all tokens. A completion shorter than the window has
    one G, its mean (arXiv 2508.15260).

    Window and 20 log-probs are the paper's. Lowest is the default because it is what a running completion can be halted
    by, so that one gate serves both strategies; in the paper's averages it is within 0.2 points of the best (84.4 to
    84.6, the mean 83.9). Harm: at its default window all four are the plain mean for completions under 2,048 tokens.
    """

    measure: Literal["lowest", "bottom", "tail", "mean"] = "lowest"
    """Which of the four."""
    window: int = 2048
    """Tokens of a group, and of the tail."""
    top_logprobs: int = 20
    """Log-probs at each token that its confidence averages."""

    def __post_init__(self) -> None:
        require(self, "measure", self.measure in CONFIDENCE_MEASURES, "one of " + ", ".join(CONFIDENCE_MEASURES))
        require(self, "window", self.window >= 1, "at least one token")
        require(self, "top_logprobs", self.top_logprobs >= 1, "at least one log-prob; 20 is usual")

    def confidence_of(self, candidate: Candidate) -> float:
        """Return the confidence of a candidate; NaN when none of its tokens has one.

        Tokens without one are passed over.
        """
        if candidate.confidences is None:
            return math.nan
        known = _known(candidate.confidences)
        # Rounded, so that completions that were just as sure stay equal whatever their length.
        return round(self._summary(known), 9) if known.size else math.nan

    def with_logprobs(self, sampling: Sampling) -> Sampling:
        """Return a way to draw that brings the log-probs it needs."""
        return replace(sampling, top_logprobs=self.top_logprobs)

    def _summary(self, known: FloatArray) -> float:
        if self.measure in ("mean", "tail"):
            return float(known.mean() if self.measure == "mean" else known[-self.window :].mean())
        groups = group_confidences(known, self.window)
        lowest = 1 if self.measure == "lowest" else max(1, int(len(groups) * _BOTTOM))
        return float(np.partition(groups, lowest - 1)[:lowest].mean())


def token_confidence(top_logprobs: Sequence[float], k: int) -> tuple[float, bool]:
    """Return minus the mean of the k largest log-probs at a token, and whether any was clipped; high where the model is sure.

    Only the k largest count, for some servers add the sampled token when it is not among them. Log-probs below -50, and
    those missing from a list shorter than k, are taken for masked tokens and count as -50: left out, a distribution cut
    down to one token would look like the least sure of all. Clipping says that the server sends processed log-probs or
    fewer than k; give what it really sends as ``k``. NaN for an empty list.
    """
    known = [value for value in top_logprobs if value == value]
    if not known or k < 1:
        return math.nan, False
    largest = sorted(known, reverse=True)[:k]
    clipped = len(largest) < k or largest[-1] < LOGPROB_FLOOR
    if clipped:
        largest = [max(value, LOGPROB_FLOOR) for value in largest] + [LOGPROB_FLOOR] * (k - len(largest))
    return -math.fsum(largest) / k, clipped


def group_confidences(confidences: npt.ArrayLike, window: int) -> FloatArray:
    """Return the mean over each ``window`` tokens in a row, from the first full window to the last; one group when there are fewer.

    Tokens without a confidence (NaN, infinite) are passed over. Computed from running sums, in time linear in the
    tokens.
    """
    if window < 1:
        raise MeasureError(f"A window of {window} tokens.", "Use at least one token; 2048 is DeepConf's.")
    known = _known(confidences)
    if not known.size:
        return known
    size = min(window, len(known))
    # Sums of differences from the mean stay small, so nothing is lost over long completions.
    middle = known.mean()
    sums = np.concatenate([[0.0], np.cumsum(known - middle)])
    return np.asarray(middle + (sums[size:] - sums[:-size]) / size)


def keep_threshold(scores: npt.ArrayLike, keep: float) -> float:
    """Return the score that the best ``keep`` share of scores reach: their percentile 100 (1 - keep), linearly interpolated.

    This is DeepConf's formula and public code; its text also calls it the least score of the best traces, which is a
    little higher (of 5, 6, ..., 14 the best nine tenths begin at 6, the percentile is 5.9).
    """
    # Rounded, for 1 - 0.7 is a hair over 0.3 and would leave out a score that lies on the threshold.
    return float(np.percentile(as_finite(scores, "scores"), round(100 * (1 - keep), 9)))


def borda_weights(scores: npt.ArrayLike, power: float = 0.5) -> FloatArray:
    """Return the weight of each score by its rank: (N - rank) ** power with ranks from 0; equal scores share the mean of their weights.

    Voting by rank leaves only the order of a confidence to trust, not its scale (arXiv 2502.18581; its code's power is
    0.5). Power 0 is the plain vote; a large one lets the best score decide.
    """
    values = as_finite(scores, "scores")
    if power < 0:
        raise MeasureError(f"The power of rank weights is {power}.", "Use 0 (plain vote) or more; 0.5 is usual.")
    by_rank = np.arange(1, len(values) + 1, dtype=np.float64) ** power
    _, level, counts = np.unique(values, return_inverse=True, return_counts=True)
    totals = np.bincount(np.sort(level), weights=by_rank)
    return np.asarray((totals / counts)[level])


def self_certainty(logprobs: npt.ArrayLike) -> float:
    """Return how far the next-token distributions are from uniform: mean KL(uniform || p) over the rows of a tokens x vocabulary matrix.

    -(1 / nV) sum ln(V p), 0 for uniform, larger = surer (arXiv 2502.18581). It takes every token of the vocabulary:
    from a server's top 20 it cannot be had, and cutting the sum there gives DeepConf's statistic instead. Log-probs
    below -50 count as -50.
    """
    table = as_floats(logprobs, "logprobs")
    if table.ndim != 2 or not table.size or np.isnan(table).any():
        raise MeasureError(
            f"Log-probs of shape {table.shape}, or NaN among them.",
            "Give one row a token, one column a vocabulary entry.",
        )
    clipped = np.maximum(table, LOGPROB_FLOOR)
    return float(-clipped.mean() - math.log(table.shape[1]))


def _known(confidences: npt.ArrayLike) -> FloatArray:
    values = as_floats(confidences, "confidences").ravel()
    return values[np.isfinite(values)]


EVIDENCE_KINDS = ("labelled", "self-consistent")
MIN_GATE_QUESTIONS = 8
"""Questions with right and wrong completions below which the gate stays shut: resampling three or four questions cannot tell how they
differ (in simulations a useless confidence then opened it in 8 to 17 % of fits; from seven questions on in 2 to 4
%)."""
NO_EVIDENCE = (
    "Confidence was not used: there is no evidence that it tells right from wrong here. "
    "Fit a gate on questions with known answers, or set trust = true to use it regardless; the plain vote decided."
)
"""What an answer says when no gate was given."""
_UNKNOWN = Interval(0.5, 0.0, 1.0, 0.95, "no pairs")


@dataclass(frozen=True)
class ConfidenceGate:
    """What is known about how well a confidence tells right from wrong, as a file.

    Open when the whole interval of ``within`` lies above one half, from eight questions on. No margin is added: above
    one half a higher confidence means a likelier right answer, and whether the gain is worth the votes that a filter
    throws away depends on the filter, which replaying stored completions measures. At 95 %, one useless confidence in
    forty opens it; one fitted for many gauges of which the best is taken opens far more often, so choose the gauge
    first.
    """

    within: Interval
    """AUROC among completions of the same question: how often a right one is surer than a wrong one. This is what a
    vote needs.
    """
    pooled: Interval
    """AUROC over all completions. High where easy questions make for sure completions, which helps no vote; shown for
    comparison.
    """
    questions: int
    """Questions with right and wrong completions: the others say nothing about ``within``."""
    completions: int
    """Completions looked at."""
    evidence: Literal["labelled", "self-consistent"] = "labelled"
    """labelled: right by a known answer. self-consistent: agreeing with the full vote on the same question, which may
    be wrong.
    """
    gauge: Gauge = Gauge()
    """How confidence was read."""
    model: str = ""
    """Model whose completions they were; empty for any."""

    def __post_init__(self) -> None:
        for name in ("within", "pooled"):
            held = getattr(self, name)
            require(
                self,
                name,
                0 <= held.low <= held.value <= held.high <= 1,
                "an AUROC between the ends of its interval, from 0 to 1",
            )
        require(self, "questions", 0 <= self.questions <= self.completions, "no more questions than completions")
        require(self, "evidence", self.evidence in EVIDENCE_KINDS, "one of " + ", ".join(EVIDENCE_KINDS))

    @property
    def open(self) -> bool:
        """Whether confidence is shown to tell right from wrong."""
        return self.questions >= MIN_GATE_QUESTIONS and self.within.low > 0.5

    @property
    def reason(self) -> str:
        """Why it is open or closed, with the numbers."""
        shown = "is shown to tell" if self.open else "is not shown to tell"
        few = f" (at least {MIN_GATE_QUESTIONS} are needed)" if self.questions < MIN_GATE_QUESTIONS else ""
        return (
            f"confidence ({self.gauge.measure}) {shown} right from wrong completions of a question: AUROC"
            f" {self.within.value:.3f}, {self.within.level:.0%} interval {self.within.low:.3f} to"
            f" {self.within.high:.3f}, {self.questions} questions with both{few}, {self.evidence} evidence"
        )


@dataclass(frozen=True)
class GateDecision:
    """Whether a strategy may use confidence, and the note that says why."""

    open: bool
    """Whether it may."""
    note: str
    """What the answer says about it."""


def check_gate(gate: ConfidenceGate | None, gauge: Gauge, *, model: str = "", trust: bool = False) -> GateDecision:
    """Say whether confidence may be used: no evidence is a no, and so is evidence about another gauge or model.

    A run's own completions are never evidence. Their agreement with a vote that is clear saves nothing, for such a vote
    can stop at once; with a vote that is not clear it shows nothing.
    """
    if trust:
        return GateDecision(
            True, "Confidence was used as the settings demand, without evidence that it tells right from wrong."
        )
    if gate is None:
        return GateDecision(False, NO_EVIDENCE)
    if gate.gauge != gauge:
        return GateDecision(
            False,
            f"Confidence was not used: the gate was fitted for {gate.gauge}, not for {gauge}; the plain vote decided.",
        )
    if gate.model and model and gate.model != model:
        return GateDecision(
            False,
            f"Confidence was not used: the gate was fitted on {gate.model}, not on {model}; the plain vote decided.",
        )
    if not gate.open:
        return GateDecision(False, f"Confidence was not used: {gate.reason}; the plain vote decided.")
    return GateDecision(True, f"Confidence was used: {gate.reason}.")


def fit_gate(
    scores: npt.ArrayLike,
    correct: npt.ArrayLike,
    problems: Sequence[str] | npt.ArrayLike,
    *,
    gauge: Gauge,
    evidence: Literal["labelled", "self-consistent"] = "labelled",
    model: str = "",
    level: float = 0.95,
) -> ConfidenceGate:
    """Fit a gate: the confidence of each completion, whether it is right (or agrees, see `agreement`), and its question.

    ``within`` counts each pair of a right and a wrong completion of one question, equal scores half, and resamples
    whole questions. It takes several completions a question; with one each there are no pairs and the gate stays shut.
    Leave out completions without a readable answer: they never vote, and as a rule they are unsure, so they flatter the
    confidence.
    """
    ranked, right, owners = as_finite(scores, "scores"), as_booleans(correct, "correct"), np.asarray(problems)
    check_same_length(scores=ranked, correct=right, problems=owners)
    won, pairs = _pairs(ranked, right, owners)
    names = np.arange(len(won))
    within = (
        resample({"won": won, "pairs": pairs}, names, level=level).ratio("won", "pairs", (0.0, 1.0))
        if pairs.any()
        else _UNKNOWN
    )
    pooled = auroc(ranked, right, owners, level=level) if 0 < right.sum() < len(right) else _UNKNOWN
    return ConfidenceGate(within, pooled, int(np.count_nonzero(pairs)), len(right), evidence, gauge, model)


def agreement_with_vote(poll: Poll) -> list[bool | None]:
    """Say of each completion of a question whether it agrees with the vote of all: evidence where the right answer is not known.

    None for an answer that cannot be read, and for all of them when the vote is tied. It takes enough completions for a
    steady vote, sixteen or more, and it cannot see a model that is wrong with confidence: such a gate may save tokens
    at the same answer, but it proves nothing about right answers.
    """
    answer = majority(poll)
    if answer.key is None or answer.tied:
        return [None] * len(poll.seen)
    winner, classes = poll.keys.index(answer.key), iter(poll.arrivals)
    return [None if candidate.key is None else next(classes) == winner for candidate in poll.seen]


def _pairs(scores: FloatArray, right: BoolArray, owners: npt.NDArray[np.generic]) -> tuple[FloatArray, FloatArray]:
    """Return for each question with both outcomes how many pairs of a right and a wrong completion the right one wins, and all pairs."""
    _, place = np.unique(owners, return_inverse=True)
    order = np.argsort(place, kind="stable")
    won, pairs = [], []
    for group in np.split(order, np.flatnonzero(np.diff(place[order])) + 1):
        high, low = scores[group][right[group]], np.sort(scores[group][~right[group]])
        if len(high) and len(low):
            below = np.searchsorted(low, high, "left") + np.searchsorted(low, high, "right")
            won.append(float(below.sum()) / 2)
            pairs.append(float(len(high) * len(low)))
    return np.array(won), np.array(pairs)
