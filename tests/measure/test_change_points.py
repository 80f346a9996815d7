"""Jumps: read by hand beside a curve, found where they are, never made of a spike."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.change_points import MIN_SIDE_POINTS, ChangePoint, find_change_points, find_jumps, run_collapse
from breadth.measure.validate import FloatArray


def test_a_step_on_a_parabola_by_hand() -> None:
    # The jump is read beside a cubic, so of parabola and step only the step of 2 is left.
    x = np.linspace(-1, 1, 60)
    (found,) = find_jumps(1 + x - 3 * x**2 + 2 * (np.arange(60) >= 33), 0.95)
    assert found.index == 33
    assert found.size == pytest.approx(2.0)
    assert found.error == pytest.approx(0.0, abs=1e-9)


def test_six_points_are_needed_on_each_side() -> None:
    assert MIN_SIDE_POINTS == 6
    assert find_jumps(np.repeat([0.0, 1.0], [5, 6]), 0.95) == ()
    late = np.repeat([0.0, 1.0], [36, 4]) + 0.01 * np.random.default_rng(0).standard_normal(40)
    assert find_jumps(late, 0.95) == ()


def test_the_error_of_the_size_is_the_spread_of_the_size() -> None:
    rng = np.random.default_rng(1)
    found = [find_jumps(rng.standard_normal(60) + 9 * (np.arange(60) >= 30), 0.95) for _ in range(60)]
    sized = [jump for jumps in found for jump in jumps if jump.index == 30]
    assert len(sized) >= 52
    off = [(jump.size - 9) / jump.error for jump in sized]
    assert np.sqrt(np.mean(np.square(off))) == pytest.approx(1.0, abs=0.35)


def test_real_jumps_are_found_where_they_are() -> None:
    rng = np.random.default_rng(5)
    places: list[int] = []
    for _ in range(30):
        values = (
            0.8 * np.exp(-2 * np.linspace(0, 1, 150)) - 0.2 * (np.arange(150) >= 90) + 0.02 * rng.standard_normal(150)
        )
        places += [jump.index for jump in find_jumps(values, 0.95)]
    assert 28 <= len(places) <= 33
    assert np.mean([abs(place - 90) <= 3 for place in places]) >= 0.9


def test_up_and_down_again_are_two_jumps() -> None:
    rng = np.random.default_rng(6)
    values: FloatArray = 1.0 * ((np.arange(90) >= 30) & (np.arange(90) < 55)) + 0.08 * rng.standard_normal(90)
    found = find_jumps(values, 0.95)
    assert [jump.index for jump in found] == pytest.approx([30, 55], abs=2)
    assert found[0].size > 0 > found[1].size


def test_a_spike_is_no_jump() -> None:
    rng = np.random.default_rng(7)
    values = 0.1 * rng.standard_normal(100)
    values[40:43] = 1e4
    assert find_jumps(values, 0.95) == ()


def test_slow_noise_is_not_a_chain_of_jumps() -> None:
    rng = np.random.default_rng(8)
    alarms = 0
    for _ in range(60):
        news = rng.standard_normal(120)
        values = np.array(
            [sum(0.8**lag * news[place - lag] for lag in range(min(place, 40) + 1)) for place in range(120)]
        )
        alarms += bool(find_jumps(values, 0.95))
    assert alarms <= 5


def test_without_noise_rounding_is_no_jump() -> None:
    assert find_jumps(np.full(40, 1 / 3), 0.95) == ()
    assert find_jumps(np.linspace(7, 11, 40), 0.95) == ()
    assert all(math.isfinite(jump.size) for jump in find_jumps(np.repeat([0.0, 1.0], 20), 0.95))


Sluggish = Callable[[int, float, np.random.Generator], FloatArray]


def jumps(values: npt.ArrayLike) -> list[ChangePoint]:
    return list(find_change_points(range(len(np.asarray(values))), values).jumps)


def test_a_clean_step_by_hand() -> None:
    # 20 points at 1, then 20 at 4: a step of 3 at the 21st point, logged every tenth step.
    found = find_change_points(range(0, 400, 10), [1.0] * 20 + [4.0] * 20).change_points
    assert [(change.step, change.kind, change.before, change.after) for change in found] == [(200.0, "jump", 1.0, 4.0)]
    assert found[0].size.value == pytest.approx(3.0)
    assert found[0].p_value < 1e-6


def test_the_size_of_a_jump_leaves_the_trend_out() -> None:
    # A line falling by 0.01 a step drops by another 0.5 at step 30: levels of windows differ by more, the jump is 0.5.
    rng = np.random.default_rng(0)
    values = 2 - 0.01 * np.arange(60) - 0.5 * (np.arange(60) >= 30) + 0.01 * rng.standard_normal(60)
    (found,) = find_change_points(range(60), values).change_points
    assert found.kind == "jump"
    assert found.step == 30
    assert -0.5 in found.size
    assert found.size.high < -0.4
    assert found.after - found.before < -0.5


def test_a_clean_hinge_by_hand() -> None:
    # Falls by 0.02 a step for 50 steps, then stays.
    rng = np.random.default_rng(1)
    values = 1 - 0.02 * np.minimum(np.arange(100), 50) + 0.005 * rng.standard_normal(100)
    (found,) = find_change_points(range(100), values).change_points
    assert found.kind == "bend"
    assert find_change_points(range(100), values).jumps == ()
    assert found.step == pytest.approx(50, abs=3)
    assert found.before == pytest.approx(-0.02, abs=0.002)
    assert found.after == pytest.approx(0.0, abs=0.002)
    assert 0.02 in found.size


@pytest.mark.parametrize("noise", [0.0, 0.003, 0.02])
def test_the_smooth_collapse_that_others_call_abrupt_is_not(sluggish: Sluggish, noise: float) -> None:
    # Entropy 0.8 -> 0.02 over 200 steps, exponentially: a peer reports an abrupt drop at step 41.
    rng = np.random.default_rng(2)
    values = 0.02 + 0.78 * np.exp(-4 * np.linspace(0, 1, 200)) + noise * sluggish(200, 0.5, rng)
    assert find_change_points(range(200), values).change_points == ()


@settings(max_examples=30, deadline=None)
@given(st.floats(0.3, 20), st.integers(20, 250), st.floats(-5, 5), st.integers(0, 2))
def test_no_smooth_curve_jumps(rate: float, n: int, height: float, shape: int) -> None:
    t = np.linspace(0, 1, n)
    curve = (np.exp(-rate * t), 1 / (1 + np.exp(rate * (t - 0.5))), t)[shape]
    assert jumps(height * curve) == []


def test_noise_correlated_by_half_seldom_jumps_or_bends(sluggish: Sluggish) -> None:
    rng = np.random.default_rng(3)
    found = [find_change_points(range(80), sluggish(80, 0.5, rng)).change_points for _ in range(100)]
    assert sum(bool(changes) for changes in found) <= 7


def test_noisy_declines_seldom_jump(sluggish: Sluggish) -> None:
    rng = np.random.default_rng(4)
    decline = 0.02 + 0.78 * np.exp(-6 * np.linspace(0, 1, 120))
    assert sum(bool(jumps(decline + 0.03 * sluggish(120, 0.5, rng))) for _ in range(60)) <= 4


def test_short_constant_and_broken_series() -> None:
    assert find_change_points([], []).change_points == ()
    short = find_change_points(range(11), [0.0] * 5 + [9.0] * 6)
    assert (short.change_points, short.points) == ((), 11)
    assert find_change_points(range(50), [3.0] * 50).change_points == ()
    assert find_change_points(range(50), np.arange(50) * 0.1 + 7).change_points == ()
    assert find_change_points([5] * 40, np.random.default_rng(8).standard_normal(40)).change_points == ()
    holes = find_change_points(range(40), [math.nan] * 4 + [1.0] * 16 + [4.0] * 20)
    assert (holes.points, holes.dropped) == (36, 4)
    assert [change.step for change in holes.change_points] == [20.0]


def test_repeated_steps_after_a_resume_are_allowed() -> None:
    steps = [*range(30), *range(20, 50)]
    values = [1.0 if step < 35 else 2.0 for step in steps]
    noise = 0.02 * np.random.default_rng(9).standard_normal(60)
    (found,) = find_change_points(steps, np.array(values) + noise).change_points
    assert (found.kind, found.step) == ("jump", 35.0)


def test_a_jump_is_found_among_three_thousand_points() -> None:
    rng = np.random.default_rng(10)
    values = rng.standard_normal(3000) + 2 * (np.arange(3000) >= 1700)
    found = jumps(values)
    assert [abs(change.step - 1700) <= 5 for change in found] == [True]


def test_subsampled_series_keep_their_jump() -> None:
    values = np.random.default_rng(11).standard_normal(8000) + 3 * (np.arange(8000) >= 5000)
    found = jumps(values)
    assert [abs(change.step - 5000) <= 15 for change in found] == [True]


def test_a_level_out_of_range_is_refused() -> None:
    with pytest.raises(MeasureError, match="level"):
        find_change_points(range(30), range(30), level=1.5)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.floats() | st.integers(0, 3).map(float)), max_size=50))
def test_whatever_was_logged_gets_an_answer(rows: list[tuple[int, float]]) -> None:
    found = find_change_points([step for step, _ in rows], [value for _, value in rows])
    assert found.points + found.dropped == len(rows)
    assert all(math.isfinite(change.size.value) and change.p_value <= 0.05 + 1e-9 for change in found.change_points)


def test_length_collapse_by_hand() -> None:
    # 500 for ten steps, then 100: m steps later the mean is 100 + 400 x 0.9^m, below 250 from m = 10 on (0.9^10 =
    # 0.3487 < 0.375).
    found = run_collapse(np.arange(40), [500.0] * 10 + [100.0] * 30)
    assert found.length_ratio[9] == pytest.approx(1)
    assert found.length_ratio[19] == pytest.approx((100 + 400 * 0.9**10) / 500)
    assert found.length_collapse == 19
    assert found.cap_ratio is None
    assert found.cap_jump is None


def test_the_published_collapse_is_caught_before_it_ends() -> None:
    # 510.7 to 45.7 tokens in 58 steps, here at an even rate.
    found = run_collapse(np.arange(59), np.geomspace(510.7, 45.7, 59))
    assert found.length_collapse is not None
    assert found.length_collapse < 35


def test_steady_and_growing_lengths_do_not_fire() -> None:
    rng = np.random.default_rng(0)
    assert run_collapse(np.arange(200), rng.normal(500, 60, 200)).length_collapse is None
    assert run_collapse(np.arange(200), np.linspace(500, 4000, 200)).length_collapse is None


def test_cap_jump_by_hand() -> None:
    # 2 % at first, then 10 %: the mean passes twice 2 % when 10 - 8 x 0.9^m > 4, that is 0.9^m < 0.75: m = 3.
    found = run_collapse(np.arange(30) * 10, [500.0] * 30, [0.02] * 10 + [0.10] * 20)
    assert found.cap_jump == (10 + 3 - 1) * 10
    # From nothing: the start counts as 1 %, so a mean above 2 % is a jump: 3 (1 - 0.9^m) > 2 from m = 11 on.
    assert run_collapse(np.arange(30), [500.0] * 30, [0.0] * 10 + [0.03] * 20).cap_jump == 20
    assert run_collapse(np.arange(30), [500.0] * 30, [0.0] * 10 + [0.01] * 20).cap_jump is None


def test_one_odd_first_batch_is_no_collapse() -> None:
    assert run_collapse(np.arange(30), [1200.0] + [500.0] * 29).length_collapse is None


def test_bad_lengths_are_refused() -> None:
    with pytest.raises(MeasureError, match="must rise"):
        run_collapse([0, 0], [1.0, 1.0])
    with pytest.raises(MeasureError, match="must be positive"):
        run_collapse([0, 1], [0.0, 1.0])
    with pytest.raises(MeasureError, match="NaN"):
        run_collapse([0, 1], [np.nan, 1.0])
    with pytest.raises(MeasureError, match="Lengths differ"):
        run_collapse([0, 1], [1.0, 1.0], [0.1])
