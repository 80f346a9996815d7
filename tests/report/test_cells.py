"""What may stand in one place of a report."""

from __future__ import annotations

import math

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.measure.intervals import Interval
from breadth.report.cells import IntervalLike, Missing, floats, interval_origin, is_number, member, tidy
from breadth.report.sections import Outcome


def test_the_intervals_of_measure_are_cells() -> None:
    interval = Interval(0.42, 0.38, 0.47, 0.95, "wilson")
    assert isinstance(interval, IntervalLike)
    assert tidy(interval) is interval


def test_numpy_scalars_become_python_numbers() -> None:
    assert [type(tidy(value)) for value in (np.float32(0.5), np.int64(3), np.bool_(True), np.array(2.5))] == [float, int, bool, float]


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, np.array([1.0, 2.0]), object()])
def test_what_is_no_cell_is_refused(value: object) -> None:
    with pytest.raises(MeasureError, match="cannot be shown"):
        tidy(value)


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
    assert member(Outcome, "wrong", "outcomes") is Outcome.WRONG
    with pytest.raises(MeasureError, match="Did you mean 'correct'"):
        member(Outcome, "corect", "outcomes")
