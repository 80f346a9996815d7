"""The confidence gate: confidence has a say only where it is shown to tell right completions from wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from breadth.base.checks import require
from breadth.inference.confidence import Gauge
from breadth.inference.voting import Poll, majority
from breadth.measure.calibration import auroc
from breadth.measure.clustered import resample
from breadth.measure.finite import finite, same_length, yes_or_no
from breadth.measure.intervals import Interval

EVIDENCE = ("labelled", "self-consistent")
FEWEST = 8
"""Questions with right and wrong completions below which the gate stays shut: resampling three or four questions cannot tell how they
differ (in simulations a useless confidence then opened it in 8 to 17 % of fits; from seven questions on in 2 to 4 %)."""
NO_EVIDENCE = (
    "Confidence was not used: there is no evidence that it tells right from wrong here. "
    "Fit a gate on questions with known answers, or set trust = true to use it regardless; the plain vote decided."
)
"""What an answer says when no gate was given."""
_UNKNOWN = Interval(0.5, 0.0, 1.0, 0.95, "no pairs")


@dataclass(frozen=True)
class ConfidenceGate:
    """What is known about how well a confidence tells right from wrong, as a file.

    Open when the whole interval of ``within`` lies above one half, from eight questions on. No margin is added: above one half a
    higher confidence means a likelier right answer, and whether the gain is worth the votes that a filter throws away depends on the
    filter, which replaying stored completions measures. At 95 %, one useless confidence in forty opens it; one fitted for many
    gauges of which the best is taken opens far more often, so choose the gauge first.
    """

    within: Interval
    """AUROC among completions of the same question: how often a right one is surer than a wrong one. This is what a vote needs."""
    pooled: Interval
    """AUROC over all completions. High where easy questions make for sure completions, which helps no vote; shown for comparison."""
    questions: int
    """Questions with right and wrong completions: the others say nothing about ``within``."""
    completions: int
    """Completions looked at."""
    evidence: Literal["labelled", "self-consistent"] = "labelled"
    """labelled: right by a known answer. self-consistent: agreeing with the full vote on the same question, which may be wrong."""
    gauge: Gauge = Gauge()
    """How confidence was read."""
    model: str = ""
    """Model whose completions they were; empty for any."""

    def __post_init__(self) -> None:
        for name in ("within", "pooled"):
            held = getattr(self, name)
            require(self, name, 0 <= held.low <= held.value <= held.high <= 1, "an AUROC between the ends of its interval, from 0 to 1")
        require(self, "questions", 0 <= self.questions <= self.completions, "no more questions than completions")
        require(self, "evidence", self.evidence in EVIDENCE, "one of " + ", ".join(EVIDENCE))

    @property
    def open(self) -> bool:
        """Whether confidence is shown to tell right from wrong."""
        return self.questions >= FEWEST and self.within.low > 0.5

    @property
    def reason(self) -> str:
        """Why it is open or closed, with the numbers."""
        shown = "is shown to tell" if self.open else "is not shown to tell"
        few = f" (at least {FEWEST} are needed)" if self.questions < FEWEST else ""
        return (
            f"confidence ({self.gauge.measure}) {shown} right from wrong completions of a question: AUROC {self.within.value:.3f}, "
            f"{self.within.level:.0%} interval {self.within.low:.3f} to {self.within.high:.3f}, "
            f"{self.questions} questions with both{few}, {self.evidence} evidence"
        )


@dataclass(frozen=True)
class Ruling:
    """Whether a strategy may use confidence, and the note that says why."""

    open: bool
    """Whether it may."""
    note: str
    """What the answer says about it."""


def rule(gate: ConfidenceGate | None, gauge: Gauge, *, model: str = "", trust: bool = False) -> Ruling:
    """Say whether confidence may be used: no evidence is a no, and so is evidence about another gauge or model.

    A run's own completions are never evidence. Their agreement with a vote that is clear saves nothing, for such a vote can stop at once;
    with a vote that is not clear it shows nothing.
    """
    if trust:
        return Ruling(True, "Confidence was used as the settings demand, without evidence that it tells right from wrong.")
    if gate is None:
        return Ruling(False, NO_EVIDENCE)
    if gate.gauge != gauge:
        return Ruling(False, f"Confidence was not used: the gate was fitted for {gate.gauge}, not for {gauge}; the plain vote decided.")
    if gate.model and model and gate.model != model:
        return Ruling(False, f"Confidence was not used: the gate was fitted on {gate.model}, not on {model}; the plain vote decided.")
    if not gate.open:
        return Ruling(False, f"Confidence was not used: {gate.reason}; the plain vote decided.")
    return Ruling(True, f"Confidence was used: {gate.reason}.")


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

    ``within`` counts each pair of a right and a wrong completion of one question, equal scores half, and resamples whole questions. It
    takes several completions a question; with one each there are no pairs and the gate stays shut. Leave out completions without
    a readable answer: they never vote, and as a rule they are unsure, so they flatter the confidence.
    """
    ranked, right, owners = finite(scores, "scores"), yes_or_no(correct, "correct"), np.asarray(problems)
    same_length(scores=ranked, correct=right, problems=owners)
    won, pairs = _pairs(ranked, right, owners)
    names = np.arange(len(won))
    within = resample({"won": won, "pairs": pairs}, names, level=level).ratio("won", "pairs", (0.0, 1.0)) if pairs.any() else _UNKNOWN
    pooled = auroc(ranked, right, owners, level=level) if 0 < right.sum() < len(right) else _UNKNOWN
    return ConfidenceGate(within, pooled, int(np.count_nonzero(pairs)), len(right), evidence, gauge, model)


def agreement(poll: Poll) -> list[bool | None]:
    """Say of each completion of a question whether it agrees with the vote of all: evidence where the right answer is not known.

    None for an answer that cannot be read, and for all of them when the vote is tied. It takes enough completions for a steady vote,
    sixteen or more, and it cannot see a model that is wrong with confidence: such a gate may save tokens at the same answer, but it
    proves nothing about right answers.
    """
    answer = majority(poll)
    if answer.key is None or answer.tied:
        return [None] * len(poll.seen)
    winner, classes = poll.keys.index(answer.key), iter(poll.arrivals)
    return [None if candidate.key is None else next(classes) == winner for candidate in poll.seen]


def _pairs(
    scores: npt.NDArray[np.float64], right: npt.NDArray[np.bool_], owners: npt.NDArray[np.generic]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
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
