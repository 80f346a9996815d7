"""The entropy law on a demo's plain arm, on courses that keep it to the digit and on ones that do not."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from breadth.lab.demo.law import law
from breadth.lab.demo.results import DemoResults, Training
from breadth.report.sections import Curve, Severity, Verdict

STEPS = tuple(range(1, 41))
ENTROPY = tuple(0.6 - 0.01 * step for step in STEPS)
LAWFUL = tuple(
    0.9 - 0.4 * math.exp(entropy) + 1e-4 * (-1) ** step for step, entropy in zip(STEPS, ENTROPY, strict=True)
)


def course(entropy: tuple[float, ...], reward: tuple[float, ...]) -> Training:
    return Training(STEPS[: len(entropy)], reward, entropy, entropy, entropy)


def test_a_course_that_keeps_the_law(demo_results: DemoResults) -> None:
    verdict, picture = law(replace(demo_results, plain_training=course(ENTROPY, LAWFUL)))
    assert isinstance(verdict, Verdict)
    assert "forecasts the rest better than any simple rival" in verdict.headline
    assert "it holds" in verdict.body
    facts = {fact.name: fact.value for fact in verdict.numbers}
    assert facts["typical error of the forecast"] == pytest.approx(0.0, abs=1e-3)
    assert facts["score at no entropy, by the whole fit"].value == pytest.approx(0.5, abs=1e-3)  # type: ignore[union-attr]  # b - a; an interval
    assert isinstance(picture, Curve)
    assert [event.x for event in picture.events] == [6]  # 15 % of forty
    whole, first = (list(line.y) for line in picture.series[1:])
    assert first == pytest.approx(whole, abs=2e-3)


def test_a_course_that_breaks_it(demo_results: DemoResults) -> None:
    turned = LAWFUL[:10] + tuple(LAWFUL[9] for _ in STEPS[10:])
    verdict, _ = law(replace(demo_results, plain_training=course(ENTROPY, turned)))
    assert isinstance(verdict, Verdict)
    assert "does not forecast the rest better than its simplest rival, the last early score" in verdict.headline
    assert "does not hold" in verdict.body


def test_generations_without_an_entropy_are_left_out(demo_results: DemoResults) -> None:
    holed = (*ENTROPY[:3], math.nan, *ENTROPY[4:])
    _, picture = law(replace(demo_results, plain_training=course(holed, LAWFUL)))
    assert isinstance(picture, Curve)
    assert len(picture.series[0].x) == 39


def test_a_course_too_short_to_forecast(demo_results: DemoResults) -> None:
    (verdict,) = law(replace(demo_results, plain_training=course(ENTROPY[:24], LAWFUL[:24])))
    assert isinstance(verdict, Verdict)
    assert verdict.severity is Severity.CANNOT_TELL
