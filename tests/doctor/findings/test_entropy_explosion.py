"""An explosion is a sure rise of entropy beside a score that does not follow; a doubling is a warning in any case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.finding import CannotTell, Change, Excluded, Finding
from breadth.doctor.findings.entropy_explosion import FINDING
from breadth.doctor.trainer_config import TrainerConfig
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

T = np.linspace(0, 1, 120)
FLAT, RISING, FALLING = 0.5 + 0 * T, 0.2 + 0.5 * T, 0.7 - 0.5 * T


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "entropy-explosion")


@pytest.mark.parametrize(
    ("times", "score", "severity"),
    [
        (5.0, FALLING, Severity.CRITICAL),
        (5.0, FLAT, Severity.WARNING),
        (5.0, RISING, Severity.WARNING),
        (2.0, FALLING, Severity.WARNING),  # its last eighth is about 1.8 times its first
        (2.0, RISING, Severity.NOTE),
        (1.2, FALLING, None),
        (0.3, FALLING, None),
    ],
)
def test_severity_follows_the_rise_and_the_score(
    make: Any, around: Callable[..., Any], times: float, score: Any, severity: Severity | None
) -> None:
    found = FINDING.check(make(entropy=around(0.5 * times**T, 0.01), reward=around(score, 0.02, 1)))
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    check_outcome(found, "entropy-explosion")
    assert found.severity is severity


def test_without_entropy_it_cannot_tell(make: Any) -> None:
    assert isinstance(FINDING.check(make(reward=FLAT)), CannotTell)


def test_what_is_prescribed_fits_the_settings(make: Any, around: Callable[..., Any]) -> None:
    config = TrainerConfig(
        entropy_bonus=0.01,
        clip_low=0.2,
        clip_high=0.3,
        updates=4,
        engine="vllm",
        correct_mismatch=False,
        learning_rate=3e-6,
    )
    found = FINDING.check(
        make(entropy=around(0.5 * 5**T, 0.01), reward=FLAT, truncated=around(0.3 * T, 0.005), config=config)
    )
    assert isinstance(found, Finding)
    changes = [change for one in found.prescriptions for change in one.changes]
    assert changes == [
        Change("entropy_bonus", 0.001),
        Change("clip_high", 0.2),
        Change("mask_truncated", True),
        Change("correct_mismatch", True),
        Change("learning_rate", 1e-6),
    ]
    quiet = FINDING.check(
        make(
            entropy=around(0.5 * 5**T, 0.01),
            config=TrainerConfig(entropy_bonus=0.0, clip_low=0.2, clip_high=0.2, engine="hf"),
        )
    )
    assert isinstance(quiet, Finding)
    assert not [change for one in quiet.prescriptions for change in one.changes]
