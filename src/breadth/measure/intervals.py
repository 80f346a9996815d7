"""Intervals: Student's t, Wilson, Clopper-Pearson and the cluster bootstrap over problems.

Student's t and the beta quantile are in plain Python: scipy would be a quarter of the installation for these two, and
loading it takes longer than reading a log and diagnosing it.
Several columns of sums over whole problems can be resampled together, for ratios and differences of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from breadth.base.errors import MeasureError
from breadth.measure.validate import FloatArray, as_finite, check_same_length

_MAX_TERMS = 10_000
# Of the continued fraction; a million degrees of freedom need a few hundred.
_MIN_TERM = 1e-16
# As a share of the sum: less than a float can show.
_MIN_STEP = 1e-9
# As a share of the quantile: each of Newton's steps doubles the digits that are right, so the one after it would change
# nothing.


@lru_cache(maxsize=1024)
def t_critical(df: float, level: float) -> float:
    """Return the standard errors to each side of a two-sided interval, at 1 degree of freedom or more.

    Newton's method from the first two terms of the quantile's expansion in 1/df (Abramowitz and Stegun 26.7.5).
    Right to 13 digits up to some thousand degrees of freedom, to 10 up to a million.
    """
    normal, step = NormalDist().inv_cdf((1 + level) / 2), math.inf
    reach = normal + (normal**3 + normal) / (4 * df)
    while abs(step) > _MIN_STEP * reach:
        step = (t_sf_two_sided(df, reach) - (1 - level)) / (2 * t_density(df, reach))
        reach += step
    return reach


def t_sf_two_sided(df: float, distance: float) -> float:
    """Return how often Student's t lies at least so far from zero, on either side.

    That is the incomplete beta function at (df / 2, 1/2).
    """
    square = distance * distance
    if math.isinf(square):
        return 0.0
    outside, front = df / (df + square), 2 * abs(distance) * t_density(df, distance)
    # Where the fraction converges fast; elsewhere that of the other side does.
    if outside < (df + 2) / (df + 5):
        return front / df * beta_fraction(df / 2, 0.5, outside)
    return 1 - front * beta_fraction(0.5, df / 2, square / (df + square))


def t_density(df: float, distance: float) -> float:
    """Return the density of Student's t."""
    falls = math.exp(-(df + 1) / 2 * math.log1p(distance * distance / df))
    return gamma_ratio(df / 2) / math.sqrt(math.pi * df) * falls


def gamma_ratio(x: float) -> float:
    """Return Gamma(x + 1/2) / Gamma(x); where these are too large for a float, by the expansion in 1/x."""
    if x < 100:
        return math.gamma(x + 0.5) / math.gamma(x)
    u = 1 / (8 * x)
    return math.sqrt(x) * (1 + u * (-1 + u * (0.5 + u * (2.5 + u * (-2.625 - 49.875 * u)))))


def beta_fraction(a: float, b: float, x: float) -> float:
    """Sum the continued fraction of the incomplete beta function (DLMF 8.17.22) from its front, by Lentz's method."""
    upper = 1.0
    value = lower = 1 / (1 - (a + b) * x / (a + 1))
    for m in range(1, _MAX_TERMS):
        before, place = value, a + 2 * m
        for term in (m * (b - m) * x / ((place - 1) * place), -(a + m) * (a + b + m) * x / (place * (place + 1))):
            lower, upper = 1 / (1 + term * lower), 1 + term / upper
            value *= lower * upper
        if abs(value - before) <= _MIN_TERM * abs(value):
            break
    return value


def beta_cdf(a: float, b: float, x: float) -> float:
    """Return how often a Beta(a, b) variable is at most x: the regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):  # where the fraction converges fast; elsewhere that of the other side does
        return front / a * beta_fraction(a, b, x)
    return 1 - front / b * beta_fraction(b, a, 1 - x)


def beta_quantile(a: float, b: float, probability: float) -> float:
    """Return the x below which a Beta(a, b) variable lies so often, by halving: to 12 digits of x or of 1 - x."""
    low, high = 0.0, 1.0
    while high - low > 1e-13 * min(high, 1 - low):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if beta_cdf(a, b, middle) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


BOOTSTRAP_REPLICATES = 1000
"""Resamples behind an interval by default: the usual number in the literature on pass@k."""
_MAX_RESAMPLE_CELLS = 4_000_000
# Resampled counts are made in slices of at most this many numbers (32 MB), so memory stays flat as problems grow.

Bounds: TypeAlias = tuple[float, float]
"""Smallest and largest value a quantity can take."""
UNBOUNDED: Bounds = (-math.inf, math.inf)
"""Bounds of a quantity that may take any value."""


@dataclass(frozen=True)
class Interval:
    """A number with the range it may lie in and how that range was made."""

    value: float
    """The point estimate."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""
    level: float = 0.95
    """Share of such intervals that hold the true value."""
    method: str = ""
    """How the interval was made, e.g. ``wilson``, ``cluster bootstrap over 200 problems``."""

    def __contains__(self, number: float) -> bool:
        return self.low <= number <= self.high


def wilson(successes: int, trials: int, *, level: float = 0.95) -> Interval:
    """Interval for a proportion of independent trials, accurate also near 0 and 1 (Wilson 1927).

    No trials: the value is NaN and the interval is all of [0, 1]. Misleads when trials are not independent, as samples
    of one problem are not: bootstrap over problems then.
    """
    check_proportion(successes, trials, level)
    if trials == 0:
        return Interval(math.nan, 0.0, 1.0, level, "wilson, no trials")
    z, share = normal_quantile(level), successes / trials
    shrink = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    low = 0.0 if successes == 0 else middle - half
    high = 1.0 if successes == trials else middle + half
    return Interval(share, low, high, level, "wilson")


def clopper_pearson(successes: int, trials: int, *, level: float = 0.95) -> Interval:
    """Interval for a proportion that covers at least as often as its level (Clopper and Pearson 1934).

    No trials: the value is NaN and the interval is all of [0, 1]. Same warning as `wilson` about dependent trials.
    """
    check_proportion(successes, trials, level)
    if trials == 0:
        return Interval(math.nan, 0.0, 1.0, level, "clopper-pearson, no trials")
    tail, failures = (1 - level) / 2, trials - successes
    low = beta_quantile(successes, failures + 1, tail) if successes else 0.0
    high = beta_quantile(successes + 1, failures, 1 - tail) if failures else 1.0
    return Interval(successes / trials, low, high, level, "clopper-pearson")


def mean_interval(
    values: npt.ArrayLike,
    *,
    bounds: Bounds = UNBOUNDED,
    replicates: int = BOOTSTRAP_REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Mean of one value per problem, with the interval from resampling problems.

    ``bounds`` are the values the quantity cannot leave, (0, 1) for an accuracy. They matter when all problems give the
    same value: the bootstrap sees no spread then and would claim certainty, so the ends come from what problems not
    drawn could still be; without bounds they are infinite. Misleads below about ten problems, where it is still too
    narrow.
    """
    column = as_finite(values, "values")[:, None]
    return curve_intervals(column, bounds=bounds, replicates=replicates, level=level, seed=seed)[0]


def curve_intervals(
    values: npt.ArrayLike,
    *,
    bounds: Bounds = UNBOUNDED,
    replicates: int = BOOTSTRAP_REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[Interval, ...]:
    """Means of every column of a problems x columns array (a whole pass@k curve), from the same resampled problems.

    Each interval holds its own column at ``level``; the band as a whole holds less often. For ``bounds`` see
    `mean_interval`.
    """
    table = as_finite(values, "values", ndim=2)
    draws = resample_means(table, replicates=replicates, seed=seed)
    columns = zip(table.mean(axis=0), draws.T, strict=True)
    return tuple(
        interval_from_resamples(float(mean), draw, problems=len(table), level=level, bounds=bounds)
        for mean, draw in columns
    )


def ratio_interval(
    totals: npt.ArrayLike,
    counts: npt.ArrayLike,
    *,
    replicates: int = BOOTSTRAP_REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Sum of totals over sum of counts, as in a mean over all tokens, with the interval from resampling whole clusters.

    ``totals[i]`` and ``counts[i]`` belong to cluster i (a problem, a sequence). Resamples that drew no count at all are
    left out.
    """
    top, bottom = as_finite(totals, "totals"), as_finite(counts, "counts")
    check_same_length(totals=top, counts=bottom)
    pair = np.stack([top, bottom], axis=1)
    if pair[:, 1].min() < 0 or pair[:, 1].sum() == 0:
        raise MeasureError(
            "Counts must not be negative and must not all be 0.", "Give how many values each total sums."
        )
    draws = resample_means(pair, replicates=replicates, seed=seed)
    drawn = draws[draws[:, 1] > 0]
    value = float(pair[:, 0].sum() / pair[:, 1].sum())
    return interval_from_resamples(value, drawn[:, 0] / drawn[:, 1], problems=len(pair), level=level)


def cluster_bootstrap(
    statistic: Callable[[list[npt.NDArray[Any]]], float],
    clusters: Sequence[npt.NDArray[Any]],
    *,
    within: bool = False,
    bounds: Bounds = UNBOUNDED,
    replicates: int = BOOTSTRAP_REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Any statistic of whole problems, with the interval from resampling problems: slow but general.

    ``clusters[i]`` holds the samples of problem i along its first axis; the statistic is given a list of such arrays.
    With ``within`` the samples of each drawn problem are resampled too: right when the same problems would be asked
    again, too wide otherwise, and wrong for statistics that count repeats (a resample repeats samples, so pass@k and
    distinct answers fall). Resamples where the statistic is NaN are left out, and the method says how many. For means
    use `mean_interval`: much faster.
    """
    check_resampling(len(clusters), replicates, level)
    if any(len(cluster) == 0 for cluster in clusters):
        raise MeasureError("A problem has no samples.", "Leave out problems without samples.")
    rng = np.random.default_rng(seed)
    draws = np.empty(replicates)
    for replicate in range(replicates):
        picked = [clusters[index] for index in rng.integers(0, len(clusters), len(clusters))]
        draws[replicate] = statistic([c[rng.integers(0, len(c), len(c))] for c in picked] if within else picked)
    value = float(statistic(list(clusters)))
    return interval_from_resamples(value, draws, problems=len(clusters), level=level, bounds=bounds)


def resample_means(values: FloatArray, *, replicates: int = BOOTSTRAP_REPLICATES, seed: int = 0) -> FloatArray:
    """Column means of a problems x columns array in each resample of its problems: replicates x columns."""
    return np.concatenate([counts @ values for counts in resample_counts(len(values), replicates, seed)]) / len(values)


def resample_counts(problems: int, replicates: int, seed: int) -> Iterator[FloatArray]:
    """How often each problem is drawn in each resample, in slices of replicates x problems.

    The same three arguments give the same resamples, so statistics of one data set made apart still belong together.
    """
    if problems < 1 or replicates < 1:
        raise MeasureError(
            f"{replicates} resamples of {problems} problems asked for.", "Give at least one problem and one resample."
        )
    rng = np.random.default_rng(seed)
    rows = max(1, _MAX_RESAMPLE_CELLS // problems)
    for start in range(0, replicates, rows):
        size = min(rows, replicates - start)
        cells = rng.integers(0, problems, (size, problems)) + problems * np.arange(size)[:, None]
        yield np.bincount(cells.ravel(), minlength=size * problems).reshape(size, problems).astype(np.float64)


def interval_from_resamples(
    value: float,
    draws: npt.ArrayLike,
    *,
    problems: int,
    level: float = 0.95,
    bounds: Bounds = UNBOUNDED,
    method: str = "",
) -> Interval:
    """Interval from a statistic's values over resamples of ``problems`` clusters: the expanded percentile interval.

    Percentiles are taken further out than (1 - level)/2, by the factor that makes the interval of a mean of normal
    values exact for few clusters (Hesterberg, arXiv 1411.5279), and stretched to hold the value itself where a biased
    statistic would leave it outside. Without spread, or from one problem, see ``bounds`` in `mean_interval`. ``method``
    says how the draws were made where they are not resampled problems.
    """
    every = np.asarray(draws, dtype=np.float64)
    kept = every[np.isfinite(every)]
    check_resampling(problems, len(every), level)
    method = method or f"cluster bootstrap over {problems} problems"
    if len(kept) < len(every):
        method += f", {len(every) - len(kept)} of {len(every)} resamples undefined"
    if len(kept) == 0 or math.isnan(value):
        return Interval(value, *bounds, level, f"{method}: undefined")
    if problems == 1 or float(np.ptp(kept)) <= 1e-12 * max(1.0, abs(value)):
        return Interval(value, *bounds_without_spread(value, problems, bounds, level), level, f"{method}: no spread")
    tail = math.erfc(math.sqrt(problems / (problems - 1) / 2) * t_critical(problems - 1, level)) / 2
    low, high = np.quantile(kept, [tail, 1 - tail])
    return Interval(value, float(min(low, value)), float(max(high, value)), level, method)


def normal_quantile(level: float) -> float:
    """How many standard errors a two-sided normal interval of this level reaches to each side (1.96 at 0.95)."""
    return NormalDist().inv_cdf((1 + level) / 2)


def check_level(level: float) -> None:
    """Refuse a level that is not a share between 0 and 1."""
    if not 0 < level < 1:
        raise MeasureError(f"The level is {level}; it must lie between 0 and 1.", "Use 0.95 for a 95 % interval.")


def bounds_without_spread(value: float, problems: int, bounds: Bounds, level: float) -> Bounds:
    # All n problems gave this value, so at least this share of all problems does, at the level asked for; the rest may
    # be anywhere.
    """Return the ends of an interval when all problems gave one value."""
    share = ((1 - level) / 2) ** (1 / problems)
    low, high = (share * value + (1 - share) * end for end in bounds)
    return low, high


def check_resampling(problems: int, replicates: int, level: float) -> None:
    """Refuse no problems, and too few resamples to read the ends of an interval from."""
    check_level(level)
    if problems < 1:
        raise MeasureError(
            "There are no problems to resample.", "Give at least one; ten or more for an interval worth reading."
        )
    if replicates * (1 - level) < 2 - 1e-9:  # so that each tail holds at least one resample
        raise MeasureError(
            f"{replicates} resamples are too few to read the ends of a {level:.0%} interval.",
            f"Use at least {math.ceil(2 / (1 - level))}.",
        )


def check_proportion(successes: int, trials: int, level: float) -> None:
    """Refuse counts that are no proportion."""
    check_level(level)
    if trials < 0 or not 0 <= successes <= trials:
        raise MeasureError(f"{successes} successes in {trials} trials.", "Give counts with 0 <= successes <= trials.")


Columns: TypeAlias = Mapping[str, FloatArray]
"""Column name -> values."""


@dataclass(frozen=True, eq=False)
class Resamples:
    """Columns summed within each problem, and their means over each resample of the problems.

    Everything made from one such record rests on the same resamples, so a difference is as exact as its parts allow.
    """

    sums: Columns
    """Sum per problem."""
    means: Columns
    """Mean over problems, in each resample."""
    level: float
    """Level of the intervals made from it."""

    def ratio(self, total: str, count: str, bounds: Bounds) -> Interval:
        """Return the sum of one column over the sum of another; NaN within ``bounds`` when there is no count at all."""
        return self.interval(lambda columns: quotient(columns[total], columns[count]), count, bounds)

    def interval(self, statistic: Callable[[Columns], FloatArray], count: str, bounds: Bounds) -> Interval:
        """Return any function of column means. Problems with nothing in the column ``count`` are no evidence for it."""
        holding = int(np.count_nonzero(self.sums[count]))
        if not holding:
            return Interval(math.nan, *bounds, self.level, "no problems")
        value = float(statistic({name: column.mean(keepdims=True) for name, column in self.sums.items()})[0])
        return interval_from_resamples(value, statistic(self.means), problems=holding, level=self.level, bounds=bounds)


def resample(columns: Mapping[str, ArrayLike], clusters: ArrayLike, *, level: float = 0.95, seed: int = 0) -> Resamples:
    """Sum the rows of each problem, then resample problems; ``clusters`` names the problem of each row.

    No rows is fine.
    """
    owners = np.asarray(clusters)
    if not owners.size:
        nothing = {name: np.empty(0) for name in columns}
        return Resamples(nothing, nothing, level)
    _, place = np.unique(owners, return_inverse=True)
    sums = {}
    for name, column in columns.items():
        values = as_finite(column, name)
        check_same_length(clusters=owners, **{name: values})
        sums[name] = np.bincount(place, values).astype(np.float64)
    means = resample_means(np.column_stack(list(sums.values())), seed=seed)
    return Resamples(sums, dict(zip(sums, means.T, strict=True)), level)


def quotient(totals: FloatArray, counts: FloatArray) -> FloatArray:
    """Divide, with NaN instead of a warning where the count is 0."""
    divided: FloatArray = np.divide(totals, counts, out=np.full(counts.shape, math.nan), where=counts != 0)
    return divided
