"""The contract catches what it promises to catch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import CannotTell, CheckResult, Finding, Loop
from breadth.report.sections import Fact, Severity
from breadth.testing.findings import check_finding, check_outcome

FOUND = Finding(
    "mine", Severity.WARNING, "strong", "training", "It is 3 times as bad.", (Fact("x", 3.0),), "It is not."
)


@dataclass(frozen=True)
class Quiet:
    """Finds nothing."""

    loop: ClassVar[Loop] = "training"
    causes: ClassVar[tuple[str, ...]] = ()
    limit: float = 1.0
    """Reason."""

    def check(self, evidence: Evidence) -> CheckResult:
        return None


@dataclass(frozen=True)
class Bare(Quiet):
    """Has a constant without a reason."""

    bare: float = 1.0


@dataclass(frozen=True)
class Jumpy(Quiet):
    """Finds something in noise."""

    limit: float = 1.0
    """Reason."""

    def check(self, evidence: Evidence) -> CheckResult:
        return FOUND if evidence.run is not None else None


def test_what_is_sound_passes() -> None:
    check_finding(Quiet(), "mine")
    check_outcome(FOUND, "mine")
    check_outcome(CannotTell("mine", "a log"), "mine")


def test_what_is_not_is_named() -> None:
    with pytest.raises(AssertionError, match="bare"):
        check_finding(Bare(), "mine")
    with pytest.raises(AssertionError, match="noise around a constant"):
        check_finding(Jumpy(), "mine")
    with pytest.raises(AssertionError, match="calls itself"):
        check_outcome(FOUND, "other")
