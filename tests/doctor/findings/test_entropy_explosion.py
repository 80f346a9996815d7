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


def rollouts_with(entropy_of_cut: float) -> dict[int, dict[str, Any]]:
    """Twenty steps; half of the rollouts are truncated, three times as long, and have the given entropy; others 1."""
    rows = {
        "problem": [f"p{place % 20}" for place in range(40)],
        "truncated": [place < 20 for place in range(40)],
        "entropy": [[entropy_of_cut] * 9 if place < 20 else [1.0] * 3 for place in range(40)],
    }
    return dict.fromkeys(range(1, 21), rows)


@pytest.mark.parametrize(
    ("of_cut", "end", "masked", "leads"),
    [(3.0, 0.8, False, True), (1.05, 0.8, False, False), (3.0, 0.1, False, False), (3.0, 0.8, True, False)],
)
def test_truncated_rollouts_that_carry_the_entropy_are_named_and_masked_first(
    make: Any, around: Callable[..., Any], of_cut: float, end: float, masked: bool, leads: bool
) -> None:
    found = FINDING.check(
        make(
            entropy=around(0.5 * 5**T, 0.01),
            reward=around(FALLING, 0.02, 1),
            truncated=np.clip(around(0.1 + (end - 0.1) * T, 0.01, 2), 0, 1),
            config=TrainerConfig(mask_truncated=masked, entropy_bonus=0.01),
            rollouts=rollouts_with(of_cut),
        )
    )
    assert isinstance(found, Finding)
    check_outcome(found, "entropy-explosion")
    ratios = [fact.value for fact in found.evidence if "truncated" in fact.name]
    assert [ratio.value for ratio in ratios] == pytest.approx([3.0] if leads else [])  # type: ignore[union-attr]
    changes = [remedy.changes for remedy in found.prescriptions if remedy.changes]  # the score fell: go back first
    mask = (Change("mask_truncated", True),)
    assert (changes[0] == mask) is leads
    assert changes.count(mask) == (not masked and end > 0.5)


@pytest.mark.parametrize(("end", "found"), [(1.35, False), (1.75, True)])
def test_a_sure_rise_by_half_as_much_again_is_reported(
    make: Any, around: Callable[..., Any], end: float, found: bool
) -> None:
    entropy = around(np.linspace(1.0, end, 60), 0.1)
    outcome = FINDING.check(make(entropy=entropy, reward=around(np.full(60, 0.4), 0.02)))
    assert isinstance(outcome, Finding) == found
