"""Texts that loop or skip the work are counted against the start; honest ones of any length are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.degenerate_rollouts import FINDING
from breadth.doctor.trainer_config import TrainerConfig
from breadth.measure.degeneracy import response_degeneracy
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

NAME = "degenerate-rollouts"


def honest(place: int) -> str:
    a, b = 3 + place % 17, 5 + place % 23
    return (
        f"We buy {a} boxes with {b} pens each, so there are {a} * {b} = {a * b} pens. Giving away {a} of them leaves "
        f"{a * b} - {a} = {a * b - a}. Because every child gets two, we divide: {a * b - a} / 2 = {(a * b - a) / 2}. "
        f"Adding the {b} from before makes {(a * b - a) / 2} + {b} = {(a * b - a) / 2 + b}. "
        f"Therefore the answer is \\boxed{{{(a * b - a) / 2 + b}}}."
    )


def looping(place: int) -> str:
    return f"Let us see, {place} and so on. " + "Wait, let me think again. " * 60


def skipping(place: int) -> str:
    return f"The answer is \\boxed{{{place}}}."


def rows(bad: int, of: int = 200, kind: Any = looping, problems: int = 40, **columns: Any) -> dict[str, Any]:
    """As many texts, the first so many of them bad; problems take turns, so each has its share."""
    return {
        "problem": [f"p{place % problems}" for place in range(of)],
        "sample": list(range(of)),
        "completion": [kind(place) if place < bad else honest(place) for place in range(of)],
        **columns,
    }


def run(make: Any, start: dict[str, Any], now: dict[str, Any], **given: Any) -> Any:
    return make(rollouts={1: start, 2: now}, **given)


def test_the_texts_are_what_they_are_called() -> None:
    assert not response_degeneracy(honest(7), reference=20.0).is_degenerate
    assert response_degeneracy(looping(7), reference=20.0).detections == ("n-gram repetition", "tail loop")
    assert response_degeneracy(skipping(7), reference=20.0).detections == ("early answer", "computation skipping")


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, NAME)


@pytest.mark.parametrize(
    ("start", "now", "severity"),
    [
        (0, 150, Severity.CRITICAL),
        (0, 50, Severity.WARNING),
        (10, 60, Severity.WARNING),
        (0, 20, Severity.NOTE),
        (0, 4, Excluded),
        (50, 54, CannotTell),  # 2 points more, give or take several
        (150, 20, Excluded),
        (0, 0, Excluded),
        (200, 200, Excluded),
    ],
)
def test_only_a_sure_rise_is_found(make: Any, start: int, now: int, severity: Severity | type) -> None:
    found = FINDING.check(run(make, rows(start), rows(now)))
    if not isinstance(severity, Severity):
        assert isinstance(found, severity)
        return
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is severity
    assert found.evidence[0].value.value == start / 200  # type: ignore[union-attr]
    assert found.evidence[1].value.value == now / 200  # type: ignore[union-attr]
    assert f"{now / 200:.0%} of the completions are degenerate, up from {start / 200:.0%}" in found.headline
    assert "n-gram repetition and tail loop" in found.headline or "tail loop and n-gram repetition" in found.headline


def test_texts_of_one_problem_are_not_taken_for_many(make: Any) -> None:
    """All bad texts are of one problem in forty: another forty problems might hold none or three."""
    now = rows(0)
    now["completion"] = [
        looping(place) if name == "p0" else text
        for place, (name, text) in enumerate(zip(now["problem"], now["completion"], strict=True))
    ]
    assert sum("Wait" in text for text in now["completion"]) == 5
    found = FINDING.check(run(make, rows(0), now))
    assert isinstance(found, CannotTell)
    assert found.undecided


def test_rewarded_shortcuts_are_named_as_the_cost(make: Any) -> None:
    now = rows(100, kind=skipping, correct=[place < 60 for place in range(200)])
    start = rows(0, correct=[True] * 200)
    found = FINDING.check(run(make, start, now, config=TrainerConfig(mask_truncated=False)))
    assert isinstance(found, Finding)
    assert found.cost.startswith(
        "50% of the rollouts now hold no reasoning to learn from, and 60% of those are correct all the same"
    )
    assert found.evidence[-1].value.value == pytest.approx(0.6)  # type: ignore[union-attr]
    assert [one.action.partition(",")[0] for one in found.prescriptions[:2]] == [
        "Give no advantage to right rollouts that loop",
        "Compare twenty of the newest rollouts with the highest reward to their reference answers",
    ]


def test_loops_are_met_with_the_mask_unless_it_is_on(make: Any) -> None:
    for masked in (True, False):
        found = FINDING.check(run(make, rows(0), rows(100), config=TrainerConfig(mask_truncated=masked)))
        assert isinstance(found, Finding)
        assert any("Mask truncated completions" in one.action for one in found.prescriptions) is not masked


def test_shorter_but_honest_work_is_no_shortcut(make: Any) -> None:
    start = rows(0)
    start["completion"] = [f"{text} To check: {text}" for text in start["completion"]]
    assert isinstance(FINDING.check(run(make, start, rows(0))), Excluded)


def test_no_text_of_the_model_reaches_the_page(make: Any) -> None:
    hostile = "\x1b[31m<script>alert(1)</script> "
    found = FINDING.check(run(make, rows(0), rows(150, kind=lambda place: hostile * 80)))
    assert isinstance(found, Finding)
    assert "alert" not in repr(found)


def test_what_is_missing_is_said(make: Any) -> None:
    bare = FINDING.check(make(reward=np.linspace(0, 1, 40)))
    assert isinstance(bare, CannotTell)
    assert bare.switch_on == "GRPOConfig(log_completions=True)"
    silent = FINDING.check(run(make, {"problem": ["a"]}, {"problem": ["a"]}))
    assert isinstance(silent, CannotTell)
    assert "no text" in silent.missing
    few = FINDING.check(run(make, rows(0, problems=3), rows(150, problems=3)))
    assert isinstance(few, CannotTell)
    assert "3 problems" in few.missing
