"""Which budget to choose: by hand on small tables, steady on large ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.measure.curve_shapes import SaturatingPower
from breadth.measure.curves import CurveChoice
from breadth.measure.humps import HumpTest
from breadth.measure.optimum import one_standard_error_choice, optimum

BUDGETS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])


def test_measured_optimum_by_hand() -> None:
    # Accuracies 0.25, 0.5, 0.75 at 1, 2, 4. At price 0.1: 0.15, 0.3, 0.35 -> 4. At price 0.2: 0.05, 0.1, -0.05 -> 2.
    table = [[1, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 0]]
    cheap, dear = optimum([1, 2, 4], table, 0.1), optimum([1, 2, 4], table, 0.2)
    assert (cheap.measured.budget.value, dear.measured.budget.value) == (4.0, 2.0)
    assert cheap.measured.utility == pytest.approx(0.35)
    assert (cheap.fitted, cheap.basis, cheap.inside) == (None, None, False)


def test_measured_and_fitted_optimum_agree_where_the_shape_is_right() -> None:
    luck = np.random.default_rng(0).random((3000, 1))
    table = (luck < SaturatingPower(0.6, 0.5, 0.7).predict(BUDGETS)).astype(float)
    found = optimum(BUDGETS, table, 0.001)
    assert found.measured.budget.value == 32.0
    assert isinstance(found.basis, CurveChoice)
    assert found.fitted is not None
    assert found.inside
    assert found.fitted.value == pytest.approx(31.4, abs=4)


def test_a_hump_leaves_the_measured_optimum_only() -> None:
    rng = np.random.default_rng(1)
    table = (rng.random((200, 5)) < [0.3, 0.5, 0.65, 0.5, 0.3]).astype(float)
    found = optimum([1, 2, 4, 8, 16], table, 0.001)
    assert isinstance(found.basis, HumpTest)
    assert found.fitted is None
    assert found.measured.budget.value == 4.0


def test_one_standard_error_by_hand() -> None:
    # Four problems. Budget 3 solves all but the last: 0.75; budget 2 loses one of those: gap 0.25 and paired differences 1,0,0,0
    # with standard error sqrt(0.1875 / 3) = 0.25: within. Budget 1 loses two: gap 0.5, error sqrt(0.25 / 3) = 0.289: not within.
    choice = one_standard_error_choice([1, 2, 3], [[0, 0, 1], [0, 1, 1], [1, 1, 1], [0, 0, 0]])
    assert choice.budget.value == 2.0
    assert choice.accuracy.value == 0.5


def test_pairing_tells_budgets_apart_that_separate_errors_would_not() -> None:
    # Nested outcomes: 0.50 against 0.55 of 400 problems. Unpaired standard error 0.035, paired 0.011: not within.
    luck = (np.arange(400)[:, None] + 0.5) / 400
    table = (luck < np.array([0.50, 0.55])).astype(float)
    assert one_standard_error_choice([1, 2], table).budget.value == 2.0


def test_equal_budgets_choose_the_smallest() -> None:
    choice = one_standard_error_choice([4, 2, 8], np.tile([[1.0], [0.0], [1.0]], (1, 3)))
    assert choice.budget.value == 2.0
    # The same in every resample: agreement, so the range is that budget alone.
    assert (choice.budget.low, choice.budget.high) == (2.0, 2.0)


def test_resamples_show_how_unsure_the_choice_is() -> None:
    rng = np.random.default_rng(2)
    table = (rng.random((60, 4)) < [0.3, 0.5, 0.55, 0.6]).astype(float)
    choice = one_standard_error_choice([1, 2, 4, 8], table)
    assert choice.budget.low < choice.budget.high
    assert choice.budget.value in choice.budget


def test_bad_input_is_refused() -> None:
    with pytest.raises(MeasureError, match="One problem"):
        one_standard_error_choice([1, 2], [[0, 1]])
    with pytest.raises(MeasureError, match="price"):
        optimum([1, 2], [[0, 1], [1, 1]], math.nan)
