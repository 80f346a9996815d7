"""Several points become one finding: the gravest decides, each action is said once."""

from __future__ import annotations

from breadth.doctor.finding import Prescription
from breadth.doctor.lint.points import Point, headline, proof, remedies_of, severity
from breadth.report.sections import Severity

ONE, TWO = Prescription("Do one", "Because."), Prescription("Do two", "Because.")
POINTS = [
    Point("a=1", "idle", False, TWO),
    Point("b=2", "off", True, ONE),
    Point("c=3", "off", True, ONE),
    Point("d=4", "x", False),
]


def test_the_gravest_decides_and_is_named_first() -> None:
    assert severity(POINTS) is Severity.WARNING
    assert severity([POINTS[0]]) is Severity.NOTE
    assert (
        headline(POINTS, "setting", "does nothing", "do nothing") == "4 settings do nothing: b=2; c=3; a=1 and 1 more."
    )
    assert headline(POINTS[:1], "setting", "does nothing", "do nothing") == "1 setting does nothing: a=1."


def test_proof_and_remedies() -> None:
    assert [(fact.name, fact.value) for fact in proof(POINTS[:2])] == [("a=1", "idle"), ("b=2", "off")]
    assert remedies_of(POINTS) == (ONE, TWO)
