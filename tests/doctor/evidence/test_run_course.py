"""The fall of the score, and the story of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.run_course import (
    LOST,
    SOLVED,
    RunEvent,
    death_step,
    events_before,
    first_beyond,
    has_recovered,
    is_at_its_best,
    is_constant,
    is_gone,
    is_solved,
    measure_fall,
    measure_held_out_fall,
    negate,
    run_events,
    score_fall,
    score_pays,
    tell_story,
)
from breadth.measure.course import LEVEL_SHARES, Course, describe_course
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


@pytest.mark.parametrize(("most", "words"), [(0.964, "a fall of 96%"), (1.0, "a fall of any size"), (2e10, "any size")])
def test_what_noise_leaves_open_has_a_number_that_can_be(make: Any, most: float, words: str) -> None:
    fall = score_fall(make(reward=UP_AND_DOWN))
    assert fall is not None
    assert replace(fall, most=most).describe_open().endswith(words)


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


LONG_STEPS = np.arange(1, 161)


def told(evidence: Evidence) -> list[str]:
    """Return the texts of the events in order."""
    return [event.text for event in run_events(evidence)]


def dead_run(make: Any, around: Callable[..., Any]) -> Evidence:
    """Entropy explodes at step 41, the score dies at step 61, and everything is frozen from step 101 on."""
    rng = np.random.default_rng(0)
    noise = np.exp(rng.normal(0, 0.02, 160))
    entropy = np.where(LONG_STEPS <= 40, 0.5, np.where(LONG_STEPS <= 80, 3.0, 0.01)) * noise
    reward = around(np.where(LONG_STEPS <= 60, 0.6, 0.02), 0.01)
    length = 300 * np.exp(rng.normal(0, 0.02, 160))
    for values, level in ((entropy, 0.01), (reward, 0.0), (length, 10.0)):
        values[100:] = level
    evidence: Evidence = make(entropy=entropy, reward=reward, length=length)
    return evidence


def test_a_dead_run_in_order(make: Any, around: Callable[..., Any]) -> None:
    evidence = dead_run(make, around)
    assert told(evidence) == [
        "entropy rose past 2 times its start at step 41",
        "the score fell at step 61",
        "entropy fell below 50% of its start at step 81",
        "the mean length fell below 50% of its start at step 101",
        "nothing moves since step 101",
    ]
    story = tell_story(evidence)
    assert story.startswith("entropy rose past 2 times its start at step 41, then the score fell at step 61, then ")
    assert story.count(", then ") == 4


def test_what_moved_before_the_score_fell(make: Any, around: Callable[..., Any]) -> None:
    evidence = dead_run(make, around)
    # A twentieth of 159 steps is 8: what began by step 69 may be the cause of a fall at step 61.
    assert [event.metric for event in events_before(evidence, 61)] == ["entropy"]
    assert [event.step for event in events_before(evidence, 74)] == [41, 81]
    assert events_before(evidence, 30) == ()
    assert events_before(evidence, None) == ()


@pytest.mark.parametrize(
    ("name", "level", "factor", "text"),
    [
        ("entropy", 0.5, 2.1, "entropy rose past 2 times its start at step 81"),
        ("entropy", 0.5, 1.9, None),
        ("entropy", 0.5, 0.48, "entropy fell below 50% of its start at step 81"),
        ("entropy", 0.5, 0.52, None),
        ("length", 300.0, 2.1, "the mean length rose past 2 times its start at step 81"),
        ("length", 300.0, 0.4, "the mean length fell below 50% of its start at step 81"),
        ("grad_norm", 0.2, 10.5, "the gradient norm rose past 10 times its start at step 81"),
        ("grad_norm", 0.2, 9.5, None),
        ("grad_norm", 0.2, 0.009, "the gradient norm fell below 1% of its start at step 81"),
        ("mismatch", 0.01, 4.2, "the mismatch of trainer and sampler rose past 4 times its start at step 81"),
        ("mismatch", 0.01, 3.8, None),
        ("mismatch", 0.01, 0.01, None),  # less of it is good
        ("kl_reference", 0.01, 100.0, None),  # it grows by factors in every run
    ],
)
def test_a_factor_is_an_event_on_one_side_of_its_threshold(
    make: Any, name: str, level: float, factor: float, text: str | None
) -> None:
    noise = np.exp(np.random.default_rng(1).normal(0, 0.01, 160))
    evidence = make(**{name: level * noise * np.where(LONG_STEPS <= 80, 1.0, factor)})
    assert told(evidence) == ([] if text is None else [text])


def test_a_peak_that_came_back_is_told_too(make: Any) -> None:
    noise = np.exp(np.random.default_rng(2).normal(0, 0.02, 160))
    evidence = make(entropy=0.5 * noise * np.where((LONG_STEPS > 60) & (LONG_STEPS <= 90), 4.0, 1.0))
    assert told(evidence) == ["entropy rose past 2 times its start at step 61"]
    assert tell_story(evidence) == ""  # one thing is no story


@pytest.mark.parametrize(("now", "happened"), [(0.35, True), (0.25, False)])
def test_truncation_begins_where_three_in_ten_are_cut(
    make: Any, around: Callable[..., Any], now: float, happened: bool
) -> None:
    evidence = make(truncated=around(np.where(LONG_STEPS <= 80, 0.05, now), 0.005))
    assert told(evidence) == (["30% of the completions were cut from step 81 on"] if happened else [])


def test_what_was_cut_from_the_start_did_not_begin(make: Any) -> None:
    assert told(make(truncated=np.full(160, 0.6))) == []


def test_numbers_that_stop(make: Any, around: Callable[..., Any]) -> None:
    grad = around(np.full(160, 0.3), 0.01)
    grad[100:] = np.nan
    evidence = make(grad_norm=grad, reward=around(np.where(LONG_STEPS <= 110, 0.6, 0.1), 0.01, 1))
    assert told(evidence) == ["grad_norm is no number from step 101 on", "the score fell at step 111"]
    assert tell_story(evidence) == "grad_norm is no number from step 101 on, then the score fell at step 111"


def test_a_run_is_dead_only_where_nothing_moves(make: Any, around: Callable[..., Any]) -> None:
    reward, entropy = around(np.full(160, 0.5), 0.02), around(np.full(160, 0.6), 0.02, 1)
    frozen = np.where(LONG_STEPS <= 100, reward, 0.0), np.where(LONG_STEPS <= 120, entropy, 0.01)
    assert death_step(make(reward=frozen[0], entropy=frozen[1])) == 121
    assert death_step(make(reward=frozen[0], entropy=entropy)) is None
    assert death_step(make(reward=reward, entropy=frozen[1])) is None
    assert death_step(make(entropy=frozen[1])) is None
    # What never moved says nothing of when the run died; nor was a run alive that is constant from the start.
    assert death_step(make(reward=frozen[0], entropy=frozen[1], grad_norm=np.full(160, 1.0))) == 121
    assert death_step(make(reward=np.zeros(160))) is None


def course(values: Any, *, by_log: bool = True) -> Course:
    """Return the course of values at steps 1, 2, ..."""
    found = describe_course(np.arange(1, len(values) + 1), values, by_log=by_log)
    assert found is not None
    return found


def test_the_first_step_beyond_a_factor_outvotes_spikes() -> None:
    values = np.where(LONG_STEPS <= 80, 1.0, 3.0)
    assert first_beyond(course(values), 2.0) == 81
    values[40:42] = 9.0  # two of five
    assert first_beyond(course(values), 2.0) == 81
    assert first_beyond(course(1 / values), 0.5) == 81
    assert first_beyond(course(np.full(160, 1.0)), 2.0) is None


def test_constant_is_without_any_difference() -> None:
    assert is_constant(course(np.full(40, 0.3), by_log=False))
    assert is_constant(course(np.zeros(40), by_log=False))
    assert not is_constant(course(np.arange(40.0), by_log=False))


def test_a_quiet_run_and_a_configuration_have_no_story(make: Any, around: Callable[..., Any]) -> None:
    quiet = make(entropy=around(np.full(160, 0.5), 0.02), reward=around(0.3 + 0.002 * LONG_STEPS, 0.02, 1))
    assert run_events(quiet) == []
    assert tell_story(quiet) == ""
    assert run_events(Evidence("a configuration")) == []


def test_events_are_ordered_by_step(make: Any) -> None:
    noise = np.exp(np.random.default_rng(3).normal(0, 0.01, 160))
    late_entropy = 0.5 * noise * np.where(LONG_STEPS <= 120, 1.0, 5.0)
    early_length = 300 * noise * np.where(LONG_STEPS <= 60, 1.0, 0.2)
    events = run_events(make(entropy=late_entropy, length=early_length))
    assert [(event.step, event.metric) for event in events] == [(61, "length"), (121, "entropy")]
    assert isinstance(events[0], RunEvent)


def test_a_score_that_has_just_died_fell_for_sure(make: Any) -> None:
    steady = np.resize([0.9, 1.0, 1.1, 1.0], 30)
    fall = score_fall(make(reward=np.r_[steady, 0.4, 0.0]))
    assert fall is not None
    assert fall.is_sure
    assert fall.end.level.value == pytest.approx((0.9 + 1.0 + 0.4 + 0.0) / 4)
    again = score_fall(make(reward=np.r_[steady, 0.0]))
    assert again is not None
    assert not again.is_sure  # one point


def test_a_score_that_the_first_updates_destroyed_fell_from_its_first_points(make: Any) -> None:
    fall = score_fall(make(accuracy=np.r_[0.99, 0.79, np.full(19, 0.64)]))
    assert fall is not None
    assert fall.is_sure
    assert fall.best.level.value == pytest.approx(0.89)
    assert fall.share == pytest.approx(0.25 / 0.89)


def test_a_score_at_nothing_is_gone() -> None:
    steps = np.arange(1, 41)
    high = np.where(steps <= 28, 0.8, 0.0)
    for values, gone in (
        (high, True),
        (high + 0.039 * (steps > 28), True),  # a twentieth of 0.8 is 0.04
        (high + 0.041 * (steps > 28), False),
        (high - 0.2, False),  # a score that can be negative has no nothing
        (np.where(steps % 10 == 0, high, 0.0), False),  # it was there seldom
    ):
        course = describe_course(steps, values)
        assert course is not None
        assert is_gone(course, course.highest) is gone


def test_a_fall_to_nothing_is_sure_where_slow_wander_would_explain_any_other() -> None:
    steps = np.arange(1, 41)
    for left, is_sure in ((0.0, True), (0.1, False)):
        course = describe_course(steps, np.where(steps <= 28, 0.8, left))
        assert course is not None
        wild = replace(course, noise=replace(course.noise, sd=1.0, autocorrelation=0.9))
        assert measure_fall(wild, "reward", wanders=True).is_sure is is_sure


@pytest.mark.parametrize(("scale", "is_best"), [(0.1, False), (0.8, True), (5.0, True)])
def test_a_share_below_one_half_is_not_at_its_best(make: Any, scale: float, is_best: bool) -> None:
    assert is_at_its_best(make(reward=scale * np.minimum(np.arange(1, 61) / 10, 1))) is is_best
