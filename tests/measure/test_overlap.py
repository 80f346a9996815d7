"""The overlap of answers and reward: the table of the specification, and its maximum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.overlap import best_policy_spread, expected_reward


def test_table_for_gap_two() -> None:
    spreads = [0.25, 0.5, 1, 1.5, 1.9365, 2.5, 4, 8]
    expected = [0.00119, 0.01033, 0.07204, 0.11337, 0.12099, 0.11503, 0.08750, 0.04825]
    assert expected_reward(2, 0.5, spreads) == pytest.approx(expected, abs=5e-6)
    # sqrt(4 - 0.25) = 1.93649.
    assert best_policy_spread(2, 0.5) == pytest.approx(1.93649, abs=1e-5)


def test_height_of_the_maximum() -> None:
    # exp(-1/2) / (2 sqrt(2 pi)) = 0.120985.
    assert expected_reward(2, 0.5, best_policy_spread(2, 0.5)) == pytest.approx(0.120985, abs=1e-6)


@given(st.floats(-5, 5), st.floats(0.1, 5))
@settings(max_examples=40, deadline=None)
def test_nothing_beats_the_best_spread(gap: float, reward_spread: float) -> None:
    best = best_policy_spread(gap, reward_spread)
    others = expected_reward(gap, reward_spread, np.linspace(0, 10, 101))
    assert np.all(others <= expected_reward(gap, reward_spread, best) + 1e-12)
    assert (best == 0) == (abs(gap) <= reward_spread)


def test_bad_spreads_are_refused() -> None:
    with pytest.raises(MeasureError, match="both be 0"):
        expected_reward(1, 0, [0.0])
    with pytest.raises(MeasureError, match="negative"):
        expected_reward(1, 0.5, [-1.0])
    with pytest.raises(MeasureError, match="finite"):
        expected_reward(math.nan, 0.5, [1.0])
    with pytest.raises(MeasureError, match="Gap"):
        best_policy_spread(1.0, -1.0)
