"""Stale samples are found by their mean age, against what the correction that is on can bear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Excluded, Finding
from breadth.doctor.findings.stale_samples import FINDING
from breadth.doctor.trainer_config import TrainerConfig
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

T = np.linspace(0, 1, 80)
FLAT = np.full(80, 0.4)


def config(corrects: bool | None) -> TrainerConfig:
    return TrainerConfig(correct_mismatch=corrects, learning_rate=1e-6)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "stale-samples")


@pytest.mark.parametrize(
    ("age", "corrects", "outcome"),
    [
        (12.0, True, Finding),
        (12.0, False, Finding),
        (12.0, None, Finding),
        (5.0, True, Excluded),
        (5.0, False, Finding),
        (5.0, None, CannotTell),
        (1.0, True, Excluded),
        (1.0, False, Excluded),
        (1.0, None, Excluded),
    ],
)
def test_the_limit_depends_on_the_correction(
    make: Any, around: Callable[..., Any], age: float, corrects: bool | None, outcome: type
) -> None:
    result = FINDING.check(
        make(sample_age=around(np.full(80, age), 0.2), reward=around(FLAT, 0.01, 1), config=config(corrects))
    )
    assert isinstance(result, outcome)
    if isinstance(result, Finding):
        check_outcome(result, "stale-samples")
        assert result.severity is Severity.WARNING
        assert ("up to 2 are" in result.headline) == (corrects is False)
        actions = [remedy.action for remedy in result.prescriptions]
        assert any("importance sampling" in action for action in actions) == (not corrects)
    if isinstance(result, CannotTell):
        assert not result.undecided
        assert "importance weights" in result.missing


@pytest.mark.parametrize(
    ("score", "severity"),
    [(0.6 - 0.5 * T, Severity.CRITICAL), (FLAT, Severity.WARNING), (0.3 + 0.4 * T, Severity.NOTE)],
)
def test_severity_follows_the_score(make: Any, around: Callable[..., Any], score: Any, severity: Severity) -> None:
    found = FINDING.check(make(sample_age=around(1 + 15 * T, 0.2), reward=around(score, 0.01, 1), config=config(True)))
    assert isinstance(found, Finding)
    assert found.severity is severity
    assert "up from" in found.headline


def test_an_age_around_the_limit_is_undecided(make: Any, around: Callable[..., Any]) -> None:
    result = FINDING.check(make(sample_age=around(np.full(80, 8.0), 1.0), config=config(True)))
    assert isinstance(result, CannotTell)
    assert result.undecided


def test_the_oldest_sample_alone_only_excludes(make: Any, around: Callable[..., Any]) -> None:
    assert isinstance(FINDING.check(make(sample_age_max=np.full(80, 2.0), config=config(False))), Excluded)
    result = FINDING.check(make(sample_age_max=around(np.full(80, 30.0), 1.0), config=config(False)))
    assert isinstance(result, CannotTell)
    assert "30 updates" in result.missing


def test_both_ages_are_shown(make: Any) -> None:
    found = FINDING.check(make(sample_age=np.full(80, 9.0), sample_age_max=np.full(80, 20.0), config=config(True)))
    assert isinstance(found, Finding)
    assert [fact.name for fact in found.evidence] == [
        "mean age at the start",
        "mean age now",
        "oldest sample now",
        "importance weights",
    ]


def test_a_synchronous_run_is_not_asked(make: Any) -> None:
    assert FINDING.check(make(reward=T)) is None
