"""Lines: least squares by hand, and errors that hold under autocorrelated noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.measure.lines import line_through, misfit, varies


def test_four_points_by_hand() -> None:
    # x mean 1.5, y mean 2.5; products of distances 0.5 * -0.5 ... sum to 4, squares of x to 5: slope 0.8, intercept 1.3.
    line = line_through(np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0, 4.0]))
    assert line.slope == pytest.approx(0.8)
    assert line.intercept == pytest.approx(1.3)
    assert line.at(np.array([0.0, 10.0])) == pytest.approx([1.3, 9.3])
    # Residuals -0.3, 0.9, -0.9, 0.3: squares sum to 1.8 on two degrees of freedom, so variance 0.9 and slope error sqrt(0.9 / 5).
    assert line.noise.autocorrelation == 0.0
    reach = 4.302653 * math.sqrt(0.9 / 5)
    assert line.slope_interval(0.95).high == pytest.approx(0.8 + reach, rel=1e-6)
    # At x = 0 the variance is 0.9 (1/4 + 1.5^2 / 5).
    assert line.value_at(0.0, 0.95).low == pytest.approx(1.3 - 4.302653 * math.sqrt(0.9 * 0.7), rel=1e-6)


def test_the_average_miss_by_hand() -> None:
    # Two new points 1 and 3 above the line of the four; its error at x = 5 and their own noise add up.
    line = line_through(np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0, 4.0]))
    new = np.array([4.0, 6.0])
    miss = line.mean_miss(new, line.at(new) + np.array([1.0, 3.0]), 0.95)
    assert miss.value == pytest.approx(2.0)
    variance = 0.9 * (1 / 4 + 3.5**2 / 5) + 0.9 / 2
    assert miss.high == pytest.approx(2.0 + 4.302653 * math.sqrt(variance), rel=1e-6)


def test_intervals_hold_under_autocorrelated_noise() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        noise = np.zeros(50)
        for place in range(1, 50):
            noise[place] = 0.5 * noise[place - 1] + rng.standard_normal()
        x = np.exp(np.linspace(1, 0, 50))
        held += 2.0 in line_through(x, 5 - 3 * x + 0.1 * noise).value_at(1.0, 0.95)
    assert held / 200 >= 0.9


def test_fewer_than_four_points_have_no_interval() -> None:
    line = line_through(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 2.5]))
    assert (line.value_at(1.0, 0.95).low, line.value_at(1.0, 0.95).high) == (-math.inf, math.inf)


def test_a_line_needs_two_places() -> None:
    with pytest.raises(MeasureError, match="same at all 3"):
        line_through(np.full(3, 0.1), np.arange(3.0))
    assert not varies(np.full(5, 1 / 3))
    assert not varies(np.array([2.0]))
    assert varies(np.array([1.0, 1.001]))


def test_misfit_by_hand() -> None:
    # Mean 2 leaves 1 + 0 + 1; a line through 1, 2, 3 leaves nothing.
    assert misfit(np.array([1.0, 2.0, 3.0]), []) == pytest.approx(2.0)
    assert misfit(np.array([1.0, 2.0, 3.0]), [np.arange(3.0)]) == pytest.approx(0.0, abs=1e-20)
