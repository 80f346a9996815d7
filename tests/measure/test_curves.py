"""Curve choice: the shape behind the data is found, a hump is handed back, and intervals know the problems are shared."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from breadth.base.errors import MeasureError
from breadth.measure.curve_shapes import LogLinear, SaturatingExponential, SaturatingPower
from breadth.measure.curves import CurveChoice, fit_curve_counts, fit_curves
from breadth.measure.humps import HumpTest

BUDGETS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])


def _outcomes(curve: npt.ArrayLike, problems: int, seed: int) -> npt.NDArray[np.float64]:
    """Right or wrong at each budget with one luck per problem: a problem solved cheaply is solved at every larger budget."""
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
    exact = np.round(curve.predict(BUDGETS) * 100_000)
    choice = _choice(fit_curve_counts(BUDGETS, exact, np.full(7, 100_000)))
    assert choice.chosen == name
    assert abs(choice.held_out_errors[name]) < 1e-3
    assert choice.decided
    assert choice.fit.curve.predict(BUDGETS) == pytest.approx(curve.predict(BUDGETS), abs=1e-3)


def test_held_out_error_by_hand() -> None:
    # Log-linear through 0.1, 0.2, 0.3 at 1, 2, 4 predicts 0.4 at 8; measured 0.35: error +0.05. Standard error of 0.35 from
    # 10,000: sqrt(0.35 * 0.65 / 10,000) = 0.00477.
    choice = _choice(fit_curve_counts([1, 2, 4, 8], [1000, 2000, 3000, 3500], [10_000] * 4))
    assert choice.held_out_errors["log-linear"] == pytest.approx(0.05, abs=1e-3)
    assert choice.held_out_standard_error == pytest.approx(0.00477, abs=1e-5)


def test_few_problems_do_not_decide_the_shape() -> None:
    table = _outcomes(SaturatingPower(0.7, 0.6, 1.0).predict(BUDGETS), 30, 0)
    assert not _choice(fit_curves(BUDGETS, table, replicates=100)).decided


def test_a_hump_is_handed_back_instead_of_a_rising_fit() -> None:
    rng = np.random.default_rng(2)
    table = (rng.random((200, 5)) < [0.3, 0.5, 0.6, 0.5, 0.35]).astype(float)
    result = fit_curves([1, 2, 4, 8, 16], table)
    assert isinstance(result, HumpTest)
    assert result.positive
    counts = fit_curve_counts([1, 2, 4, 8, 16], table.sum(axis=0), [200] * 5)
    assert isinstance(counts, HumpTest)


def test_intervals_hold_the_truth() -> None:
    curve, held, optima = SaturatingPower(0.7, 0.6, 1.0), [], []
    for seed in range(40):
        fit = _choice(fit_curves(BUDGETS, _outcomes(curve.predict(BUDGETS), 200, seed), replicates=100, seed=seed)).fits["saturating power"]
        held.append(float(curve.predict(32.0)) in fit.accuracy(32.0))
        optima.append(curve.optimum(0.002) in fit.optimum(0.002))
    assert np.mean(held) >= 0.87
    assert np.mean(optima) >= 0.87


def test_optimum_of_the_specification_is_recovered_with_an_interval() -> None:
    # Ceiling 0.6, drop 0.5, exponent 0.7 at price 0.001: 31.4.
    table = _outcomes(SaturatingPower(0.6, 0.5, 0.7).predict(BUDGETS), 2000, 3)
    interval = _choice(fit_curves(BUDGETS, table)).fits["saturating power"].optimum(0.001)
    assert 31.37 in interval
    assert 25 < interval.low < interval.high < 40


def test_shared_problems_make_the_accuracy_interval_as_wide_as_one_budget() -> None:
    # With one luck per problem all budgets move together: fitting seven of them must not shrink the interval of one.
    table = _outcomes(np.full(7, 0.5), 400, 4)
    interval = _choice(fit_curves(BUDGETS, table)).fits["log-linear"].accuracy(8.0)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * np.sqrt(0.25 / 400), rel=0.1)


def test_nothing_ever_right_is_a_flat_curve_at_zero() -> None:
    choice = _choice(fit_curves(BUDGETS, np.zeros((20, 7))))
    assert choice.fit.accuracy(8.0).value == pytest.approx(0.0, abs=1e-9)
    # No problem of 20 solved: the upper end is 1 - 0.025^(1/20) = 0.168433.
    assert choice.fit.accuracy(8.0).high == pytest.approx(0.168433, abs=1e-6)


def test_bad_input_is_refused() -> None:
    with pytest.raises(MeasureError, match="at least 4"):
        fit_curves([1, 2, 4], np.eye(3))
    with pytest.raises(MeasureError, match="start at 0"):
        fit_curve_counts([0, 1, 2, 3], [1, 2, 3, 4], [10] * 4)
    with pytest.raises(MeasureError, match="fitted on"):
        _choice(fit_curves(BUDGETS, _outcomes(np.linspace(0.1, 0.7, 7), 50, 0))).fits["log-linear"].accuracy(128.0)


def test_forced_waits_of_a_real_model(fixtures: Path) -> None:
    with (fixtures / "budgets" / "wait_extrapolation_accuracy.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["source"].endswith("QVQ_oly_results.json")]
    tokens, accuracies = ([float(row[name]) for row in rows] for name in ("avg_token_length", "accuracy"))
    choice = _choice(fit_curve_counts(tokens, np.round(np.array(accuracies) * 6728), [6728] * len(rows)))
    # 33.9 % rising to 36.3 % and flat from the third wait on: a shape that saturates predicts the last point within one standard
    # error, a straight line overshoots it by more.
    assert choice.chosen == "saturating power"
    assert abs(choice.held_out_errors["saturating power"]) < choice.held_out_standard_error < choice.held_out_errors["log-linear"]
    assert choice.fit.accuracy(tokens[-1]).value == pytest.approx(accuracies[-1], abs=0.005)
    # Twice the tokens are not expected to bring five points more; totals give no paired problems, and the method says so.
    assert choice.fit.accuracy(2 * tokens[-1]).high - accuracies[-1] < 0.05
    assert "binomial draws" in choice.fit.accuracy(tokens[-1]).method
