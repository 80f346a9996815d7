"""The story of a run in order of steps: what exploded, fell, froze or stopped being a number, and when."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from breadth.doctor.evidence.log_defects import nan_runs
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.score_course import LOST, score_fall
from breadth.measure.course import Course
from breadth.measure.series import smooth_by_median


@dataclass(frozen=True)
class RunEvent:
    """Something that happened to a metric."""

    step: float
    """When it began."""
    metric: str
    """Our name of the metric."""
    text: str
    """What happened, in a few words with the step."""


@dataclass(frozen=True)
class Turn:
    """What counts as an event of a metric that moves by factors."""

    noun: str
    """What it is called."""
    rise: float
    """Factor above the start that is an event."""
    fall: float
    """Share of the start that is one."""


TURNS = {
    "entropy": Turn("entropy", 2.0, 0.5),
    "length": Turn("the mean length", 2.0, 0.5),
    "grad_norm": Turn("the gradient norm", 10.0, 0.01),
    "kl_reference": Turn("the KL to the reference", math.inf, 0.0),
    "mismatch": Turn("the mismatch of trainer and sampler", 4.0, 0.0),
}
"""Metric -> what counts as an event: the thresholds of the findings about it."""


def run_events(evidence: Evidence) -> list[RunEvent]:
    """Return what happened, in order of steps."""
    found = [event for name, turn in TURNS.items() for event in factor_events(evidence.course(name), name, turn)]
    found += truncation_events(evidence.course("truncated"))
    fall = score_fall(evidence)
    if fall is not None and fall.is_sure and fall.share >= LOST and fall.half_step is not None:
        found.append(RunEvent(fall.half_step, "reward", f"the score fell at step {fall.half_step:,.0f}"))
    found += [
        RunEvent(
            nan_run.first,
            nan_run.name,
            f"{evidence.logged_name(nan_run.name)} is no number from step {nan_run.first:,} on",
        )
        for nan_run in nan_runs(evidence)
        if nan_run.to_the_end
    ]
    frozen = death_step(evidence)
    if frozen is not None:
        found.append(RunEvent(frozen, "frozen", f"nothing moves since step {frozen:,.0f}"))
    return sorted(found, key=lambda event: event.step)


def factor_events(course: Course | None, name: str, turn: Turn) -> Iterator[RunEvent]:
    """Yield the surest rise and fall of a metric that moves by factors."""
    if course is None:
        return
    up, down = course.change(course.start, course.highest), course.change(course.start, course.lowest)
    if up.low > turn.rise and (step := first_beyond(course, turn.rise)) is not None:
        yield RunEvent(step, name, f"{turn.noun} rose past {turn.rise:g} times its start at step {step:,.0f}")
    if down.high < turn.fall and (step := first_beyond(course, turn.fall)) is not None:
        yield RunEvent(step, name, f"{turn.noun} fell below {turn.fall:.0%} of its start at step {step:,.0f}")


def first_beyond(course: Course, factor: float) -> float | None:
    """Return the first step at which a running median of five points is past a factor of the start."""
    middle = smooth_by_median(course.values)
    wanted = math.log(course.start.level.value) + math.log(factor)
    past = np.flatnonzero(middle > wanted if factor > 1 else middle < wanted)
    past = past[past >= course.start.end]
    return float(course.steps[past[0]]) if len(past) else None


def truncation_events(course: Course | None) -> Iterator[RunEvent]:
    """Yield when many completions began to be cut, where few were at the start."""
    if course is None or course.highest.level.low <= 0.3 or course.start.level.high >= 0.3:
        return
    past = np.flatnonzero(course.values > 0.3)
    if len(past):
        step = course.steps[past[0]]
        yield RunEvent(float(step), "truncated", f"30% of the completions were cut from step {step:,.0f} on")


def death_step(evidence: Evidence) -> float | None:
    """Return the step since which the run is dead: neither the score nor anything else moves."""
    alive = [evidence.course(name) for name in ("reward", "reward_std", "grad_norm", "entropy", "length")]
    courses = [course for course in alive if course is not None and not is_constant(course)]
    score = evidence.course("reward")
    if score is None or score.frozen is None or not courses:
        return None
    still = [course.frozen for course in courses]
    return None if any(step is None for step in still) else max(step for step in still if step is not None)


def is_constant(course: Course) -> bool:
    """Say whether a metric never moved at all."""
    return bool(np.ptp(course.values) <= 1e-9 * max(float(np.abs(course.values).max()), 1e-12))


def tell_story(evidence: Evidence) -> str:
    """Return what happened in one sentence; empty where it was fewer than two things."""
    events = run_events(evidence)
    if len(events) < 2:
        return ""
    return ", then ".join(event.text for event in events[:5])


def events_before(evidence: Evidence, step: float | None) -> tuple[RunEvent, ...]:
    """Return what happened to other metrics up to a step, and a twentieth of the run after it."""
    if step is None:
        return ()
    score = evidence.course("reward")
    slack = 0.0 if score is None else 0.05 * float(score.steps[-1] - score.steps[0])
    return tuple(
        event
        for event in run_events(evidence)
        if event.step <= step + slack and event.metric not in ("reward", "frozen")
    )
