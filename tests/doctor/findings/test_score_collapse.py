"""The score against its own best stretch: how much is gone, for sure, and what else had moved before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.entropy_collapse import FINDING as ENTROPY_COLLAPSE
from breadth.doctor.findings.score_collapse import FINDING
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

STEPS = np.arange(1, 161)


def fallen(best: float, end: float, *, start: float | None = None) -> Any:
    """Return a score that is at its best from step 41 to 120."""
    return np.where(STEPS <= 40, best if start is None else start, np.where(STEPS <= 120, best, end))


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "score-collapse")


@pytest.mark.parametrize(
    ("end", "result"),
    [
        (0.1, Severity.CRITICAL),
        (0.39, Severity.CRITICAL),  # 51 % of 0.8 is gone
        (0.41, Severity.WARNING),  # 49 %
        (0.59, Severity.WARNING),  # 26 %
        (0.61, Excluded),  # 24 %
        (0.8, Excluded),
        (0.9, Excluded),
    ],
)
def test_severity_follows_the_share_that_is_gone(
    make: Any, around: Callable[..., Any], end: float, result: Severity | type
) -> None:
    found = FINDING.check(make(reward=around(fallen(0.8, end), 0.001)))
    if not isinstance(result, Severity):
        assert isinstance(found, result)
        return
    assert isinstance(found, Finding)
    check_outcome(found, "score-collapse")
    assert (found.severity, found.confidence) == (result, "strong")


def test_when_by_how_much_and_back_to_where(make: Any) -> None:
    found = FINDING.check(make(reward=fallen(0.8, 0.2, start=0.3)))
    assert isinstance(found, Finding)
    assert found.headline == "The score has fallen from 0.8 to 0.2 since step 121: 75% of its best is gone."
    best, now, fall = found.evidence[:3]
    assert (best.value.value, now.value.value, fall.value.value) == pytest.approx((0.8, 0.2, 0.6))  # type: ignore[union-attr]
    assert now.note == "steps 141 to 160"
    action = found.prescriptions[0].action
    assert action.startswith("Go back to the last checkpoint up to step ")
    assert 41 <= int(action.rpartition(" ")[2]) <= 120
    assert "of the run, made it worse." in found.cost


def test_what_excludes_it_is_the_most_that_may_be_gone(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(make(reward=around(fallen(0.8, 0.76), 0.01)))
    assert isinstance(found, Excluded)
    check_outcome(found, "score-collapse")
    # 0.04 of 0.8 is 5 %, a little more for the choice of the best stretch and the noise.
    assert found.because.startswith("the end lies at most ")
    assert 5 <= int(found.because.removeprefix("the end lies at most ").partition("%")[0]) <= 8


def test_noise_that_hides_a_fall_is_undecided(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(make(reward=around(np.where(STEPS <= 120, 0.5, 0.42), 0.4)[::4]))
    assert isinstance(found, CannotTell)
    check_outcome(found, "score-collapse")
    assert found.undecided


@pytest.mark.parametrize(
    ("start", "best", "end", "severity"),
    [
        (-4.0, -1.0, -3.7, Severity.CRITICAL),  # 2.7 of the way of 3
        (-4.0, -1.0, -2.0, Severity.WARNING),  # 1 of 3
        (-4.0, -1.0, -1.5, None),  # 0.5 of 3
        (-1.0, -1.0, -2.0, Severity.CRITICAL),  # the whole level once more
        (-0.5, 0.5, -0.2, Severity.CRITICAL),
    ],
)
def test_scores_below_zero(
    make: Any, around: Callable[..., Any], start: float, best: float, end: float, severity: Severity | None
) -> None:
    found = FINDING.check(make(reward=around(fallen(best, end, start=start), 0.005)))
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    assert found.severity is severity


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e6])
def test_the_scale_of_the_score_does_not_matter(make: Any, around: Callable[..., Any], scale: float) -> None:
    found = FINDING.check(make(reward=scale * around(fallen(0.8, 0.3, start=0.2), 0.001)))
    assert isinstance(found, Finding)
    assert found.severity is Severity.CRITICAL
    assert ": 63% of its best is gone." in found.headline


def test_a_reward_of_zero_or_one_at_each_step(make: Any) -> None:
    rng = np.random.default_rng(0)
    chances = np.where(np.arange(240) < 160, 0.9, 0.2)
    found = FINDING.check(make(reward=(rng.random(240) < chances).astype(np.float64)))
    assert isinstance(found, Finding)
    for fact in found.evidence[:2]:
        assert 0 <= fact.value.low <= fact.value.high <= 1  # type: ignore[union-attr]


def test_a_fall_that_came_back_is_excluded_and_a_second_one_is_a_note(make: Any, around: Callable[..., Any]) -> None:
    back = np.where((STEPS > 50) & (STEPS <= 80), 0.2, 0.8)
    assert isinstance(FINDING.check(make(reward=around(back, 0.01))), Excluded)
    again = FINDING.check(make(reward=around(np.where(STEPS > 130, 0.2, back), 0.01)))
    assert isinstance(again, Finding)
    assert (again.severity, again.confidence) == (Severity.NOTE, "likely")
    assert any(fact.value == "it was as low before, and came back" for fact in again.evidence)


def test_a_run_that_explodes_dies_and_freezes_is_told_in_order(make: Any, around: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    entropy = np.where(STEPS <= 40, 0.5, np.where(STEPS <= 80, 3.0, 0.01)) * np.exp(rng.normal(0, 0.02, 160))
    reward = around(np.where(STEPS <= 60, 0.6, 0.02), 0.01)
    entropy[100:], reward[100:] = 0.01, 0.0
    evidence = make(entropy=entropy, reward=reward)
    found = FINDING.check(evidence)
    assert isinstance(found, Finding)
    assert found.severity is Severity.CRITICAL
    facts = {fact.name: fact.value for fact in found.evidence}
    assert facts["what happened"] == (
        "entropy rose past 2 times its start at step 41, then the score fell at step 61, then entropy fell below 50% of"
        " its start at step 81, then nothing moves since step 101"
    )
    assert facts["moved before it fell"] == "entropy rose past 2 times its start at step 41"
    # Entropy that exploded first has not collapsed: more of it would be no remedy.
    assert isinstance(ENTROPY_COLLAPSE.check(evidence), Excluded)


def test_accuracy_that_falls_under_a_rising_reward_is_found(make: Any, around: Callable[..., Any]) -> None:
    found = FINDING.check(make(reward=around(0.2 + STEPS / 200, 0.01), accuracy=around(fallen(0.6, 0.2), 0.01, 1)))
    assert isinstance(found, Finding)
    assert found.evidence[0].note.startswith("accuracy, steps ")


def test_what_is_missing_is_named(make: Any) -> None:
    missing = FINDING.check(make(entropy=np.full(40, 0.5)))
    assert isinstance(missing, CannotTell)
    assert missing.missing == "reward is not logged"
    assert not missing.undecided
    few = FINDING.check(make(reward=np.arange(7.0)))
    assert isinstance(few, CannotTell)
    assert "7 usable points" in few.missing
    assert FINDING.check(Evidence("a configuration")) is None
