"""Levels of stretches with their errors, worked out by hand, and how often their intervals hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import stats

from breadth.measure.course import (
    LEVEL_SHARES,
    Course,
    Stretch,
    describe_course,
    find_freeze,
    logarithms,
    thin_to_means,
)
from breadth.measure.intervals import Interval
from breadth.measure.series import CleanSeries
from breadth.measure.validate import FloatArray

EIGHTY = np.arange(1.0, 81.0)
ODD = (-1.0) ** np.arange(80)


def course(values: Any, steps: Any = None, **options: Any) -> Course:
    """Return the course of at least eight points, at steps 1, 2, ... unless others are given."""
    values = np.asarray(values, dtype=np.float64)
    found = describe_course(np.arange(1.0, len(values) + 1) if steps is None else steps, values, **options)
    assert found is not None
    return found


def stretches(found: Course) -> Iterator[Stretch]:
    """Yield every stretch of a course."""
    yield from (found.start, found.middle, found.late, found.end, found.highest, found.lowest)


def test_where_the_stretches_lie() -> None:
    found = course(np.arange(80.0))
    places = {name: (getattr(found, name).begin, getattr(found, name).end) for name in ("middle", "late", "end")}
    # An eighth of eighty is ten; the middle one begins at (80 - 10) / 2.
    assert places == {"middle": (35, 45), "late": (40, 80), "end": (70, 80)}
    assert (found.start.begin, found.start.first) == (0, 1.0)
    assert (found.end.first, found.end.last) == (71.0, 80.0)
    assert found.end.level.value == pytest.approx(74.5)  # mean of 70 to 79
    assert found.late.level.value == pytest.approx(59.5)


def test_the_error_of_a_mean_by_hand() -> None:
    # 1 +- 1/8 in turn: neighbours differ by 1/4, so the variance of a point is estimated at (1/4)^2 / 2 = 1/32.
    found = course(1 + ODD / 8)
    assert found.end.level.value == 1
    assert found.end.error == pytest.approx(math.sqrt(1 / 32 / 10))
    # Ten points have nine differences; those of neighbours share points, so they count for two thirds.
    assert found.end.freedom == pytest.approx(6)
    reach = stats.t.ppf(0.975, 6) * found.end.error
    assert (found.end.level.low, found.end.level.high) == pytest.approx((1 - reach, 1 + reach))


def test_a_change_by_hand_and_what_choosing_the_highest_costs() -> None:
    found = course(1 + ODD / 8 + np.where(EIGHTY > 40, 1.0, 0.0))
    change = found.change(found.start, found.end)
    reach = stats.t.ppf(0.975, min(found.start.freedom, 6)) * math.sqrt(2 / 32 / 10)
    assert (change.value, change.low, change.high) == pytest.approx((1, 1 - reach, 1 + reach))
    # Stretches of 5, 10 and 20 points were compared: 16 + 8 + 4 of them do not overlap.
    assert found.looks == 28
    assert course(ODD, shares=LEVEL_SHARES).looks == 12
    free = min(found.start.freedom, found.highest.freedom)
    plain, corrected = (found.change(found.start, found.highest, chosen=chosen) for chosen in (False, True))
    wanted = stats.t.ppf(1 - 0.025 / 28, free) / stats.t.ppf(0.975, free)
    assert corrected.value == plain.value
    assert (corrected.high - corrected.value) / (plain.high - plain.value) == pytest.approx(wanted)
    assert found.change(found.start, found.middle).high == found.change(found.start, found.middle, chosen=False).high


def test_a_peak_on_the_way_is_the_highest_and_a_dip_the_lowest() -> None:
    values = np.where((EIGHTY > 20) & (EIGHTY <= 30), 5.0, 1.0) - np.where((EIGHTY > 50) & (EIGHTY <= 60), 0.8, 0.0)
    found = course(values)
    assert found.change(found.start, found.end).value == pytest.approx(0)
    assert found.highest.level.value == pytest.approx(5)
    assert 21 <= found.highest.first <= found.highest.last <= 30
    assert found.lowest.level.value == pytest.approx(0.2)
    assert 51 <= found.lowest.first <= found.lowest.last <= 60


def test_a_spike_is_no_peak() -> None:
    values = 1 + ODD / 8
    values[40] = 1000.0
    found = course(values)
    assert found.highest.level.value < 2


@pytest.mark.parametrize(("rest", "first"), [(0.74, 10), (0.76, 40), (1.32, 40), (1.35, 10)])
def test_the_start_is_short_where_a_quarter_is_left_at_once(rest: float, first: int) -> None:
    # 320 points: an eighth is 40, a thirty-second is 10. What counts is a quarter of the larger level.
    found = course(np.where(np.arange(320) < 10, 1.0, rest))
    assert (found.start.begin, found.start.end) == (0, first)


@pytest.mark.parametrize(("factor", "first"), [(1.49, 40), (1.51, 10)])
def test_by_logarithms_the_start_is_short_from_half_as_much_again(factor: float, first: int) -> None:
    for rest in (factor, 1 / factor):
        found = course(np.where(np.arange(320) < 10, 1.0, rest), by_log=True)
        assert found.start.end == first


def test_a_fast_first_fall_does_not_hide_in_the_first_eighth() -> None:
    # Ten of forty points at 1.0, the others at 0.1: their mean is 0.325, and the fall from it 69 %, not 90 %.
    found = course(np.where(np.arange(320) < 10, 1.0, 0.1), by_log=True)
    assert found.change(found.start, found.end).value == pytest.approx(0.1)


def test_levels_by_logarithm_are_geometric_means_and_changes_are_factors() -> None:
    found = course(np.where(EIGHTY <= 40, 2.0, 6.0) * np.exp(0.1 * ODD), by_log=True)
    assert found.start.level.value == pytest.approx(2)
    assert found.end.level.value == pytest.approx(6)
    change = found.change(found.start, found.end)
    assert change.value == pytest.approx(3)
    assert change.high / change.value == pytest.approx(change.value / change.low)


def test_zeros_in_a_course_by_logarithms_are_small() -> None:
    # The median of the positive values is 2; a zero counts as its thousandth.
    assert logarithms(np.array([2.0, 2.0, 0.0, -1.0])) == pytest.approx(np.log([2, 2, 0.002, 0.002]))
    found = course(np.where(EIGHTY <= 40, 2.0, 0.0), by_log=True)
    assert found.end.level.value == pytest.approx(0.002)
    assert found.change(found.start, found.end).value == pytest.approx(0.001)
    assert found.frozen == 41


def test_zeros_alone_are_not_large() -> None:
    assert course(np.zeros(80), by_log=True).end.level.value < 1e-3


def test_a_spike_freezes_nothing() -> None:
    values = 1 + ODD / 8
    values[3] = 1e12
    assert find_freeze(CleanSeries(EIGHTY, values, 0)) is None


def test_frozen_since() -> None:
    steps = np.arange(64.0)

    def freeze(values: FloatArray) -> float | None:
        return find_freeze(CleanSeries(steps, values, 0))

    assert freeze(np.where(steps < 48, steps, 100.0)) == 48
    # A sixteenth of 64 points is four.
    assert freeze(np.where(steps < 60, steps, 100.0)) == 60
    assert freeze(np.where(steps < 61, steps, 100.0)) is None
    assert freeze(np.full(64, 3.0)) == 0
    assert freeze(np.zeros(64)) == 0
    # Equal to nine digits is equal.
    assert freeze(np.where(steps < 32, 1e6, 1.0 + 1e-12 * steps)) == 32
    assert freeze(1.0 + 1e-6 * steps) is None
    few = CleanSeries(np.arange(10.0), np.array([0, 1, 2, 3, 4, 5, 6, 7.0, 7, 7]), 0)
    assert find_freeze(few) is None  # three equal points are luck in a log of ten


def test_thinning_keeps_means() -> None:
    values = np.sin(np.arange(10_000) / 300) + np.arange(10_000) / 5_000
    thin = thin_to_means(CleanSeries(np.arange(10_000.0), values, 0), 600)
    # 10,000 / 600 rounded up is 17 to a group: 588 whole groups and one of four.
    assert len(thin) == 589
    assert thin.steps[:3].tolist() == [0, 17, 34]
    assert thin.values[3] == pytest.approx(values[51:68].mean())
    assert np.average(thin.values, weights=[17] * 588 + [4]) == pytest.approx(values.mean())
    short = CleanSeries(np.arange(600.0), values[:600], 0)
    assert thin_to_means(short, 600) is short
    whole = course(values)
    assert len(whole.values) == 589
    assert whole.end.level.value == pytest.approx(thin.values[-74:].mean())  # an eighth of 589


def test_eight_points_are_enough_and_seven_are_not() -> None:
    assert describe_course(range(7), range(7)) is None
    found = course(np.arange(8.0))
    assert (found.start.begin, found.start.end, found.end.begin, found.end.end) == (0, 3, 5, 8)
    assert found.change(found.start, found.end).value == pytest.approx(5)


def test_what_is_no_number_is_left_out() -> None:
    values = np.where(EIGHTY % 2 == 0, np.nan, EIGHTY)
    values[[0, 4]] = np.inf, -np.inf
    found = course(values)
    assert len(found.values) == 38
    assert describe_course(EIGHTY, np.where(EIGHTY > 7, np.nan, EIGHTY)) is None
    assert describe_course(EIGHTY, np.full(80, np.nan)) is None


def test_a_constant_is_exactly_where_it_is() -> None:
    for level in (0.0, 0.1, -5.0, 1e12):
        found = course(np.full(80, level))
        assert found.frozen == 1
        for stretch in stretches(found):
            assert stretch.level.value == pytest.approx(level)
            assert stretch.level.high - stretch.level.low <= 1e-6 * max(abs(level), 1)
        change = found.change_beyond_wander(found.start, found.end)
        assert (change.low, change.high) == pytest.approx((0, 0), abs=1e-6 * max(abs(level), 1))


def test_steps_in_any_order_and_twice() -> None:
    values = np.where(EIGHTY <= 40, 1.0, 3.0)
    backwards = course(values[::-1], EIGHTY[::-1])
    assert backwards.start.level.value == 1
    assert backwards.end.level.value == 3
    twice = course(values, np.repeat(EIGHTY[:40], 2))  # every step logged twice, as after a resume
    assert (twice.start.level.value, twice.end.level.value) == (1, 3)
    assert twice.end.last == 40


def test_the_step_from_which_on_it_stays_past_a_level() -> None:
    values = np.where(EIGHTY <= 40, 1.0, 3.0)
    values[10:13] = 5.0
    found = course(values)
    assert found.first_past(2, below=False) == 41
    assert found.first_past(2, below=True) is None
    assert found.first_past(2, below=False, begin=60) == 61
    assert course(1 / values, by_log=True).first_past(0.5, below=True) == 41
    # One point out of five does not break it: a running median of five decides.
    values[60] = 0.0
    assert course(values).first_past(2, below=False) == 41


@pytest.mark.parametrize("by_log", [False, True])
@pytest.mark.parametrize("kind", ["normal", "two values", "wander", "heavy tail", "steps", "few"])
def test_intervals_contain_their_estimates(kind: str, by_log: bool) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(8, 15)) if kind == "few" else int(rng.integers(8, 900))
        values = {
            "normal": rng.normal(1, 1, n),
            "two values": (rng.random(n) < 0.3).astype(np.float64),
            "wander": np.cumsum(rng.normal(0, 1, n)),
            "heavy tail": rng.standard_cauchy(n),
            "steps": np.repeat(rng.normal(0, 1, -(-n // 7)), 7)[:n],
            "few": rng.normal(0, 1, n),
        }[kind]
        found = course(values, by_log=by_log)
        changes = [
            found.change(found.start, found.end),
            found.change(found.start, found.highest),
            found.change(found.highest, found.end, chosen=False),
            found.change_beyond_wander(found.start, found.end),
        ]
        intervals: list[Interval] = [stretch.level for stretch in stretches(found)] + changes
        assert all(interval.low <= interval.value <= interval.high for interval in intervals)


def autocorrelated(rng: np.random.Generator, points: int, share: float) -> FloatArray:
    """Return noise of which each point keeps a share of the one before."""
    values = rng.normal(0, 1, points)
    for place in range(1, points):
        values[place] += share * values[place - 1]
    return values


def test_how_often_the_intervals_hold() -> None:
    """Nominal: 95 %. In 300 runs that is 285 give or take 4; the bounds allow for six times as much."""
    rng, runs = np.random.default_rng(0), 300
    fixed, level, chosen = 0, 0, 0
    for _ in range(runs):
        found = course(rng.normal(0, 1, 80) + np.where(EIGHTY > 40, 2.0, 0.0))
        change = found.change(found.start, found.end)
        fixed += change.low <= 2 <= change.high
        level += found.end.level.low <= 2 <= found.end.level.high
        still = course(rng.normal(0, 1, 80))
        chosen += still.change(still.start, still.highest).low > 0
    assert 0.87 * runs <= fixed
    assert 0.87 * runs <= level
    assert chosen <= 0.1 * runs


def test_slow_wander_is_allowed_for_where_it_is_asked() -> None:
    rng, runs = np.random.default_rng(1), 100
    hits = 0
    for _ in range(runs):
        found = course(autocorrelated(rng, 160, 0.7))
        change = found.change_beyond_wander(found.start, found.end)
        hits += change.low <= 0 <= change.high
    assert hits >= 0.8 * runs


def test_what_broke_off_is_no_spike_and_counts_in_the_levels() -> None:
    steady = np.resize([0.9, 1.0, 1.1, 1.0], 30)
    died = describe_course(np.arange(32), np.r_[steady, 0.4, 0.0])
    assert died is not None
    assert (died.broken_off, died.before_break) == (2, None)
    assert died.end.level.value == pytest.approx((0.9 + 1.0 + 0.4 + 0.0) / 4)
    fell = describe_course(np.arange(32), np.r_[2.0, 1.6, steady])
    assert fell is not None
    assert fell.broken_off == 0
    assert fell.before_break is not None
    assert fell.before_break.level.value == pytest.approx(1.8)
    assert (fell.before_break.first, fell.before_break.last) == (0, 1)
