"""Confidence of a completion from its token log-probs, and the gate: it counts only if it tells right from wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError, require
from breadth.inference.records import Candidate, Sampling
from breadth.inference.voting import Poll, majority
from breadth.measure.calibration import auroc
from breadth.measure.intervals import Interval, resample
from breadth.measure.validate import BoolArray, FloatArray, as_booleans, as_finite, as_floats, check_same_length

CONFIDENCE_MEASURES = ("lowest", "bottom", "tail", "mean")
LOGPROB_FLOOR = -50.0
"""Log-probs below this are clipped to it.

Servers send masked tokens as minus infinity, as -9999 or as the smallest float. A raw log-prob among the first 20
hardly falls this low, and one token must not outweigh the other thousands of a window.
"""
_BOTTOM = 0.1


@dataclass(frozen=True)
class Gauge:
    """How the confidence of a completion is computed from its tokens.

    With C the confidence of a token (see `token_confidence`) and G the mean of C over each ``window`` tokens in a row,
    overlapping: lowest = the least G; bottom = the mean of the lowest tenth of all G, at least one; tail = the mean of
    C over the last ``window`` tokens; mean = the mean of C over all tokens. A completion shorter than the window has
    one G, its mean (arXiv 2508.15260).

    Window and 20 log-probs are the paper's. Lowest is the default because a running completion can be halted by it, so
    one gate serves both strategies. In the paper's averages it is within 0.2 points of the best (84.4 to 84.6, the mean
    83.9). Harm: at the default window all four are the plain mean for completions under 2,048 tokens.
    """

    measure: Literal["lowest", "bottom", "tail", "mean"] = "lowest"
    """Summary over the tokens, one of the four above."""
    window: int = 2048
    """Tokens per group, and in the tail."""
    top_logprobs: int = 20
    """Log-probs per token that its confidence averages."""

    def __post_init__(self) -> None:
        require(self, "measure", self.measure in CONFIDENCE_MEASURES, "one of " + ", ".join(CONFIDENCE_MEASURES))
        require(self, "window", self.window >= 1, "at least one token")
        require(self, "top_logprobs", self.top_logprobs >= 1, "at least one log-prob; 20 is usual")

    def confidence_of(self, candidate: Candidate) -> float:
        """Return the confidence of a candidate; NaN when none of its tokens has one.

        Tokens without one are skipped.
        """
        if candidate.confidences is None:
            return math.nan
        known = finite_values(candidate.confidences)
        # Rounded, so equally confident completions stay equal at any length.
        return round(self.summarize(known), 9) if known.size else math.nan

    def with_logprobs(self, sampling: Sampling) -> Sampling:
        """Return the sampling parameters with the log-probs that the gauge needs."""
        return replace(sampling, top_logprobs=self.top_logprobs)

    def summarize(self, known: FloatArray) -> float:
        """Return the confidence of a completion from the confidences of its tokens."""
        if self.measure in ("mean", "tail"):
            return float(known.mean() if self.measure == "mean" else known[-self.window :].mean())
        groups = group_confidences(known, self.window)
        lowest = 1 if self.measure == "lowest" else max(1, int(len(groups) * _BOTTOM))
        return float(np.partition(groups, lowest - 1)[:lowest].mean())


def token_confidence(top_logprobs: Sequence[float], k: int) -> tuple[float, bool]:
    """Return minus the mean of the k largest log-probs at a token (high = confident), and whether any was clipped.

    Only the k largest count, because some servers add the sampled token when it is not among them. Log-probs below -50,
    and those missing from a list shorter than k, are taken as masked tokens and count as -50: without them a
    distribution cut to one token would look least confident of all. Clipping shows that the server sends processed
    log-probs or fewer than k; pass the number it really sends as ``k``. NaN for an empty list.
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
    """Return the mean over each ``window`` consecutive tokens, first full window to last; one group if there are fewer.

    Tokens without a confidence (NaN, infinite) are skipped. Computed from running sums, in time linear in the tokens.
    """
    if window < 1:
        raise MeasureError(f"A window of {window} tokens.", "Use at least one token; 2048 is DeepConf's.")
    known = finite_values(confidences)
    if not known.size:
        return known
    size = min(window, len(known))
    # Sums of differences from the mean stay small, so long completions lose no precision.
    middle = known.mean()
    sums = np.concatenate([[0.0], np.cumsum(known - middle)])
    return np.asarray(middle + (sums[size:] - sums[:-size]) / size)


def keep_threshold(scores: npt.ArrayLike, keep: float) -> float:
    """Return the score that the best ``keep`` share of scores reach: percentile 100 (1 - keep), linearly interpolated.

    This is DeepConf's formula and public code. Its text also calls it the lowest score of the best traces, which is a
    little higher (of 5, 6, ..., 14 the best nine tenths begin at 6, the percentile is 5.9).
    """
    # Rounded: 1 - 0.7 is slightly over 0.3 in floating point and would drop a score on the threshold.
    return float(np.percentile(as_finite(scores, "scores"), round(100 * (1 - keep), 9)))


def borda_weights(scores: npt.ArrayLike, power: float = 0.5) -> FloatArray:
    """Return the weight of each score by its rank: (N - rank) ** power, ranks from 0; equal scores share their mean.

    Voting by rank trusts only the order of a confidence, not its scale (arXiv 2502.18581; its code's power is 0.5).
    Power 0 is the plain vote; a large one lets the best score decide.
    """
    values = as_finite(scores, "scores")
    if power < 0:
        raise MeasureError(f"The power of rank weights is {power}.", "Use 0 (plain vote) or more; 0.5 is usual.")
    by_rank = np.arange(1, len(values) + 1, dtype=np.float64) ** power
    _, level, counts = np.unique(values, return_inverse=True, return_counts=True)
    totals = np.bincount(np.sort(level), weights=by_rank)
    return np.asarray((totals / counts)[level])


def self_certainty(logprobs: npt.ArrayLike) -> float:
    """Return the mean KL(uniform || p) of next-token distributions, one per row of a (tokens, vocabulary) matrix.

    -(1 / nV) sum ln(V p), 0 for uniform, larger = more confident (arXiv 2502.18581). It needs every token of the
    vocabulary: a server's top 20 are not enough, and cutting the sum there gives DeepConf's statistic instead.
    Log-probs below -50 count as -50.
    """
    table = as_floats(logprobs, "logprobs")
    if table.ndim != 2 or not table.size or np.isnan(table).any():
        raise MeasureError(
            f"Log-probs of shape {table.shape}, or NaN among them.",
            "Give one row per token, one column per vocabulary entry.",
        )
    clipped = np.maximum(table, LOGPROB_FLOOR)
    return float(-clipped.mean() - math.log(table.shape[1]))


def finite_values(confidences: npt.ArrayLike) -> FloatArray:
    """Return the confidences that are numbers."""
    values = as_floats(confidences, "confidences").ravel()
    return values[np.isfinite(values)]


EVIDENCE_KINDS = ("labelled", "self-consistent")
MIN_GATE_QUESTIONS = 8
"""Fewest questions with right and wrong completions for the gate to open.

Resampling three or four questions does not show how they differ: in simulations a useless confidence then opened the
gate in 8 to 17 % of fits; from seven questions on in 2 to 4 %.
"""
NO_EVIDENCE = (
    "Confidence was not used: there is no evidence that it tells right from wrong here. "
    "Fit a gate on questions with known answers, or set trust = true to use it regardless; the plain vote decided."
)
"""Note of an answer when no gate was given."""
_UNKNOWN = Interval(0.5, 0.0, 1.0, 0.95, "no pairs")


@dataclass(frozen=True)
class ConfidenceGate:
    """Measured evidence of how well a confidence tells right from wrong, kept as a file.

    Open when the whole interval of ``within`` lies above one half, from eight questions on. No margin is added: above
    one half a higher confidence means a likelier right answer. Whether the gain is worth the votes that a filter drops
    depends on the filter; replaying stored completions measures that. At 95 %, one useless confidence in forty opens
    the gate. Taking the best of many gauges opens it far more often, so choose the gauge first.
    """

    within: Interval
    """AUROC within questions: how often a right completion is more confident than a wrong one. A vote needs this."""
    pooled: Interval
    """AUROC over all completions, for comparison: easy questions with confident completions raise it to no use."""
    questions: int
    """Questions with right and wrong completions: only these inform ``within``."""
    completions: int
    """Number of completions."""
    evidence: Literal["labelled", "self-consistent"] = "labelled"
    """labelled: right by a known answer. self-consistent: agrees with the question's full vote, which may be wrong."""
    gauge: Gauge = Gauge()
    """How confidence was computed."""
    model: str = ""
    """Model that wrote the completions; empty for any."""

    def __post_init__(self) -> None:
        for name in ("within", "pooled"):
            auc = getattr(self, name)
            ordered = 0 <= auc.low <= auc.value <= auc.high <= 1
            require(self, name, ordered, "an AUROC between the ends of its interval, from 0 to 1")
        require(self, "questions", 0 <= self.questions <= self.completions, "no more questions than completions")
        require(self, "evidence", self.evidence in EVIDENCE_KINDS, "one of " + ", ".join(EVIDENCE_KINDS))

    @property
    def open(self) -> bool:
        """Whether confidence is shown to tell right from wrong."""
        return self.questions >= MIN_GATE_QUESTIONS and self.within.low > 0.5

    @property
    def reason(self) -> str:
        """Explanation of why it is open or closed, with the numbers."""
        shown = "is shown to tell" if self.open else "is not shown to tell"
        few = f" (at least {MIN_GATE_QUESTIONS} are needed)" if self.questions < MIN_GATE_QUESTIONS else ""
        return (
            f"confidence ({self.gauge.measure}) {shown} right from wrong completions of a question: AUROC"
            f" {self.within.value:.3f}, {self.within.level:.0%} interval {self.within.low:.3f} to"
            f" {self.within.high:.3f}, {self.questions} questions with both{few}, {self.evidence} evidence"
        )


@dataclass(frozen=True)
class GateDecision:
    """Whether a strategy may use confidence, and why."""

    open: bool
    """Whether confidence may be used."""
    note: str
    """Explanation for the notes of the answer."""


def decide_gate(gate: ConfidenceGate | None, gauge: Gauge, *, model: str = "", trust: bool = False) -> GateDecision:
    """Decide whether confidence may be used: not without evidence, nor with evidence on another gauge or model.

    A run's own completions are never evidence. Agreement with a clear vote saves nothing, because such a vote can stop
    at once; agreement with an unclear vote shows nothing.
    """
    if trust:
        return GateDecision(
            True, "Confidence was used because of trust = true, without evidence that it tells right from wrong."
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
    """Fit a gate from the confidence of each completion, whether it is right, and its question.

    Without known answers, pass agreement instead of right (`agreement_with_vote`). ``within`` counts each pair of a
    right and a wrong completion of one question, equal scores half, and resamples whole questions. It needs several
    completions per question; with one each there are no pairs and the gate stays closed. Leave out completions without
    a readable answer: they never vote, and they usually have low confidence, so they would flatter the gauge.
    """
    ranked, right, owners = as_finite(scores, "scores"), as_booleans(correct, "correct"), np.asarray(problems)
    check_same_length(scores=ranked, correct=right, problems=owners)
    won, pairs = count_wins(ranked, right, owners)
    names = np.arange(len(won))
    within = (
        resample({"won": won, "pairs": pairs}, names, level=level).ratio("won", "pairs", (0.0, 1.0))
        if pairs.any()
        else _UNKNOWN
    )
    pooled = auroc(ranked, right, owners, level=level) if 0 < right.sum() < len(right) else _UNKNOWN
    return ConfidenceGate(within, pooled, int(np.count_nonzero(pairs)), len(right), evidence, gauge, model)


def agreement_with_vote(poll: Poll) -> list[bool | None]:
    """Return per completion whether it agrees with the vote of all: evidence where the right answer is not known.

    None for an answer that cannot be read, and for all of them when the vote is tied. It needs enough completions for a
    stable vote, sixteen or more. It cannot detect a model that is wrong with confidence: such a gate may save tokens at
    the same answer, but it proves nothing about right answers.
    """
    answer = majority(poll)
    if answer.key is None or answer.tied:
        return [None] * len(poll.seen)
    winner, classes = poll.keys.index(answer.key), iter(poll.arrivals)
    return [None if candidate.key is None else next(classes) == winner for candidate in poll.seen]


def count_wins(scores: FloatArray, right: BoolArray, owners: npt.NDArray[np.generic]) -> tuple[FloatArray, FloatArray]:
    """Return, per question with both, the pairs of a right and a wrong completion that the right one wins, and all."""
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
