"""What pass@k will be for more samples than were drawn: a Beta distribution of success rates, fitted and carried on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.measure.betabinomial import (
    CONCENTRATION,
    Objective,
    beta_objective,
    log_failure,
    maximise,
    tally,
    zero_inflated_objective,
)
from breadth.measure.finite import FloatArray, numbers, same_length, whole
from breadth.measure.intervals import REPLICATES, Interval, interval_from_draws, resampled_counts

_CLEAR_GAIN = 1.353
# Log-likelihood gain at which a share of impossible problems is significant at 5 %: 2 * gain is half a point mass at 0 and half
# chi-squared with one degree of freedom when the share is truly 0 (Self and Liang 1987), whose 95 % point is 2.706.
_TIE = 1e-6
# Log-likelihoods closer than this are equal: the simpler description is taken.
_CELLS = 2_000_000
# Numbers in one working array while refitting.


@dataclass(frozen=True)
class BetaFit:
    """Success rates of problems as a Beta distribution, with a share of problems that never succeed."""

    alpha: float
    """First Beta parameter: failure falls like k^-alpha for large k."""
    beta: float
    """Second Beta parameter."""
    zero_share: float
    """Share of problems that no number of samples solves; 0 in the plain fit."""
    log_likelihood: float
    """Log-likelihood, without the binomial coefficients: compare only fits to the same data."""

    @property
    def overdispersed(self) -> bool:
        """False when problems differ no more than chance would make them: then all share one success rate, alpha / (alpha + beta)."""
        return self.alpha + self.beta < 0.99 * CONCENTRATION

    def pass_at_k(self, ks: npt.ArrayLike) -> FloatArray:
        """Predicted chance that at least one of k samples succeeds, for each k."""
        return (1 - self.zero_share) * beta_pass_at_k(self.alpha, self.beta, ks)


@dataclass(frozen=True)
class Extrapolation:
    """Predicted pass@k, with and without a share of impossible problems."""

    ks: tuple[int, ...]
    """The numbers of samples predicted for."""
    beta: BetaFit
    """Plain fit: every problem can be solved, so it errs upward for large k if some cannot."""
    beta_pass: tuple[Interval, ...]
    """Its pass@k for each k."""
    zero_inflated: BetaFit
    """Fit with a share of impossible problems: errs downward if they are merely hard."""
    zero_inflated_pass: tuple[Interval, ...]
    """Its pass@k for each k."""
    zero_share: Interval
    """The share of impossible problems."""
    problems: int
    """Problems behind the fits."""
    unsolved: int
    """Problems with no success at all: all that is known of the hard end."""
    always_solved: int
    """Problems with no failure at all."""

    @property
    def gain(self) -> float:
        """How much the log-likelihood grows by a share of impossible problems."""
        return self.zero_inflated.log_likelihood - self.beta.log_likelihood

    @property
    def impossible_problems_shown(self) -> bool:
        """Whether the data demand impossible problems, at 5 %; when not, the two fits bracket what is known."""
        return self.gain > _CLEAR_GAIN


def beta_pass_at_k(alpha: float, beta: float, ks: npt.ArrayLike) -> FloatArray:
    """pass@k when success rates follow Beta(alpha, beta): 1 - B(alpha, beta + k) / B(alpha, beta)."""
    counts = numbers(ks, "ks")
    if not (alpha > 0 and beta > 0 and np.all(counts >= 0)):
        raise MeasureError(f"alpha {alpha}, beta {beta}, k {counts.tolist()}.", "alpha and beta must be positive, k not negative.")
    failure = log_failure(np.array([alpha]), np.array([beta]), counts.ravel())
    return np.asarray(-np.expm1(failure[0]).reshape(counts.shape))


def extrapolate_pass_at_k(
    samples: npt.ArrayLike,
    correct: npt.ArrayLike,
    ks: npt.ArrayLike,
    *,
    replicates: int = REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> Extrapolation:
    """Predict pass@k beyond the samples drawn, from ``correct[i]`` right of ``samples[i]`` on problem i (numbers may differ).

    Beta-binomial maximum likelihood (Kazdan et al., arXiv 2510.05197), once plain and once with a share of impossible problems;
    intervals refit resampled problems. The literature uses 32 samples per problem. Both fits rest on the shape of the Beta near
    0, where there are few data: read them as a bracket once k is ten times the samples drawn. Refused when no
    sample or every sample succeeds, with one problem, and with one sample per problem, where the Beta cannot be seen.
    """
    drawn, right = _checked(samples, correct)
    counts = whole(np.atleast_1d(numbers(ks, "ks")), "ks")
    plain, inflated = _fit(drawn, right, np.ones((1, len(drawn))), None)
    refits = [_fit(drawn, right, weights, inflated) for weights in _resamples(drawn, replicates, seed)]
    plain_draws, inflated_draws = (np.concatenate([pair[kind] for pair in refits]) for kind in (0, 1))
    beta, zero_inflated = BetaFit(*plain[0].tolist()), BetaFit(*inflated[0].tolist())

    def interval(value: float, draws: FloatArray) -> Interval:
        return interval_from_draws(value, draws, problems=len(drawn), level=level, bounds=(0.0, 1.0))

    return Extrapolation(
        ks=tuple(counts.astype(int).tolist()),
        beta=beta,
        beta_pass=tuple(map(interval, beta.pass_at_k(counts).tolist(), _predict(plain_draws, counts).T)),
        zero_inflated=zero_inflated,
        zero_inflated_pass=tuple(map(interval, zero_inflated.pass_at_k(counts).tolist(), _predict(inflated_draws, counts).T)),
        zero_share=interval(zero_inflated.zero_share, inflated_draws[:, 2]),
        problems=len(drawn),
        unsolved=int(np.count_nonzero(right == 0)),
        always_solved=int(np.count_nonzero(right == drawn)),
    )


def _checked(samples: npt.ArrayLike, correct: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    drawn, right = whole(samples, "samples"), whole(correct, "correct")
    problems = same_length(samples=drawn, correct=right)
    if np.any(right > drawn) or drawn.min() == 0:
        raise MeasureError("A problem has no samples, or more correct answers than samples.", "Give 0 <= correct <= samples, samples > 0.")
    if problems < 2:
        raise MeasureError("One problem shows no spread of success rates.", "Give at least two; a hundred make a usable fit.")
    if drawn.max() < 2:
        raise MeasureError("Every problem has one sample: its success rate cannot be told from luck.", "Draw several samples per problem.")
    if right.sum() in (0, drawn.sum()):
        outcome = "No sample" if right.sum() == 0 else "Every sample"
        raise MeasureError(
            f"{outcome} of {int(drawn.sum())} succeeded: there is no curve to carry on.", "Draw more samples, or change the problems."
        )
    return drawn, right


def _resamples(drawn: FloatArray, replicates: int, seed: int) -> Iterator[FloatArray]:
    """Resampled problem counts, cut so that a slice's working arrays (resamples x samples) stay small."""
    rows = max(1, int(_CELLS // drawn.max()))
    for counts in resampled_counts(len(drawn), replicates, seed):
        yield from (counts[first : first + rows] for first in range(0, len(counts), rows))


def _fit(drawn: FloatArray, right: FloatArray, weights: FloatArray, near: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Plain and zero-inflated fits of each row of weights, starting near known ones: rows of (alpha, beta, share, log-likelihood)."""
    rows = len(weights)
    first = np.zeros((rows, 2)) if near is None else np.tile(np.log(near[:, :2]), (rows, 1))
    plain = _climb(beta_objective(tally(drawn, right, weights, unsolved_apart=False)), first)
    if not np.any(right == 0):
        return plain, plain
    objective = zero_inflated_objective(tally(drawn, right, weights, unsolved_apart=True))
    unsolved = float(np.mean(right == 0))
    starts = [(first, 0.5 * unsolved), (np.log(plain[:, :2]), 0.2 * unsolved), (np.log(plain[:, :2] + 1), 0.9 * unsolved)]
    # The likelihood may have two hills: few impossible problems and many hard ones, or the other way round.
    found = [plain, *(_climb(objective, np.column_stack([begin, np.full(rows, _logit(share))])) for begin, share in starts)]
    best = np.argmax(np.stack([fit[:, 3] - (0 if fit is plain else _TIE) for fit in found]), axis=0)
    return plain, np.stack(found)[best, np.arange(rows)]


def _climb(objective: Objective, start: FloatArray) -> FloatArray:
    """Maximise, then take the single success rate instead wherever it is as likely: rows of (alpha, beta, share, log-likelihood)."""
    found, value = maximise(objective, start)
    narrow = found.copy()
    narrow[:, :2] += (math.log(CONCENTRATION) - np.logaddexp(found[:, 0], found[:, 1]))[:, None]
    narrow_value = objective(narrow, np.arange(len(found)))[0]
    found = np.where((narrow_value >= value - _TIE)[:, None], narrow, found)
    share = 1 / (1 + np.exp(-found[:, 2])) if found.shape[1] > 2 else np.zeros(len(found))
    return np.column_stack([np.exp(found[:, :2]), share, np.maximum(value, narrow_value)])


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


def _predict(fits: FloatArray, ks: FloatArray) -> FloatArray:
    return -(1 - fits[:, 2:3]) * np.expm1(log_failure(fits[:, 0], fits[:, 1], ks))
