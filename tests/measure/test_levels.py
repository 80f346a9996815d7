"""Levels at both ends: by hand, and intervals that hold the truth whatever the series does in between."""

from __future__ import annotations

import math

import numpy as np
import pytest

from breadth.measure.levels import edge, measured_levels


def test_an_edge_is_an_eighth_and_at_least_three() -> None:
    assert [edge(points) for points in (8, 24, 31, 32, 800)] == [3, 3, 3, 4, 100]


def test_levels_and_their_errors_by_hand() -> None:
    # Near either end the nearest five of 0, 1, 0, 1 ... differ by 1 each time: variance 1/2. Medians of three: 0, 1, 0 and 1, 0, 1.
    # Error of each: sqrt(pi/2 * 0.5 / 3) = 0.51166; four differences leave 8/3 degrees of freedom, t = 3.4202.
    start, end, change = measured_levels(np.array([0.0, 1.0] * 8), 0.95)
    assert (start.value, end.value, change.value) == (0.0, 1.0, 1.0)
    assert start.high == pytest.approx(3.4202 * 0.51166, rel=1e-3)
    assert end.low == pytest.approx(1 - 3.4202 * 0.51166, rel=1e-3)
    assert change.high - 1 == pytest.approx(math.sqrt(2) * 3.4202 * 0.51166, rel=1e-3)


def test_a_constant_series_is_known_exactly() -> None:
    start, end, change = measured_levels(np.full(40, 0.3), 0.95)
    assert (start.low, start.high, end.low, change.low, change.high) == (0.3, 0.3, 0.3, 0.0, 0.0)


@pytest.mark.parametrize("points", [16, 40, 200])
def test_the_change_is_held_by_its_interval_however_bent_the_curve_is(points: int) -> None:
    rng, t, held, draws = np.random.default_rng(points), np.linspace(0, 1, points), 0, 400
    curve = -2 * t + np.sin(5 * t) / 2 - (t > 0.7)  # a bend and a jump that no one smooth curve follows
    size = edge(points)
    true = float(np.median(curve[-size:]) - np.median(curve[:size]))
    for _ in range(draws):
        held += true in measured_levels(curve + rng.normal(0, 0.1, points), 0.95)[2]
    assert held / draws > 0.93
