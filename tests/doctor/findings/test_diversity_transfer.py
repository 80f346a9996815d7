"""Answers lost where nothing was ever right are found; what parsing, sampling or luck explains is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.diversity_transfer import FINDING
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

NAME = "diversity-transfer"


def rows(unsolved: list[tuple[str | None, ...]], solved: int = 20, right: int = 4) -> dict[str, Any]:
    """Groups of eight: one for each unsolved problem, and problems of which so many rollouts say 42, which is right."""
    groups = [*unsolved, *[("42",) * right + tuple(str(place) for place in range(8 - right))] * solved]
    return {
        "problem": [f"p{place}" for place, answers in enumerate(groups) for _ in answers],
        "sample": list(range(sum(map(len, groups)))),
        "answer": [answer for answers in groups for answer in answers],
        "correct": [answer == "42" for answers in groups for answer in answers],
    }


def spread(distinct: int, problems: int = 30, seed: int = 0) -> list[tuple[str | None, ...]]:
    """So many different wrong answers in eight samples, one more or less from problem to problem."""
    rng = np.random.default_rng(seed)
    counts = np.clip(distinct + rng.integers(-1, 2, problems), 1, 8) if distinct > 1 else np.ones(problems, int)
    return [tuple(str(100 + place % int(count)) for place in range(8)) for count in counts]


def run(make: Any, start: dict[str, Any], now: dict[str, Any], **given: Any) -> Any:
    return make(rollouts={1: start, 2: now}, **given)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, NAME)


@pytest.mark.parametrize(
    ("then", "now", "severity"),
    [
        (6, 1, Severity.WARNING),
        (6, 3, Severity.WARNING),
        (6, 5, Severity.NOTE),
        (6, 6, None),
        (3, 6, None),
        (1, 1, None),
    ],
)
def test_severity_follows_what_is_lost_of_what_there_was(
    make: Any, then: int, now: int, severity: Severity | None
) -> None:
    found = FINDING.check(run(make, rows(spread(then)), rows(spread(now, seed=1))))
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    check_outcome(found, NAME)
    assert found.severity is severity
    assert found.evidence[0].value.value == pytest.approx(then - now, abs=0.5)  # type: ignore[union-attr]
    assert "in 8 samples than at the start" in found.headline


def test_exact_numbers_by_hand(make: Any) -> None:
    """Eight answers in eight samples, then two of four each: six lost, of the seven beyond the first."""
    then, now = [tuple(map(str, range(100, 108)))] * 15, [("7",) * 4 + ("9",) * 4] * 15
    found = FINDING.check(run(make, rows([*then]), rows([*now])))
    assert isinstance(found, Finding)
    values = [fact.value.value for fact in found.evidence]  # type: ignore[union-attr]
    assert values == pytest.approx([6.0, 6.0, 6 / 7, 8.0, 2.0])


def test_a_loss_that_paid_is_a_note(make: Any) -> None:
    """Twenty problems that were unsolved are solved now, and the rest is narrower."""
    start = rows(spread(6, problems=50), solved=0)
    now = rows([*spread(1, problems=30), *[("42",) * 8] * 20], solved=0)
    found = FINDING.check(run(make, start, now))
    assert isinstance(found, Finding)
    assert found.severity is Severity.NOTE
    assert found.cost == "Over the same steps pass@8 changed by +0.4."


def test_answers_that_cannot_be_read_are_no_lost_answers(make: Any) -> None:
    """Six of eight answers are unreadable now; the two that are left differ, as any two did at the start."""
    start = rows([tuple(map(str, range(100, 108)))] * 30)
    now = rows([("100", "101", *[None] * 6)] * 30)
    assert isinstance(FINDING.check(run(make, start, now)), Excluded)


def test_held_out_problems_are_compared_where_there_are_any(make: Any) -> None:
    same = rows(spread(6))
    found = FINDING.check(make(rollouts={1: same, 2: same}, held_out={0: rows(spread(6)), 9: rows(spread(1))}))
    assert isinstance(found, Finding)
    assert found.evidence[0].note.startswith("held-out rollouts of step 0 against step 9, 50 problems at 8 samples")


def test_what_is_missing_is_said(make: Any) -> None:
    bare = FINDING.check(make(reward=np.linspace(0, 1, 40)))
    assert isinstance(bare, CannotTell)
    solved = FINDING.check(run(make, rows(spread(6, problems=4)), rows(spread(1, problems=4))))
    assert isinstance(solved, CannotTell)
    assert solved.missing.startswith("4 problems occur at both ends and are solved at neither")
    others = rows(spread(1))
    others["problem"] = [f"q{name}" for name in others["problem"]]
    apart = FINDING.check(run(make, rows(spread(6)), others))
    assert isinstance(apart, CannotTell)
    assert apart.missing.startswith("0 problems")
    ungraded = rows(spread(6))
    ungraded["correct"][0] = None
    assert isinstance(FINDING.check(run(make, ungraded, ungraded)), CannotTell)
