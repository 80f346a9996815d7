"""A diagnosis as a page: the verdict first, then the proof and the patch of every finding, then what cannot be told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from breadth.doctor.diagnosis import Diagnosis
from breadth.doctor.finding import Finding, Prescription, worst
from breadth.doctor.gathering import Gathered
from breadth.doctor.instruments.metrics import curves
from breadth.doctor.words.wording import patch, speakers
from breadth.report.cells import Cell
from breadth.report.plaintext import counted
from breadth.report.sections import Column, Fact, Facts, Listing, Page, Section, Severity, Table, Verdict

WIDTH = 74
"""Columns of a comment in a patch: what fits a page and a terminal of eighty."""
DRAWN = ("entropy", "reward")
"""Metrics that are drawn beside what was found, where one run is looked at."""


def doctor_page(diagnoses: Sequence[Diagnosis], gathered: Gathered) -> Page:
    """Put what was found in one run or several on a page."""
    several = len(diagnoses) > 1
    sections: list[Section] = [_overview(diagnoses)] if several else []
    for one in diagnoses:
        sections += _case(one, several=several)
    title = "Diagnosis" if several else f"Diagnosis of {diagnoses[0].evidence.name}"
    used = [Fact("read", line) for line in gathered.used[:12]]
    used += [Fact("read", f"and {len(gathered.used) - 12} more")] if len(gathered.used) > 12 else []
    left = [
        Fact("not read", f"{one.file.rpartition('/')[2]} {one.problem}", note=one.remedy) for one in gathered.unused[:6]
    ]
    left += [Fact("not read", f"and {len(gathered.unused) - 6} more files")] if len(gathered.unused) > 6 else []
    return Page(title, sections, provenance=[*used, *left])


def _overview(diagnoses: Sequence[Diagnosis]) -> Table:
    rows: list[list[Cell]] = []
    for one in diagnoses:
        severity = worst(one.findings)
        nothing = "nothing found" if tells_enough(one) else "cannot tell"
        rows.append([one.evidence.name, nothing if severity is None else severity.value, ", ".join(_names(one)) or "-"])
    return Table("All runs", [Column("run"), Column("worst"), Column("findings")], rows)


def _names(one: Diagnosis) -> list[str]:
    return [finding.name for finding in one.findings]


def _case(one: Diagnosis, *, several: bool) -> Iterator[Section]:
    prefix = f"{one.evidence.name}: " if several else ""
    if not one.findings:
        yield _nothing(one, prefix)
    if len(one.findings) > 1:
        yield from _in_short(one, prefix)
    for finding in one.findings:
        yield _verdict(finding, prefix)
        if finding.prescriptions:
            yield _patch(finding, one, prefix)
    if one.findings and one.evidence.run is not None and not several:
        yield from curves(one.evidence.run, DRAWN)
    if one.cannot_tell:
        yield Facts(f"{prefix}Cannot tell", _unsure(one))
    if one.clear and one.findings:
        yield Facts(f"{prefix}Not found", [Fact("looked for, not there", ", ".join(one.clear))])


def _in_short(one: Diagnosis, prefix: str) -> Iterator[Section]:
    """Say what to know in ten seconds: the finding at the root, the others by name, and the first thing to do."""
    lead = leading(one.findings)
    others = [f"{finding.name} ({finding.severity.value})" for finding in one.findings if finding is not lead]
    yield Verdict(
        lead.severity,
        f"{prefix}{lead.headline}",
        f"{lead.name}. Also found: {', '.join(others)}. Proof and patches follow.",
    )
    if lead.prescriptions:
        first = lead.prescriptions[0]
        yield Listing(f"{prefix}What to do first", "\n".join([f"# {first.action}", *patch(first, lead, one.evidence)]))


def leading(findings: Sequence[Finding]) -> Finding:
    """Return the worst finding that no other found here explains; the worst of all where each is explained."""
    return next((one for one in findings if not one.explained_by), findings[0])


def _nothing(one: Diagnosis, prefix: str) -> Verdict:
    if not one.clear:
        return Verdict(
            Severity.CANNOT_TELL, f"{prefix}Nothing can be told from this.", "No check had what it needs; see below."
        )
    if not tells_enough(one):
        made = f"Nothing found in {counted(len(one.clear), 'check')}, and {len(one.cannot_tell)} could not be made"
        return Verdict(
            Severity.CANNOT_TELL,
            f"{prefix}Most checks lack what they need to tell.",
            f"{made}; see below for what is missing.",
        )
    unsure = f" {counted(len(one.cannot_tell), 'check')} could not be made." if one.cannot_tell else ""
    return Verdict(
        Severity.GOOD,
        f"{prefix}Nothing found in {counted(len(one.clear), 'check')}.{unsure}",
        f"Looked for {', '.join(one.clear)}.",
    )


def tells_enough(one: Diagnosis) -> bool:
    """Say whether the checks that were made outnumber those that could not be: else finding nothing is no good news."""
    return len(one.clear) >= len(one.cannot_tell)


def _verdict(finding: Finding, prefix: str) -> Verdict:
    causes = f"It may come from {' or '.join(finding.explained_by)}, found here too." if finding.explained_by else ""
    body = [finding.cost, causes, f"What would disprove it: {finding.disproof}"]
    numbers = [
        *finding.evidence,
        Fact("finding", f"{finding.name}, {finding.confidence}", note="breadth doctor --explain " + finding.name),
    ]
    return Verdict(finding.severity, prefix + finding.headline, "\n\n".join(part for part in body if part), numbers)


def _patch(finding: Finding, one: Diagnosis, prefix: str) -> Listing:
    speaking = ", ".join(dialect.trainer for dialect in speakers(finding, one.evidence))
    lines: list[str] = []
    for number, prescription in enumerate(finding.prescriptions, 1):
        lines += _worded(number, prescription, finding, one)
    unknown = not speaking and finding.loop == "training" and any(one.changes for one in finding.prescriptions)
    note = (
        "Which trainer this is, is not known: give its configuration too, and settings are named in its words."
        if unknown
        else ""
    )
    words = f" for {speaking}" if speaking else ""
    return Listing(f"{prefix}What to do about {finding.name}{words}, in this order", "\n".join(lines).rstrip(), note)


def _worded(number: int, prescription: Prescription, finding: Finding, one: Diagnosis) -> Iterator[str]:
    from textwrap import wrap

    said = f"{number}. {prescription.action}. {prescription.why}"
    said += f" But: {prescription.side_effect}" if prescription.side_effect else ""
    said += f" [{prescription.source}]" if prescription.source else ""
    yield from (f"# {line}" for line in wrap(said, WIDTH))
    yield from patch(prescription, finding, one.evidence)
    yield ""


def _unsure(one: Diagnosis) -> list[Fact]:
    """List what cannot be told, findings that lack the same together."""
    lacking: dict[tuple[str, str], list[str]] = {}
    for unsure in one.cannot_tell:
        lacking.setdefault((unsure.missing, unsure.switch_on), []).append(unsure.name)
    return [Fact(", ".join(names), missing, note=_switch(setting)) for (missing, setting), names in lacking.items()]


def _switch(setting: str) -> str:
    return f"to see it: {setting}" if setting else ""
