"""Jumps: read by hand beside a curve, found where they are, never made of a spike."""

from __future__ import annotations

import math

import numpy as np
import pytest

from breadth.measure.finite import FloatArray
from breadth.measure.jumps import SHORTEST_SIDE, find_jumps


def test_a_step_on_a_parabola_by_hand() -> None:
    # The jump is read beside a cubic, so of parabola and step only the step of 2 is left.
    x = np.linspace(-1, 1, 60)
    (found,) = find_jumps(1 + x - 3 * x**2 + 2 * (np.arange(60) >= 33), 0.95)
    assert found.at == 33
    assert found.size == pytest.approx(2.0)
    assert found.error == pytest.approx(0.0, abs=1e-9)


def test_six_points_are_needed_on_each_side() -> None:
    assert SHORTEST_SIDE == 6
    assert find_jumps(np.repeat([0.0, 1.0], [5, 6]), 0.95) == ()
    late = np.repeat([0.0, 1.0], [36, 4]) + 0.01 * np.random.default_rng(0).standard_normal(40)
    assert find_jumps(late, 0.95) == ()


def test_the_error_of_the_size_is_the_spread_of_the_size() -> None:
    rng = np.random.default_rng(1)
    found = [find_jumps(rng.standard_normal(60) + 9 * (np.arange(60) >= 30), 0.95) for _ in range(60)]
    sized = [jump for jumps in found for jump in jumps if jump.at == 30]
    assert len(sized) >= 52
    off = [(jump.size - 9) / jump.error for jump in sized]
    assert np.sqrt(np.mean(np.square(off))) == pytest.approx(1.0, abs=0.35)


def test_real_jumps_are_found_where_they_are() -> None:
    rng = np.random.default_rng(5)
    places: list[int] = []
    for _ in range(30):
        values = 0.8 * np.exp(-2 * np.linspace(0, 1, 150)) - 0.2 * (np.arange(150) >= 90) + 0.02 * rng.standard_normal(150)
        places += [jump.at for jump in find_jumps(values, 0.95)]
    assert 28 <= len(places) <= 33
    assert np.mean([abs(place - 90) <= 3 for place in places]) >= 0.9


def test_up_and_down_again_are_two_jumps() -> None:
    rng = np.random.default_rng(6)
    values: FloatArray = 1.0 * ((np.arange(90) >= 30) & (np.arange(90) < 55)) + 0.08 * rng.standard_normal(90)
    found = find_jumps(values, 0.95)
    assert [jump.at for jump in found] == pytest.approx([30, 55], abs=2)
    assert found[0].size > 0 > found[1].size


def test_a_spike_is_no_jump() -> None:
    rng = np.random.default_rng(7)
    values = 0.1 * rng.standard_normal(100)
    values[40:43] = 1e4
    assert find_jumps(values, 0.95) == ()


def test_slow_noise_is_not_a_chain_of_jumps() -> None:
    rng = np.random.default_rng(8)
    alarms = 0
    for _ in range(60):
        news = rng.standard_normal(120)
        values = np.array([sum(0.8**lag * news[place - lag] for lag in range(min(place, 40) + 1)) for place in range(120)])
        alarms += bool(find_jumps(values, 0.95))
    assert alarms <= 5


def test_without_noise_rounding_is_no_jump() -> None:
    assert find_jumps(np.full(40, 1 / 3), 0.95) == ()
    assert find_jumps(np.linspace(7, 11, 40), 0.95) == ()
    assert all(math.isfinite(jump.size) for jump in find_jumps(np.repeat([0.0, 1.0], 20), 0.95))
