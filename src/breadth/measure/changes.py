"""Change points: where a series' level jumps or its slope bends, and not where it merely declines steadily."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from breadth.measure.finite import FloatArray
from breadth.measure.intervals import Interval, check_level
from breadth.measure.jumps import SHORTEST_SIDE, Jump, find_jumps
from breadth.measure.lines import misfit
from breadth.measure.noise import Noise, noise_around
from breadth.measure.series import Series, clean_series, tame, thin

_MOST_POINTS = 3000
# Longer series are first thinned to medians, so the work stays bounded.
_LOOKS_FOR_BEND = 10.0
# Independent looks that a scan for the place of a bend makes in the middle three quarters of a run (as in Andrews 1993).
_BEND_MARGIN = 4.0
# Twice the log-likelihood by which a bend must beat every smooth curve; the usual reading of BIC calls 2 to 6 positive.


@dataclass(frozen=True)
class ChangePoint:
    """A step at which a series stops being what it was."""

    step: float
    """First step of what comes after."""
    kind: Literal["jump", "bend"]
    """``jump``: the level is another from here on; ``bend``: the slope is."""
    before: float
    """Median level just before a jump, or slope per step before a bend."""
    after: float
    """The same after it."""
    size: Interval
    """The change itself: a jump's beyond what the trend around it explains, a bend's in slope per step."""
    p_value: float
    """How often noise this sluggish would show such a change somewhere in a series this long."""


@dataclass(frozen=True)
class Changes:
    """The change points of a series."""

    found: tuple[ChangePoint, ...]
    """In step order; empty when the series moves smoothly or the noise hides it."""
    points: int
    """Points used."""
    dropped: int
    """Points left out because they were NaN or infinite."""

    @property
    def jumps(self) -> tuple[ChangePoint, ...]:
        """Those at which the level is another from there on."""
        return tuple(one for one in self.found if one.kind == "jump")


def change_points(steps: npt.ArrayLike, values: npt.ArrayLike, *, level: float = 0.95) -> Changes:
    """Find where a series jumps (at most four places) or bends (at most one), and tell a jump from a steady decline.

    A jump must stand out beside a smooth curve, at short range, for noise this sluggish: see `find_jumps`. A bend is a hinge
    whose change of slope stands out likewise and that fits better than a parabola, a quintic and exponentials do: a
    decline that flattens out steadily has none. Spikes of up to three points are pulled in first. Needs six points on each side of
    a jump; a ramp over fewer steps than that counts as one, and a slow wander may hide one.
    """
    check_level(level)
    series = clean_series(steps, values)
    seen = thin(series, _MOST_POINTS)
    if len(seen) < 2 * SHORTEST_SIDE:
        return Changes((), len(series), series.dropped)
    jumps = find_jumps(seen.values, level)
    places = [jump.at for jump in jumps]
    noise = noise_around(seen.values, tuple(places))
    found = [_reported(seen, jump, noise, level) for jump in jumps]
    found += _bends(seen.steps, tame(seen.values), places, noise, level)
    return Changes(tuple(sorted(found, key=lambda change: change.step)), len(series), series.dropped)


def _reported(seen: Series, jump: Jump, noise: Noise, level: float) -> ChangePoint:
    before, after = seen.values[jump.at - jump.side : jump.at], seen.values[jump.at : jump.at + jump.side]
    reach = noise.quantile(level) * jump.error
    size = Interval(jump.size, jump.size - reach, jump.size + reach, level, f"step beside a cubic, {jump.side} points a side")
    return ChangePoint(float(seen.steps[jump.at]), "jump", float(np.median(before)), float(np.median(after)), size, jump.p_value)


def _bends(steps: FloatArray, calm: FloatArray, jumps_at: list[int], noise: Noise, level: float) -> list[ChangePoint]:
    # At most one: the knot of the best hinge, if it beats the straight line and every smooth curve.
    n, span = len(calm), float(steps[-1] - steps[0])
    if span == 0:
        return []
    x, jumps = (steps - steps[0]) / span, [(np.arange(n) >= at).astype(np.float64) for at in jumps_at]
    place = min(range(n // 8, n - n // 8, max(n // 100, 1)), key=lambda at: misfit(calm, [x, np.maximum(x - x[at], 0), *jumps]))
    hinge = np.maximum(x - x[place], 0)
    weights = _coefficient_weights(hinge, [x, *jumps])
    bend, error = float(weights @ calm), noise.weighted_sd(weights)
    p_value = min(1.0, _LOOKS_FOR_BEND * noise.p_value(bend / error)) if error else float(abs(bend) <= noise.rounding)
    if p_value > 1 - level or not _kinked(calm, x, hinge, jumps, noise):
        return []
    before, reach = float(_coefficient_weights(x, [hinge, *jumps]) @ calm) / span, noise.quantile(level) * error / span
    size = Interval(bend / span, bend / span - reach, bend / span + reach, level, "hinge")
    return [ChangePoint(float(steps[place]), "bend", before, before + size.value, size, p_value)]


def _kinked(calm: FloatArray, x: FloatArray, hinge: FloatArray, jumps: list[FloatArray], noise: Noise) -> bool:
    own, count = max(misfit(calm, [x, hinge, *jumps]), 1e-300), noise.effective_points
    for extra, columns in _smooth_rivals(x):
        margin = count * math.log(max(misfit(calm, [*columns, *jumps]), 1e-300) / own) + extra * math.log(max(count, 1.0))
        if margin < _BEND_MARGIN:
            return False
    return True


def _coefficient_weights(column: FloatArray, beside: list[FloatArray]) -> FloatArray:
    basis = np.linalg.qr(np.column_stack([np.ones(len(column)), *beside]))[0]
    own = column - basis @ (basis.T @ column)
    power = float(own @ own)
    # On steps that hardly vary the hinge may be the line itself: then it has no coefficient of its own.
    return own / power if power > 1e-12 * float(column @ column) else np.zeros(len(column))


def _smooth_rivals(x: FloatArray) -> Iterator[tuple[int, list[FloatArray]]]:
    # With how many more parameters than the hinge.
    yield 0, [x, x**2]
    yield 2, [x, x**2, x**3, x**4, x**5]
    for rate in np.geomspace(0.5, 32, 13):
        yield 0, [np.exp(-rate * x)]
        yield 0, [np.exp(-rate * (1 - x))]
