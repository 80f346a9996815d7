"""Run every check on one run and order the results: worst first, causes named, unreliable verdicts withdrawn.

A check of a loop that the evidence does not cover was not made, so it is not listed as clear.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from breadth.base.errors import MeasureError
from breadth.doctor.evidence.record import TUNE_COMMAND, Evidence, is_inference_run
from breadth.doctor.evidence.rollouts import covers_training, missing_rollouts
from breadth.doctor.evidence.scores import is_training_run
from breadth.doctor.finding import (
    FINDING_SEVERITIES,
    FINDINGS,
    INFERENCE_FINDINGS,
    CannotTell,
    Check,
    CheckResult,
    Excluded,
    Finding,
    Loop,
    Need,
)
from breadth.doctor.trainer_config import TrainerConfig

NOT_MEASURED = "nothing was measured under this policy or on this server"
"""Why checks of inference cannot tell where a policy or a server was given alone."""

MUST_BE_EXCLUDED = frozenset(
    {"score-collapse", "no-learning", "entropy-collapse", "entropy-explosion", "truncation", "overfitting"}
)
"""Failures about which no doubt may be left where a page says that nothing was found."""


@dataclass(frozen=True, eq=False)
class RunDiagnosis:
    """What was found in one run."""

    evidence: Evidence
    """The evidence the checks read."""
    findings: tuple[Finding, ...]
    """Failures that were found, worst first."""
    cannot_tell: tuple[CannotTell, ...]
    """Checks that lacked what they need, in a loop that the evidence covers."""
    excluded: tuple[Excluded, ...]
    """Failures that were looked for and excluded, in a loop that the evidence covers."""

    @property
    def clear(self) -> tuple[str, ...]:
        """Names of the failures that were excluded."""
        return tuple(excluded.name for excluded in self.excluded)

    @property
    def conclusive_checks(self) -> tuple[str, ...]:
        """Names of the checks that found something or excluded it."""
        return (*(finding.name for finding in self.findings), *self.clear)

    @property
    def inconclusive_checks(self) -> tuple[CannotTell, ...]:
        """Checks whose numbers were logged and do not decide."""
        return tuple(check for check in self.cannot_tell if check.undecided)

    @property
    def is_good(self) -> bool:
        """Whether finding nothing is good news.

        Of a training run it is when its score was logged, moved and has surely not fallen, and no check of what the log
        can show was undecided about a failure that would matter. What only other data would show is no reason for
        doubt.
        """
        doubts = {check.name for check in self.inconclusive_checks} & MUST_BE_EXCLUDED
        needed = {"score-collapse"} if is_training_run(self.evidence) else set()
        return not self.findings and bool(self.excluded) and not doubts and needed <= set(self.clear)


def diagnose_run(evidence: Evidence, checks: Mapping[str, Check] | None = None) -> RunDiagnosis:
    """Run all checks, by default those of the catalogue that apply here; the others are not even loaded."""
    loops = loops_of(evidence)
    checks = {name: FINDINGS.load(name) for name in applicable(evidence, loops)} if checks is None else dict(checks)
    results = {name: run_check(name, check, evidence) for name, check in checks.items()}
    found = {name: result for name, result in results.items() if isinstance(result, Finding)}
    unreliable = {
        name: finding.name for finding in found.values() for name in finding.invalidates if name != finding.name
    }
    kept = {name: finding for name, finding in found.items() if name not in unreliable}
    cannot_tell = [
        result
        for name, result in results.items()
        if isinstance(result, CannotTell) and is_relevant(checks[name], evidence, loops)
    ]
    cannot_tell += [
        CannotTell(name, f"it reads numbers that are not reliable: see {unreliable[name]}")
        for name in found
        if name in unreliable
    ]
    silent = [name for name, result in results.items() if result is None or isinstance(result, Excluded)]
    cannot_tell += [
        CannotTell(name, NOT_MEASURED, TUNE_COMMAND) for name in silent if needs_sweep(checks[name], evidence, loops)
    ]
    explained = [
        replace(finding, explained_by=causes_of(name, checks, kept, list(checks))) for name, finding in kept.items()
    ]
    order = list(checks)
    return RunDiagnosis(
        evidence,
        tuple(
            sorted(
                explained, key=lambda finding: (FINDING_SEVERITIES.index(finding.severity), order.index(finding.name))
            )
        ),
        tuple(cannot_tell),
        tuple(
            result
            for name, result in results.items()
            if isinstance(result, Excluded) and was_checked(checks[name], evidence, loops)
        ),
    )


def causes_of(name: str, checks: Mapping[str, Check], kept: Mapping[str, Finding], order: list[str]) -> tuple[str, ...]:
    """Return the findings that may have caused one; of findings that could cause each other, only the earlier check.

    A later check is no cause where it may itself come from this one, directly or through others that were found: no
    finding comes from itself.
    """

    def origins(start: str) -> set[str]:
        reached: set[str] = set()
        waiting = [start]
        while waiting:
            new = {cause for cause in checks[waiting.pop()].causes if cause in kept} - reached
            reached |= new
            waiting += new
        return reached

    return tuple(
        cause
        for cause in checks[name].causes
        if cause in kept and not (order.index(name) < order.index(cause) and name in origins(cause))
    )


def is_relevant(check: Check, evidence: Evidence, loops: frozenset[Loop]) -> bool:
    """Say whether to report what a check lacks: always for settings, else if the evidence covers its loop."""
    return (
        check.loop == "configuration"
        or was_checked(check, evidence, loops)
        or (check.loop != "training" and evidence.server is not None)
    )


def run_check(name: str, check: Check, evidence: Evidence) -> CheckResult:
    """Run one check; numbers that a measure refuses make it inconclusive, never crash it.

    A check is not called without the evidence that it needs; for a training run the result says what is missing.
    """
    missing = next((need for need in getattr(check, "needs", ()) if not has_evidence(evidence, need)), None)
    if missing is not None:
        return missing_evidence(name, missing, evidence) if covers_training(evidence) else None
    try:
        return check.check(evidence)
    except MeasureError as error:
        return CannotTell(name, error.problem, error.remedy)


def has_evidence(evidence: Evidence, need: Need) -> bool:
    """Say whether the evidence holds what a check needs; a policy and a server have settings too."""
    if need == "rollouts":
        return evidence.run is not None and bool(evidence.run.rollout_files)
    if need == "data":
        return bool(evidence.data)
    return evidence.config != TrainerConfig() or evidence.policy is not None or evidence.server is not None


def missing_evidence(name: str, need: Need, evidence: Evidence) -> CannotTell:
    """Return that a check cannot tell, and how to give it what it needs."""
    if need == "rollouts":
        return missing_rollouts(evidence, name)
    if need == "data":
        return CannotTell(
            name,
            "no sample of the training data was given",
            "breadth doctor RUN DATA.parquet: name the data next to the run",
        )
    return CannotTell(
        name, "the run's settings are not known", "the trainer's configuration file, named next to the log"
    )


def loops_of(evidence: Evidence) -> frozenset[Loop]:
    """Return the loops that the evidence covers."""
    loops: set[Loop] = set()
    if is_training_run(evidence) or evidence.data:
        loops.add("training")
    if is_inference_run(evidence):
        loops |= {"inference", "both"}
    if evidence.config.user_settings:
        loops.add("configuration")
    return frozenset(loops)


def applicable(evidence: Evidence, loops: frozenset[Loop]) -> list[str]:
    """Return the checks that apply here; those of inference need an inference run, a server or a policy."""
    skipped = (
        () if "inference" in loops or evidence.server is not None or evidence.policy is not None else INFERENCE_FINDINGS
    )
    return [name for name in FINDINGS.names() if name not in skipped]


def was_checked(check: Check, evidence: Evidence, loops: frozenset[Loop]) -> bool:
    """Say whether a silent check really had something to check: its loop is covered, or it reads a probed server."""
    return check.loop in loops or (evidence.server is not None and getattr(check, "reads_server", False))


def needs_sweep(check: Check, evidence: Evidence, loops: frozenset[Loop]) -> bool:
    """Say whether a check needs a sweep of the policy or server that was given without one."""
    given = evidence.policy is not None or evidence.server is not None
    return given and check.loop in ("inference", "both") and not was_checked(check, evidence, loops)
