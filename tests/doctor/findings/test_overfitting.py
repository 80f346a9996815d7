"""Overfitting is a held-out score that surely falls while the training score does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.overfitting import FINDING
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

T = np.linspace(0, 1, 160)
RISING, STAYS, FALLING = 0.3 + 0.4 * T, 0.6 + 0 * T, np.where(T < 0.7, 0.6, 0.2)
EVALUATIONS = np.arange(1, 25)


def held(best: float, end: float) -> Any:
    """Return a held-out score that falls after the eighteenth of 24 evaluations."""
    return np.where(EVALUATIONS <= 18, best, end)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "overfitting")


@pytest.mark.parametrize("score", [RISING, STAYS], ids=["rises", "stays"])
@pytest.mark.parametrize(
    ("end", "result"),
    [
        (0.2, Severity.CRITICAL),
        (0.44, Severity.CRITICAL),  # 27 % of 0.6 is gone
        (0.46, Severity.WARNING),  # 23 %
        (0.53, Severity.WARNING),  # 12 %
        (0.55, Excluded),  # 8 %
        (0.6, Excluded),
        (0.7, Excluded),
    ],
)
def test_severity_follows_the_share_that_is_gone(
    make: Any, around: Callable[..., Any], score: Any, end: float, result: Severity | type
) -> None:
    found = FINDING.check(make(reward=around(score, 0.01), evals={"reward": around(held(0.6, end), 0.001, 1)}))
    if not isinstance(result, Severity):
        assert isinstance(found, result)
        return
    assert isinstance(found, Finding)
    check_outcome(found, "overfitting")
    assert found.severity is result
    assert found.headline.startswith("The held-out score has fallen from 0.6 to ")


def test_back_to_the_best_checkpoint(make: Any) -> None:
    found = FINDING.check(make(reward=RISING, evals={"reward": held(0.6, 0.3)}))
    assert isinstance(found, Finding)
    action = found.prescriptions[0].action
    assert action.startswith("Go back to the last checkpoint up to step ")
    assert int(action.rpartition(" ")[2]) <= 18
    # An eighth of 160 steps is 20; from 0.3 to 0.7 their means lie 9.5 / 159 of the way from either end.
    assert [fact.value for fact in found.evidence if fact.name == "training score"] == ["0.324 to 0.676"]


def test_a_training_score_that_fell_too_is_another_finding(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(make(reward=around(FALLING, 0.01), evals={"reward": held(0.6, 0.2)}))
    assert isinstance(found, Excluded)
    assert found.because == "the training score fell too"


def test_what_excludes_it_is_the_most_that_may_be_gone(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(make(reward=around(RISING, 0.01), evals={"reward": around(held(0.6, 0.59), 0.005, 1)}))
    assert isinstance(found, Excluded)
    check_outcome(found, "overfitting")
    assert found.because.startswith("the held-out score ends at most ")
    assert int(found.because.removeprefix("the held-out score ends at most ").partition("%")[0]) <= 8


def test_noise_that_hides_a_fall_is_undecided(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(make(reward=around(RISING, 0.01), evals={"reward": around(held(0.6, 0.5), 0.25, 4)}))
    assert isinstance(found, CannotTell)
    check_outcome(found, "overfitting")
    assert found.undecided


@pytest.mark.parametrize(
    ("best", "end", "severity"),
    [(-1.0, -2.0, Severity.CRITICAL), (-1.0, -1.2, Severity.WARNING), (-1.0, -1.05, None)],
)
def test_scores_below_zero(
    make: Any, around: Callable[..., Any], best: float, end: float, severity: Severity | None
) -> None:
    found = FINDING.check(make(reward=around(RISING, 0.01), evals={"reward": around(held(best, end), 0.002, 1)}))
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    assert found.severity is severity


@pytest.mark.parametrize("scale", [1e-4, 100.0])
def test_the_scale_of_the_score_does_not_matter(make: Any, around: Callable[..., Any], scale: float) -> None:
    found = FINDING.check(make(reward=around(RISING, 0.01), evals={"reward": scale * held(0.6, 0.3)}))
    assert isinstance(found, Finding)
    assert found.severity is Severity.CRITICAL


def test_a_fall_that_came_back_is_excluded_and_a_second_one_is_a_note(make: Any, around: Callable[..., Any]) -> None:
    back = np.where((EVALUATIONS > 8) & (EVALUATIONS <= 12), 0.3, 0.6)
    reward = around(RISING, 0.01)
    assert isinstance(FINDING.check(make(reward=reward, evals={"reward": back})), Excluded)
    again = FINDING.check(make(reward=reward, evals={"reward": np.where(EVALUATIONS > 20, 0.3, back)}))
    assert isinstance(again, Finding)
    assert again.severity is Severity.NOTE


def graded(share: float, problems: int = 60, *, apart: int = 1) -> dict[str, list[Any]]:
    """Return twenty held-out rollouts of each problem; a share is correct, a few more or fewer from one to the next."""
    names = [f"p{number}" for number in range(problems) for _ in range(20)]
    right = [round(20 * share) + (apart if number % 2 else -apart) for number in range(problems)]
    return {"problem": names, "correct": [place < right[number] for number in range(problems) for place in range(20)]}


@pytest.mark.parametrize(
    ("start", "end", "severity"),
    [
        (0.8, 0.5, Severity.CRITICAL),  # 38 % of it is gone
        (0.8, 0.7, Severity.WARNING),  # 12 %
        (0.5, 0.5, None),
        (0.5, 0.9, None),
    ],
)
def test_rollouts_at_two_evaluations_are_compared_problem_by_problem(
    make: Any, around: Callable[..., Any], start: float, end: float, severity: Severity | None
) -> None:
    found = FINDING.check(make(reward=around(RISING, 0.01), held_out={1: graded(start, apart=0), 160: graded(end)}))
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    check_outcome(found, "overfitting")
    assert found.severity is severity
    assert found.headline == f"The held-out score has fallen from {start:.3g} to {end:.3g} while training went on."


def test_few_problems_that_differ_widely_are_undecided(make: Any, around: Callable[..., Any]) -> None:
    rollouts = {1: graded(0.6, 6, apart=0), 160: graded(0.5, 6, apart=8)}  # 0.1 and 0.9 in turn, where all had 0.6
    found = FINDING.check(make(reward=around(RISING, 0.01), held_out=rollouts))
    assert isinstance(found, CannotTell)
    assert found.undecided


def test_what_is_missing_is_named(make: Any) -> None:
    found = FINDING.check(make(reward=RISING))
    assert isinstance(found, CannotTell)
    assert found.missing == "no held-out score at 8 steps"
    assert not found.undecided
    assert isinstance(FINDING.check(make(reward=RISING, evals={"reward": [0.5] * 7})), CannotTell)
    assert FINDING.check(Evidence("a configuration")) is None


@pytest.mark.parametrize(
    ("best", "end", "found"),
    [
        (0.9, 0.87, True),  # errors from 0.1 to 0.13
        (0.9, 0.88, False),  # to 0.12: a fifth more
        (0.96, 0.945, True),  # from 0.04 to 0.055
        (1.5, 1.4, False),  # no share, and 7 % of it is gone
        (1.0, 0.97, True),  # from none
        (0.999, 0.992, False),  # less than one in a hundred
    ],
)
def test_near_the_top_errors_are_compared(
    make: Any, around: Callable[..., Any], best: float, end: float, found: bool
) -> None:
    slowly = np.interp(EVALUATIONS, [8, 18], [best, end]) - np.abs(around(0 * EVALUATIONS, 1e-4, 1))
    outcome = FINDING.check(make(reward=around(STAYS, 0.01), evals={"reward": slowly}))
    assert isinstance(outcome, Finding if found else Excluded)
    check_outcome(outcome, "overfitting")
