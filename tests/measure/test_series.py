"""Series: what is kept, in what order, and what a spike is."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.intervals import check_level
from breadth.measure.series import (
    Noise,
    clean_series,
    count_broken_off,
    estimate_noise,
    fit_line,
    is_usable,
    is_varying,
    noise_from_residuals,
    resample_windows,
    residual_sum_of_squares,
    robust_sd,
    subsample,
    winsorize,
)
from breadth.measure.validate import FloatArray


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
    assert is_usable(np.array([0.0, math.nan, -math.inf, 2e100])).tolist() == [True, False, False, False]


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


def test_subsampling_takes_medians_of_neighbours_and_keeps_the_rest() -> None:
    # Seven points to at most three: groups of three, and one point left over.
    series = subsample(clean_series(range(7), [1, 9, 2, 5, 4, 6, 7]), 3)
    assert series.steps.tolist() == [1, 4, 6]
    assert series.values.tolist() == [2, 5, 7]
    assert len(subsample(series, 3)) == 3


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
    calm = winsorize(spiked)
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
    assert winsorize(values) == pytest.approx(values)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=7, max_size=40), st.integers(-500, 500), st.integers(-9, 9))
def test_winsorizing_follows_shift_and_scale(values: list[int], shift: int, power: int) -> None:
    array = np.array(values, dtype=np.float64)
    assert winsorize(array * 2.0**power + shift) == pytest.approx(winsorize(array) * 2.0**power + shift)


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, math.nan])
def test_a_level_lies_between_0_and_1(level: float) -> None:
    with pytest.raises(MeasureError, match="between 0 and 1"):
        check_level(level)


Sluggish = Callable[[int, float, np.random.Generator], FloatArray]


def test_alternating_residuals_by_hand() -> None:
    # Power 4 over 4 points; neighbours multiply to -1, so no positive autocorrelation. Two parameters of four points
    # swallow half of the variance: 1 / (1 - 2/4) = 2.
    noise = noise_from_residuals(np.array([1.0, -1.0, 1.0, -1.0]), 2)
    assert noise.autocorrelation == 0.0
    assert noise.sd == pytest.approx(math.sqrt(2))
    assert noise.effective_points == 4
    assert noise.degrees_of_freedom == 2
    # Student's t with 2 degrees of freedom: 4.303 at 95 %, and 4.303 standard errors happen by chance in 5 %.
    assert noise.quantile(0.95) == pytest.approx(4.3027, abs=1e-4)
    assert noise.p_value(4.3027) == pytest.approx(0.05, abs=1e-5)


def test_the_correction_of_a_short_series_by_hand() -> None:
    # Residuals 1, 1, -1, -1 twice: power 8; the seven neighbour products are + - + - + - + = 1, so r = 1/8. With one
    # parameter:
    # (1/8 + 1/8) / (1 - 3/8) = 0.4; the variance 1 becomes 1 / (1 - (1.4 / 0.6) / 8) = 1.4118.
    noise = noise_from_residuals(np.array([1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0]), 1)
    assert noise.autocorrelation == pytest.approx(0.4)
    assert noise.sd**2 == pytest.approx(24 / 17)


def test_weighted_sums_of_autocorrelated_noise_by_hand() -> None:
    # Half of each of two neighbours correlated by 0.5, of variance 4: 4 (1/4 + 1/4 + 2 * 0.5 / 4) = 3.
    noise = Noise(np.zeros(9), np.ones(9), sd=2.0, autocorrelation=0.5)
    assert noise.weighted_sd(np.array([0.5, 0.5])) == pytest.approx(math.sqrt(3))
    assert noise.effective_points == pytest.approx(3)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_short_series_give_the_right_noise_on_average(sluggish: Sluggish, rho: float) -> None:
    rng = np.random.default_rng(3)
    noises = [estimate_noise(sluggish(60, rho, rng) - np.linspace(0, 9, 60)) for _ in range(150)]
    assert np.median([noise.autocorrelation for noise in noises]) == pytest.approx(rho, abs=0.08)
    assert np.median([noise.sd for noise in noises]) == pytest.approx(1.0, abs=0.12)


def test_a_smooth_decline_is_shape_and_not_noise() -> None:
    rng = np.random.default_rng(4)
    t = np.linspace(0, 1, 120)
    noise = estimate_noise(0.02 + 0.78 * np.exp(-4 * t) + 0.01 * rng.standard_normal(120))
    assert noise.sd == pytest.approx(0.01, rel=0.15)
    assert noise.autocorrelation < 0.25


def test_spikes_do_not_make_noise() -> None:
    rng = np.random.default_rng(5)
    values = rng.standard_normal(100)
    calm = estimate_noise(values).sd
    values[[20, 50, 80]] = 1e6
    assert estimate_noise(values).sd == pytest.approx(calm, rel=0.25)


def test_a_jump_that_is_known_is_not_noise() -> None:
    rng = np.random.default_rng(6)
    values = rng.standard_normal(80) + 30 * (np.arange(80) >= 37)
    assert estimate_noise(values, (37,)).sd == pytest.approx(1.0, abs=0.2)
    assert estimate_noise(values).sd > 2


def test_without_noise_there_is_none() -> None:
    noise = estimate_noise(np.linspace(3.0, 1.0, 20))
    assert (noise.sd, noise.autocorrelation) == (0.0, 0.0)
    assert not resample_windows(noise, 4, 10, np.random.default_rng(0)).any()


def test_too_few_points_are_refused() -> None:
    with pytest.raises(MeasureError, match="3 points"):
        estimate_noise(np.array([1.0, 2.0, 4.0]))


def test_resampled_windows_have_the_noise_of_the_series(sluggish: Sluggish) -> None:
    # A mean of 10 neighbours with correlation rho^k has variance (1 + 2 sum (1 - k/10) rho^k) / 10 times that of a
    # point:
    # 0.3255 at rho = 0.6, where independent draws would have 0.1.
    rng = np.random.default_rng(7)
    noise = estimate_noise(sluggish(2000, 0.6, rng))
    rho = noise.autocorrelation
    expected = (1 + 2 * sum((1 - lag / 10) * rho**lag for lag in range(1, 10))) / 10 * noise.sd**2
    means = resample_windows(noise, 10, 4000, rng).mean(axis=1)
    assert expected == pytest.approx(0.3255, rel=0.15)
    assert np.var(means) == pytest.approx(expected, rel=0.08)


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


def test_the_mean_error_by_hand() -> None:
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


def test_residual_sum_of_squares_by_hand() -> None:
    # Mean 2 leaves 1 + 0 + 1; a line through 1, 2, 3 leaves nothing.
    assert residual_sum_of_squares(np.array([1.0, 2.0, 3.0]), []) == pytest.approx(2.0)
    assert residual_sum_of_squares(np.array([1.0, 2.0, 3.0]), [np.arange(3.0)]) == pytest.approx(0.0, abs=1e-20)


NOISY = np.resize([0.9, 1.0, 1.1, 1.0], 32)  # neighbours differ by 0.1: last points must lie 2 x 1.48 x 0.1 further out


@pytest.mark.parametrize(
    ("last", "count"),
    [
        ([0.57, 0.0], 2),
        ([0.5, 0.5, 0.5], 3),
        ([1.45, 1.5], 2),
        ([0.0], 0),  # one point is a spike
        ([0.0, 1.0], 0),
        ([0.61, 0.0], 0),  # 0.9 - 0.2965 is 0.6035
        ([0.0] * 5, 0),  # more than an eighth of the points: a level, not an end
    ],
)
def test_points_that_break_off_at_the_end(last: list[float], count: int) -> None:
    assert count_broken_off(np.r_[NOISY, last]) == count


def test_too_few_points_break_nothing_off() -> None:
    assert count_broken_off(np.array([1.0, 1.1, 1.0, 0.0, 0.0])) == 0
