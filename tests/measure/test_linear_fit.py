"""Lines: least squares by hand, and errors that hold under autocorrelated noise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from breadth.base.errors import MeasureError
from breadth.measure.linear_fit import fit_line, is_varying, residual_sum_of_squares, robust_slope, steps_until
from breadth.measure.validate import FloatArray


def test_four_points_by_hand() -> None:
    # x mean 1.5, y mean 2.5; products of distances 0.5 * -0.5 ... sum to 4, squares of x to 5: slope 0.8, intercept
    # 1.3.
    line = fit_line(np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0, 4.0]))
    assert line.slope == pytest.approx(0.8)
    assert line.intercept == pytest.approx(1.3)
    assert line.predict(np.array([0.0, 10.0])) == pytest.approx([1.3, 9.3])
    # Residuals -0.3, 0.9, -0.9, 0.3: squares sum to 1.8 on two degrees of freedom, so variance 0.9 and slope error
    # sqrt(0.9 / 5).
    assert line.noise.autocorrelation == 0.0
    reach = 4.302653 * math.sqrt(0.9 / 5)
    assert line.slope_interval(0.95).high == pytest.approx(0.8 + reach, rel=1e-6)
    # At x = 0 the variance is 0.9 (1/4 + 1.5^2 / 5).
    assert line.value_at(0.0, 0.95).low == pytest.approx(1.3 - 4.302653 * math.sqrt(0.9 * 0.7), rel=1e-6)


def test_the_average_miss_by_hand() -> None:
    # Two new points 1 and 3 above the line of the four; its error at x = 5 and their own noise add up.
    line = fit_line(np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0, 4.0]))
    new = np.array([4.0, 6.0])
    miss = line.mean_error(new, line.predict(new) + np.array([1.0, 3.0]), 0.95)
    assert miss.value == pytest.approx(2.0)
    variance = 0.9 * (1 / 4 + 3.5**2 / 5) + 0.9 / 2
    assert miss.high == pytest.approx(2.0 + 4.302653 * math.sqrt(variance), rel=1e-6)


def test_intervals_hold_under_autocorrelated_noise() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        noise = np.zeros(50)
        for place in range(1, 50):
            noise[place] = 0.5 * noise[place - 1] + rng.standard_normal()
        x = np.exp(np.linspace(1, 0, 50))
        held += 2.0 in fit_line(x, 5 - 3 * x + 0.1 * noise).value_at(1.0, 0.95)
    assert held / 200 >= 0.9


def test_fewer_than_four_points_have_no_interval() -> None:
    line = fit_line(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 2.5]))
    assert (line.value_at(1.0, 0.95).low, line.value_at(1.0, 0.95).high) == (-math.inf, math.inf)


def test_a_line_needs_two_places() -> None:
    with pytest.raises(MeasureError, match="same at all 3"):
        fit_line(np.full(3, 0.1), np.arange(3.0))
    assert not is_varying(np.full(5, 1 / 3))
    assert not is_varying(np.array([2.0]))
    assert is_varying(np.array([1.0, 1.001]))


def test_misfit_by_hand() -> None:
    # Mean 2 leaves 1 + 0 + 1; a line through 1, 2, 3 leaves nothing.
    assert residual_sum_of_squares(np.array([1.0, 2.0, 3.0]), []) == pytest.approx(2.0)
    assert residual_sum_of_squares(np.array([1.0, 2.0, 3.0]), [np.arange(3.0)]) == pytest.approx(0.0, abs=1e-20)


def test_a_perfect_line_by_hand() -> None:
    # All 28 pairs rise: S = 28, variance 8 * 7 * 21 / 18 = 65.33, (28 - 1) / 8.083 = 3.340 on 8 - 2 degrees of freedom.
    line = robust_slope(range(8), range(8))
    assert line.tau == 1.0
    assert line.p_value == pytest.approx(2 * special.stdtr(6, -27 / math.sqrt(8 * 7 * 21 / 18)))
    assert line.p_value == pytest.approx(0.0156, abs=5e-4)
    interval = line.interval()
    assert (interval.value, interval.low, interval.high) == (1.0, 1.0, 1.0)


def test_the_slope_is_per_step_and_bears_gaps() -> None:
    steps = [0, 10, 20, 50, 60, 100, 200, 210, 400]
    assert robust_slope(steps, [5 - 0.02 * step for step in steps]).interval().value == pytest.approx(-0.02)


def test_three_wild_points_of_twenty_do_not_decide() -> None:
    rng = np.random.default_rng(0)
    values = 1 - 0.02 * np.arange(20) + 0.01 * rng.standard_normal(20)
    values[[4, 11, 19]] = [50.0, -80.0, 1e6]
    found = robust_slope(range(20), values)
    assert found.interval().value == pytest.approx(-0.02, abs=0.004)
    assert found.interval().high < 0


def brute_variance(steps: FloatArray, values: FloatArray) -> float:
    first, second = np.triu_indices(len(steps), 1)
    up = np.sign(steps[second] - steps[first])
    orders = np.array(list(itertools.permutations(range(len(values)))))
    return float(np.var((np.sign(values[orders[:, second]] - values[orders[:, first]]) * up).sum(axis=1)))


def test_the_variance_with_ties_is_that_of_all_orders() -> None:
    # Ties among steps and among values; all 40,320 orders enumerated. The values alternate, so no autocorrelation is
    # corrected.
    steps = np.array([0.0, 0, 1, 2, 2, 2, 3, 4])
    values = np.array([1.0, 5, 1, 5, 2, 6, 3, 6])
    found = robust_slope(steps, values)
    score = sum(
        np.sign((values[j] - values[i]) * (steps[j] - steps[i])) for i, j in itertools.combinations(range(8), 2)
    )
    deviation = (abs(score) - 1) / -special.stdtrit(6, found.p_value / 2)
    assert deviation**2 == pytest.approx(brute_variance(steps, values))
    assert found.tau == pytest.approx(stats.kendalltau(steps, values).statistic)


@pytest.mark.parametrize("points", [12, 24, 60, 111])
def test_a_constant_series_whose_steps_repeat_has_no_slope(points: int) -> None:
    # Kendall's variance of three values a step, all equal, cancels to zero only up to rounding.
    found = robust_slope(np.arange(points) // 3, np.ones(points))
    assert (found.tau, found.p_value, found.interval().value) == (0.0, 1.0, 0.0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-20, 20), min_size=8, max_size=40), st.integers(1, 7))
def test_slope_and_tau_agree_with_scipy(values: list[int], gap: int) -> None:
    steps = np.arange(len(values)) * gap
    found = robust_slope(steps, values)
    assert found.interval().value == pytest.approx(stats.theilslopes(values, steps).slope)
    if len(set(values)) > 1:
        assert found.tau == pytest.approx(stats.kendalltau(steps, values).statistic)
    else:
        assert (found.tau, found.p_value) == (0.0, 1.0)
    assert found.interval().low <= found.interval().value <= found.interval().high


def test_sluggish_noise_widens_the_interval() -> None:
    rng = np.random.default_rng(1)
    news = rng.standard_normal(200)
    sluggish = np.array(
        [sum(0.7**lag * news[place - lag] for lag in range(min(place, 30) + 1)) for place in range(200)]
    )
    calm, slow = (robust_slope(range(200), values / values.std()).interval() for values in (news, sluggish))
    assert slow.high - slow.low > 1.8 * (calm.high - calm.low)


@pytest.mark.parametrize(("steps", "values"), [([], []), (range(7), range(7)), ([3] * 20, range(20))])
def test_too_few_points_or_steps_give_no_slope(steps: list[int], values: list[int]) -> None:
    found = robust_slope(steps, values)
    assert math.isnan(found.tau)
    assert math.isnan(found.interval().value)
    assert (found.interval().low, found.interval().high) == (-math.inf, math.inf)


def test_a_straight_line_is_continued_by_hand() -> None:
    # 1 - 0.02 t is 0.54 at the last step, 23; 0.2 is (0.54 - 0.2) / 0.02 = 17 steps ahead.
    time = steps_until(range(24), [1 - 0.02 * step for step in range(24)], 0.2)
    assert time is not None
    assert time.value == pytest.approx(17)
    assert (time.low, time.high) == pytest.approx((17, 17))
    assert "straight" in time.method


def test_a_decay_is_continued_by_hand() -> None:
    # 0.8 * 0.9^t meets 0.8 * 0.9^30 seven steps after step 23.
    time = steps_until(range(24), [0.8 * 0.9**step for step in range(24)], 0.8 * 0.9**30)
    assert time is not None
    assert time.value == pytest.approx(7)
    assert "exponential" in time.method


def test_the_interval_covers_both_continuations_where_the_noise_cannot_tell_them_apart() -> None:
    rng = np.random.default_rng(3)
    values = 1 - 0.5 * np.arange(90) / 90 + 0.01 * rng.standard_normal(90)
    time = steps_until(range(90), values, 0.2)
    assert time is not None
    # The line meets 0.2 after 144 - 89 = 55 steps; the exponential with the same slope at the end later.
    assert 55 in time
    assert time.high > 70


def test_there_is_no_time_without_a_trend_towards_the_target() -> None:
    falling = [1 - 0.02 * step for step in range(24)]
    assert steps_until(range(24), falling, 2.0) is None
    assert steps_until(range(24), [1.0] * 24, 0.5) is None
    assert steps_until(range(7), range(7), 10) is None
    crossed = steps_until(range(24), falling, 0.8)
    assert crossed is not None
    assert (crossed.value, crossed.low, crossed.high) == (0.0, 0.0, 0.0)


def test_a_trend_that_may_be_none_may_take_for_ever() -> None:
    rng = np.random.default_rng(5)
    time = steps_until(range(30), 1 - 0.002 * np.arange(30) + 0.05 * rng.standard_normal(30), 0.1)
    assert time is None or time.high == math.inf


def test_forecast_intervals_hold_the_truth() -> None:
    # Of 60 noisy straight declines, the true time 1 - 0.5 t / 60 = 0.2 (step 96, 37 after the last) is inside in at
    # least 9 of 10.
    rng = np.random.default_rng(2)
    declines = (1 - 0.5 * np.arange(60) / 60 + 0.01 * rng.standard_normal(60) for _ in range(60))
    times = [steps_until(range(60), values, 0.2) for values in declines]
    assert sum(time is not None and 37 in time for time in times) >= 54


@pytest.mark.parametrize("target", [math.nan, math.inf])
def test_a_target_is_a_number(target: float) -> None:
    with pytest.raises(MeasureError, match="target"):
        steps_until(range(24), range(24), target)
