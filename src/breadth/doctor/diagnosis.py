"""Ask every check about one run and put the answers in order: worst first, causes named, what cannot be believed taken back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from breadth.base.errors import MeasureError
from breadth.doctor.evidence.record import TUNE_COMMAND, Evidence, is_inference_run
from breadth.doctor.evidence.scores import is_training_run
from breadth.doctor.finding import (
    FINDINGS,
    INFERENCE_FINDINGS,
    SEVERITIES,
    CannotTell,
    Check,
    CheckResult,
    Finding,
    Loop,
)

NOT_MEASURED = "nothing was measured under this policy or on this server"


@dataclass(frozen=True, eq=False)
class RunDiagnosis:
    """What was found in one run."""

    evidence: Evidence
    """What was looked at."""
    findings: tuple[Finding, ...]
    """What is there, worst first."""
    cannot_tell: tuple[CannotTell, ...]
    """What may be there or not, in a loop that the evidence tells of."""
    clear: tuple[str, ...]
    """What was looked for, in a loop that the evidence tells of, and is not there."""

    @property
    def conclusive_checks(self) -> tuple[str, ...]:
        """Every check that came to an answer."""
        return (*(one.name for one in self.findings), *self.clear)


def diagnose_run(evidence: Evidence, checks: Mapping[str, Check] | None = None) -> RunDiagnosis:
    """Ask all checks, by default those of the catalogue; of these, the ones that could only keep silent are not even loaded."""
    loops = loops_of(evidence)
    asked = {name: FINDINGS.load(name) for name in applicable(evidence, loops)} if checks is None else dict(checks)
    outcomes = {name: _asked(name, check, evidence) for name, check in asked.items()}
    found = {name: one for name, one in outcomes.items() if isinstance(one, Finding)}
    voided = {name: one.name for one in found.values() for name in one.invalidates if name != one.name}
    kept = {name: one for name, one in found.items() if name not in voided}
    unsure = [
        one for name, one in outcomes.items() if isinstance(one, CannotTell) and _wanted(asked[name], evidence, loops)
    ]
    unsure += [
        CannotTell(name, f"it reads numbers that must not be believed: see {voided[name]}")
        for name in found
        if name in voided
    ]
    quiet = [name for name, one in outcomes.items() if one is None]
    unsure += [
        CannotTell(name, NOT_MEASURED, TUNE_COMMAND) for name in quiet if needs_sweep(asked[name], evidence, loops)
    ]
    explained = [_explained(one, asked[name], kept) for name, one in kept.items()]
    order = list(asked)
    return RunDiagnosis(
        evidence,
        tuple(sorted(explained, key=lambda one: (SEVERITIES.index(one.severity), order.index(one.name)))),
        tuple(unsure),
        tuple(name for name in quiet if was_checked(asked[name], evidence, loops)),
    )


def _wanted(check: Check, evidence: Evidence, loops: frozenset[Loop]) -> bool:
    """Say whether a user would want to know what is missing: of settings always, else of the loop that the evidence is of."""
    return (
        check.loop == "configuration"
        or was_checked(check, evidence, loops)
        or (check.loop != "training" and evidence.server is not None)
    )


def _asked(name: str, check: Check, evidence: Evidence) -> CheckResult:
    """Ask one check; numbers that an instrument refuses are a reason not to tell, never a crash."""
    try:
        return check.check(evidence)
    except MeasureError as error:
        return CannotTell(name, error.problem, error.remedy)


def _explained(finding: Finding, check: Check, others: Mapping[str, Finding]) -> Finding:
    return replace(finding, explained_by=tuple(name for name in check.causes if name in others))


def loops_of(evidence: Evidence) -> frozenset[Loop]:
    """Return the loops whose checks mean something here."""
    found: set[Loop] = set()
    if is_training_run(evidence) or evidence.data:
        found.add("training")
    if is_inference_run(evidence):
        found |= {"inference", "both"}
    if evidence.config.user_settings:
        found.add("configuration")
    return frozenset(found)


def applicable(evidence: Evidence, loops: frozenset[Loop]) -> list[str]:
    """Return the findings that may have something to say here: those of inference do not where there is no run, server or policy of it."""
    silent = (
        () if "inference" in loops or evidence.server is not None or evidence.policy is not None else INFERENCE_FINDINGS
    )
    return [name for name in FINDINGS.names() if name not in silent]


def was_checked(check: Check, evidence: Evidence, loops: frozenset[Loop]) -> bool:
    """Say whether a check that found nothing has really looked: its loop is there, or it reads what a probe says of a server."""
    return check.loop in loops or (evidence.server is not None and getattr(check, "of_server", False))


def needs_sweep(check: Check, evidence: Evidence, loops: frozenset[Loop]) -> bool:
    """Say whether a user who gave a policy or a server alone would want to know what a sweep of it would tell."""
    given = evidence.policy is not None or evidence.server is not None
    return given and check.loop in ("inference", "both") and not was_checked(check, evidence, loops)
