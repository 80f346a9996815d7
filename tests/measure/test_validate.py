"""Bad arrays are refused by name and number; good ones come back as float64."""

from __future__ import annotations

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.measure.validate import as_booleans, as_counts, as_finite, as_floats, check_same_length


def test_good_values_are_float64_and_unchanged() -> None:
    array = as_finite([1, 2.5, True], "x")
    assert array.dtype == np.float64
    assert array.tolist() == [1.0, 2.5, 1.0]


def test_how_many_values_are_bad_is_reported() -> None:
    with pytest.raises(MeasureError, match="2 of 4 values of x are NaN or infinite"):
        as_finite([1.0, np.nan, np.inf, 0.0], "x")


@pytest.mark.parametrize(
    ("values", "problem"),
    [([], "empty"), ([[1.0]], "2 dimensions"), (["a"], "cannot be read"), ([[1], [1, 2]], "cannot be read")],
)
def test_empty_wrong_shape_text_and_ragged_are_refused(values: list[object], problem: str) -> None:
    with pytest.raises(MeasureError, match=problem):
        as_finite(values, "x")  # type: ignore[arg-type]  # wrong on purpose


def test_numbers_keep_nan() -> None:
    assert np.isnan(as_floats([[1.0, None]], "x")[0, 1])  # type: ignore[arg-type]  # a missing value as files give it


def test_counts_must_be_whole_and_not_negative() -> None:
    assert as_counts([0, 3.0], "n").tolist() == [0.0, 3.0]
    with pytest.raises(MeasureError, match="2 of 3"):
        as_counts([-1, 0.5, 2], "n")


def test_outcomes_must_be_zero_or_one() -> None:
    assert as_booleans([1, 0, True], "correct").tolist() == [True, False, True]
    with pytest.raises(MeasureError, match="1 of 2 values of correct"):
        as_booleans([0.5, 1], "correct")


def test_lengths_that_differ_are_named() -> None:
    assert check_same_length(a=np.ones(3), b=np.ones((3, 2))) == 3
    with pytest.raises(MeasureError, match="a has 3, b has 2"):
        check_same_length(a=np.ones(3), b=np.ones(2))
