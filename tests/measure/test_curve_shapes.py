"""Curve shapes: values and optima by hand, exact data recovered, bounds kept."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.curve_shapes import SHAPES, Curve, LogLinear, SaturatingExponential, SaturatingPower, fit_shape

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
@pytest.mark.parametrize("curve", [SaturatingPower(0.6, 0.5, 0.7), SaturatingExponential(0.8, 10.0), LogLinear(0.2, 0.6, 1.0, 128.0)])
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
    (exponential,) = fit_shape("exponential", BUDGETS, SaturatingExponential(0.7, 10.0).predict(BUDGETS)[None], np.ones(8))
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
