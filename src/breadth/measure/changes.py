"""Change points: where a series' level jumps or its slope bends, and not where it merely declines steadily."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from breadth.measure.finite import FloatArray
from breadth.measure.intervals import Interval
from breadth.measure.noise import Noise, noise_around
from breadth.measure.series import Series, check_level, clean_series, tame, thin

_SHORTEST_SIDE = 6
# Points needed on each side of a jump: a cubic and a step leave seven degrees of freedom on twelve points.
_MOST_JUMPS = 4
# More level changes than that in one run are a wander, not events.
_MOST_POINTS = 3000
# Longer series are first thinned to medians, so the work stays bounded.
_LOOKS_PER_WINDOW = 8.0
# How many independent looks a scan makes per window length: neighbouring estimates differ by an eighth of a window.
_LOOKS_FOR_BEND = 10.0
# The same for the place of a bend, over the middle three quarters of the run (Andrews 1993 has about as many).
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


def change_points(steps: npt.ArrayLike, values: npt.ArrayLike, *, level: float = 0.95) -> Changes:
    """Find where a series jumps (at most four places) or bends (at most one), and tell a jump from a steady decline.

    A jump at t is the coefficient of a step in a window around t beside a cubic in time, so a line, an exponential or an
    S-curve leaves nothing of it; windows of six points a side to a third of the run are tried. It counts when it exceeds
    Student's quantile for autocorrelated noise, corrected for all places looked at (Bonferroni), when the shortest window
    sees at least half of it (a jump is there at every scale, a fast but smooth decline only at long ones), and when neither a
    smoother curve nor a bend describes the window as well. A bend is a hinge that beats the straight line likewise and fits
    better than a parabola, a quintic and exponentials do. Spikes of up to three points are pulled in first. Needs six
    points on each side; a ramp over fewer steps than that counts as a jump, and a slow wander may hide one.
    """
    check_level(level)
    series = clean_series(steps, values)
    seen = thin(series, _MOST_POINTS)
    if len(seen) < 2 * _SHORTEST_SIDE:
        return Changes((), len(series), series.dropped)
    calm = tame(seen.values)
    jumps = _jumps(calm, level)
    places = sorted(jump.at for jump in jumps)
    noise = noise_around(calm, tuple(places))
    found = [_reported(seen, jump, p_value, noise, level) for jump, p_value in jumps.items()]
    found += _bends(seen.steps, calm, places, noise, level)
    return Changes(tuple(sorted(found, key=lambda change: change.step)), len(series), series.dropped)


@dataclass(frozen=True)
class _Jump:
    at: int
    side: int
    size: float


def _jumps(calm: FloatArray, level: float) -> dict[_Jump, float]:
    # Collect the best candidates first and judge them together: a jump not yet known looks like sluggish noise to the others.
    places: list[int] = []
    for _ in range(min(_MOST_JUMPS, max(len(calm) // 12, 1))):
        places += _candidate(calm, places)
    while places:
        noise = noise_around(calm, tuple(sorted(places)))
        p_values = {jump: _p_value(calm, jump, noise) for jump in (_measured(calm, place, places, noise) for place in places)}
        worst = max(p_values, key=lambda jump: p_values[jump])
        if p_values[worst] <= 1 - level:
            return p_values
        places.remove(worst.at)
    return {}


def _candidate(calm: FloatArray, places: list[int]) -> list[int]:
    noise, best, best_excess = noise_around(calm, tuple(sorted(places))), -1, 0.0
    for side in _sides(len(calm)):
        sizes = np.abs(np.correlate(calm, _step_weights(side), "valid"))
        for place in places:  # no window may reach over a place that is already taken
            sizes[max(place - 2 * side + 1, 0) : place] = 0.0
        at = int(np.argmax(sizes))
        excess = _excess(_Jump(at + side, side, float(sizes[at])), noise)
        if excess > best_excess:
            best, best_excess = at + side, excess
    return [best] if best_excess > 0 else []


def _measured(calm: FloatArray, place: int, places: list[int], noise: Noise) -> _Jump:
    # In the window that shows the jump most clearly without reaching over another one.
    room = min([place, len(calm) - place, *(abs(place - other) for other in places if other != place)])
    sides = [side for side in _sides(len(calm)) if side <= room]
    jumps = [_Jump(place, side, float(_step_weights(side) @ calm[place - side : place + side])) for side in sides]
    return max(jumps, key=lambda jump: _excess(jump, noise))


def _p_value(calm: FloatArray, jump: _Jump, noise: Noise) -> float:
    if not _abrupt(calm, jump, noise):
        return 1.0
    looks = sum(_LOOKS_PER_WINDOW * len(calm) / side for side in _sides(len(calm)))
    return min(1.0, looks * noise.p_value(_excess(jump, noise)))


def _abrupt(calm: FloatArray, jump: _Jump, noise: Noise) -> bool:
    # The shortest window must see at least half of it, and in its own window no bend and no smoother curve may do as well.
    weights = _step_weights(_SHORTEST_SIDE)
    near = calm[max(jump.at - _SHORTEST_SIDE - 2, 0) : jump.at + _SHORTEST_SIDE + 2]
    seen = float(np.max(np.correlate(near, weights, "valid") * math.copysign(1.0, jump.size)))
    if seen + 2 * noise.weighted_sd(weights) < abs(jump.size) / 2:
        return False
    x, window = np.linspace(-1, 1, 2 * jump.side), calm[jump.at - jump.side : jump.at + jump.side]
    cubic = [x, x**2, x**3]
    rivals = [[*cubic, x**4, x**5], *([*cubic, np.maximum(x - knot, 0)] for knot in np.linspace(-0.8, 0.8, 9))]
    return _misfit(window, [*cubic, (x > 0).astype(np.float64)]) < min(_misfit(window, rival) for rival in rivals)


def _excess(jump: _Jump, noise: Noise) -> float:
    error = noise.weighted_sd(_step_weights(jump.side))
    if error:
        return abs(jump.size) / error
    return math.inf if abs(jump.size) > _rounding(noise) else 0.0


def _rounding(noise: Noise) -> float:
    # What arithmetic alone makes of a series without noise.
    return 1e-9 * float(np.max(np.abs(noise.curve)))


def _sides(n: int) -> list[int]:
    sides, side = [], float(_SHORTEST_SIDE)
    while side <= max(n // 3, _SHORTEST_SIDE):
        sides.append(int(side))
        side *= 5 / 3
    return sides


@lru_cache(maxsize=32)
def _step_weights(side: int) -> FloatArray:
    # What a window is multiplied with to read the coefficient of a step in its middle, beside a cubic in time.
    x = (np.arange(-side, side) + 0.5) / side
    cubic = np.linalg.qr(np.vander(x, 4))[0]
    step = (x > 0).astype(np.float64)
    step -= cubic @ (cubic.T @ step)
    return np.asarray(step / (step @ step), dtype=np.float64)


def _reported(seen: Series, jump: _Jump, p_value: float, noise: Noise, level: float) -> ChangePoint:
    before, after = seen.values[max(jump.at - jump.side, 0) : jump.at], seen.values[jump.at : jump.at + jump.side]
    reach = noise.quantile(level) * noise.weighted_sd(_step_weights(jump.side))
    size = Interval(jump.size, jump.size - reach, jump.size + reach, level, f"step beside a cubic, {jump.side} points a side")
    return ChangePoint(float(seen.steps[jump.at]), "jump", float(np.median(before)), float(np.median(after)), size, p_value)


def _bends(steps: FloatArray, calm: FloatArray, jumps_at: list[int], noise: Noise, level: float) -> list[ChangePoint]:
    # At most one: the knot of the best hinge, if it beats the straight line and every smooth curve.
    n, span = len(calm), float(steps[-1] - steps[0])
    if span == 0:
        return []
    x, jumps = (steps - steps[0]) / span, [(np.arange(n) >= at).astype(np.float64) for at in jumps_at]
    place = min(range(n // 8, n - n // 8, max(n // 100, 1)), key=lambda at: _misfit(calm, [x, np.maximum(x - x[at], 0), *jumps]))
    hinge = np.maximum(x - x[place], 0)
    weights = _coefficient_weights(hinge, [x, *jumps])
    bend, error = float(weights @ calm), noise.weighted_sd(weights)
    p_value = min(1.0, _LOOKS_FOR_BEND * noise.p_value(bend / error)) if error else float(abs(bend) <= _rounding(noise))
    if p_value > 1 - level or not _kinked(calm, x, hinge, jumps, noise):
        return []
    before, reach = float(_coefficient_weights(x, [hinge, *jumps]) @ calm) / span, noise.quantile(level) * error / span
    size = Interval(bend / span, bend / span - reach, bend / span + reach, level, "hinge")
    return [ChangePoint(float(steps[place]), "bend", before, before + size.value, size, p_value)]


def _kinked(calm: FloatArray, x: FloatArray, hinge: FloatArray, jumps: list[FloatArray], noise: Noise) -> bool:
    own, count = max(_misfit(calm, [x, hinge, *jumps]), 1e-300), noise.effective_points
    for extra, columns in _smooth_rivals(x):
        margin = count * math.log(max(_misfit(calm, [*columns, *jumps]), 1e-300) / own) + extra * math.log(max(count, 1.0))
        if margin < _BEND_MARGIN:
            return False
    return True


def _misfit(calm: FloatArray, columns: list[FloatArray]) -> float:
    basis = np.linalg.qr(np.column_stack([np.ones(len(calm)), *columns]))[0]
    away = calm - basis @ (basis.T @ calm)
    return float(away @ away)


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
