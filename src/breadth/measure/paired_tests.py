"""Paired tests over problems by flipping signs: a difference of two arms, and a fall past the best budget."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.measure.intervals import (
    BOOTSTRAP_REPLICATES,
    Interval,
    check_level,
    mean_interval,
)
from breadth.measure.validate import FloatArray, as_counts, as_finite, check_same_length

_MAX_EXACT_ROWS = 14
# Up to this many differing problems all 2**14 = 16,384 sign patterns are counted; more are drawn.
_FLIPS = 10_000
# Random patterns beyond that: the smallest p-value is 1e-4 and the error of one near 0.05 is 0.002.
_MAX_FLIP_CELLS = 4_000_000


@dataclass(frozen=True)
class PairedComparison:
    """How two arms differ over the same problems."""

    difference: Interval
    """Mean of first minus second over problems."""
    p_value: float
    """Chance of a mean difference at least this large, either way, if each problem's difference were as likely to have
    the other sign.
    """
    wins: int
    """Problems where the first arm has the larger value."""
    losses: int
    """Problems where the second arm has the larger value."""
    ties: int
    """Problems where both are equal."""
    method: str
    """How the p-value was made."""

    @property
    def display_value(self) -> Interval | float:
        """The difference for a reader: without the endless interval it has where no problem differs."""
        return self.difference if math.isfinite(self.difference.low + self.difference.high) else self.difference.value


def paired_difference(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    *,
    replicates: int = BOOTSTRAP_REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> PairedComparison:
    """Compare two arms problem by problem: ``first[i]`` and ``second[i]`` are their values on problem i.

    The interval resamples problems; the p-value flips the sign of whole problems, counting every pattern when few
    problems differ. Pairing removes the spread of difficulty, so it sees differences that two separate intervals hide.
    No differing problem at all gives p = 1 and an interval without ends. One problem proves nothing: p is 1.
    """
    left, right = as_finite(first, "first"), as_finite(second, "second")
    check_same_length(first=left, second=right)
    gaps = left - right
    wins, losses = int(np.count_nonzero(gaps > 0)), int(np.count_nonzero(gaps < 0))
    p_value, method = sign_flip_test(gaps[gaps != 0], seed)
    return PairedComparison(
        difference=mean_interval(gaps, replicates=replicates, level=level, seed=seed),
        p_value=p_value,
        wins=wins,
        losses=losses,
        ties=len(gaps) - wins - losses,
        method=method,
    )


def sign_flipped_sums(rows: FloatArray, seed: int) -> tuple[FloatArray, bool]:
    """Column sums of problems x columns under flips of whole rows' signs, and whether every pattern is in.

    All patterns when there are few rows, else random ones. Row flips keep how the columns of one problem go together.
    """
    exact = len(rows) <= _MAX_EXACT_ROWS
    patterns = all_sign_patterns(len(rows)) if exact else random_sign_patterns(len(rows), seed)
    # A kept row counts +1 and a flipped one -1: twice the kept part less the whole.
    return np.concatenate([2 * (kept @ rows) for kept in patterns]) - rows.sum(axis=0), exact


def share_at_least(draws: FloatArray, observed: float, *, exact: bool) -> float:
    """Share of draws that reach the observed value: a p-value. Random draws count the observed pattern among them."""
    slack = 1e-9 * max(
        1.0, abs(observed)
    )  # patterns equal to the observed one must count as reaching it despite rounding
    reached = int(np.count_nonzero(draws >= observed - slack))
    return reached / len(draws) if exact else (1 + reached) / (1 + len(draws))


def sign_flip_test(gaps: FloatArray, seed: int) -> tuple[float, str]:
    """Return the two-sided p-value of differences that are not 0, and how it was made."""
    if len(gaps) == 0:
        return 1.0, "no problem differs"
    sums, exact = sign_flipped_sums(gaps[:, None], seed)
    p_value = share_at_least(np.abs(sums[:, 0]), abs(float(gaps.sum())), exact=exact)
    return (
        p_value,
        f"sign flips over {len(gaps)} differing problems, {f'all {len(sums)}' if exact else f'{len(sums)} drawn'}",
    )


def all_sign_patterns(rows: int) -> Iterator[FloatArray]:
    """Yield every pattern of kept rows (1) and flipped ones (0), in one slice."""
    yield (np.arange(2**rows)[:, None] >> np.arange(rows) & 1).astype(np.float64)


def random_sign_patterns(rows: int, seed: int) -> Iterator[FloatArray]:
    """Yield random patterns of kept rows (1) and flipped ones (0), in slices of bounded size."""
    rng = np.random.default_rng(seed)
    step = max(1, _MAX_FLIP_CELLS // rows)
    for start in range(0, _FLIPS, step):
        yield rng.integers(0, 2, (min(step, _FLIPS - start), rows)).astype(np.float64)


# Draws of the count form, as many as the flips of the paired form.


_DRAWS = 10_000


@dataclass(frozen=True)
class HumpTest:
    """Whether accuracy at the largest budget lies below the best of the smaller ones by more than chance."""

    budgets: tuple[float, ...]
    """The budgets, rising."""
    accuracies: tuple[float, ...]
    """Mean accuracy at each budget."""
    fall: Interval
    """Best smaller budget minus largest budget.

    The value is too large by the luck of being best; the ends allow for that.
    Each end is a one-sided bound at the level asked for, so zero lies below the interval when the test is positive."""
    p_value: float
    """Chance of such a fall somewhere if no smaller budget were truly better than the largest."""
    is_positive: bool
    """True when the fall is larger than chance explains."""
    can_tell: bool
    """False when even a fall on every differing problem would not have been enough to be sure."""
    method: str
    """How the test was made."""

    @property
    def peak(self) -> float:
        """The budget with the highest accuracy, the smallest one on ties."""
        return self.budgets[int(np.argmax(self.accuracies))]


def hump_test(budgets: npt.ArrayLike, outcomes: npt.ArrayLike, *, level: float = 0.95, seed: int = 0) -> HumpTest:
    """Compare the largest budget with the best smaller one on the same problems, allowing for the choice of the best.

    ``outcomes`` is problems x budgets, an accuracy (or one 0/1 outcome) in each cell. The statistic is the largest,
    over smaller budgets, of the paired difference to the last budget over its root mean square. Its distribution
    without any fall comes from a paired (wild) bootstrap that flips the sign of whole problems; **the best budget is
    chosen again in every resample**, so the winner's curse is in the null distribution. If the curve truly rises the
    test is stricter still. Flips, because ordinary resampling of the same statistic raises false alarms on up to 9 % of
    flat curves (20 problems, 10 budgets). Misleads when the cells of one problem come from different problem sets, or
    when samples of a problem are passed as problems.
    """
    check_level(level)
    grid, table = budgets_and_outcomes(budgets, outcomes)
    gaps = table[:, :-1] - table[:, -1:]
    size = np.sqrt((gaps**2).sum(axis=0))
    rows = gaps[gaps.any(axis=1)]
    if len(rows) == 0:
        return _no_difference(grid, table.mean(axis=0), level)
    sums, exact = sign_flipped_sums(rows, seed)
    method = f"sign flips over {len(table)} problems"
    return _hump_result(grid, table.mean(axis=0), size / len(table), _largest_ratio(sums, size), exact, level, method)


def hump_test_counts(
    budgets: npt.ArrayLike, correct: npt.ArrayLike, trials: npt.ArrayLike, *, level: float = 0.95, seed: int = 0
) -> HumpTest:
    """Make the same test from totals only: ``correct[j]`` right answers of ``trials[j]`` at budget j.

    Budgets are taken as separate samples. When they share problems this sees less than `hump_test`; when one problem is
    sampled many times it claims too much. Without any fall all budgets are taken to share one accuracy, and the best is
    chosen again in every draw.
    """
    check_level(level)
    grid, right, total = budgets_and_counts(budgets, correct, trials)
    smoothed = (right + 0.5) / (total + 1)
    variance = smoothed * (1 - smoothed) / total
    error = np.sqrt(variance[:-1] + variance[-1])
    pooled = (right.sum() + 0.5) / (total.sum() + 1)
    drawn = np.random.default_rng(seed).binomial(total.astype(np.int64), pooled, (_DRAWS, len(grid))) / total
    method = f"binomial draws from totals of {int(total.min())} or more trials"
    return _hump_result(
        grid, right / total, error, _largest_ratio(drawn[:, :-1] - drawn[:, -1:], error), False, level, method
    )


def budgets_and_outcomes(budgets: npt.ArrayLike, outcomes: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Check a problems x budgets table of accuracies and put its columns in order of rising budget."""
    grid, table = as_finite(budgets, "budgets"), as_finite(outcomes, "outcomes", ndim=2)
    check_same_length(budgets=grid, **{"columns of outcomes": table.T})
    if table.min() < 0 or table.max() > 1:
        raise MeasureError(
            f"Outcomes range from {table.min():g} to {table.max():g}.", "Give accuracies between 0 and 1."
        )
    order = _sort_order(grid)
    return grid[order], table[:, order]


def budgets_and_counts(
    budgets: npt.ArrayLike, correct: npt.ArrayLike, trials: npt.ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Check totals per budget and put them in order of rising budget."""
    grid, right, total = as_finite(budgets, "budgets"), as_counts(correct, "correct"), as_counts(trials, "trials")
    check_same_length(budgets=grid, correct=right, trials=total)
    if np.any(right > total) or total.min() == 0:
        raise MeasureError(
            "A budget has no trials, or more correct answers than trials.", "Give 0 <= correct <= trials, trials > 0."
        )
    order = _sort_order(grid)
    return grid[order], right[order], total[order]


def _sort_order(grid: FloatArray) -> npt.NDArray[np.intp]:
    if len(grid) < 2 or len(np.unique(grid)) < len(grid):
        raise MeasureError(f"Budgets are {grid.tolist()}.", "Give at least two budgets, each once.")
    return np.argsort(grid)


def _largest_ratio(differences: FloatArray, scale: FloatArray) -> FloatArray:
    # A budget that never differs from the last one (scale 0) has ratio 0: no evidence either way.
    ratio = np.divide(differences, scale, out=np.zeros_like(differences), where=scale > 0)
    return np.asarray(ratio.max(axis=-1))


def _hump_result(
    grid: FloatArray, means: FloatArray, error: FloatArray, draws: FloatArray, exact: bool, level: float, method: str
) -> HumpTest:
    """Compare the largest fall, in units of error, with its distribution without any fall.

    ``exact`` says that ``draws`` are all there are.
    """
    falls = means[:-1] - means[-1]
    p_value = share_at_least(draws, float(_largest_ratio(falls, error)), exact=exact)
    reach = critical_value(draws, level, exact=exact)
    low, high = -1.0, 1.0  # accuracies differ by no more
    if math.isfinite(reach):
        low, high = (
            max(low, float((falls - reach * error)[error > 0].max())),
            min(high, float((falls + reach * error).max())),
        )
    bounds = Interval(float(falls.max()), low, high, round(2 * level - 1, 12), method)
    can_tell = bool(draws.max() > reach)
    return HumpTest(
        tuple(grid.tolist()), tuple(means.tolist()), bounds, p_value, p_value <= 1 - level, can_tell, method
    )


def critical_value(draws: FloatArray, level: float, *, exact: bool) -> float:
    """Return the value a statistic must exceed to be positive; infinite where there are too few patterns."""
    share = 1 - level + 1e-12
    beyond = math.floor(share * len(draws)) if exact else math.floor(share * (len(draws) + 1)) - 1
    return float(np.sort(draws)[-beyond - 1]) if beyond > 0 else math.inf


def _no_difference(grid: FloatArray, means: FloatArray, level: float) -> HumpTest:
    method = "no problem differs between budgets"
    unknown = Interval(0.0, -1.0, 1.0, round(2 * level - 1, 12), method)
    return HumpTest(tuple(grid.tolist()), tuple(means.tolist()), unknown, 1.0, False, False, method)
