"""Change points: where the level of a series jumps or its slope bends, and not where it merely declines steadily.

A jump is a change of level from one point to the next beyond what the trend explains. `run_collapse` watches the
lengths of responses, smoothed, for a collapse against the run's start.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from breadth.base.errors import MeasureError
from breadth.measure.intervals import Interval, check_level
from breadth.measure.series import (
    CleanSeries,
    Noise,
    clean_series,
    estimate_noise,
    residual_sum_of_squares,
    subsample,
    winsorize,
)
from breadth.measure.validate import BoolArray, FloatArray, as_finite, check_same_length

MIN_SIDE_POINTS = 6
"""Points needed on each side of a jump: a cubic and a step leave seven degrees of freedom on twelve points."""
_MAX_JUMPS = 4
# More level changes than that in one run are a random walk, not events.
_TESTS_PER_WINDOW = 8.0
# How many independent looks a scan makes per window length: neighbouring estimates differ by an eighth of a window.


@dataclass(frozen=True)
class Jump:
    """A place at which a series jumps."""

    index: int
    """Index of the first point after it."""
    side_points: int
    """How many points on each side it was read from."""
    size: float
    """The jump beyond what a cubic through the window explains."""
    error: float
    """Standard error of the size."""
    p_value: float
    """How often noise this autocorrelated would show such a jump somewhere in a series this long."""


def find_jumps(values: FloatArray, level: float) -> tuple[Jump, ...]:
    """Find the jumps of a finite series in step order, at most four, after winsorizing spikes.

    A jump is the coefficient of a step in a window around it, fitted jointly with a cubic in time: a line, an
    exponential or an S-curve leaves nothing of it; windows of six points a side to a third of the series are tried.
    It counts when it exceeds Student's quantile for autocorrelated noise, corrected for all places looked at
    (Bonferroni), when the shortest window sees at least half of it (a jump shows at every scale, a fast but smooth
    decline only at long ones), and when neither a smoother curve nor a bend describes its window as well.
    """
    if len(values) < 2 * MIN_SIDE_POINTS:
        return ()
    # Collect the best candidates first and test them together: a jump not yet known looks like autocorrelated noise
    # to the others.
    calm, places = winsorize(values), list[int]()
    for _ in range(min(_MAX_JUMPS, max(len(calm) // (2 * MIN_SIDE_POINTS), 1))):
        places += _find_candidate(calm, places)
    while places:
        noise = estimate_noise(calm, tuple(sorted(places)))
        jumps = [_measure_jump(calm, place, places, noise) for place in sorted(places)]
        worst = max(jumps, key=lambda jump: jump.p_value)
        if worst.p_value <= 1 - level:
            return tuple(jumps)
        places.remove(worst.index)
    return ()


def _find_candidate(calm: FloatArray, places: list[int]) -> list[int]:
    noise, best, best_excess = estimate_noise(calm, tuple(sorted(places))), -1, 0.0
    for side in _sides(len(calm)):
        sizes = np.abs(np.correlate(calm, _step_weights(side), "valid"))
        for place in places:  # no window may reach over a place that is already taken
            sizes[max(place - 2 * side + 1, 0) : place] = 0.0
        at = int(np.argmax(sizes))
        excess = _excess(float(sizes[at]), side, noise)
        if excess > best_excess:
            best, best_excess = at + side, excess
    return [best] if best_excess > 0 else []


def _measure_jump(calm: FloatArray, place: int, places: list[int], noise: Noise) -> Jump:
    # In the window that shows the jump most clearly without reaching over another one.
    room = min([place, len(calm) - place, *(abs(place - other) for other in places if other != place)])
    sizes = {
        side: float(_step_weights(side) @ calm[place - side : place + side])
        for side in _sides(len(calm))
        if side <= room
    }
    side = max(sizes, key=lambda side: _excess(sizes[side], side, noise))
    looks = sum(_TESTS_PER_WINDOW * len(calm) / each for each in _sides(len(calm)))
    chance = min(1.0, looks * noise.p_value(_excess(sizes[side], side, noise)))
    if chance < 1 and not is_abrupt(calm, place, side, sizes[side], noise):
        chance = 1.0
    return Jump(place, side, sizes[side], noise.weighted_sd(_step_weights(side)), chance)


def is_abrupt(calm: FloatArray, place: int, side: int, size: float, noise: Noise) -> bool:
    """Say whether the shortest window sees half of a jump and no smooth curve or bend fits its window as well."""
    weights = _step_weights(MIN_SIDE_POINTS)
    near = calm[max(place - MIN_SIDE_POINTS - 2, 0) : place + MIN_SIDE_POINTS + 2]
    seen = float(np.max(np.correlate(near, weights, "valid") * math.copysign(1.0, size)))
    if seen + 2 * noise.weighted_sd(weights) < abs(size) / 2:
        return False
    x, window = np.linspace(-1, 1, 2 * side), calm[place - side : place + side]
    cubic = [x, x**2, x**3]
    rivals = [[*cubic, x**4, x**5], *([*cubic, np.maximum(x - knot, 0)] for knot in np.linspace(-0.8, 0.8, 9))]
    return residual_sum_of_squares(window, [*cubic, (x > 0).astype(np.float64)]) < min(
        residual_sum_of_squares(window, rival) for rival in rivals
    )


def _excess(size: float, side: int, noise: Noise) -> float:
    error = noise.weighted_sd(_step_weights(side))
    if error:
        return abs(size) / error
    return math.inf if abs(size) > noise.float_error else 0.0


def _sides(n: int) -> list[int]:
    sides, side = [], float(MIN_SIDE_POINTS)
    while side <= max(n // 3, MIN_SIDE_POINTS):
        sides.append(int(side))
        side *= 5 / 3
    return sides


@lru_cache(maxsize=32)
def _step_weights(side: int) -> FloatArray:
    # What a window is multiplied with to read the coefficient of a step in its middle, next to a cubic in time.
    x = (np.arange(-side, side) + 0.5) / side
    cubic = np.linalg.qr(np.vander(x, 4))[0]
    step = (x > 0).astype(np.float64)
    step -= cubic @ (cubic.T @ step)
    return np.asarray(step / (step @ step), dtype=np.float64)


_MAX_POINTS = 3000
# Longer series are first subsampled to medians, so the work stays bounded.
_TESTS_FOR_BEND = 10.0
# Independent looks that a scan for the place of a bend makes in the middle three quarters of a run (as in Andrews
# 1993).
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
    """How often noise this autocorrelated would show such a change somewhere in a series this long."""


@dataclass(frozen=True)
class ChangePoints:
    """The change points of a series."""

    change_points: tuple[ChangePoint, ...]
    """In step order; empty when the series moves smoothly or the noise hides it."""
    points: int
    """Points used."""
    dropped: int
    """Points left out because they were NaN or infinite."""

    @property
    def jumps(self) -> tuple[ChangePoint, ...]:
        """Those at which the level is another from there on."""
        return tuple(change for change in self.change_points if change.kind == "jump")


def find_change_points(steps: npt.ArrayLike, values: npt.ArrayLike, *, level: float = 0.95) -> ChangePoints:
    """Find where a series jumps (at most four places) or bends (at most one); a steady decline does neither.

    A jump must be significant against a smooth curve, at short range, given the autocorrelation: see `find_jumps`. A
    bend is a hinge whose change of slope is significant too and that fits better than a parabola, a quintic and
    exponentials do:
    a decline that flattens out steadily has none. Spikes of up to three points are pulled in first. Needs six points on
    each side of a jump; a ramp over fewer steps than that counts as one, and a slow random walk may hide one.
    """
    check_level(level)
    series = clean_series(steps, values)
    seen = subsample(series, _MAX_POINTS)
    if len(seen) < 2 * MIN_SIDE_POINTS:
        return ChangePoints((), len(series), series.dropped)
    jumps = find_jumps(seen.values, level)
    places = [jump.index for jump in jumps]
    noise = estimate_noise(seen.values, tuple(places))
    found = [_to_change_point(seen, jump, noise, level) for jump in jumps]
    found += _find_bend(seen.steps, winsorize(seen.values), places, noise, level)
    return ChangePoints(tuple(sorted(found, key=lambda change: change.step)), len(series), series.dropped)


def _to_change_point(seen: CleanSeries, jump: Jump, noise: Noise, level: float) -> ChangePoint:
    before, after = (
        seen.values[jump.index - jump.side_points : jump.index],
        seen.values[jump.index : jump.index + jump.side_points],
    )
    reach = noise.quantile(level) * jump.error
    size = Interval(
        jump.size,
        jump.size - reach,
        jump.size + reach,
        level,
        f"step next to a cubic, {jump.side_points} points a side",
    )
    return ChangePoint(
        float(seen.steps[jump.index]), "jump", float(np.median(before)), float(np.median(after)), size, jump.p_value
    )


def _find_bend(
    steps: FloatArray, calm: FloatArray, jumps_at: list[int], noise: Noise, level: float
) -> list[ChangePoint]:
    # At most one: the knot of the best hinge, if it beats the straight line and every smooth curve.
    n, span = len(calm), float(steps[-1] - steps[0])
    if span == 0:
        return []
    x, jumps = (steps - steps[0]) / span, [(np.arange(n) >= at).astype(np.float64) for at in jumps_at]
    place = min(
        range(n // 8, n - n // 8, max(n // 100, 1)),
        key=lambda at: residual_sum_of_squares(calm, [x, np.maximum(x - x[at], 0), *jumps]),
    )
    hinge = np.maximum(x - x[place], 0)
    weights = _coefficient_weights(hinge, [x, *jumps])
    bend, error = float(weights @ calm), noise.weighted_sd(weights)
    p_value = (
        min(1.0, _TESTS_FOR_BEND * noise.p_value(bend / error)) if error else float(abs(bend) <= noise.float_error)
    )
    if p_value > 1 - level or not _is_kink(calm, x, hinge, jumps, noise):
        return []
    before, reach = float(_coefficient_weights(x, [hinge, *jumps]) @ calm) / span, noise.quantile(level) * error / span
    size = Interval(bend / span, bend / span - reach, bend / span + reach, level, "hinge")
    return [ChangePoint(float(steps[place]), "bend", before, before + size.value, size, p_value)]


def _is_kink(calm: FloatArray, x: FloatArray, hinge: FloatArray, jumps: list[FloatArray], noise: Noise) -> bool:
    own, count = max(residual_sum_of_squares(calm, [x, hinge, *jumps]), 1e-300), noise.effective_points
    for extra, columns in _smooth_rivals(x):
        margin = count * math.log(
            max(residual_sum_of_squares(calm, [*columns, *jumps]), 1e-300) / own
        ) + extra * math.log(max(count, 1.0))
        if margin < _BEND_MARGIN:
            return False
    return True


def _coefficient_weights(column: FloatArray, others: list[FloatArray]) -> FloatArray:
    basis = np.linalg.qr(np.column_stack([np.ones(len(column)), *others]))[0]
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


_SMOOTHING = 0.1
# Memory of about ten steps: short enough to catch a collapse of fifty, long enough for batch noise.
_START_STEPS = 5
_MIN_CAP_SHARE = 0.01


@dataclass(frozen=True, eq=False)
class RunCollapse:
    """Lengths and hits of the length cap over a run, smoothed, relative to its start (the first five steps)."""

    length_ratio: FloatArray
    """Smoothed mean length over the mean length at the start, one entry a step."""
    length_collapse: float | None
    """First step at which the ratio is below 0.5: halt and look at the newest data. None if there is none."""
    cap_ratio: FloatArray | None
    """Smoothed share of responses cut at the cap over that at the start (1 % where it was less). None when not logged.
    """
    cap_jump: float | None
    """First step at which that ratio is above 2; None if there is none."""


def run_collapse(steps: ArrayLike, mean_lengths: ArrayLike, cap_shares: ArrayLike | None = None) -> RunCollapse:
    """Watch mean response length and the share of responses cut at the cap over a run's steps, in order.

    Exponential means with weight 0.1 (a choice of ours) against the run's first five steps. A shorter answer is often a
    better one: a collapse of length is a reason to look, not a verdict. A changed cap or data mix moves both.
    """
    at, lengths = as_finite(steps, "steps"), as_finite(mean_lengths, "mean_lengths")
    check_same_length(steps=at, mean_lengths=lengths)
    if (np.diff(at) <= 0).any() or lengths.min() <= 0:
        raise MeasureError(
            "Steps must rise and lengths must be positive.",
            "Sort by step, keep one row per step, and drop empty steps.",
        )
    length_ratio = exponential_mean(lengths) / lengths[:_START_STEPS].mean()
    cap_ratio = None
    if cap_shares is not None:
        caps = as_finite(cap_shares, "cap_shares")
        check_same_length(steps=at, cap_shares=caps)
        cap_ratio = exponential_mean(caps) / max(float(caps[:_START_STEPS].mean()), _MIN_CAP_SHARE)
    return RunCollapse(
        length_ratio=length_ratio,
        length_collapse=_first_step(at, length_ratio < 0.5),
        cap_ratio=cap_ratio,
        cap_jump=None if cap_ratio is None else _first_step(at, cap_ratio > 2),
    )


def exponential_mean(values: FloatArray) -> FloatArray:
    """Return the exponential mean, started from the mean of the first steps, so one odd first batch does not linger."""
    level = float(values[:_START_STEPS].mean())
    smooth = np.empty_like(values)
    for place, value in enumerate(values):
        level += _SMOOTHING * (value - level)
        smooth[place] = level
    return smooth


def _first_step(steps: FloatArray, fires: BoolArray) -> float | None:
    return float(steps[fires.argmax()]) if fires.any() else None
