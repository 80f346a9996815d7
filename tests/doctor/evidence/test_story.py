"""What happened to a run is told in order of steps, each thing once, and nothing of a quiet one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.story import (
    RunEvent,
    death_step,
    events_before,
    first_beyond,
    is_constant,
    run_events,
    tell_story,
)
from breadth.measure.course import Course, describe_course

STEPS = np.arange(1, 161)


def told(evidence: Evidence) -> list[str]:
    """Return the texts of the events in order."""
    return [event.text for event in run_events(evidence)]


def dead_run(make: Any, around: Callable[..., Any]) -> Evidence:
    """Entropy explodes at step 41, the score dies at step 61, and everything is frozen from step 101 on."""
    rng = np.random.default_rng(0)
    noise = np.exp(rng.normal(0, 0.02, 160))
    entropy = np.where(STEPS <= 40, 0.5, np.where(STEPS <= 80, 3.0, 0.01)) * noise
    reward = around(np.where(STEPS <= 60, 0.6, 0.02), 0.01)
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
    evidence = make(**{name: level * noise * np.where(STEPS <= 80, 1.0, factor)})
    assert told(evidence) == ([] if text is None else [text])


def test_a_peak_that_came_back_is_told_too(make: Any) -> None:
    noise = np.exp(np.random.default_rng(2).normal(0, 0.02, 160))
    evidence = make(entropy=0.5 * noise * np.where((STEPS > 60) & (STEPS <= 90), 4.0, 1.0))
    assert told(evidence) == ["entropy rose past 2 times its start at step 61"]
    assert tell_story(evidence) == ""  # one thing is no story


@pytest.mark.parametrize(("now", "happened"), [(0.35, True), (0.25, False)])
def test_truncation_begins_where_three_in_ten_are_cut(
    make: Any, around: Callable[..., Any], now: float, happened: bool
) -> None:
    evidence = make(truncated=around(np.where(STEPS <= 80, 0.05, now), 0.005))
    assert told(evidence) == (["30% of the completions were cut from step 81 on"] if happened else [])


def test_what_was_cut_from_the_start_did_not_begin(make: Any) -> None:
    assert told(make(truncated=np.full(160, 0.6))) == []


def test_numbers_that_stop(make: Any, around: Callable[..., Any]) -> None:
    grad = around(np.full(160, 0.3), 0.01)
    grad[100:] = np.nan
    evidence = make(grad_norm=grad, reward=around(np.where(STEPS <= 110, 0.6, 0.1), 0.01, 1))
    assert told(evidence) == ["grad_norm is no number from step 101 on", "the score fell at step 111"]
    assert tell_story(evidence) == "grad_norm is no number from step 101 on, then the score fell at step 111"


def test_a_run_is_dead_only_where_nothing_moves(make: Any, around: Callable[..., Any]) -> None:
    reward, entropy = around(np.full(160, 0.5), 0.02), around(np.full(160, 0.6), 0.02, 1)
    frozen = np.where(STEPS <= 100, reward, 0.0), np.where(STEPS <= 120, entropy, 0.01)
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
    values = np.where(STEPS <= 80, 1.0, 3.0)
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
    quiet = make(entropy=around(np.full(160, 0.5), 0.02), reward=around(0.3 + 0.002 * STEPS, 0.02, 1))
    assert run_events(quiet) == []
    assert tell_story(quiet) == ""
    assert run_events(Evidence("a configuration")) == []


def test_events_are_ordered_by_step(make: Any) -> None:
    noise = np.exp(np.random.default_rng(3).normal(0, 0.01, 160))
    late_entropy = 0.5 * noise * np.where(STEPS <= 120, 1.0, 5.0)
    early_length = 300 * noise * np.where(STEPS <= 60, 1.0, 0.2)
    events = run_events(make(entropy=late_entropy, length=early_length))
    assert [(event.step, event.metric) for event in events] == [(61, "length"), (121, "entropy")]
    assert isinstance(events[0], RunEvent)
