"""Curve shapes: values and optima by hand, exact data recovered, bounds kept."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.curves import (
    SHAPES,
    Curve,
    CurveChoice,
    LogLinear,
    SaturatingExponential,
    SaturatingPower,
    fit_curve_counts,
    fit_curves,
    fit_shape,
    one_standard_error_choice,
    optimum,
)
from breadth.measure.paired_tests import HumpTest
from breadth.measure.validate import FloatArray

BUDGETS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])


def test_saturating_power_by_hand() -> None:
    curve = SaturatingPower(ceiling=0.6, drop=0.5, exponent=0.7)
    # At 1: 0.6 - 0.5. Optimum (0.5 * 0.7 / 0.001)^(1 / 1.7) = 350^0.588 = 31.4.
    assert curve.predict(1.0) == pytest.approx(0.1)
    assert curve.optimum(0.001) == pytest.approx(31.37, abs=0.005)


def test_exponential_by_hand() -> None:
    curve = SaturatingExponential(ceiling=0.8, scale=10.0)
    # At one scale 0.8 * (1 - 1/e) = 0.505696. Slope 0.08 exp(-b/10) = 0.01 at b = 10 ln 8 = 20.794.
    assert curve.predict([10.0]) == pytest.approx([0.505696], abs=1e-6)
    assert curve.optimum(0.01) == pytest.approx(20.794, abs=1e-3)
    assert curve.optimum(0.1) == 0.0


def test_log_linear_by_hand() -> None:
    curve = LogLinear(start=0.2, end=0.6, smallest=1.0, largest=128.0)
    # Seven doublings bring 0.4: after three, 0.2 + 0.4 * 3 / 7. Slope 0.4 / ln 128 = 0.082440; slope / price = 8.244.
    assert curve.predict(8.0) == pytest.approx(0.2 + 1.2 / 7)
    assert curve.optimum(0.01) == pytest.approx(8.2440, abs=1e-4)
    assert curve.optimum(1e-6) == 128.0
    assert curve.extrapolate(1e9) == pytest.approx(1.0)
    with pytest.raises(MeasureError, match="fitted on budgets 1 to 128 was asked for 256"):
        curve.predict(256.0)


@pytest.mark.parametrize("price", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "curve", [SaturatingPower(0.6, 0.5, 0.7), SaturatingExponential(0.8, 10.0), LogLinear(0.2, 0.6, 1.0, 128.0)]
)
def test_a_price_must_be_positive(curve: Curve, price: float) -> None:
    with pytest.raises(MeasureError, match="price"):
        curve.optimum(price)


@pytest.mark.parametrize("curve", [SaturatingPower(0.6, 0.5, 0.7), SaturatingExponential(0.8, 10.0)])
def test_the_optimum_beats_its_neighbours(curve: SaturatingPower | SaturatingExponential) -> None:
    best = curve.optimum(0.002)
    utility = curve.predict([best * 0.95, best, best * 1.05]) - 0.002 * np.array([best * 0.95, best, best * 1.05])
    assert utility[1] > max(utility[0], utility[2])


def test_budgets_must_be_positive() -> None:
    with pytest.raises(MeasureError, match="positive"):
        SaturatingPower(0.6, 0.5, 0.7).predict([0.0, 1.0])


def test_exact_curves_are_recovered() -> None:
    (power,) = fit_shape("saturating power", BUDGETS, SaturatingPower(0.6, 0.5, 0.7).predict(BUDGETS)[None], np.ones(8))
    assert isinstance(power, SaturatingPower)
    assert (power.ceiling, power.drop, power.exponent) == pytest.approx((0.6, 0.5, 0.7), abs=1e-4)
    (exponential,) = fit_shape(
        "exponential", BUDGETS, SaturatingExponential(0.7, 10.0).predict(BUDGETS)[None], np.ones(8)
    )
    assert isinstance(exponential, SaturatingExponential)
    assert (exponential.ceiling, exponential.scale) == pytest.approx((0.7, 10.0), rel=1e-4)
    (line,) = fit_shape("log-linear", BUDGETS, LogLinear(0.2, 0.6, 1.0, 128.0).predict(BUDGETS)[None], np.ones(8))
    assert line.predict(BUDGETS) == pytest.approx(LogLinear(0.2, 0.6, 1.0, 128.0).predict(BUDGETS))


def test_log_linear_fit_is_weighted_least_squares() -> None:
    rng = np.random.default_rng(0)
    accuracies, weights = np.linspace(0.3, 0.5, 8) + rng.normal(0, 0.01, 8), rng.uniform(1, 5, 8)
    (line,) = fit_shape("log-linear", BUDGETS, accuracies[None], weights)
    slope, intercept = np.polyfit(np.log(BUDGETS), accuracies, 1, w=np.sqrt(weights))
    assert line.predict(BUDGETS) == pytest.approx(intercept + slope * np.log(BUDGETS))


@given(st.lists(st.floats(0, 1), min_size=8, max_size=8))
@settings(max_examples=30, deadline=None)
def test_fits_rise_stay_within_bounds_and_are_no_worse_than_a_constant(accuracies: list[float]) -> None:
    target = np.array(accuracies)
    for shape in SHAPES:
        (curve,) = fit_shape(shape, BUDGETS, target[None], np.ones(8))
        fitted = curve.predict(BUDGETS)
        assert np.all((fitted >= -1e-9) & (fitted <= 1 + 1e-9))
        assert np.all(np.diff(fitted) >= -1e-9)
        if shape != "exponential":  # it starts from nothing, so it cannot be a constant
            assert ((fitted - target) ** 2).sum() <= ((target.mean() - target) ** 2).sum() + 1e-9


def test_many_rows_at_once_are_the_same_as_one_by_one() -> None:
    rows = np.random.default_rng(1).random((5, 8))
    for shape in SHAPES:
        together = fit_shape(shape, BUDGETS, rows, np.ones(8))
        assert together == [fit_shape(shape, BUDGETS, row[None], np.ones(8))[0] for row in rows]


SEVEN_BUDGETS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])


def _outcomes(curve: npt.ArrayLike, problems: int, seed: int) -> FloatArray:
    """Right or wrong at each budget with one luck per problem: once solved, solved at every larger budget."""
    luck = np.random.default_rng(seed).random((problems, 1))
    return (luck < np.asarray(curve)).astype(float)


def _choice(result: CurveChoice | HumpTest) -> CurveChoice:
    assert isinstance(result, CurveChoice)
    return result


@pytest.mark.parametrize(
    ("name", "curve"),
    [
        ("saturating power", SaturatingPower(0.7, 0.6, 1.0)),
        ("exponential", SaturatingExponential(0.9, 12.0)),
        ("log-linear", LogLinear(0.1, 0.5, 1.0, 64.0)),
    ],
)
def test_the_true_shape_is_chosen(name: str, curve: SaturatingPower | SaturatingExponential | LogLinear) -> None:
    exact = np.round(curve.predict(SEVEN_BUDGETS) * 100_000)
    choice = _choice(fit_curve_counts(SEVEN_BUDGETS, exact, np.full(7, 100_000)))
    assert choice.chosen == name
    assert abs(choice.held_out_errors[name]) < 1e-3
    assert choice.is_decided
    assert choice.fit.curve.predict(SEVEN_BUDGETS) == pytest.approx(curve.predict(SEVEN_BUDGETS), abs=1e-3)


def test_held_out_error_by_hand() -> None:
    # Log-linear through 0.1, 0.2, 0.3 at 1, 2, 4 predicts 0.4 at 8; measured 0.35: error +0.05. Standard error of 0.35
    # from
    # 10,000: sqrt(0.35 * 0.65 / 10,000) = 0.00477.
    choice = _choice(fit_curve_counts([1, 2, 4, 8], [1000, 2000, 3000, 3500], [10_000] * 4))
    assert choice.held_out_errors["log-linear"] == pytest.approx(0.05, abs=1e-3)
    assert choice.held_out_standard_error == pytest.approx(0.00477, abs=1e-5)


def test_few_problems_do_not_decide_the_shape() -> None:
    table = _outcomes(SaturatingPower(0.7, 0.6, 1.0).predict(SEVEN_BUDGETS), 30, 0)
    assert not _choice(fit_curves(SEVEN_BUDGETS, table, replicates=100)).is_decided


def test_a_hump_is_handed_back_instead_of_a_rising_fit() -> None:
    rng = np.random.default_rng(2)
    table = (rng.random((200, 5)) < [0.3, 0.5, 0.6, 0.5, 0.35]).astype(float)
    result = fit_curves([1, 2, 4, 8, 16], table)
    assert isinstance(result, HumpTest)
    assert result.is_positive
    counts = fit_curve_counts([1, 2, 4, 8, 16], table.sum(axis=0), [200] * 5)
    assert isinstance(counts, HumpTest)


def test_intervals_hold_the_truth() -> None:
    curve, held, optima = SaturatingPower(0.7, 0.6, 1.0), [], []
    for seed in range(40):
        fit = _choice(
            fit_curves(SEVEN_BUDGETS, _outcomes(curve.predict(SEVEN_BUDGETS), 200, seed), replicates=100, seed=seed)
        ).fits["saturating power"]
        held.append(float(curve.predict(32.0)) in fit.accuracy(32.0))
        optima.append(curve.optimum(0.002) in fit.optimum(0.002))
    assert np.mean(held) >= 0.87
    assert np.mean(optima) >= 0.87


def test_optimum_of_the_specification_is_recovered_with_an_interval() -> None:
    # Ceiling 0.6, drop 0.5, exponent 0.7 at price 0.001: 31.4.
    table = _outcomes(SaturatingPower(0.6, 0.5, 0.7).predict(SEVEN_BUDGETS), 2000, 3)
    interval = _choice(fit_curves(SEVEN_BUDGETS, table)).fits["saturating power"].optimum(0.001)
    assert 31.37 in interval
    assert 25 < interval.low < interval.high < 40


def test_shared_problems_make_the_accuracy_interval_as_wide_as_one_budget() -> None:
    # With one luck per problem all budgets move together: fitting seven of them must not shrink the interval of one.
    table = _outcomes(np.full(7, 0.5), 400, 4)
    interval = _choice(fit_curves(SEVEN_BUDGETS, table)).fits["log-linear"].accuracy(8.0)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * np.sqrt(0.25 / 400), rel=0.1)


def test_nothing_ever_right_is_a_flat_curve_at_zero() -> None:
    choice = _choice(fit_curves(SEVEN_BUDGETS, np.zeros((20, 7))))
    assert choice.fit.accuracy(8.0).value == pytest.approx(0.0, abs=1e-9)
    # No problem of 20 solved: the upper end is 1 - 0.025^(1/20) = 0.168433.
    assert choice.fit.accuracy(8.0).high == pytest.approx(0.168433, abs=1e-6)


def test_bad_input_is_refused() -> None:
    with pytest.raises(MeasureError, match="at least 4"):
        fit_curves([1, 2, 4], np.eye(3))
    with pytest.raises(MeasureError, match="start at 0"):
        fit_curve_counts([0, 1, 2, 3], [1, 2, 3, 4], [10] * 4)
    with pytest.raises(MeasureError, match="fitted on"):
        _choice(fit_curves(SEVEN_BUDGETS, _outcomes(np.linspace(0.1, 0.7, 7), 50, 0))).fits["log-linear"].accuracy(
            128.0
        )


def test_forced_waits_of_a_real_model(fixtures: Path) -> None:
    with (fixtures / "budgets" / "wait_extrapolation_accuracy.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["source"].endswith("QVQ_oly_results.json")]
    tokens, accuracies = ([float(row[name]) for row in rows] for name in ("avg_token_length", "accuracy"))
    choice = _choice(fit_curve_counts(tokens, np.round(np.array(accuracies) * 6728), [6728] * len(rows)))
    # 33.9 % rising to 36.3 % and flat from the third wait on: a shape that saturates predicts the last point within one
    # standard
    # error, a straight line overshoots it by more.
    assert choice.chosen == "saturating power"
    assert (
        abs(choice.held_out_errors["saturating power"])
        < choice.held_out_standard_error
        < choice.held_out_errors["log-linear"]
    )
    assert choice.fit.accuracy(tokens[-1]).value == pytest.approx(accuracies[-1], abs=0.005)
    # Twice the tokens are not expected to bring five points more; totals give no paired problems, and the method says
    # so.
    assert choice.fit.accuracy(2 * tokens[-1]).high - accuracies[-1] < 0.05
    assert "binomial draws" in choice.fit.accuracy(tokens[-1]).method


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
    # Four problems. Budget 3 solves all but the last: 0.75; budget 2 loses one of those: gap 0.25 and paired
    # differences 1,0,0,0
    # with standard error sqrt(0.1875 / 3) = 0.25: within. Budget 1 loses two: gap 0.5, error sqrt(0.25 / 3) = 0.289:
    # not within.
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


def test_bad_outcomes_are_refused() -> None:
    with pytest.raises(MeasureError, match="One problem"):
        one_standard_error_choice([1, 2], [[0, 1]])
    with pytest.raises(MeasureError, match="price"):
        optimum([1, 2], [[0, 1], [1, 1]], math.nan)
