"""What is missing to a perfect score, in three parts: a better policy, a perfect choice among the draws, and what no draw gets right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from breadth.base.errors import MeasureError
from breadth.doctor.signs.sweeps import Draws
from breadth.measure.extrapolation import Extrapolation, extrapolate_pass_at_k
from breadth.measure.intervals import Interval, mean_interval
from breadth.tuning.choice import FOLDS
from breadth.tuning.evidence import Floats
from breadth.tuning.tuned import Tuned

REPLICATES = 200
"""Resamples behind a foretold number: it is a bracket, whose ends need no third digit."""


Part = Literal["policy", "selector", "out"]
"""What is missing: a better policy, a perfect choice among the draws, or draws that are right at all."""


@dataclass(frozen=True)
class Limits:
    """The three parts, as means over questions; together with the score in use they are 1."""

    policy: Interval
    """Score of the best policy measured less that of the one in use."""
    selector: Interval
    """How often one of all the draws is right, less the score of the best policy."""
    out: Interval
    """How often none of the draws is right."""
    largest: Part
    """The largest of the three."""
    lead: Interval
    """The largest less the next, on the same questions."""
    draws: int
    """Draws to which ``further`` is carried on."""
    further: Interval | None
    """How often none of so many draws would be right, by the two fits; None where they do not foretell what was drawn.
    """


def limits(judged: Tuned, drawn: Draws, scores: Floats, times: int) -> Limits:
    """Split what is missing; ``scores`` are those of the policy in use, ``times`` how much further to carry on."""
    best = cross_fitted_best(np.column_stack([one.scores for one in judged.options]), judged.evidence.plan.seed)
    reached = drawn.reached(drawn.each)
    parts: dict[Part, Floats] = {"policy": best - scores, "selector": reached - best, "out": 1 - reached}
    first, second = sorted(parts, key=lambda part: -float(parts[part].mean()))[:2]
    means = {part: mean_interval(values, bounds=(-1.0, 1.0)) for part, values in parts.items()}
    lead = mean_interval(parts[first] - parts[second], bounds=(-1.0, 1.0))
    further = foretold(drawn, times * drawn.each)
    return Limits(means["policy"], means["selector"], means["out"], first, lead, times * drawn.each, further)


def cross_fitted_best(table: Floats, seed: int = 0) -> Floats:
    """Return each question's score under the option that is best on the other four fifths of the questions (questions x options)."""
    fold = np.random.default_rng(seed).permutation(len(table)) % FOLDS
    picks = np.array([int(np.argmax(table[fold != part].mean(axis=0))) for part in range(FOLDS)])
    return np.asarray(table[np.arange(len(table)), picks[fold]])


def foretold(drawn: Draws, draws: int) -> Interval | None:
    """Return the share of questions out of reach of so many draws; None where the fits fail the test of honesty.

    The test: made from the first half of each question's draws, what they foretell for all draws must hold what those
    came to.
    """
    half = drawn.each // 2
    if half < 2:
        return None
    right = drawn.worth == 1
    try:
        early = extrapolate_pass_at_k(
            np.full(drawn.questions, half), right[:, :half].sum(axis=1), [drawn.each], replicates=REPLICATES
        )
        late = extrapolate_pass_at_k(
            np.full(drawn.questions, drawn.each), right.sum(axis=1), [draws], replicates=REPLICATES
        )
    except MeasureError:  # every draw right, or none
        return None
    if float(drawn.reached(drawn.each).mean()) not in _bracket(early):
        return None
    reached = _bracket(late)
    return Interval(1 - reached.value, 1 - reached.high, 1 - reached.low, reached.level, reached.method)


def _bracket(found: Extrapolation) -> Interval:
    """Return what lies between the two fits; where the draws demand questions that are never solved, what the fit with them says."""
    plain, inflated = found.beta_pass[0], found.zero_inflated_pass[0]
    return (
        inflated
        if found.impossible_problems_shown
        else Interval(plain.value, inflated.low, plain.high, plain.level, "two fits")
    )
