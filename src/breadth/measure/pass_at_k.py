"""pass@k: the unbiased estimate for all k at once, and its extrapolation to more samples than were drawn.

The extrapolation fits a Beta distribution of success rates by maximum likelihood, for one data set or a thousand
resamples at once. For whole counts ln Gamma(x + c) - ln Gamma(x) is the sum of ln(x + j) over j < c, so the
Beta-binomial likelihood of all problems needs only, for each j, how many problems have more than j successes, failures
and samples: `ProblemCounts`. Its rows are data sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from breadth.base.errors import MeasureError
from breadth.measure.intervals import BOOTSTRAP_REPLICATES, Interval, interval_from_resamples, resample_counts
from breadth.measure.validate import FloatArray, IntArray, as_counts, as_floats, as_integers, check_same_length

_MAX_TABLE_CELLS = 1 << 22
"""Numbers held at once (32 MB): bounds the memory when many different (n, c) meet a large k."""


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> FloatArray:
    """Estimate, per problem, the chance that one of ``k`` fresh samples is right, from ``c`` right among ``n``.

    ``1 - C(n-c, k) / C(n, k)`` (arXiv 2107.03374), unbiased for independent samples, computed as
    ``1 - exp Σ_{i<k} log(1 - c / (n-i))``, which neither overflows nor cancels at any n. The plug-in
    ``1 - (1 - c/n)^k`` is biased low (0.832 instead of 0.917 for n=10, c=3, k=5) and is not offered.

    ``n`` and ``c`` broadcast; the result has their shape and, unless ``k`` is a single number, one more axis for k.
    Misleads when samples were deduplicated or saw one another, and on multiple choice, where guessing soon passes. With
    k near n the estimate is almost a yes or no per problem: sample at least 2k for an honest variance.
    """
    totals, hits = check_counts(n, c)
    sizes = as_sample_sizes(k, totals)
    pairs, where = np.unique(encode_pairs(totals, hits), return_inverse=True)
    table = np.concatenate([pass_table(*decode_pairs(part, hits), sizes) for part in _split_pairs(pairs, sizes)])
    curves = table[where.reshape(totals.shape)]
    return curves if np.ndim(k) else np.asarray(curves[..., 0])


def mean_pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> FloatArray:
    """Average `pass_at_k` over all problems, each with equal weight; one number per k.

    Every problem must have at least k samples: leaving the smaller ones out for large k would compare different
    problems along one curve, so that is an error.
    """
    totals, hits = check_counts(n, c)
    sizes = as_sample_sizes(k, totals)
    pairs, times = np.unique(encode_pairs(totals, hits), return_counts=True)
    total, done = np.zeros(sizes.size), 0
    for part in _split_pairs(pairs, sizes):
        total += times[done : done + part.size] @ pass_table(*decode_pairs(part, hits), sizes)
        done += part.size
    mean = total / totals.size
    return mean if np.ndim(k) else np.asarray(mean[0])


def chart_ks(max_k: int) -> list[int]:
    """Return the k a chart of pass@k shows: powers of two up to the samples, and those themselves."""
    return sorted({*(2**power for power in range(max_k.bit_length()) if 2**power <= max_k), max_k})


def share_never_solved(n: ArrayLike, c: ArrayLike) -> float:
    """Return the share of problems that no sample solved: report it next to pass@k."""
    _, hits = check_counts(n, c)
    return float(np.mean(hits == 0))


def share_always_solved(n: ArrayLike, c: ArrayLike) -> float:
    """Return the share of problems that every sample solved; these and those never solved give no training signal."""
    totals, hits = check_counts(n, c)
    return float(np.mean(hits == totals))


def as_sample_sizes(k: ArrayLike, n: ArrayLike) -> IntArray:
    """Check the numbers of draws asked for against the samples there are, and return them as a flat array."""
    sizes = np.atleast_1d(as_integers(k, "k"))
    if sizes.ndim > 1 or sizes.size == 0 or sizes.min() < 1:
        raise MeasureError(
            f"k must be numbers of draws from 1 up; got {np.asarray(k).tolist()!s:.80}.", "Give k as 1, 2, 4, ..."
        )
    totals = np.atleast_1d(n)
    short = int(np.count_nonzero(totals < sizes.max()))
    if short:
        raise MeasureError(
            f"k = {sizes.max()} needs at least {sizes.max()} samples a problem, but {short} of {totals.size} problems"
            f" have fewer (the smallest has {totals.min()}).",
            f"Ask for k up to {totals.min()}, or leave out the problems with fewer than {sizes.max()} samples.",
        )
    return sizes


def check_counts(n: ArrayLike, c: ArrayLike) -> tuple[IntArray, IntArray]:
    """Return n and c as integers of one shape; refuse empty ones and any without 0 <= c <= n, n >= 1."""
    try:
        totals, hits = np.broadcast_arrays(as_integers(n, "n"), as_integers(c, "c"))
    except ValueError as error:
        if isinstance(error, MeasureError):
            raise
        raise MeasureError(
            f"n and c do not fit together: {error}.", "Give one n and one c for each problem."
        ) from error
    if totals.size == 0:
        raise MeasureError("There is no problem to measure: n and c are empty.", "Give at least one problem.")
    bad = int(np.count_nonzero((totals < 1) | (hits < 0) | (hits > totals)))
    if bad:
        raise MeasureError(
            f"{bad} of {totals.size} problems have not 0 <= c <= n with n >= 1.", "Check the counts of right samples."
        )
    return totals, hits


def encode_pairs(totals: IntArray, hits: IntArray) -> IntArray:
    """Return one number for each (n, c): equal problems are then computed once."""
    codes: IntArray = totals * (hits.max() + 1) + hits
    return codes.ravel()


def decode_pairs(codes: IntArray, hits: IntArray) -> tuple[IntArray, IntArray]:
    """Return the (n, c) of each code."""
    totals, found = np.divmod(codes, hits.max() + 1)
    return totals, found


def _split_pairs(pairs: IntArray, sizes: IntArray) -> list[IntArray]:
    rows = max(1, _MAX_TABLE_CELLS // int(sizes.max()))
    return [pairs[start : start + rows] for start in range(0, pairs.size, rows)]


def pass_table(totals: IntArray, hits: IntArray, sizes: IntArray) -> FloatArray:
    """[pairs, k] pass@k; the running sum over draws gives every k in one pass."""
    left = totals[:, None] - np.arange(sizes.max())
    # Once fewer than c wrong-or-right samples are left the next draw is right for certain: log 0, pass 1.
    with np.errstate(divide="ignore"):
        log_miss = np.cumsum(np.log1p(-np.minimum(hits[:, None] / left, 1.0)), axis=1)
    chances: FloatArray = -np.expm1(log_miss[:, sizes - 1])
    return chances + 0.0  # no minus zero


MAX_CONCENTRATION = 1e6
"""Largest alpha + beta allowed: a Beta this narrow is a single success rate to six digits."""
_MIN_LOG_PARAMETER = -10.0
# Smallest ln alpha and ln beta: with 5e-5 a Beta is all but two spikes at 0 and 1.
_MAX_LOGIT = 12.0
# Largest |logit| of the share of impossible problems: 6e-6 is as good as none.
_MAX_ITERATIONS = 100

Objective: TypeAlias = Callable[[FloatArray, npt.NDArray[np.intp]], tuple[FloatArray, FloatArray, FloatArray]]
"""Parameters (rows x parameters) and which rows they belong to -> value, gradient, Hessian of each row."""


@dataclass(frozen=True)
class ProblemCounts:
    """How many problems of each data set have more than j successes, failures and samples, and how many no success."""

    successes: FloatArray
    """Data sets x j: problems with more than j successes."""
    failures: FloatArray
    """Data sets x j: problems with more than j failures."""
    samples: FloatArray
    """Data sets x j: problems with more than j samples."""
    unsolved: FloatArray
    """Data sets x distinct sample numbers: problems without success at that many samples (only where these are
    kept apart).
    """
    unsolved_samples: IntArray
    """The distinct sample numbers of unsolved problems."""
    solved: FloatArray
    """Problems with a success, per data set."""


def count_exceedances(
    samples: FloatArray, correct: FloatArray, weights: FloatArray, *, unsolved_apart: bool
) -> ProblemCounts:
    """Count problems for each row of weights (data sets x problems), optionally those never solved apart."""
    zero = (correct == 0) & unsolved_apart
    numbers = np.unique(samples[zero]).astype(np.int64)
    rest = weights[:, ~zero]
    return ProblemCounts(
        successes=rest @ _exceedances(correct[~zero]),
        failures=rest @ _exceedances((samples - correct)[~zero]),
        samples=rest @ _exceedances(samples[~zero]),
        unsolved=weights[:, zero] @ (samples[zero][:, None] == numbers).astype(np.float64),
        unsolved_samples=numbers,
        solved=rest.sum(axis=1),
    )


def beta_objective(tallies: ProblemCounts) -> Objective:
    """Log-likelihood of (ln alpha, ln beta), up to a constant of the data, with its derivatives."""

    def evaluate(parameters: FloatArray, rows: npt.NDArray[np.intp]) -> tuple[FloatArray, FloatArray, FloatArray]:
        alpha, beta = np.exp(parameters[:, 0]), np.exp(parameters[:, 1])
        up = _log_rising_factorial(alpha, tallies.successes[rows])
        down = _log_rising_factorial(beta, tallies.failures[rows])
        both = _log_rising_factorial(alpha + beta, tallies.samples[rows])
        gradient = np.stack([up[1] - both[1], down[1] - both[1]], axis=1)
        hessian = np.stack(
            [np.stack([up[2] - both[2], -both[2]], axis=1), np.stack([-both[2], down[2] - both[2]], axis=1)], axis=2
        )
        return up[0] + down[0] - both[0], *_to_log_scale(gradient, hessian, np.stack([alpha, beta], axis=1))

    return evaluate


def zero_inflated_objective(tallies: ProblemCounts) -> Objective:
    """Log-likelihood of (ln alpha, ln beta, logit of the share of impossible problems); tallies with unsolved apart."""
    plain = beta_objective(tallies)

    def evaluate(parameters: FloatArray, rows: npt.NDArray[np.intp]) -> tuple[FloatArray, FloatArray, FloatArray]:
        value, gradient, hessian = plain(parameters[:, :2], rows)
        share = 1 / (1 + np.exp(-parameters[:, 2]))
        solved = tallies.solved[rows]
        extra = _never_solved_terms(parameters, share, tallies.unsolved[rows], tallies.unsolved_samples)
        full_gradient = np.concatenate([gradient, (-solved * share)[:, None]], axis=1) + extra[1]
        full_hessian = np.zeros((len(share), 3, 3))
        full_hessian[:, :2, :2] = hessian
        full_hessian[:, 2, 2] = -solved * share * (1 - share)
        return value + solved * np.log1p(-share) + extra[0], full_gradient, full_hessian + extra[2]

    return evaluate


def maximise(objective: Objective, start: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Climb from each start row by damped Newton steps; the parameters found and their values.

    Curvatures are taken by absolute value, so a step always points uphill; damping grows where a step failed. Rows stop
    by themselves once they gain less than 1e-10 relative.
    """
    found = clip_parameters(start)
    value, gradient, hessian = objective(found, np.arange(len(start)))
    damping = np.full(len(start), 1e-3)
    active = np.arange(len(start))
    for _ in range(_MAX_ITERATIONS):
        trial = clip_parameters(found[active] + newton_step(gradient[active], hessian[active], damping[active]))
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


log_gamma = np.vectorize(math.lgamma, otypes=[np.float64])


def log_failure(alpha: FloatArray, beta: FloatArray, ks: FloatArray) -> FloatArray:
    """Return the log-chance that k samples all fail under Beta(alpha, beta): ln B(a, b + k) - ln B(a, b)."""
    a, b = alpha[:, None], beta[:, None]
    return np.asarray(log_gamma(b + ks) - log_gamma(b) - (log_gamma(a + b + ks) - log_gamma(a + b)))


def _exceedances(counts: FloatArray) -> FloatArray:
    top = int(counts.max(initial=0.0))
    return (counts[:, None] > np.arange(top)).astype(np.float64)


def _log_rising_factorial(base: FloatArray, tallies: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sum of tallies times ln(base + j), and its first two derivatives in base."""
    inverse = 1 / (base[:, None] + np.arange(tallies.shape[1]))
    weighted = tallies * inverse
    return -(tallies * np.log(inverse)).sum(axis=1), weighted.sum(axis=1), -(weighted * inverse).sum(axis=1)


def _to_log_scale(gradient: FloatArray, hessian: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Turn derivatives into those with respect to the logs of the parameters."""
    logged = values * gradient
    curved = hessian * values[:, :, None] * values[:, None, :]
    curved[:, np.arange(values.shape[1]), np.arange(values.shape[1])] += logged
    return logged, curved


def _never_solved_terms(
    parameters: FloatArray, share: FloatArray, counts: FloatArray, numbers: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log-likelihood, gradient and Hessian of problems without success: impossible, or merely unlucky."""
    unlucky, slope, curve = _log_no_success(np.exp(parameters[:, :2]), numbers)
    chance = np.exp(unlucky)
    mixed = share[:, None] + (1 - share[:, None]) * chance
    possible = (1 - share[:, None]) * chance / mixed
    push = share[:, None] * (1 - share[:, None]) * (1 - chance) / mixed
    gradient = np.concatenate([possible[..., None] * slope, push[..., None]], axis=-1)
    hessian = np.zeros((*gradient.shape, 3))
    hessian[..., :2, :2] = possible[..., None, None] * (
        curve + (1 - possible)[..., None, None] * slope[..., :, None] * slope[..., None, :]
    )
    hessian[..., :2, 2] = hessian[..., 2, :2] = -(possible * (1 - possible))[..., None] * slope
    hessian[..., 2, 2] = push * (1 - 2 * share[:, None] - push)
    weigh = counts[..., None]
    return (
        (counts * np.log(mixed)).sum(axis=1),
        (weigh * gradient).sum(axis=1),
        (weigh[..., None] * hessian).sum(axis=1),
    )


def _log_no_success(values: FloatArray, numbers: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the log-chance of no success in each number of samples, with derivatives in (ln alpha, ln beta).

    Shapes: rows x numbers (x 2 (x 2)).
    """
    steps = np.arange(int(numbers.max()))
    one, both = 1 / (values[:, 1:] + steps), 1 / (values.sum(axis=1, keepdims=True) + steps)

    def cumulate(terms: FloatArray) -> FloatArray:
        return np.asarray(np.cumsum(terms, axis=1)[:, numbers - 1])

    slope = np.stack([cumulate(-both), cumulate(one - both)], axis=-1)
    cross = cumulate(both**2)
    curve = np.stack(
        [np.stack([cross, cross], axis=-1), np.stack([cross, cumulate(both**2 - one**2)], axis=-1)], axis=-1
    )
    flat_slope, flat_curve = slope.reshape(-1, 2), curve.reshape(-1, 2, 2)
    logged, curved = _to_log_scale(flat_slope, flat_curve, np.repeat(values, len(numbers), axis=0))
    return cumulate(np.log(both) - np.log(one)), logged.reshape(slope.shape), curved.reshape(curve.shape)


def newton_step(gradient: FloatArray, hessian: FloatArray, damping: FloatArray) -> FloatArray:
    """Return a damped Newton step that points uphill, at most 2 in each parameter."""
    bends, axes = np.linalg.eigh(hessian)
    size = np.abs(bends)
    size = size + damping[:, None] * size.max(axis=1, keepdims=True) + 1e-12
    along = np.einsum("rji,rj->ri", axes, gradient) / size
    return np.asarray(np.clip(np.einsum("rij,rj->ri", axes, along), -2.0, 2.0))


def clip_parameters(parameters: FloatArray) -> FloatArray:
    """Clip parameters to the range in which the likelihood is computed."""
    kept = parameters.copy()
    kept[:, :2] = np.clip(kept[:, :2], _MIN_LOG_PARAMETER, math.log(MAX_CONCENTRATION))
    over = np.logaddexp(kept[:, 0], kept[:, 1]) - math.log(MAX_CONCENTRATION)
    kept[:, :2] -= np.maximum(over, 0.0)[:, None]
    kept[:, :2] = np.maximum(kept[:, :2], _MIN_LOG_PARAMETER)
    kept[:, 2:] = np.clip(kept[:, 2:], -_MAX_LOGIT, _MAX_LOGIT)
    return kept


_CLEAR_GAIN = 1.353
# Log-likelihood gain at which a share of impossible problems is significant at 5 %: 2 * gain is half a point mass at 0
# and half
# chi-squared with one degree of freedom when the share is truly 0 (Self and Liang 1987), whose 95 % point is 2.706.
_TIE_TOLERANCE = 1e-6
# Log-likelihoods closer than this are equal: the simpler description is taken.
_MAX_REFIT_CELLS = 2_000_000
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
    def is_overdispersed(self) -> bool:
        """False when problems differ no more than by chance: then all share the success rate alpha / (alpha + beta)."""
        return self.alpha + self.beta < 0.99 * MAX_CONCENTRATION

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
    def has_impossible_problems(self) -> bool:
        """Whether the data demand impossible problems, at 5 %; when not, the two fits bracket what is known."""
        return self.gain > _CLEAR_GAIN


def beta_pass_at_k(alpha: float, beta: float, ks: npt.ArrayLike) -> FloatArray:
    """pass@k when success rates follow Beta(alpha, beta): 1 - B(alpha, beta + k) / B(alpha, beta)."""
    counts = as_floats(ks, "ks")
    if not (alpha > 0 and beta > 0 and np.all(counts >= 0)):
        raise MeasureError(
            f"alpha {alpha}, beta {beta}, k {counts.tolist()}.", "alpha and beta must be positive, k not negative."
        )
    failure = log_failure(np.array([alpha]), np.array([beta]), counts.ravel())
    return np.asarray(-np.expm1(failure[0]).reshape(counts.shape))


def extrapolate_pass_at_k(
    samples: npt.ArrayLike,
    correct: npt.ArrayLike,
    ks: npt.ArrayLike,
    *,
    replicates: int = BOOTSTRAP_REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> Extrapolation:
    """Predict pass@k beyond the samples drawn, from ``correct[i]`` right of ``samples[i]`` on problem i.

    Beta-binomial maximum likelihood (Kazdan et al., arXiv 2510.05197), once plain and once with a share of impossible
    problems; intervals refit resampled problems. The literature uses 32 samples per problem. Both fits rest on the
    shape of the Beta near 0, where there are few data: read them as a bracket once k is ten times the samples drawn.
    Refused when no sample or every sample succeeds, with one problem, and with one sample per problem, where the Beta
    cannot be seen.
    """
    drawn, right = _check_fit_counts(samples, correct)
    counts = as_counts(np.atleast_1d(as_floats(ks, "ks")), "ks")
    plain, inflated = fit_both(drawn, right, np.ones((1, len(drawn))), None)
    refits = [fit_both(drawn, right, weights, inflated) for weights in _resample_weights(drawn, replicates, seed)]
    plain_draws, inflated_draws = (np.concatenate([pair[kind] for pair in refits]) for kind in (0, 1))
    beta, zero_inflated = BetaFit(*plain[0].tolist()), BetaFit(*inflated[0].tolist())

    def interval(value: float, draws: FloatArray) -> Interval:
        return interval_from_resamples(value, draws, problems=len(drawn), level=level, bounds=(0.0, 1.0))

    return Extrapolation(
        ks=tuple(counts.astype(int).tolist()),
        beta=beta,
        beta_pass=tuple(map(interval, beta.pass_at_k(counts).tolist(), predict_pass(plain_draws, counts).T)),
        zero_inflated=zero_inflated,
        zero_inflated_pass=tuple(
            map(interval, zero_inflated.pass_at_k(counts).tolist(), predict_pass(inflated_draws, counts).T)
        ),
        zero_share=interval(zero_inflated.zero_share, inflated_draws[:, 2]),
        problems=len(drawn),
        unsolved=int(np.count_nonzero(right == 0)),
        always_solved=int(np.count_nonzero(right == drawn)),
    )


def _check_fit_counts(samples: npt.ArrayLike, correct: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    drawn, right = as_counts(samples, "samples"), as_counts(correct, "correct")
    problems = check_same_length(samples=drawn, correct=right)
    if np.any(right > drawn) or drawn.min() == 0:
        raise MeasureError(
            "A problem has no samples, or more correct answers than samples.",
            "Give 0 <= correct <= samples, samples > 0.",
        )
    if problems < 2:
        raise MeasureError(
            "One problem shows no spread of success rates.", "Give at least two; a hundred make a usable fit."
        )
    if drawn.max() < 2:
        raise MeasureError(
            "Every problem has one sample: its success rate and luck cannot be separated.",
            "Draw several samples per problem.",
        )
    if right.sum() in (0, drawn.sum()):
        outcome = "No sample" if right.sum() == 0 else "Every sample"
        raise MeasureError(
            f"{outcome} of {int(drawn.sum())} succeeded: there is no curve to extrapolate.",
            "Draw more samples, or change the problems.",
        )
    return drawn, right


def _resample_weights(drawn: FloatArray, replicates: int, seed: int) -> Iterator[FloatArray]:
    """Yield resampled problem counts in slices whose working arrays (resamples x samples) stay small."""
    rows = max(1, int(_MAX_REFIT_CELLS // drawn.max()))
    for counts in resample_counts(len(drawn), replicates, seed):
        yield from (counts[first : first + rows] for first in range(0, len(counts), rows))


def fit_both(
    drawn: FloatArray, right: FloatArray, weights: FloatArray, near: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Return plain and zero-inflated fits of each row of weights: rows of (alpha, beta, share, log-likelihood).

    ``near`` is a known fit to start from.
    """
    rows = len(weights)
    first = np.zeros((rows, 2)) if near is None else np.tile(np.log(near[:, :2]), (rows, 1))
    plain = climb(beta_objective(count_exceedances(drawn, right, weights, unsolved_apart=False)), first)
    if not np.any(right == 0):
        return plain, plain
    objective = zero_inflated_objective(count_exceedances(drawn, right, weights, unsolved_apart=True))
    unsolved = float(np.mean(right == 0))
    starts = [
        (first, 0.5 * unsolved),
        (np.log(plain[:, :2]), 0.2 * unsolved),
        (np.log(plain[:, :2] + 1), 0.9 * unsolved),
    ]
    # The likelihood may have two hills: few impossible problems and many hard ones, or the other way round.
    found = [
        plain,
        *(
            climb(objective, np.column_stack([begin, np.full(rows, math.log(share / (1 - share)))]))
            for begin, share in starts
        ),
    ]
    best = np.argmax(np.stack([fit[:, 3] - (0 if fit is plain else _TIE_TOLERANCE) for fit in found]), axis=0)
    return plain, np.stack(found)[best, np.arange(rows)]


def climb(objective: Objective, start: FloatArray) -> FloatArray:
    """Maximise, then take the single success rate wherever it is as likely; rows as those of `fit_both`."""
    found, value = maximise(objective, start)
    narrow = found.copy()
    narrow[:, :2] += (math.log(MAX_CONCENTRATION) - np.logaddexp(found[:, 0], found[:, 1]))[:, None]
    narrow_value = objective(narrow, np.arange(len(found)))[0]
    found = np.where((narrow_value >= value - _TIE_TOLERANCE)[:, None], narrow, found)
    share = 1 / (1 + np.exp(-found[:, 2])) if found.shape[1] > 2 else np.zeros(len(found))
    return np.column_stack([np.exp(found[:, :2]), share, np.maximum(value, narrow_value)])


def predict_pass(fits: FloatArray, ks: FloatArray) -> FloatArray:
    """Return pass@k for each fit and k."""
    return -(1 - fits[:, 2:3]) * np.expm1(log_failure(fits[:, 0], fits[:, 1], ks))
