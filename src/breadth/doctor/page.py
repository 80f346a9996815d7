"""A diagnosis as a page: the verdict first, then the proof and the patch of every finding, then what cannot be told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from breadth.doctor.collect import CollectedEvidence
from breadth.doctor.diagnosis import RunDiagnosis
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.finding import Finding, Prescription, worst_severity
from breadth.doctor.overview import metric_curves
from breadth.doctor.trainer_config import ConfigDialect, dialect_of
from breadth.report.cells import Cell
from breadth.report.jsonable import to_jsonable
from breadth.report.plaintext import pluralize
from breadth.report.sections import Column, Fact, Facts, Listing, Page, Section, Severity, Table, Verdict

COMMENT_WIDTH = 74
"""Columns of a comment in a patch: what fits a page and a terminal of eighty."""
PAGE_METRICS = ("entropy", "reward")
"""Metrics that are drawn beside what was found, where one run is looked at."""


def doctor_page(diagnoses: Sequence[RunDiagnosis], gathered: CollectedEvidence) -> Page:
    """Put what was found in one run or several on a page."""
    several = len(diagnoses) > 1
    sections: list[Section] = [run_table(diagnoses)] if several else []
    for one in diagnoses:
        sections += run_sections(one, several=several)
    title = "Diagnosis" if several else f"Diagnosis of {diagnoses[0].evidence.name}"
    used = [Fact("read", line) for line in gathered.used[:12]]
    used += [Fact("read", f"and {len(gathered.used) - 12} more")] if len(gathered.used) > 12 else []
    left = [
        Fact("not read", f"{one.file.rpartition('/')[2]} {one.problem}", note=one.remedy) for one in gathered.unused[:6]
    ]
    left += [Fact("not read", f"and {len(gathered.unused) - 6} more files")] if len(gathered.unused) > 6 else []
    return Page(title, sections, provenance=[*used, *left])


def run_table(diagnoses: Sequence[RunDiagnosis]) -> Table:
    rows: list[list[Cell]] = []
    for one in diagnoses:
        severity = worst_severity(one.findings)
        nothing = "nothing found" if is_conclusive(one) else "cannot tell"
        rows.append([one.evidence.name, nothing if severity is None else severity.value, ", ".join(_names(one)) or "-"])
    return Table("All runs", [Column("run"), Column("worst"), Column("findings")], rows)


def _names(one: RunDiagnosis) -> list[str]:
    return [finding.name for finding in one.findings]


def run_sections(one: RunDiagnosis, *, several: bool) -> Iterator[Section]:
    prefix = f"{one.evidence.name}: " if several else ""
    if not one.findings:
        yield no_finding_verdict(one, prefix)
    if len(one.findings) > 1:
        yield from summary_sections(one, prefix)
    for finding in one.findings:
        yield finding_verdict(finding, prefix)
        if finding.prescriptions:
            yield patch_listing(finding, one, prefix)
    if one.findings and one.evidence.run is not None and not several:
        yield from metric_curves(one.evidence.run, PAGE_METRICS)
    if one.cannot_tell:
        yield Facts(f"{prefix}Cannot tell", cannot_tell_facts(one))
    if one.clear and one.findings:
        yield Facts(f"{prefix}Not found", [Fact("looked for, not there", ", ".join(one.clear))])


def summary_sections(one: RunDiagnosis, prefix: str) -> Iterator[Section]:
    """Say what to know in ten seconds: the finding at the root, the others by name, and the first thing to do."""
    lead = lead_finding(one.findings)
    others = [f"{finding.name} ({finding.severity.value})" for finding in one.findings if finding is not lead]
    yield Verdict(
        lead.severity,
        f"{prefix}{lead.headline}",
        f"{lead.name}. Also found: {', '.join(others)}. Proof and patches follow.",
    )
    if lead.prescriptions:
        first = lead.prescriptions[0]
        yield Listing(
            f"{prefix}What to do first", "\n".join([f"# {first.action}", *render_patch(first, lead, one.evidence)])
        )


def lead_finding(findings: Sequence[Finding]) -> Finding:
    """Return the worst finding that no other found here explains; the worst of all where each is explained."""
    return next((one for one in findings if not one.explained_by), findings[0])


def no_finding_verdict(one: RunDiagnosis, prefix: str) -> Verdict:
    if not one.clear:
        return Verdict(
            Severity.CANNOT_TELL, f"{prefix}Nothing can be told from this.", "No check had what it needs; see below."
        )
    if not is_conclusive(one):
        made = f"Nothing found in {pluralize(len(one.clear), 'check')}, and {len(one.cannot_tell)} could not be made"
        return Verdict(
            Severity.CANNOT_TELL,
            f"{prefix}Most checks lack what they need to tell.",
            f"{made}; see below for what is missing.",
        )
    unsure = f" {pluralize(len(one.cannot_tell), 'check')} could not be made." if one.cannot_tell else ""
    return Verdict(
        Severity.GOOD,
        f"{prefix}Nothing found in {pluralize(len(one.clear), 'check')}.{unsure}",
        f"Looked for {', '.join(one.clear)}.",
    )


def is_conclusive(one: RunDiagnosis) -> bool:
    """Say whether the checks that were made outnumber those that could not be: else finding nothing is no good news."""
    return len(one.clear) >= len(one.cannot_tell)


def finding_verdict(finding: Finding, prefix: str) -> Verdict:
    causes = f"It may come from {' or '.join(finding.explained_by)}, found here too." if finding.explained_by else ""
    body = [finding.cost, causes, f"What would disprove it: {finding.disproof}"]
    numbers = [
        *finding.evidence,
        Fact("finding", f"{finding.name}, {finding.confidence}", note="breadth doctor --explain " + finding.name),
    ]
    return Verdict(finding.severity, prefix + finding.headline, "\n\n".join(part for part in body if part), numbers)


def patch_listing(finding: Finding, one: RunDiagnosis, prefix: str) -> Listing:
    speaking = ", ".join(dialect.trainer for dialect in dialects_for(finding, one.evidence))
    lines: list[str] = []
    for number, prescription in enumerate(finding.prescriptions, 1):
        lines += prescription_lines(number, prescription, finding, one)
    unknown = not speaking and finding.loop == "training" and any(one.changes for one in finding.prescriptions)
    note = (
        "Which trainer this is, is not known: give its configuration too, and settings are named in its words."
        if unknown
        else ""
    )
    words = f" for {speaking}" if speaking else ""
    return Listing(f"{prefix}What to do about {finding.name}{words}, in this order", "\n".join(lines).rstrip(), note)


def prescription_lines(number: int, prescription: Prescription, finding: Finding, one: RunDiagnosis) -> Iterator[str]:
    from textwrap import wrap

    said = f"{number}. {prescription.action}. {prescription.why}"
    said += f" But: {prescription.side_effect}" if prescription.side_effect else ""
    said += f" [{prescription.source}]" if prescription.source else ""
    yield from (f"# {line}" for line in wrap(said, COMMENT_WIDTH))
    yield from render_patch(prescription, finding, one.evidence)
    yield ""


def cannot_tell_facts(one: RunDiagnosis) -> list[Fact]:
    """List what cannot be told, findings that lack the same together."""
    lacking: dict[tuple[str, str], list[str]] = {}
    for unsure in one.cannot_tell:
        lacking.setdefault((unsure.missing, unsure.switch_on), []).append(unsure.name)
    return [Fact(", ".join(names), missing, note=_switch(setting)) for (missing, setting), names in lacking.items()]


def _switch(setting: str) -> str:
    return f"to see it: {setting}" if setting else ""


SCHEMA = 1
"""Raised when a key changes its meaning or goes."""


def to_json(diagnoses: Sequence[RunDiagnosis], gathered: CollectedEvidence) -> dict[str, Any]:
    """Return everything as JSON can hold it."""
    return {
        "schema": SCHEMA,
        "findings": [finding_json(finding, one) for one in diagnoses for finding in one.findings],
        "cannot_tell": [
            {"run": one.evidence.name, "name": unsure.name, "missing": unsure.missing, "switch_on": unsure.switch_on}
            for one in diagnoses
            for unsure in one.cannot_tell
        ],
        "checked": [{"run": one.evidence.name, "names": list(one.conclusive_checks)} for one in diagnoses],
        "used": list(gathered.used),
        "unused": [{"file": one.file, "reason": one.problem, "remedy": one.remedy} for one in gathered.unused],
    }


def finding_json(finding: Finding, one: RunDiagnosis) -> dict[str, Any]:
    return {
        "run": one.evidence.name,
        "name": finding.name,
        "severity": finding.severity.value,
        "confidence": finding.confidence,
        "loop": finding.loop,
        "headline": finding.headline,
        "evidence": [to_jsonable(fact) for fact in finding.evidence],
        "cost": finding.cost,
        "disproof": finding.disproof,
        "explained_by": list(finding.explained_by),
        "prescriptions": [prescription_json(prescription, finding, one) for prescription in finding.prescriptions],
    }


def prescription_json(prescription: Prescription, finding: Finding, one: RunDiagnosis) -> dict[str, Any]:
    return {
        "action": prescription.action,
        "why": prescription.why,
        "side_effect": prescription.side_effect,
        "source": prescription.source,
        "changes": [{"knob": change.setting, "value": change.value} for change in prescription.changes],
        "patch": list(render_patch(prescription, finding, one.evidence)),
    }


def render_patch(prescription: Prescription, finding: Finding, evidence: Evidence) -> tuple[str, ...]:
    """Word the changes of a prescription, a line each; nothing where nobody has a setting for them."""
    lines: list[str] = []
    for dialect in dialects_for(finding, evidence):
        lines += dialect.patch(prescription.changes, evidence.config)
    return tuple(lines)


def dialects_for(finding: Finding, evidence: Evidence) -> tuple[ConfigDialect, ...]:
    """Return whose words are wanted: the trainer's; of inference our policy's, and the server's where it is known."""
    if finding.loop not in ("inference", "both"):
        return () if evidence.dialect is None else (evidence.dialect,)
    server = dialect_of(server_kind(evidence.server))
    policy = dialect_of("policy")
    return tuple(one for one in (policy, server) if one is not None)


def server_kind(found: Mapping[str, object] | None) -> str:
    """Return which server was probed."""
    dialect = {} if found is None else found.get("dialect", {})
    return str(dialect.get("kind", "")) if isinstance(dialect, Mapping) else ""
