"""The course of the score: its best stretch, how far it has fallen since, and whether it was that low before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.evidence.scores import logged_eval_score
from breadth.measure.course import Course, Stretch, describe_course
from breadth.measure.intervals import Interval

SURE_LEVEL = 0.8
"""Confidence that slow wander must leave a fall to half: it was measured beyond doubt already."""


@dataclass(frozen=True)
class ScoreFall:
    """How far a score lies below its own best stretch."""

    name: str
    """The trainer's name of the score."""
    course: Course
    """Its levels."""
    size: Interval
    """Best stretch minus the end, as measured, allowing for the choice of the best stretch."""
    share: float
    """The fall over what there was to lose: the best level, or the way to it from the start if that is longer."""
    most: float
    """The largest share that a plain interval leaves open."""
    is_sure: bool
    """Whether the fall is beyond measurement noise and slow wander."""
    half_step: float | None
    """Step from which on more than half of the fall had happened; None where it came back in between."""
    was_low_before: bool
    """Whether the score had been as low after its best quarter and came back."""

    @property
    def best(self) -> Stretch:
        """The best stretch."""
        return self.course.highest

    @property
    def end(self) -> Stretch:
        """The last eighth."""
        return self.course.end


def score_fall(evidence: Evidence, split: str = "train") -> ScoreFall | None:
    """Measure how far the training reward, or the held-out score, lies below its best; None without eight points."""
    if split == "train":
        course, name = evidence.course("reward"), evidence.logged_name("reward")
    else:
        held_out = logged_eval_score(evidence)
        course = None if held_out is None else describe_course(held_out.steps, held_out.values)
        name = "" if held_out is None else held_out.name
    return None if course is None else measure_fall(course, name)


def measure_fall(course: Course, name: str) -> ScoreFall:
    """Measure the fall of a score from its best stretch to its end."""
    best, end = course.highest, course.end
    size = negate(course.change(best, end))
    scale = max(abs(best.level.value), best.level.value - course.start.level.value, 1e-12)
    share = size.value / scale
    plain = negate(course.change(best, end, chosen=False))
    wander = negate(course.wandering_change(best, end))
    by_far = share >= 0.5 and negate(course.wandering_change(best, end, level=SURE_LEVEL)).low > 0
    middle = (best.level.value + end.level.value) / 2
    return ScoreFall(
        name,
        course,
        size,
        share,
        plain.high / scale,
        size.low > 0 and (wander.low > 0 or by_far),
        course.first_past(middle, below=True, begin=best.begin),
        came_back(course, middle),
    )


def came_back(course: Course, middle: float) -> bool:
    """Say whether a score that had been above a level fell below it for a while and rose above it again."""
    width = max(3, len(course.values) // 16)
    above = np.convolve(course.values, np.ones(width) / width, "valid") > middle
    turns = np.flatnonzero(np.diff(above.astype(np.int8)))
    return bool(len(turns) - (0 if above[0] else 1) >= 3)


def negate(change: Interval) -> Interval:
    """Turn a change into a fall."""
    return Interval(-change.value, -change.high, -change.low, change.level, change.method)
