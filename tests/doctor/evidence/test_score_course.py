"""A fall is measured from the best stretch, against what there was to lose, beyond noise and wander."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.score_course import (
    LOST,
    SOLVED,
    has_recovered,
    is_solved,
    measure_fall,
    measure_held_out_fall,
    negate,
    score_fall,
    score_pays,
)
from breadth.measure.course import LEVEL_SHARES, describe_course
from breadth.measure.intervals import Interval

STEPS = np.arange(1, 81)
UP_AND_DOWN = np.where(STEPS <= 20, 0.3, np.where(STEPS <= 60, 0.8, 0.2))


def test_a_fall_by_hand(make: Any) -> None:
    fall = score_fall(make(reward=UP_AND_DOWN))
    assert fall is not None
    assert (fall.best.level.value, fall.end.level.value) == pytest.approx((0.8, 0.2))
    assert 21 <= fall.best.first <= fall.best.last <= 60
    assert fall.size.value == pytest.approx(0.6)
    assert fall.share == pytest.approx(0.75)  # 0.6 of 0.8
    assert fall.most >= fall.share
    assert fall.size.low <= fall.size.value <= fall.size.high
    assert fall.is_sure
    assert fall.half_step == 61
    assert not fall.was_low_before
    assert fall.name == "reward"


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_the_scale_of_a_score_does_not_matter(make: Any, scale: float) -> None:
    fall = score_fall(make(reward=scale * UP_AND_DOWN))
    assert fall is not None
    assert fall.share == pytest.approx(0.75)
    assert fall.half_step == 61


@pytest.mark.parametrize(
    ("start", "best", "end", "share"),
    [
        (-3.0, -1.0, -1.5, 0.25),  # 0.5 of the way of 2 from the start
        (-1.0, -1.0, -1.5, 0.5),  # 0.5 of the level of 1
        (-2.0, 0.0, -1.0, 0.5),  # a best of nothing: 1 of the way of 2
        (0.0, 1.0, -1.0, 2.0),  # more than all is gone
        (0.5, 0.8, 0.8, 0.0),
    ],
)
def test_scores_may_be_negative(make: Any, start: float, best: float, end: float, share: float) -> None:
    fall = score_fall(make(reward=np.where(STEPS <= 20, start, np.where(STEPS <= 60, best, end))))
    assert fall is not None
    assert fall.share == pytest.approx(share, abs=1e-9)


def test_a_rise_is_no_fall(make: Any, around: Callable[..., Any]) -> None:
    fall = score_fall(make(reward=around(0.2 + 0.6 * STEPS / 80, 0.02)))
    assert fall is not None
    assert fall.share < 0.05
    assert not fall.is_sure


def test_rewards_of_zero_and_one_step_by_step(make: Any) -> None:
    rng = np.random.default_rng(0)
    fall = score_fall(make(reward=(rng.random(240) < np.where(np.arange(240) < 160, 0.9, 0.1)).astype(np.float64)))
    assert fall is not None
    assert fall.is_sure
    assert fall.share > 0.5
    assert 0 <= fall.best.level.low <= fall.best.level.high <= 1
    assert 0 <= fall.end.level.low <= fall.end.level.high <= 1


def test_noise_leaves_a_fall_open(make: Any, around: Callable[..., Any]) -> None:
    fall = score_fall(make(reward=around(np.where(STEPS <= 60, 0.5, 0.4), 0.3)))
    assert fall is not None
    assert not fall.is_sure
    assert fall.most > LOST


def test_without_eight_points_there_is_nothing_to_measure(make: Any) -> None:
    assert score_fall(make(reward=np.arange(7.0))) is None
    assert score_fall(make(entropy=np.arange(20.0))) is None
    assert score_fall(Evidence("a configuration")) is None
    assert measure_held_out_fall(make(reward=UP_AND_DOWN)) is None
    assert measure_held_out_fall(make(reward=UP_AND_DOWN, evals={"reward": np.arange(7.0)})) is None


def test_accuracy_next_to_a_reward_that_rises(make: Any) -> None:
    rising = 0.2 + 0.6 * STEPS / 80
    fall = score_fall(make(reward=rising, accuracy=UP_AND_DOWN))
    assert fall is not None
    assert fall.name == "accuracy"
    assert fall.share == pytest.approx(0.75)
    both = score_fall(make(reward=UP_AND_DOWN, accuracy=UP_AND_DOWN))
    assert both is not None
    assert both.name == "reward"
    steady = score_fall(make(reward=rising, accuracy=0 * rising + 0.5))
    assert steady is not None
    assert steady.name == "reward"


def test_held_out_scores_have_their_own_fall(make: Any) -> None:
    held = np.where(np.arange(16) < 12, 0.6, 0.3)
    fall = measure_held_out_fall(make(reward=UP_AND_DOWN, evals={"reward": held}))
    assert fall is not None
    assert fall.share == pytest.approx(0.5)
    assert fall.half_step == 13


def test_a_fall_that_came_back_has_no_step_and_a_second_one_was_seen_before(make: Any) -> None:
    back = np.where((STEPS > 30) & (STEPS <= 50), 0.2, 0.8)
    fall = score_fall(make(reward=back))
    assert fall is not None
    assert fall.share == pytest.approx(0)
    again = score_fall(make(reward=np.where(STEPS > 65, 0.2, back)))
    assert again is not None
    assert again.was_low_before
    assert again.share == pytest.approx(0.75)
    assert again.half_step == 66


def test_turns_are_counted_between_a_quarter_and_three_quarters_of_the_fall() -> None:
    def recovered(dip: float) -> bool:
        values = np.where((STEPS > 30) & (STEPS <= 45), dip, np.where(STEPS > 65, 0.2, 0.8))
        found = describe_course(STEPS, values, shares=LEVEL_SHARES)
        assert found is not None
        return has_recovered(found)

    # The fall is 0.6 from 0.8 to 0.2: as low as the end is below 0.35.
    assert recovered(0.3)
    assert not recovered(0.4)


def test_a_held_out_score_does_not_wander(around: Callable[..., Any]) -> None:
    # A slow swing of a twelfth: beyond the noise of the points, within a wander of this size.
    wander = 0.5 + 0.1 * np.sin(np.arange(120) / 12)
    found = describe_course(np.arange(120), around(wander, 0.002), shares=LEVEL_SHARES)
    assert found is not None
    assert measure_fall(found, "x", wanders=False).is_sure
    assert not measure_fall(found, "x", wanders=True).is_sure


@pytest.mark.parametrize(
    ("level", "levels", "solved"),
    [
        (SOLVED + 0.01, (), True),
        (SOLVED - 0.01, (), False),
        (0.81, (-1.0, 1.0), True),  # from -1 to 1 nine tenths of the way is 0.8
        (0.79, (-1.0, 1.0), False),
        (95.0, (), False),  # not between 0 and 1: where it ends is not known
        (9.5, (0.0, 10.0), True),
        (1.5, (0.0, 1.0), False),  # above its highest value: the levels are not those of this score
    ],
)
def test_solved_is_near_the_highest_value(make: Any, level: float, levels: tuple[float, ...], solved: bool) -> None:
    assert is_solved(make(reward=np.full(40, level), levels=levels)) == solved


def test_solved_once_and_lost_is_not_solved(make: Any) -> None:
    assert not is_solved(make(reward=np.where(STEPS <= 60, 0.97, 0.5)))
    assert not is_solved(make(reward=np.full(7, 1.0)))
    assert not is_solved(Evidence("a configuration"))


@pytest.mark.parametrize(
    ("score", "pays"),
    [
        (0.2 + 0.5 * STEPS / 80, True),
        (0.5 + 0 * STEPS, False),
        (0.7 - 0.5 * STEPS / 80, False),
        (np.where(STEPS <= 20, 0.2, 0.6), False),  # rose, but not in the second half
        (np.where(STEPS <= 50, 0.2, 0.6), True),
        (np.where(STEPS <= 20, 0.9, 0.2 + 0.3 * STEPS / 80), False),  # still far below its best
    ],
)
def test_a_score_pays_while_it_rises_over_the_second_half(
    make: Any, around: Callable[..., Any], score: Any, pays: bool
) -> None:
    assert score_pays(make(reward=around(score, 0.01))) == pays


def test_without_a_score_nothing_pays(make: Any) -> None:
    assert not score_pays(make(entropy=np.full(40, 0.5)))


def test_a_change_is_turned_into_a_fall() -> None:
    found = negate(Interval(-0.3, -0.5, -0.2))
    assert (found.value, found.low, found.high) == (0.3, 0.2, 0.5)
