"""Severities have an order, and the worst counts."""

from __future__ import annotations

from breadth.doctor.finding import SEVERITIES, Finding, worst
from breadth.report.sections import Severity


def said(severity: Severity) -> Finding:
    return Finding("x", severity, "strong", "training", "1.", (), "")


def test_the_worst_of_several_and_of_none() -> None:
    assert [one.value for one in SEVERITIES] == ["critical", "warning", "note"]
    assert worst([said(Severity.NOTE), said(Severity.CRITICAL), said(Severity.WARNING)]) is Severity.CRITICAL
    assert worst([]) is None
