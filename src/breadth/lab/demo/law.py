"""The entropy law on a demo's plain arm: how well it fits the whole course, and what it would have forecast from the first steps."""

from __future__ import annotations

import math

from breadth.lab.demo.results import DemoResults, Training
from breadth.lab.measuring.seeds import smoothed
from breadth.measure.entropy_law import LawFit, fit_law, predict_tail
from breadth.report.sections import Axis, Curve, Event, Fact, Section, Series, Severity, Verdict

EARLY = 0.15
"""Share of the course that the forecast is made from, as in the published demonstration (2505.22617: 36 of 236 steps).
"""
FEWEST = 5
"""Generations a forecast needs at least: three more than the law has parameters."""
WINDOW = 5
"""Generations the score in the picture is the mean of."""


def law(results: DemoResults) -> list[Section]:
    """Return what the law says of the plain arm, and the picture; only the verdict where the course is too short for a forecast."""
    course = results.plain_training
    known = [place for place, entropy in enumerate(course.entropy) if math.isfinite(entropy)]
    early = math.ceil(EARLY * len(known))
    if early < FEWEST:
        return [
            Verdict(
                Severity.CANNOT_TELL,
                f"The course is too short to forecast it by the entropy law: {early} generations are its first"
                f" {EARLY:.0%}.",
                f"The law needs {FEWEST}; run the demo without --fast.",
            )
        ]
    course = _only(course, known)
    whole, first = _fit(course, len(known)), _fit(course, early)
    return [_verdict(course, whole, early), _picture(course, whole, first, early)]


def _verdict(course: Training, whole: LawFit, early: int) -> Verdict:
    tail = predict_tail(course.steps, course.entropy, course.reward, early)
    rival, error = min(
        {"early mean": tail.mean, "last early score": tail.last, "straight line": tail.line}.items(),
        key=lambda one: one[1],
    )
    ahead = tail.law < error
    head = (
        f"The entropy law, fitted to the first {EARLY:.0%} of the plain course, "
        f"{'forecasts the rest better than' if ahead else 'does not forecast the rest better than'} "
        f"{'any simple rival' if ahead else f'its simplest rival, the {rival}'}."
    )
    body = "Given the later entropies, as the law asks. " + (
        "Over the whole course it holds."
        if whole.valid
        else f"Over the whole course it does not hold: {' '.join(whole.reasons)}"
    )
    numbers = [
        Fact("typical error of the forecast", tail.law),
        Fact(f"of the {rival}", error),
        Fact("later score less forecast", tail.miss),
        Fact("variance the whole fit describes", whole.r2, "%"),
        Fact("score at no entropy, by the whole fit", whole.ceiling),
    ]
    return Verdict(Severity.NOTE, head, body, numbers)


def _picture(course: Training, whole: LawFit, first: LawFit, early: int) -> Curve:
    return Curve(
        "The entropy law on the plain arm",
        [
            Series("score", course.steps, smoothed(course.reward, WINDOW).tolist()),
            Series("law, fitted to all", course.steps, _told(whole, course)),
            Series("law, from the first steps", course.steps, _told(first, course)),
        ],
        Axis("optimizer step"),
        Axis("right replies", "%"),
        events=[Event(course.steps[early - 1], "fitted up to here")],
        note=(
            f"score = b - a exp(entropy). The score is the mean of the last {WINDOW} generations; the fits see each as"
            " it was."
        ),
    )


def _fit(course: Training, length: int) -> LawFit:
    return fit_law(course.steps[:length], course.entropy[:length], course.reward[:length])


def _told(fit: LawFit, course: Training) -> list[float]:
    return [fit.b - fit.a * math.exp(entropy) for entropy in smoothed(course.entropy, WINDOW)]


def _only(course: Training, places: list[int]) -> Training:
    """Return the generations that have an entropy."""
    columns = (course.steps, course.reward, course.entropy, course.planning, course.execution)
    steps, *rest = ([column[place] for place in places] for column in columns)
    reward, entropy, planning, execution = map(tuple, rest)
    return Training(tuple(map(int, steps)), reward, entropy, planning, execution)
