"""Cells: what counts as one, and how numbers and intervals are written."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.intervals import Interval
from breadth.report.cells import (
    MIN_PERCENT,
    PERCENT,
    Cell,
    IntervalLike,
    Missing,
    data_unit,
    enum_member,
    floats,
    format_cell,
    format_factor,
    format_interval,
    format_number,
    format_pair,
    interval_decimals,
    interval_origin,
    is_number,
    shared_decimals,
    to_cell,
    typeset_minus,
)
from breadth.report.sections import Outcome


def test_the_intervals_of_measure_are_cells() -> None:
    interval = Interval(0.42, 0.38, 0.47, 0.95, "wilson")
    assert isinstance(interval, IntervalLike)
    assert to_cell(interval) is interval


def test_numpy_scalars_become_python_numbers() -> None:
    assert [type(to_cell(value)) for value in (np.float32(0.5), np.int64(3), np.bool_(True), np.array(2.5))] == [
        float,
        int,
        bool,
        float,
    ]


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, np.array([1.0, 2.0]), object()])
def test_what_is_no_cell_is_refused(value: object) -> None:
    with pytest.raises(MeasureError, match="cannot be shown"):
        to_cell(value)


def test_floats_from_an_array() -> None:
    assert floats(np.array([1, 2], dtype=np.int32).tolist()) == (1.0, 2.0)
    assert math.isnan(floats([math.nan])[0])


def test_numbers_are_told_from_words() -> None:
    interval = Interval(0.4, 0.3, 0.5)
    assert [is_number(cell) for cell in (1, 0.5, math.nan, interval)] == [True] * 4
    assert [is_number(cell) for cell in ("1", True, None, Missing("why"))] == [False] * 4


def test_origin_of_an_interval() -> None:
    assert interval_origin(Interval(0.4, 0.3, 0.5, 0.95, "wilson")) == "95% interval, wilson"
    assert interval_origin(Interval(0.4, 0.3, 0.5, 0.999)) == "99.9% interval"
    assert [interval_origin(cell) for cell in ("text", 0.4, None)] == ["", "", ""]


def test_a_misspelt_word_gets_the_nearest_one() -> None:
    assert enum_member(Outcome, "wrong", "outcomes") is Outcome.WRONG
    with pytest.raises(MeasureError, match="Did you mean 'correct'"):
        enum_member(Outcome, "corect", "outcomes")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (0.42345, "0.423"),
        (0.5, "0.5"),
        (12.345, "12.3"),
        (-12.345, "-12.3"),
        (999.7, "1,000"),
        (12345.678, "12,346"),
        (614400, "614,400"),
        (10**18, "1,000,000,000,000,000,000"),
        (1e-6, "1e-6"),
        (0.000123456, "0.000123"),
        (-2.5e-7, "-2.5e-7"),
        (6.02e23, "6.02e23"),
        (math.nan, "NaN"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (True, "yes"),
        (False, "no"),
    ],
)
def test_lone_numbers(value: float, expected: str) -> None:
    assert format_number(value) == expected


def test_percent_is_the_only_unit_that_rescales() -> None:
    assert format_number(0.334, PERCENT) == "33.4%"
    assert format_number(0.334, "nats") == "0.334 nats"
    assert format_number(0.334, PERCENT, bare=True) == "33.4"
    assert format_number(math.nan, PERCENT) == format_number(math.nan, "nats") == "NaN"
    assert data_unit(PERCENT) == "fraction"


def test_fixed_decimals() -> None:
    assert [format_number(value, decimals=2) for value in (0.5, 1234.5, -0.001, 1e-9)] == [
        "0.50",
        "1,234.50",
        "0.00",
        "0.00",
    ]


@pytest.mark.parametrize(
    ("value", "low", "high", "expected"),
    [
        # Half width 0.045: its digits 45 are not below 35, so one of them: hundredths.
        (0.42, 0.38, 0.47, "0.42 (0.38 to 0.47)"),
        # Half width 0.012: digits 12, so both: thousandths.
        (0.4213, 0.409, 0.433, "0.421 (0.409 to 0.433)"),
        # Half width 120: tens.
        (12341, 12224, 12464, "12,340 (12,220 to 12,460)"),
        # Half width 5: ones.
        (100.4, 95.2, 105.2, "100 (95 to 105)"),
        (0.0, -0.3, 0.3, "0.00 (-0.30 to 0.30)"),
        (1.0, 1.0, 1.0, "1 (1 to 1)"),
        (2e-6, 1e-6, 3e-6, "2e-6 (1e-6 to 3e-6)"),
        (0.5, 0.4999999999, 0.5000000001, "0.5 (0.5 to 0.5)"),
        (0.42, math.nan, math.nan, "0.42 (no interval)"),
        (math.nan, math.nan, math.nan, "NaN (no interval)"),
        # Only one finite side, 0.04 away: one digit of it.
        (0.42, 0.38, math.inf, "0.42 (0.38 to ∞)"),
        (0.42, -math.inf, math.inf, "0.42 (-∞ to ∞)"),
    ],
)
def test_digits_follow_the_width(value: float, low: float, high: float, expected: str) -> None:
    assert format_interval(Interval(value, low, high)) == expected


def test_units_of_intervals() -> None:
    cell = Interval(0.42, 0.38, 0.47)
    assert format_interval(cell, PERCENT) == "42% (38% to 47%)"
    assert format_interval(cell, PERCENT, bare=True) == "42 (38 to 47)"
    assert format_interval(cell, "nats") == "0.42 nats (0.38 to 0.47)"


@given(st.floats(0.1, 1e12), st.floats(1e-3, 0.9))
def test_rounding_moves_an_end_by_less_than_a_fifth_of_the_half_width(value: float, share: float) -> None:
    half = value * share
    cell = Interval(value, value - half, value + half)
    decimals = interval_decimals(cell)
    assert decimals is not None
    # One digit is kept of at least 3.55 units, two of less than 35.5: half a unit is at most 0.5/3.55 of the half
    # width.
    assert 0.5 * 10.0**-decimals <= half * (0.5 / 3.55) * 1.0001


def test_cells() -> None:
    cells: list[Cell] = [None, Missing("why"), "two\nlines \x1b[1m", 3, Interval(0.42, 0.38, 0.47)]
    assert [format_cell(cell) for cell in cells] == ["n/a", "n/a", "two lines", "3", "0.42 (0.38 to 0.47)"]


def test_a_column_lines_up() -> None:
    assert shared_decimals([0.5, 0.423, 12.25]) == 3
    assert shared_decimals([0.25, 1.0], PERCENT) == 0
    assert shared_decimals([50.0, 100.0]) == 0
    assert shared_decimals([0.001234, 123456.0]) is None
    assert shared_decimals([1e-7, 0.5]) is None
    assert shared_decimals(["text", None, 3, math.nan]) is None


def test_intervals_decide_for_their_column() -> None:
    fine, coarse, exact = Interval(0.4213, 0.409, 0.433), Interval(0.42, 0.38, 0.47), Interval(1.0, 1.0, 1.0)
    assert shared_decimals([fine, coarse, exact, 0.5]) == 3
    assert shared_decimals([fine, Interval(12341, 12224, 12464)]) is None
    assert format_cell(exact, decimals=3) == "1.000 (1.000 to 1.000)"


def test_typeset_changes_minus_signs_only() -> None:
    assert typeset_minus("-0.5 (-∞ to 1e-6) per-token") == "−0.5 (−∞ to 1e-6) per-token"


@given(
    st.one_of(st.floats(), st.integers()),
    st.sampled_from(["", PERCENT, "nats"]),
    st.one_of(st.none(), st.integers(0, 6)),
)
def test_every_number_can_be_written_and_small_ones_read_back(value: float, unit: str, decimals: int | None) -> None:
    text = format_number(value, unit, decimals, bare=True)
    assert text
    is_negligible = unit == PERCENT and 0 < abs(value) * 100 < MIN_PERCENT
    if decimals is None and abs(value) < 1e100 and not is_negligible:
        read = float(text.replace(",", "")) / (100 if unit == PERCENT else 1)
        assert math.isclose(read, value, rel_tol=0.0051, abs_tol=1e-300)


@pytest.mark.parametrize(
    ("value", "text"), [(4.71e-12, "<0.01%"), (-4.71e-12, "0%"), (0.0, "0%"), (-0.0, "0%"), (0.0002, "0.02%")]
)
def test_a_negligible_percentage_is_no_power_of_ten(value: float, text: str) -> None:
    assert format_number(value, PERCENT) == text


def test_an_interval_that_says_nothing_is_none() -> None:
    assert format_cell(Interval(400_000.0, 0.0, math.inf)) == "400,000 (no interval)"
    assert format_cell(Interval(5.0, 2.0, math.inf)) == "5.0 (2.0 to ∞)"


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (9.77e-05, 0.00352, "0.0001 to 0.00352"),
        (0.525, 0.125, "0.525 to 0.125"),
        (-3.0, 120.0, "-3 to 120"),
        (0.0, 0.0, "0 to 0"),
        (2e-7, 1e-6, "2e-7 to 1e-6"),
    ],
)
def test_two_numbers_share_the_decimals_of_the_larger(start: float, end: float, text: str) -> None:
    assert format_pair(start, end) == text


def test_a_factor_beyond_measure_is_not_counted_out() -> None:
    assert [format_factor(value) for value in (2.54, 34.2, 1340.4, 1e9)] == [
        "2.5",
        "34",
        "1,300",
        "more than a million",
    ]
