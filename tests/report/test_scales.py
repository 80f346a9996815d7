"""Limits, ticks and places, worked out by hand and for any numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.report.scales import Scale, drawable, limits, position_scale, value_scale


def test_places() -> None:
    assert Scale(10, 20).at(15) == 0.5
    assert Scale(1, 64, log=True).at(8) == pytest.approx(0.5)
    assert Scale(0, 1).at(2) == 2


def test_limits_make_room_for_a_single_value_and_for_none() -> None:
    assert limits([math.nan, 3, math.inf, 1]) == (1, 3)
    assert limits([5, 5]) == (4.5, 5.5)
    assert limits([0.0, 0.0]) == (0, 1)
    assert limits([]) == limits([math.nan]) == (0, 1)


def test_values_near_zero_start_at_zero() -> None:
    scale, ticks = value_scale([0.28, 0.86], 5)
    # 0.28 is below half of 0.86; room above: 0.04 * 0.58. Rough step 0.883 / 5 = 0.177, next round one 0.2.
    assert (scale.low, scale.high) == pytest.approx((0, 0.8832))
    assert ticks == (0, 0.2, 0.4, 0.6, 0.8)


def test_values_far_from_zero_keep_their_range() -> None:
    scale, ticks = value_scale([0.91, 0.95], 5)
    # Room on both sides: 0.04 * 0.04 = 0.0016. Rough step 0.0432 / 5 = 0.0086, next round one 0.01.
    assert (scale.low, scale.high) == pytest.approx((0.9084, 0.9516))
    assert ticks == (0.91, 0.92, 0.93, 0.94, 0.95)


def test_whole_positions_get_whole_ticks() -> None:
    assert position_scale([1, 2, 3, 4], 9, log=False)[1] == (1, 2, 3, 4)
    # Rough step 19 / 9 = 2.1; 2.5 is no whole number, so 5.
    assert position_scale([0, 7, 19], 9, log=False)[1] == (0, 5, 10, 15)
    assert position_scale([0.5, 3], 5, log=False)[1] == (0.5, 1, 1.5, 2, 2.5, 3)


def test_powers_of_two_are_ticked_as_such() -> None:
    assert position_scale([1, 2, 8, 64], 9, log=True)[1] == (1, 2, 4, 8, 16, 32, 64)
    assert position_scale([1, 2, 8, 64], 4, log=True)[1] == (1, 4, 16, 64)


def test_other_ratios_are_ticked_by_decades() -> None:
    assert position_scale([100, 300, 32768], 9, log=True)[1] == (100, 1000, 10000)
    assert position_scale([3, 30], 9, log=True)[1] == (5, 10, 20)
    assert position_scale([3], 9, log=True)[0] == Scale(1.5, 6, log=True)


def test_what_cannot_be_drawn() -> None:
    assert [drawable(value) for value in (0.0, -1e149, 1e200, math.nan, math.inf)] == [True, True, False, False, False]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=8), st.integers(2, 10))
def test_ticks_stand_inside_the_scale_and_are_few(values: list[float], most: int) -> None:
    for scale, ticks in (value_scale(values, most), position_scale(values, most, log=False)):
        assert scale.low < scale.high
        assert len(ticks) <= most + 2
        assert list(ticks) == sorted(set(ticks))
        assert all(-1e-6 <= scale.at(tick) <= 1 + 1e-6 for tick in ticks)
        assert all(-1e-9 <= scale.at(value) <= 1 + 1e-9 for value in values if drawable(value))


@given(st.lists(st.floats(1e-100, 1e100), max_size=8), st.integers(2, 10))
def test_logarithmic_ticks_too(values: list[float], most: int) -> None:
    scale, ticks = position_scale(values, most, log=True)
    assert 0 < scale.low < scale.high
    assert 0 < len(ticks) <= most + 1
    assert all(-1e-6 <= scale.at(tick) <= 1 + 1e-6 for tick in ticks)
