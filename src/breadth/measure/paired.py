"""Two arms on the same problems: the difference, its interval over problems, and whether chance explains it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from breadth.measure.finite import FloatArray, finite, same_length
from breadth.measure.intervals import REPLICATES, Interval, mean_interval

_EXACT = 14
# Up to this many differing problems all 2**14 = 16,384 sign patterns are counted; more are drawn.
_FLIPS = 10_000
# Random patterns beyond that: the smallest p-value is 1e-4 and the error of one near 0.05 is 0.002.
_CELLS = 4_000_000


@dataclass(frozen=True)
class PairedComparison:
    """How two arms differ over the same problems."""

    difference: Interval
    """Mean of first minus second over problems."""
    p_value: float
    """Chance of a mean difference at least this large, either way, if each problem's difference were as likely to have the other sign."""
    wins: int
    """Problems where the first arm has the larger value."""
    losses: int
    """Problems where the second arm has the larger value."""
    ties: int
    """Problems where both are equal."""
    method: str
    """How the p-value was made."""

    @property
    def shown(self) -> Interval | float:
        """The difference for a reader: without the endless interval it has where no problem differs."""
        return self.difference if math.isfinite(self.difference.low + self.difference.high) else self.difference.value


def paired_difference(
    first: npt.ArrayLike, second: npt.ArrayLike, *, replicates: int = REPLICATES, level: float = 0.95, seed: int = 0
) -> PairedComparison:
    """Compare two arms problem by problem: ``first[i]`` and ``second[i]`` are their values on problem i.

    The interval resamples problems; the p-value flips the sign of whole problems, counting every pattern when few problems
    differ. Pairing removes the spread of difficulty, so it sees differences that two separate intervals hide. No differing
    problem at all gives p = 1 and an interval without ends. One problem proves nothing: p is 1.
    """
    left, right = finite(first, "first"), finite(second, "second")
    same_length(first=left, second=right)
    gaps = left - right
    wins, losses = int(np.count_nonzero(gaps > 0)), int(np.count_nonzero(gaps < 0))
    p_value, method = _two_sided(gaps[gaps != 0], seed)
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
    exact = len(rows) <= _EXACT
    patterns = _all_patterns(len(rows)) if exact else _random_patterns(len(rows), seed)
    # A kept row counts +1 and a flipped one -1: twice the kept part less the whole.
    return np.concatenate([2 * (kept @ rows) for kept in patterns]) - rows.sum(axis=0), exact


def share_at_least(draws: FloatArray, observed: float, *, exact: bool) -> float:
    """Share of draws that reach the observed value: a p-value. Random draws count the observed pattern among them."""
    slack = 1e-9 * max(1.0, abs(observed))  # patterns equal to the observed one must count as reaching it despite rounding
    reached = int(np.count_nonzero(draws >= observed - slack))
    return reached / len(draws) if exact else (1 + reached) / (1 + len(draws))


def _two_sided(gaps: FloatArray, seed: int) -> tuple[float, str]:
    if len(gaps) == 0:
        return 1.0, "no problem differs"
    sums, exact = sign_flipped_sums(gaps[:, None], seed)
    p_value = share_at_least(np.abs(sums[:, 0]), abs(float(gaps.sum())), exact=exact)
    return p_value, f"sign flips over {len(gaps)} differing problems, {f'all {len(sums)}' if exact else f'{len(sums)} drawn'}"


def _all_patterns(rows: int) -> Iterator[FloatArray]:
    yield (np.arange(2**rows)[:, None] >> np.arange(rows) & 1).astype(np.float64)


def _random_patterns(rows: int, seed: int) -> Iterator[FloatArray]:
    rng = np.random.default_rng(seed)
    step = max(1, _CELLS // rows)
    for start in range(0, _FLIPS, step):
        yield rng.integers(0, 2, (min(step, _FLIPS - start), rows)).astype(np.float64)
