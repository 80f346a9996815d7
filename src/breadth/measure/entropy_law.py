"""The entropy law R = b - a exp(H): what score is left to buy with entropy, and whether the law holds on this run at all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.measure.intervals import Interval, check_level
from breadth.measure.linear_fit import Line, fit_line, is_varying, steps_until
from breadth.measure.series import clean_series, is_usable
from breadth.measure.trends import Trend, trend
from breadth.measure.validate import FloatArray

MIN_LAW_POINTS = 12
"""Fewest pairs of entropy and score the law is judged on: the early part then has four, two more than it has
parameters.
"""
_EARLY_SHARE, _EARLY_POINTS, _MOST_EARLY, _FEWEST_EARLY = 0.15, 36, 0.4, 4
# The published demonstration fits 36 of 236 steps, 15 % (2505.22617); a shorter run gets up to 40 % so that two
# parameters can be
# fitted and most of the run is still held out.
_MOST_NATS = 50.0
# No vocabulary has e^50 words: beyond this the numbers are sums over tokens, not entropies of one.
_SPENT_SHARE = 0.05
# Entropy counts as exhausted when 5 % of the score the law held in store at the start is left.


@dataclass(frozen=True)
class HeldOutErrors:
    """Root mean square errors on the part of a run that was not fitted."""

    law: float
    """The law fitted on the early part, given the later entropies."""
    mean: float
    """The mean score of the early part."""
    last: float
    """The last score of the early part."""
    line: float
    """A straight line in the step through the early part."""
    early_points: int
    """How many points the early part has."""
    mean_error: Interval
    """Mean of later score minus the law's prediction; an interval without 0 says the law fitted early fails later."""


@dataclass(frozen=True)
class LawFit:
    """The law fitted to one run, and whether to believe it."""

    a: float
    """Score paid per unit of exp(entropy). Nearly collinear with b: read the ceiling, not a or b alone."""
    b: float
    """Intercept. Nearly collinear with a."""
    ceiling: Interval
    """Score at zero entropy, ``b - a``, with an interval that allows for autocorrelated noise."""
    r2: float
    """Share of the score's variance the fit describes; NaN for a constant score."""
    held_out: HeldOutErrors | None
    """Errors on the later part of the law fitted to the early part, and of its rivals; None with too few points."""
    floor: float
    """Entropy at which the run is exhausted: 5 % of what the law held in store at the start is left."""
    steps_left: Interval | None
    """Steps until entropy reaches the floor by its recent trend; None when it is not falling."""
    valid: bool
    """Whether the law may be used on this run."""
    reasons: tuple[str, ...]
    """Why not, one sentence each with the numbers; empty when valid."""
    points: int
    """Pairs used."""
    dropped: int
    """Pairs left out because entropy or score was NaN or infinite."""


def fit_law(
    steps: npt.ArrayLike,
    entropy: npt.ArrayLike,
    score: npt.ArrayLike,
    *,
    interventions: Sequence[str] = (),
    level: float = 0.95,
) -> LawFit:
    """Fit ``R = -a exp(H) + b`` by least squares and test whether it holds on this run (Cui et al., 2505.22617).

    ``entropy`` is the mean policy entropy per token in nats on the training rollouts, ``score`` the validation score
    (or, with more noise and shaping in it, the training reward) at the same step. ``interventions`` names what acted on
    entropy, e.g. ``"entropy_coef = 0.001"``: the law is about runs left alone, so each makes it not valid. It is also
    not valid when

    - there are fewer than 12 pairs, or entropy does not fall, or the score is constant;
    - a is not clearly positive, or the ceiling's interval is wider to either side than all the score the fit explains:
      the range of entropy is too narrow for the noise;
    - the law fitted on the early part (the first 15 %, at least 36 points, at most 40 %) predicts the rest worse than
      the early mean, the last early value or a straight line in the step, or misses it by more than its own error
      allows.

    a and b are nearly collinear on a narrow range, so only the ceiling has an interval. Misleads when the score is a
    proxy that is being gamed (the law then predicts the proxy), and when entropy is noisy: noise in H flattens a.
    """
    run = _paired(steps, entropy, score)
    falls = trend(run.steps, run.entropy, level=level)
    line = fit_line(run.x, run.score) if is_varying(run.x) else None
    early = early_points(len(run))
    testable = early >= _FEWEST_EARLY and is_varying(run.x[:early])
    held_out = predict_tail(run.steps, run.entropy, run.score, early, level=level) if testable else None
    reasons = (
        *_about_run(run, interventions, falls),
        *_about_fit(run, line, level),
        *_about_tail(run, early, held_out),
    )
    floor = math.log1p(_SPENT_SHARE * max(math.expm1(falls.start.value), 0.0))
    return LawFit(
        a=-line.slope if line else math.nan,
        b=line.intercept if line else math.nan,
        ceiling=(
            line.value_at(1.0, level)
            if line
            else Interval(math.nan, -math.inf, math.inf, level, "entropy does not vary")
        ),
        r2=_described(run, line) if line else math.nan,
        held_out=held_out,
        floor=floor,
        steps_left=steps_until(run.steps, run.entropy, floor, level=level) if falls.verdict == "falling" else None,
        valid=not reasons,
        reasons=reasons,
        points=len(run),
        dropped=run.dropped,
    )


def early_points(points: int) -> int:
    """Count the points of a run's early part: the first 15 %, at least 36 points, at most 40 % of the run."""
    return min(max(math.ceil(_EARLY_SHARE * points), _EARLY_POINTS), int(_MOST_EARLY * points))


def predict_tail(
    steps: npt.ArrayLike, entropy: npt.ArrayLike, score: npt.ArrayLike, early: int, *, level: float = 0.95
) -> HeldOutErrors:
    """Fit the law and three simple rivals on the first ``early`` points and measure their errors on the rest."""
    check_level(level)
    run = _paired(steps, entropy, score)
    if not 3 <= early < len(run):
        raise MeasureError(f"The early part is {early} of {len(run)} points.", "Take at least 3 and leave at least 1.")
    known, later, x = run.score[:early], run.score[early:], run.x[early:]
    law = fit_line(run.x[:early], known)
    straight = (
        fit_line(run.steps[:early], known).predict(run.steps[early:]) if is_varying(run.steps[:early]) else known.mean()
    )
    guesses = (law.predict(x), known.mean(), known[-1], straight)
    by_law, by_mean, by_last, by_line = (math.sqrt(float(np.mean((later - guess) ** 2))) for guess in guesses)
    return HeldOutErrors(by_law, by_mean, by_last, by_line, early, law.mean_error(x, later, level))


@dataclass(frozen=True)
class _Run:
    steps: FloatArray
    entropy: FloatArray
    score: FloatArray
    dropped: int

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def x(self) -> FloatArray:
        return np.asarray(np.exp(self.entropy), dtype=np.float64)


def _about_run(run: _Run, interventions: Sequence[str], entropy: Trend) -> Iterator[str]:
    for intervention in interventions:
        yield f"Entropy was intervened on ({intervention}); the law is about runs left alone."
    if len(run) < MIN_LAW_POINTS:
        yield f"There are {len(run)} pairs of entropy and score; at least {MIN_LAW_POINTS} are needed."
    negative = int(np.count_nonzero(run.entropy < 0))
    if negative:
        yield (
            f"Entropy is negative at {negative} of {len(run)} points (lowest {run.entropy.min():.3g}), which no token's"
            " entropy can be."
        )
    if len(run) and not is_varying(run.x):
        yield f"Entropy is {run.entropy[0]:.4g} at all {len(run)} points: there is nothing to fit."
    elif len(run) >= MIN_LAW_POINTS and entropy.verdict != "falling":
        yield f"Entropy is not seen falling ({entropy.verdict}): {entropy.reason}."


def _about_fit(run: _Run, line: Line | None, level: float) -> Iterator[str]:
    if line is None:
        return
    if not is_varying(run.score):
        yield f"The score is {run.score[0]:.4g} at all {len(run)} points."
        return
    slope, ceiling = line.slope_interval(level), line.value_at(1.0, level)
    reach, far = slope.high - slope.value, ceiling.high - ceiling.value
    if slope.value >= 0:
        yield (
            f"The sign is wrong: the score rises with entropy (a = {-slope.value:.4g} +- {reach:.2g}; the law has a"
            " > 0)."
        )
        return
    spread = float(np.ptp(np.quantile(run.x, [0.05, 0.95])))
    if slope.high >= 0:
        yield (
            f"Score and entropy are not clearly related: a = {-slope.value:.4g} +- {reach:.2g}, over {spread:.3g} in"
            " exp(entropy)."
        )
    if far > -slope.value * spread:
        yield (
            f"The range of entropy is too narrow: the ceiling {ceiling.value:.3g} is known to +- {far:.2g}, "
            f"more than the {-slope.value * spread:.2g} of score that entropy explains."
        )


def _about_tail(run: _Run, early: int, held_out: HeldOutErrors | None) -> Iterator[str]:
    if held_out is None:
        if early >= _FEWEST_EARLY and is_varying(run.x):
            yield (
                f"Entropy is {run.entropy[0]:.4g} at all of the first {early} points, so nothing can be predicted from"
                " them."
            )
        return
    rivals = {
        "the early mean": held_out.mean,
        "the last early value": held_out.last,
        "a straight line in the step": held_out.line,
    }
    rival = min(rivals, key=lambda name: rivals[name])
    if held_out.law >= rivals[rival]:
        yield (
            f"Fitted on the first {early} points the law predicts the rest no better than {rival}: "
            f"error {held_out.law:.3g} against {rivals[rival]:.3g}."
        )
    if 0 not in held_out.mean_error:
        yield (
            f"Fitted on the first {early} points the law misses the rest by {held_out.mean_error.value:+.3g} on average; "
            f"its own noise allows {held_out.mean_error.high - held_out.mean_error.value:.2g}."
        )


def _described(run: _Run, line: Line) -> float:
    total = float(np.sum((run.score - run.score.mean()) ** 2))
    return 1 - float(np.sum((run.score - line.predict(run.x)) ** 2)) / total if is_varying(run.score) else math.nan


def _paired(steps: npt.ArrayLike, entropy: npt.ArrayLike, score: npt.ArrayLike) -> _Run:
    try:
        nats, gained = np.asarray(entropy, dtype=np.float64), np.asarray(score, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise MeasureError(
            f"Entropy or score cannot be read as numbers: {error}.", "Give both as flat lists of numbers."
        ) from error
    if nats.shape != gained.shape:
        raise MeasureError(
            f"Entropy has shape {nats.shape}, score {gained.shape}.",
            "Give one score per entropy, logged at the same step.",
        )
    both = is_usable(nats) & is_usable(gained)
    of_entropy = clean_series(steps, np.where(both, nats, np.nan))
    of_score = clean_series(steps, np.where(both, gained, np.nan))
    if len(of_entropy) and float(of_entropy.values.max()) > _MOST_NATS:
        raise MeasureError(
            f"Entropy reaches {of_entropy.values.max():.3g} nats; one token's stays under 15.",
            "Give the mean per token, not the sum over tokens.",
        )
    return _Run(of_entropy.steps, of_entropy.values, of_score.values, of_entropy.dropped)
