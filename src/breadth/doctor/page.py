"""A diagnosis for people and for scripts.

`doctor_page`: the verdict first, then the proof and the patch of every finding, then the inconclusive checks.

`to_json`: one object whose keys keep their meaning while ``schema`` does: ``{"schema": 1, "findings": [...],
"cannot_tell": [...], "checked": [...], "excluded": [...], "used": [...], "unused": [...]}``. Every entry of the first
four names its ``run``. An inconclusive check has missing, switch_on and undecided (the numbers are there and do not
decide); what is excluded has because, the number that excludes it. A finding has name, severity (critical, warning,
note), confidence (certain, strong, likely), loop (training, inference, both, configuration), headline, evidence (name,
value, unit, note; a value with an interval is an object of value, low, high), cost, disproof, explained_by and
prescriptions (action, why, side_effect, source, changes by our setting names, effect: what
breadth's lab found, or null, and patch: lines in the user's dialect).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from breadth.doctor.collect import CollectedEvidence
from breadth.doctor.diagnosis import RunDiagnosis
from breadth.doctor.evidence.record import MIN_POINTS, Evidence
from breadth.doctor.finding import CannotTell, Finding, Prescription, worst_severity
from breadth.doctor.lab_effects import LAB_EFFECTS, describe_lab_effect
from breadth.doctor.pictures import draw_components, draw_held_out_score, metric_curves
from breadth.doctor.trainer_config import ConfigDialect, dialect_of
from breadth.report.cells import Cell
from breadth.report.jsonable import to_jsonable
from breadth.report.plaintext import pluralize
from breadth.report.sections import Column, Fact, Facts, Listing, Page, Section, Severity, Table, Text, Verdict
from breadth.runs.schema import Remark

COMMENT_WIDTH = 74
"""Columns of a comment in a patch; fits a terminal of eighty."""
PAGE_METRICS = ("entropy", "reward")
"""Metrics drawn on the full page of a single run; the last one on the short page of a run without findings."""
METRIC_OF = {
    "entropy-collapse": "entropy",
    "entropy-explosion": "entropy",
    "unreliable-metric": "entropy",
    "truncation": "truncated",
    "length-collapse": "length",
    "zero-variance-groups": "zero_variance_groups",
    "drift": "kl_reference",
    "train-inference-mismatch": "mismatch",
    "numerical-failure": "grad_norm",
    "template-collapse": "mutual_information",
    "stale-samples": "sample_age",
}
"""Finding -> the metric whose picture shows it; the reward for every other."""
SHOWN_BY = {"overfitting": (draw_held_out_score,), "reward-hacking": (draw_held_out_score, draw_components)}
"""Finding -> what shows it better than a metric: the first of these that was logged."""
SHOWN_INSTEAD = {"truncated": "length", "grad_norm": "loss"}
"""Metric -> the one to show where it was not logged; the reward for every other."""
MAX_SHORT_PATCHES, MAX_SHORT_LINES = 2, 2
"""Prescriptions, and files read and not read, on a short page."""
MAX_DOUBTS = 3
"""Undecided checks that the verdict names."""
MAX_USED_LINES, MAX_UNUSED_LINES = 12, 6
"""Files listed at the end of the page: those that were read, and those that were not."""


def doctor_page(diagnoses: Sequence[RunDiagnosis], collected: CollectedEvidence, *, full: bool = True) -> Page:
    """Show the findings of one or several runs; without ``full`` what fits on a screen or two."""
    several = len(diagnoses) > 1
    sections: list[Section] = [run_table(diagnoses)] if several else []
    for diagnosis in diagnoses:
        sections += run_sections(diagnosis, several=several, full=full)
    title = "Diagnosis" if several else f"Diagnosis of {diagnoses[0].evidence.name}"
    most_used, most_unused = (MAX_USED_LINES, MAX_UNUSED_LINES) if full else (MAX_SHORT_LINES, MAX_SHORT_LINES)
    files = [Fact("read", line) for line in collected.used[:most_used]]
    if (more := len(collected.used) - most_used) > 0:
        files.append(Fact("read", f"and {more} more"))
    return Page(title, sections, provenance=files + list_unused(collected.unused, most_unused))


def list_unused(unused: Sequence[Remark], most: int) -> list[Fact]:
    """Return the files that were not read; those with the same remedy together, for a checkpoint has many."""
    groups: dict[str, list[Remark]] = {}
    for remark in unused:
        groups.setdefault(remark.remedy, []).append(remark)
    facts = []
    for remedy, (first, *others) in list(groups.items())[:most]:
        names = [remark.file.rpartition("/")[2] for remark in (first, *others)]
        rest = f" and {len(others) - 3} more" if len(others) > 3 else ""
        also = f" The same for {', '.join(names[1:4])}{rest}." if others else ""
        facts.append(Fact("not read", f"{names[0]} {first.problem}{also}", note=remedy))
    if (more := sum(map(len, list(groups.values())[most:]))) > 0:
        facts.append(Fact("not read", f"and {pluralize(more, 'more file')}"))
    return facts


def run_table(diagnoses: Sequence[RunDiagnosis]) -> Table:
    """Return one row per run: its worst severity and its findings."""
    rows: list[list[Cell]] = []
    for diagnosis in diagnoses:
        severity = worst_severity(diagnosis.findings)
        nothing = "nothing found" if diagnosis.is_good else "cannot tell"
        names = ", ".join(finding.name for finding in diagnosis.findings)
        rows.append([diagnosis.evidence.name, nothing if severity is None else severity.value, names or "-"])
    return Table("All runs", [Column("run"), Column("worst"), Column("findings")], rows)


def run_sections(diagnosis: RunDiagnosis, *, several: bool, full: bool) -> Iterator[Section]:
    """Yield the sections of one run: verdict, picture, proof, patch; then what else was found, excluded and missing."""
    prefix = f"{diagnosis.evidence.name}: " if several else ""
    if diagnosis.findings:
        yield from render_findings(diagnosis, prefix, several=several, full=full)
    else:
        yield render_no_finding(diagnosis, prefix)
        yield from pictures(diagnosis, PAGE_METRICS if full else PAGE_METRICS[-1:], several=several)
    doubts = diagnosis.inconclusive_checks
    if doubts and (full or diagnosis.findings):
        yield Facts(f"{prefix}Cannot tell", cannot_tell_facts(doubts if full else doubts[:MAX_DOUBTS]))
    if diagnosis.excluded and diagnosis.findings and full:
        facts = [Fact(excluded.name, excluded.because or "nothing of it") for excluded in diagnosis.excluded]
        yield Facts(f"{prefix}Excluded", facts)
    invited = tuple(check for check in diagnosis.cannot_tell if not check.undecided)
    if invited and full:
        yield Facts(f"{prefix}What more data would show", cannot_tell_facts(invited))
    elif not full:
        yield Text(prefix + describe_rest(diagnosis, len(invited)))


def describe_rest(diagnosis: RunDiagnosis, invited: int) -> str:
    """Say what a short page leaves out."""
    excluded = f"Excluded: {', '.join(diagnosis.clear)}. " if diagnosis.findings and diagnosis.clear else ""
    needing = (
        f"{pluralize(invited, 'check')} {'needs' if invited == 1 else 'need'} other data than this. " if invited else ""
    )
    return f"{excluded}{needing}Every number, patch and missing piece: --full."


def render_findings(diagnosis: RunDiagnosis, prefix: str, *, several: bool, full: bool) -> Iterator[Section]:
    """Yield the worst finding with its picture, proof and patch, then the others."""
    lead = lead_finding(diagnosis.findings)
    others = [finding for finding in diagnosis.findings if finding is not lead]
    yield render_verdict(lead, prefix, others)
    yield from lead_pictures(diagnosis, lead.name, several=several, full=full)
    yield Facts(f"{prefix}Proof", [*lead.evidence, Fact("disproof", lead.disproof), explain_fact(lead)])
    if lead.prescriptions and (full or lead.severity is not Severity.NOTE):  # what is only noted can wait
        yield patch_listing(lead, diagnosis, full=full, prefix=prefix)
    for finding in others if full else ():
        yield render_finding(finding, prefix)
        if finding.prescriptions:
            yield patch_listing(finding, diagnosis, full=full, prefix=prefix)
    if others and not full:
        yield Facts(
            f"{prefix}Also found",
            [
                Fact(f"{finding.name} ({finding.severity.value})", finding.headline, note=first_action(finding))
                for finding in others
            ],
        )


def lead_pictures(diagnosis: RunDiagnosis, name: str, *, several: bool, full: bool) -> Sequence[Section]:
    """Return the picture of a finding, and on a full page those of the run."""
    curves = (draw(diagnosis.evidence) for draw in SHOWN_BY.get(name, ()) if not several)
    own = next((curve for curve in curves if curve is not None), None)
    if own is not None and not full:
        return [own]
    metric = METRIC_OF.get(name, "reward")
    return [
        *([] if own is None else [own]),
        *pictures(diagnosis, (metric, *PAGE_METRICS) if full else (metric,), several=several),
    ]


def pictures(diagnosis: RunDiagnosis, names: Sequence[str], *, several: bool) -> Sequence[Section]:
    """Return the curves of a run's metrics; none where several runs share the page.

    A metric that was not logged is shown by what stood in for it: the length for the share of truncated completions.
    """
    evidence = diagnosis.evidence
    if several or evidence.run is None:
        return []
    logged = [evidence.find_stored_name(name) or SHOWN_INSTEAD.get(name, "reward") for name in names]
    return metric_curves(evidence.run, tuple(dict.fromkeys(logged)))


def first_action(finding: Finding) -> str:
    """Return the first thing to do about a finding, as a note."""
    return f"first: {finding.prescriptions[0].action}" if finding.prescriptions else ""


def render_verdict(lead: Finding, prefix: str, others: Sequence[Finding]) -> Verdict:
    """Return the verdict on a run: the headline, what it cost, its causes and what else was found."""
    also = ", ".join(f"{finding.name} ({finding.severity.value})" for finding in others)
    body = [lead.cost, describe_causes(lead), f"Finding: {lead.name}." + (f" Also found: {also}." if also else "")]
    return Verdict(lead.severity, prefix + lead.headline, " ".join(part for part in body if part))


def describe_causes(finding: Finding) -> str:
    """Say which other findings may be the cause of one."""
    causes = " or ".join(finding.explained_by)
    return f"A possible cause is {causes}, also found here." if causes else ""


def explain_fact(finding: Finding) -> Fact:
    """Return where a finding and its thresholds are explained."""
    return Fact("finding", f"{finding.name}, {finding.confidence}", note="breadth doctor --explain " + finding.name)


def lead_finding(findings: Sequence[Finding]) -> Finding:
    """Return the worst finding that no other finding explains; the worst of all where each is explained."""
    return next((finding for finding in findings if not finding.explained_by), findings[0])


def render_no_finding(diagnosis: RunDiagnosis, prefix: str) -> Verdict:
    """Say that nothing was found, or why the numbers do not show that."""
    if not diagnosis.excluded:
        return Verdict(Severity.CANNOT_TELL, f"{prefix}No check could be made.", "Each lacks data it needs.")
    if not diagnosis.is_good:
        doubts = [f"{check.name}: {check.missing}." for check in diagnosis.inconclusive_checks]
        reason = " ".join(doubts[:MAX_DOUBTS]) or explain_missing_score(diagnosis.evidence)
        return Verdict(
            Severity.CANNOT_TELL,
            f"{prefix}Nothing is shown to be wrong, and the numbers do not show that all is well.",
            f"{reason} Excluded: {', '.join(diagnosis.clear)}.",
        )
    return Verdict(
        Severity.GOOD,
        f"{prefix}Nothing found in {pluralize(len(diagnosis.excluded), 'check')}.",
        "Each was looked for, and excluded by the number next to it.",
        [Fact(excluded.name, excluded.because) for excluded in diagnosis.excluded if excluded.because],
    )


def explain_missing_score(evidence: Evidence) -> str:
    """Say why the score decides nothing: it was not logged, or at too few steps."""
    score = evidence.series("reward")
    if score is None or not len(score):
        return "The log holds no score: without one, no run is healthy or not."
    return f"The score was logged at {pluralize(len(score), 'step')}; {MIN_POINTS} are needed to see where it goes."


def render_finding(finding: Finding, prefix: str) -> Verdict:
    """Return a finding with its cost, possible causes, disproof and numbers."""
    body = [finding.cost, describe_causes(finding), f"What would disprove it: {finding.disproof}"]
    return Verdict(
        finding.severity,
        prefix + finding.headline,
        "\n\n".join(part for part in body if part),
        [*finding.evidence, explain_fact(finding)],
    )


def patch_listing(finding: Finding, diagnosis: RunDiagnosis, *, full: bool, prefix: str) -> Listing:
    """Return the prescriptions of a finding with their patches; the first ones on a short page."""
    names = ", ".join(dialect.trainer for dialect in dialects_for(finding, diagnosis.evidence))
    lines: list[str] = []
    shown = finding.prescriptions if full else finding.prescriptions[:MAX_SHORT_PATCHES]
    for number, prescription in enumerate(shown, 1):
        lines += prescription_lines(number, prescription, finding, diagnosis)
    if (more := len(finding.prescriptions) - len(shown)) > 0:
        lines.append(f"# {pluralize(more, 'more thing')} to try: --full")
    unknown = not names and finding.loop == "training" and any(item.changes for item in finding.prescriptions)
    note = "The trainer is not known: add its configuration to get the settings by name." if unknown else ""
    dialects = f" for {names}" if names else ""
    return Listing(f"{prefix}What to do about {finding.name}{dialects}, in this order", "\n".join(lines).rstrip(), note)


def prescription_lines(
    number: int, prescription: Prescription, finding: Finding, diagnosis: RunDiagnosis
) -> Iterator[str]:
    """Yield one prescription as comments, then its patch."""
    from textwrap import wrap

    stop = "" if prescription.action.endswith((".", "?")) else "."
    text = f"{number}. {prescription.action}{stop} {prescription.why}"
    found = describe_lab_effect(prescription.effect)
    text += f" {found}" if found else ""
    text += f" But: {prescription.side_effect}" if prescription.side_effect else ""
    text += f" [{prescription.source}]" if prescription.source else ""
    yield from (f"# {line}" for line in wrap(text, COMMENT_WIDTH))
    yield from render_patch(prescription, finding, diagnosis.evidence)
    yield ""


def cannot_tell_facts(checks: Sequence[CannotTell]) -> list[Fact]:
    """Return the inconclusive checks, those that lack the same in one line."""
    missing_by: dict[tuple[str, str], list[str]] = {}
    for check in checks:
        missing_by.setdefault((check.missing, check.switch_on), []).append(check.name)
    return [
        Fact(", ".join(names), missing, note=f"to see it: {setting}" if setting else "")
        for (missing, setting), names in missing_by.items()
    ]


JSON_SCHEMA = 1
"""Raised when a key changes its meaning or is removed."""


def to_json(diagnoses: Sequence[RunDiagnosis], collected: CollectedEvidence) -> dict[str, Any]:
    """Return the diagnoses as one JSON object."""
    return {
        "schema": JSON_SCHEMA,
        "findings": [encode_finding(finding, diagnosis) for diagnosis in diagnoses for finding in diagnosis.findings],
        "cannot_tell": [
            {
                "run": diagnosis.evidence.name,
                "name": check.name,
                "missing": check.missing,
                "switch_on": check.switch_on,
                "undecided": check.undecided,
            }
            for diagnosis in diagnoses
            for check in diagnosis.cannot_tell
        ],
        "checked": [
            {"run": diagnosis.evidence.name, "names": list(diagnosis.conclusive_checks)} for diagnosis in diagnoses
        ],
        "excluded": [
            {"run": diagnosis.evidence.name, "name": excluded.name, "because": excluded.because}
            for diagnosis in diagnoses
            for excluded in diagnosis.excluded
        ],
        "used": list(collected.used),
        "unused": [
            {"file": remark.file, "reason": remark.problem, "remedy": remark.remedy} for remark in collected.unused
        ],
    }


def encode_finding(finding: Finding, diagnosis: RunDiagnosis) -> dict[str, Any]:
    """Return one finding with its prescriptions as JSON."""
    return {
        "run": diagnosis.evidence.name,
        "name": finding.name,
        "severity": finding.severity.value,
        "confidence": finding.confidence,
        "loop": finding.loop,
        "headline": finding.headline,
        "evidence": [to_jsonable(fact) for fact in finding.evidence],
        "cost": finding.cost,
        "disproof": finding.disproof,
        "explained_by": list(finding.explained_by),
        "prescriptions": [
            encode_prescription(prescription, finding, diagnosis) for prescription in finding.prescriptions
        ],
    }


def encode_prescription(prescription: Prescription, finding: Finding, diagnosis: RunDiagnosis) -> dict[str, Any]:
    """Return one prescription with its patch as JSON."""
    return {
        "action": prescription.action,
        "why": prescription.why,
        "side_effect": prescription.side_effect,
        "source": prescription.source,
        "effect": encode_effect(prescription.effect),
        "changes": [{"setting": change.setting, "value": change.value} for change in prescription.changes],
        "patch": list(render_patch(prescription, finding, diagnosis.evidence)),
    }


def encode_effect(name: str) -> dict[str, Any] | None:
    """Return what the lab found for a remedy; None where it was not measured."""
    if name not in LAB_EFFECTS:
        return None
    effect = LAB_EFFECTS[name]
    found = {"pass@1": effect.pass_at_1, "pass@64": effect.pass_at_64}
    numbers = {key: {"value": change.value, "low": change.low, "high": change.high} for key, change in found.items()}
    return {"remedy": name, "setting": effect.setting, **numbers}


def render_patch(prescription: Prescription, finding: Finding, evidence: Evidence) -> tuple[str, ...]:
    """Return the changes of a prescription in the user's dialects, one per line; empty where none has a setting."""
    lines: list[str] = []
    for dialect in dialects_for(finding, evidence):
        lines += dialect.patch(prescription.changes, evidence.config)
    return tuple(lines)


def dialects_for(finding: Finding, evidence: Evidence) -> tuple[ConfigDialect, ...]:
    """Return the dialects a finding is patched in: the trainer's; for inference policy.toml and the probed server's."""
    if finding.loop not in ("inference", "both"):
        return () if evidence.dialect is None else (evidence.dialect,)
    server = dialect_of(server_kind(evidence.server))
    policy = dialect_of("policy")
    return tuple(dialect for dialect in (policy, server) if dialect is not None)


def server_kind(probe: Mapping[str, object] | None) -> str:
    """Return the kind of the probed server; empty where there is none."""
    dialect = {} if probe is None else probe.get("dialect", {})
    return str(dialect.get("kind", "")) if isinstance(dialect, Mapping) else ""
