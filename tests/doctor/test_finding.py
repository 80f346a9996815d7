"""Severities have an order, and the worst counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.base.errors import CatalogueError
from breadth.doctor import findings
from breadth.doctor.finding import (
    FINDING_SEVERITIES,
    FINDINGS,
    INFERENCE_FINDINGS,
    Finding,
    explain_finding,
    list_findings,
    worst_severity,
)
from breadth.report.sections import Facts, Severity, Text
from breadth.testing.findings import check_finding


def said(severity: Severity) -> Finding:
    return Finding("x", severity, "strong", "training", "1.", (), "")


def test_the_worst_of_several_and_of_none() -> None:
    assert [one.value for one in FINDING_SEVERITIES] == ["critical", "warning", "note"]
    assert worst_severity([said(Severity.NOTE), said(Severity.CRITICAL), said(Severity.WARNING)]) is Severity.CRITICAL
    assert worst_severity([]) is None


LOOPS = {"training", "inference", "both", "configuration"}


@pytest.mark.parametrize(
    "name",
    FINDINGS.names(),
)
def test_each_keeps_the_contract(name: str) -> None:
    check = FINDINGS.load(name)
    check_finding(check, name)
    assert check.loop in LOOPS
    assert (check.loop in ("inference", "both")) == (name in INFERENCE_FINDINGS)
    assert set(check.causes) <= set(FINDINGS.names()) - {name}


def test_every_file_is_in_the_catalogue() -> None:
    files = {path.stem for path in Path(findings.__file__).parent.glob("*.py")} - {"__init__"}
    assert {name.replace("-", "_") for name in FINDINGS.entries} == files


@pytest.mark.parametrize("name", FINDINGS.names())
def test_every_finding_explains_itself_and_its_constants(name: str) -> None:
    page = explain_finding(name)
    assert isinstance(page.sections[0], Text)
    assert len(page.sections[0].text) > 60
    constants = [
        section for section in page.sections if isinstance(section, Facts) and section.title.startswith("Constants")
    ]
    assert all(fact.note for section in constants for fact in section.facts)


def test_all_are_listed_and_a_misspelling_is_helped() -> None:
    (facts,) = list_findings().sections
    assert isinstance(facts, Facts)
    assert [fact.name for fact in facts.facts] == list(FINDINGS.names())
    with pytest.raises(CatalogueError, match="entropy-collapse"):
        explain_finding("entropy-colapse")
