"""Series: what is kept, in what order, and what a spike is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.intervals import check_level
from breadth.measure.series import clean_series, robust_sd, tame, thin, usable


def test_points_are_sorted_by_step_and_repeats_keep_their_logged_order() -> None:
    series = clean_series([3, 1, 2, 1], [30.0, 10.0, 20.0, 11.0])
    assert series.steps.tolist() == [1, 1, 2, 3]
    assert series.values.tolist() == [10.0, 11.0, 20.0, 30.0]
    assert series.dropped == 0


def test_what_is_not_a_number_is_left_out_and_counted() -> None:
    series = clean_series([0, 1, 2, 3, 4], [1.0, math.nan, math.inf, 1e150, 5.0])
    assert series.values.tolist() == [1.0, 5.0]
    assert series.steps.tolist() == [0, 4]
    assert series.dropped == 3
    assert usable(np.array([0.0, math.nan, -math.inf, 2e100])).tolist() == [True, False, False, False]


def test_an_empty_series_is_empty() -> None:
    assert len(clean_series([], [])) == 0


@pytest.mark.parametrize(
    ("steps", "values", "said"),
    [
        ([0, 1], [1.0], "one step per value"),
        ([[0, 1]], [[1.0, 2.0]], "one step per value"),
        ([0, math.nan], [1.0, 2.0], "1 of 2 steps"),
        ([0, 1], ["low", "high"], "cannot be read as numbers"),
    ],
)
def test_series_that_cannot_be_read_are_refused(steps: list[float], values: list[float], said: str) -> None:
    with pytest.raises(MeasureError, match=said):
        clean_series(steps, values)


def test_thinning_takes_medians_of_neighbours_and_keeps_the_rest() -> None:
    # Seven points to at most three: groups of three, and one point left over.
    series = thin(clean_series(range(7), [1, 9, 2, 5, 4, 6, 7]), 3)
    assert series.steps.tolist() == [1, 4, 6]
    assert series.values.tolist() == [2, 5, 7]
    assert len(thin(series, 3)) == 3


def test_robust_spread_by_hand() -> None:
    # Median 3; distances 2, 1, 0, 1, 97: their median is 1.
    assert robust_sd(np.array([1.0, 2.0, 3.0, 4.0, 100.0])) == pytest.approx(1.4826, abs=1e-4)
    # Most values equal, so the median distance is 0; the mean one is 1/5.
    assert robust_sd(np.array([0.0, 0.0, 0.0, 0.0, 1.0])) == pytest.approx(0.2 * math.sqrt(math.pi / 2))
    assert math.isnan(robust_sd(np.zeros(0)))


def test_spikes_are_pulled_in_and_everything_else_stays() -> None:
    clean = np.sin(np.arange(40) / 6) + 0.01 * np.random.default_rng(0).standard_normal(40)
    spiked = clean.copy()
    spiked[[0, 17, 18, 39]] += [50, -50, 900, -50]
    calm = tame(spiked)
    assert np.max(np.abs(calm - clean)) < 2.5  # at the ends by three ranges of the neighbours, inside by far less
    assert np.max(np.abs(calm - clean)[17:19]) < 0.6
    untouched = np.delete(np.arange(40), [0, 17, 18, 39])
    assert np.max(np.abs(calm - clean)[untouched]) < 0.2


@pytest.mark.parametrize(
    "values",
    [
        np.repeat([0.0, 5.0], 20),  # a jump is no spike
        0.8 * np.exp(-np.arange(60) / 6),  # nor is the steep start of a decline
        np.arange(30.0),
        np.array([1.0, 99.0, 1.0]),  # too short to say
    ],
)
def test_jumps_slopes_and_steep_starts_are_left_alone(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    assert tame(values) == pytest.approx(values)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=7, max_size=40), st.integers(-500, 500), st.integers(-9, 9))
def test_taming_follows_shift_and_scale(values: list[int], shift: int, power: int) -> None:
    array = np.array(values, dtype=np.float64)
    assert tame(array * 2.0**power + shift) == pytest.approx(tame(array) * 2.0**power + shift)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, math.nan])
def test_a_level_lies_between_0_and_1(level: float) -> None:
    with pytest.raises(MeasureError, match="between 0 and 1"):
        check_level(level)
