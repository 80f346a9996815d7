"""Jumps: where the level of a series is another from one point to the next, beyond what its trend explains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from breadth.measure.finite import FloatArray
from breadth.measure.lines import misfit
from breadth.measure.noise import Noise, noise_around
from breadth.measure.series import tame

SHORTEST_SIDE = 6
"""Points needed on each side of a jump: a cubic and a step leave seven degrees of freedom on twelve points."""
_MOST_JUMPS = 4
# More level changes than that in one run are a wander, not events.
_LOOKS_PER_WINDOW = 8.0
# How many independent looks a scan makes per window length: neighbouring estimates differ by an eighth of a window.


@dataclass(frozen=True)
class Jump:
    """A place at which a series jumps."""

    at: int
    """Index of the first point after it."""
    side: int
    """How many points on each side it was read from."""
    size: float
    """The jump beyond what a cubic through the window explains."""
    error: float
    """Standard error of the size."""
    p_value: float
    """How often noise this sluggish would show such a jump somewhere in a series this long."""


def find_jumps(values: FloatArray, level: float) -> tuple[Jump, ...]:
    """Find the jumps of a finite series in step order, at most four, spikes pulled in first.

    A jump is the coefficient of a step in a window around it beside a cubic in time, so a line, an exponential or an S-curve
    leaves nothing of it; windows of six points a side to a third of the series are tried. It counts when it exceeds Student's
    quantile for autocorrelated noise, corrected for all places looked at (Bonferroni), when the shortest window sees at
    least half of it (a jump is there at every scale, a fast but smooth decline only at long ones), and when neither a
    smoother curve nor a bend describes its window as well.
    """
    if len(values) < 2 * SHORTEST_SIDE:
        return ()
    # Collect the best candidates first and judge them together: a jump not yet known looks like sluggish noise to the others.
    calm, places = tame(values), list[int]()
    for _ in range(min(_MOST_JUMPS, max(len(calm) // (2 * SHORTEST_SIDE), 1))):
        places += _candidate(calm, places)
    while places:
        noise = noise_around(calm, tuple(sorted(places)))
        jumps = [_measured(calm, place, places, noise) for place in sorted(places)]
        worst = max(jumps, key=lambda jump: jump.p_value)
        if worst.p_value <= 1 - level:
            return tuple(jumps)
        places.remove(worst.at)
    return ()


def _candidate(calm: FloatArray, places: list[int]) -> list[int]:
    noise, best, best_excess = noise_around(calm, tuple(sorted(places))), -1, 0.0
    for side in _sides(len(calm)):
        sizes = np.abs(np.correlate(calm, _step_weights(side), "valid"))
        for place in places:  # no window may reach over a place that is already taken
            sizes[max(place - 2 * side + 1, 0) : place] = 0.0
        at = int(np.argmax(sizes))
        excess = _excess(float(sizes[at]), side, noise)
        if excess > best_excess:
            best, best_excess = at + side, excess
    return [best] if best_excess > 0 else []


def _measured(calm: FloatArray, place: int, places: list[int], noise: Noise) -> Jump:
    # In the window that shows the jump most clearly without reaching over another one.
    room = min([place, len(calm) - place, *(abs(place - other) for other in places if other != place)])
    sizes = {side: float(_step_weights(side) @ calm[place - side : place + side]) for side in _sides(len(calm)) if side <= room}
    side = max(sizes, key=lambda side: _excess(sizes[side], side, noise))
    looks = sum(_LOOKS_PER_WINDOW * len(calm) / each for each in _sides(len(calm)))
    chance = min(1.0, looks * noise.p_value(_excess(sizes[side], side, noise)))
    if chance < 1 and not _abrupt(calm, place, side, sizes[side], noise):
        chance = 1.0
    return Jump(place, side, sizes[side], noise.weighted_sd(_step_weights(side)), chance)


def _abrupt(calm: FloatArray, place: int, side: int, size: float, noise: Noise) -> bool:
    weights = _step_weights(SHORTEST_SIDE)
    near = calm[max(place - SHORTEST_SIDE - 2, 0) : place + SHORTEST_SIDE + 2]
    seen = float(np.max(np.correlate(near, weights, "valid") * math.copysign(1.0, size)))
    if seen + 2 * noise.weighted_sd(weights) < abs(size) / 2:
        return False
    x, window = np.linspace(-1, 1, 2 * side), calm[place - side : place + side]
    cubic = [x, x**2, x**3]
    rivals = [[*cubic, x**4, x**5], *([*cubic, np.maximum(x - knot, 0)] for knot in np.linspace(-0.8, 0.8, 9))]
    return misfit(window, [*cubic, (x > 0).astype(np.float64)]) < min(misfit(window, rival) for rival in rivals)


def _excess(size: float, side: int, noise: Noise) -> float:
    error = noise.weighted_sd(_step_weights(side))
    if error:
        return abs(size) / error
    return math.inf if abs(size) > noise.rounding else 0.0


def _sides(n: int) -> list[int]:
    sides, side = [], float(SHORTEST_SIDE)
    while side <= max(n // 3, SHORTEST_SIDE):
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
