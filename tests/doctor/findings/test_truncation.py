"""Truncation is told by the share of completions truncated now, with an interval, not by a single bad step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence.run_course import length_cap
from breadth.doctor.finding import CannotTell, Change, Excluded, Finding
from breadth.doctor.findings.truncation import FINDING
from breadth.doctor.trainer_config import TrainerConfig
from breadth.report.sections import Severity
from breadth.testing.findings import check_finding, check_outcome

T = np.linspace(0, 1, 120)


def test_it_keeps_the_contract() -> None:
    check_finding(FINDING, "truncation")


@pytest.mark.parametrize(
    ("start", "end", "severity"),
    [
        (0.0, 0.6, Severity.CRITICAL),
        (0.4, 0.4, Severity.CRITICAL),
        (0.0, 0.2, Severity.WARNING),
        (0.0, 0.06, None),
        (0.5, 0.0, Severity.NOTE),  # a peak that has passed
    ],
)
def test_severity_follows_the_share_now(
    make: Any, around: Callable[..., Any], start: float, end: float, severity: Severity | None
) -> None:
    found = FINDING.check(make(truncated=np.clip(around(start + (end - start) * T, 0.01), 0, 1)))
    if severity is None:
        assert isinstance(found, Excluded)
        return
    assert isinstance(found, Finding)
    check_outcome(found, "truncation")
    assert found.severity is severity
    assert ("up from" in found.headline) == (end > start)


def test_a_single_bad_step_is_none(make: Any) -> None:
    assert isinstance(FINDING.check(make(truncated=[0.0] * 50 + [1.0])), Excluded)


def test_the_cap_is_doubled_in_the_users_words_and_the_cost_counted(make: Any) -> None:
    found = FINDING.check(
        make(truncated=np.full(40, 0.25), config=TrainerConfig(max_completion_length=512, mask_truncated=True))
    )
    assert isinstance(found, Finding)
    assert [one.changes for one in found.prescriptions] == [(Change("max_completion_length", 1024),)]
    assert found.cost == "Over the whole run 25% of the rollouts were truncated."


def test_where_nearly_all_are_cut_masking_them_would_leave_nothing(make: Any) -> None:
    for share, masked in ((0.7, True), (0.9, False)):
        found = FINDING.check(make(truncated=np.full(40, share), length_max=np.full(40, 96.0)))
        assert isinstance(found, Finding)
        cap, *rest = [one.changes for one in found.prescriptions]
        assert cap == (Change("max_completion_length", 192),)  # no settings: the longest completion logged, doubled
        assert rest == ([(Change("mask_truncated", True),)] if masked else [])


@pytest.mark.parametrize(
    ("logged", "cap"),
    [
        ({"length_cap": np.full(40, 512.0), "length_max": np.full(40, 96.0)}, 512.0),
        ({"length_max": np.r_[np.full(20, 60.0), np.full(20, 96.0)]}, 96.0),
        ({"length_max": np.arange(40.0)}, None),  # still grows: no cap has been reached
        ({"length": np.r_[np.arange(30.0), np.full(10, 64.0)]}, 64.0),
        ({}, None),
    ],
)
def test_the_cap_is_read_off_the_log_where_the_settings_are_not_known(
    make: Any, logged: dict[str, Any], cap: float | None
) -> None:
    assert length_cap(make(reward=T, **logged)) == cap


def test_without_the_share_it_cannot_tell(make: Any) -> None:
    assert isinstance(FINDING.check(make(reward=T)), CannotTell)


@pytest.mark.parametrize(("length", "is_excluded"), [(500.0, True), (800.0, False)])
def test_a_mean_length_far_below_the_cap_excludes_it(make: Any, length: float, is_excluded: bool) -> None:
    found = FINDING.check(make(length=np.full(40, length), config=TrainerConfig(max_completion_length=1024)))
    assert isinstance(found, Excluded if is_excluded else CannotTell)
    if isinstance(found, CannotTell):
        assert "up to 78% of the completions may be cut" in found.missing  # 800 of 1,024, by Markov's inequality
        assert not found.undecided
