"""A diagnosis for machines: one JSON object, whose keys stay what they are while ``schema`` does.

``{"schema": 1, "findings": [...], "cannot_tell": [...], "checked": [...], "used": [...], "unused": [...]}``. Every
entry of the first three names its ``run``. A finding has name, severity (critical, warning, note), confidence (certain,
strong, likely), loop (training, inference, both, configuration), headline, evidence (name, value, unit, note; a value
with an interval is an object of value, low, high), cost, disproof, explained_by and prescriptions (action, why,
side_effect, source, changes by our names, and patch: lines in the user's dialect).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from breadth.doctor.diagnosis import Diagnosis
from breadth.doctor.finding import Finding, Prescription
from breadth.doctor.gathering import Gathered
from breadth.doctor.words.wording import patch
from breadth.report.jsonable import jsonable

SCHEMA = 1
"""Raised when a key changes its meaning or goes."""


def as_table(diagnoses: Sequence[Diagnosis], gathered: Gathered) -> dict[str, Any]:
    """Return everything as JSON can hold it."""
    return {
        "schema": SCHEMA,
        "findings": [_finding(finding, one) for one in diagnoses for finding in one.findings],
        "cannot_tell": [
            {"run": one.evidence.name, "name": unsure.name, "missing": unsure.missing, "switch_on": unsure.switch_on}
            for one in diagnoses
            for unsure in one.cannot_tell
        ],
        "checked": [{"run": one.evidence.name, "names": list(one.checked)} for one in diagnoses],
        "used": list(gathered.used),
        "unused": [{"file": one.file, "reason": one.problem, "remedy": one.remedy} for one in gathered.unused],
    }


def _finding(finding: Finding, one: Diagnosis) -> dict[str, Any]:
    return {
        "run": one.evidence.name,
        "name": finding.name,
        "severity": finding.severity.value,
        "confidence": finding.confidence,
        "loop": finding.loop,
        "headline": finding.headline,
        "evidence": [jsonable(fact) for fact in finding.evidence],
        "cost": finding.cost,
        "disproof": finding.disproof,
        "explained_by": list(finding.explained_by),
        "prescriptions": [_prescription(prescription, finding, one) for prescription in finding.prescriptions],
    }


def _prescription(prescription: Prescription, finding: Finding, one: Diagnosis) -> dict[str, Any]:
    return {
        "action": prescription.action,
        "why": prescription.why,
        "side_effect": prescription.side_effect,
        "source": prescription.source,
        "changes": [{"knob": change.knob, "value": change.value} for change in prescription.changes],
        "patch": list(patch(prescription, finding, one.evidence)),
    }
