"""Beta-binomial likelihoods of right answers per problem, maximised for one data set or a thousand resamples at once.

For whole counts ln Gamma(x + c) - ln Gamma(x) is the sum of ln(x + j) over j < c, so the likelihood of all problems needs only,
for each j, how many problems have more than j successes, failures and samples: `Tallies`. Rows are data sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from breadth.measure.finite import FloatArray

CONCENTRATION = 1e6
"""Largest alpha + beta allowed: a Beta this narrow is a single success rate to six digits."""
_LOG_FLOOR = -10.0
# Smallest ln alpha and ln beta: with 5e-5 a Beta is all but two spikes at 0 and 1.
_LOGIT_REACH = 12.0
# Largest |logit| of the share of impossible problems: 6e-6 is as good as none.
_ITERATIONS = 100

Objective: TypeAlias = Callable[[FloatArray, npt.NDArray[np.intp]], tuple[FloatArray, FloatArray, FloatArray]]
"""Parameters (rows x parameters) and which rows they belong to -> value, gradient, Hessian of each row."""


@dataclass(frozen=True)
class Tallies:
    """How many problems of each data set have more than j successes, failures and samples, and how many have no success at all."""

    successes: FloatArray
    """Data sets x j: problems with more than j successes."""
    failures: FloatArray
    """Data sets x j: problems with more than j failures."""
    samples: FloatArray
    """Data sets x j: problems with more than j samples."""
    unsolved: FloatArray
    """Data sets x distinct sample numbers: problems without success at that many samples (only where these are told apart)."""
    unsolved_samples: npt.NDArray[np.int64]
    """The distinct sample numbers of unsolved problems."""
    solved: FloatArray
    """Problems with a success, per data set."""


def tally(samples: FloatArray, correct: FloatArray, weights: FloatArray, *, unsolved_apart: bool) -> Tallies:
    """Count problems for each row of weights (data sets x problems); with ``unsolved_apart`` problems without success go separately."""
    zero = (correct == 0) & unsolved_apart
    numbers = np.unique(samples[zero]).astype(np.int64)
    rest = weights[:, ~zero]
    return Tallies(
        successes=rest @ _more_than(correct[~zero]),
        failures=rest @ _more_than((samples - correct)[~zero]),
        samples=rest @ _more_than(samples[~zero]),
        unsolved=weights[:, zero] @ (samples[zero][:, None] == numbers).astype(np.float64),
        unsolved_samples=numbers,
        solved=rest.sum(axis=1),
    )


def beta_objective(tallies: Tallies) -> Objective:
    """Log-likelihood of (ln alpha, ln beta), up to a constant of the data, with its derivatives."""

    def evaluate(parameters: FloatArray, rows: npt.NDArray[np.intp]) -> tuple[FloatArray, FloatArray, FloatArray]:
        alpha, beta = np.exp(parameters[:, 0]), np.exp(parameters[:, 1])
        up = _rising(alpha, tallies.successes[rows])
        down = _rising(beta, tallies.failures[rows])
        both = _rising(alpha + beta, tallies.samples[rows])
        gradient = np.stack([up[1] - both[1], down[1] - both[1]], axis=1)
        hessian = np.stack([np.stack([up[2] - both[2], -both[2]], axis=1), np.stack([-both[2], down[2] - both[2]], axis=1)], axis=2)
        return up[0] + down[0] - both[0], *_in_logs(gradient, hessian, np.stack([alpha, beta], axis=1))

    return evaluate


def zero_inflated_objective(tallies: Tallies) -> Objective:
    """Log-likelihood of (ln alpha, ln beta, logit of the share of impossible problems); tallies with unsolved apart."""
    plain = beta_objective(tallies)

    def evaluate(parameters: FloatArray, rows: npt.NDArray[np.intp]) -> tuple[FloatArray, FloatArray, FloatArray]:
        value, gradient, hessian = plain(parameters[:, :2], rows)
        share = 1 / (1 + np.exp(-parameters[:, 2]))
        solved = tallies.solved[rows]
        extra = _unsolved_terms(parameters, share, tallies.unsolved[rows], tallies.unsolved_samples)
        full_gradient = np.concatenate([gradient, (-solved * share)[:, None]], axis=1) + extra[1]
        full_hessian = np.zeros((len(share), 3, 3))
        full_hessian[:, :2, :2] = hessian
        full_hessian[:, 2, 2] = -solved * share * (1 - share)
        return value + solved * np.log1p(-share) + extra[0], full_gradient, full_hessian + extra[2]

    return evaluate


def maximise(objective: Objective, start: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Climb from each start row by damped Newton steps; the parameters found and their values.

    Curvatures are taken by absolute value, so a step always points uphill; damping grows where a step failed. Rows stop by
    themselves once they gain less than 1e-10 relative.
    """
    found = _allowed(start)
    value, gradient, hessian = objective(found, np.arange(len(start)))
    damping = np.full(len(start), 1e-3)
    active = np.arange(len(start))
    for _ in range(_ITERATIONS):
        trial = _allowed(found[active] + _uphill(gradient[active], hessian[active], damping[active]))
        new_value, new_gradient, new_hessian = objective(trial, active)
        gain = new_value - value[active]
        better = gain >= 0
        moved = active[better]
        found[moved], value[moved], gradient[moved], hessian[moved] = (
            trial[better],
            new_value[better],
            new_gradient[better],
            new_hessian[better],
        )
        damping[active] *= np.where(better, 0.2, 10.0)
        settled = (better & (gain <= 1e-10 * (1 + np.abs(new_value)))) | (damping[active] > 1e10)
        active = active[~settled]
        if len(active) == 0:
            break
    return found, value


def log_failure(alpha: FloatArray, beta: FloatArray, ks: FloatArray) -> FloatArray:
    """Log of the mean chance that k samples all fail when success rates follow Beta(alpha, beta): ln B(a, b + k) - ln B(a, b)."""
    from scipy.special import gammaln

    a, b = alpha[:, None], beta[:, None]
    return np.asarray(gammaln(b + ks) - gammaln(b) - (gammaln(a + b + ks) - gammaln(a + b)))


def _more_than(counts: FloatArray) -> FloatArray:
    top = int(counts.max(initial=0.0))
    return (counts[:, None] > np.arange(top)).astype(np.float64)


def _rising(base: FloatArray, tallies: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sum of tallies times ln(base + j), and its first two derivatives in base."""
    inverse = 1 / (base[:, None] + np.arange(tallies.shape[1]))
    weighted = tallies * inverse
    return -(tallies * np.log(inverse)).sum(axis=1), weighted.sum(axis=1), -(weighted * inverse).sum(axis=1)


def _in_logs(gradient: FloatArray, hessian: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Turn derivatives into those with respect to the logs of the parameters."""
    logged = values * gradient
    curved = hessian * values[:, :, None] * values[:, None, :]
    curved[:, np.arange(values.shape[1]), np.arange(values.shape[1])] += logged
    return logged, curved


def _unsolved_terms(
    parameters: FloatArray, share: FloatArray, counts: FloatArray, numbers: npt.NDArray[np.int64]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log-likelihood, gradient and Hessian of problems without success: impossible, or merely unlucky."""
    if len(numbers) == 0:
        return np.zeros(len(share)), np.zeros((len(share), 3)), np.zeros((len(share), 3, 3))
    unlucky, slope, curve = _unlucky(np.exp(parameters[:, :2]), numbers)
    chance = np.exp(unlucky)
    mixed = share[:, None] + (1 - share[:, None]) * chance
    possible = (1 - share[:, None]) * chance / mixed
    push = share[:, None] * (1 - share[:, None]) * (1 - chance) / mixed
    gradient = np.concatenate([possible[..., None] * slope, push[..., None]], axis=-1)
    hessian = np.zeros((*gradient.shape, 3))
    hessian[..., :2, :2] = possible[..., None, None] * (curve + (1 - possible)[..., None, None] * slope[..., :, None] * slope[..., None, :])
    hessian[..., :2, 2] = hessian[..., 2, :2] = -(possible * (1 - possible))[..., None] * slope
    hessian[..., 2, 2] = push * (1 - 2 * share[:, None] - push)
    weigh = counts[..., None]
    return (counts * np.log(mixed)).sum(axis=1), (weigh * gradient).sum(axis=1), (weigh[..., None] * hessian).sum(axis=1)


def _unlucky(values: FloatArray, numbers: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log-chance of no success in each number of samples, with derivatives in (ln alpha, ln beta): rows x numbers (x 2 (x 2))."""
    steps = np.arange(int(numbers.max()))
    one, both = 1 / (values[:, 1:] + steps), 1 / (values.sum(axis=1, keepdims=True) + steps)

    def summed(terms: FloatArray) -> FloatArray:
        return np.asarray(np.cumsum(terms, axis=1)[:, numbers - 1])

    slope = np.stack([summed(-both), summed(one - both)], axis=-1)
    cross = summed(both**2)
    curve = np.stack([np.stack([cross, cross], axis=-1), np.stack([cross, summed(both**2 - one**2)], axis=-1)], axis=-1)
    flat_slope, flat_curve = slope.reshape(-1, 2), curve.reshape(-1, 2, 2)
    logged, curved = _in_logs(flat_slope, flat_curve, np.repeat(values, len(numbers), axis=0))
    return summed(np.log(both) - np.log(one)), logged.reshape(slope.shape), curved.reshape(curve.shape)


def _uphill(gradient: FloatArray, hessian: FloatArray, damping: FloatArray) -> FloatArray:
    bends, axes = np.linalg.eigh(hessian)
    size = np.abs(bends)
    size = size + damping[:, None] * size.max(axis=1, keepdims=True) + 1e-12
    along = np.einsum("rji,rj->ri", axes, gradient) / size
    return np.asarray(np.clip(np.einsum("rij,rj->ri", axes, along), -2.0, 2.0))


def _allowed(parameters: FloatArray) -> FloatArray:
    kept = parameters.copy()
    kept[:, :2] = np.clip(kept[:, :2], _LOG_FLOOR, math.log(CONCENTRATION))
    over = np.logaddexp(kept[:, 0], kept[:, 1]) - math.log(CONCENTRATION)
    kept[:, :2] -= np.maximum(over, 0.0)[:, None]
    kept[:, :2] = np.maximum(kept[:, :2], _LOG_FLOOR)
    kept[:, 2:] = np.clip(kept[:, 2:], -_LOGIT_REACH, _LOGIT_REACH)
    return kept
