"""Which loops a piece of evidence can tell of: a check of another one was not made, and must not be listed as clear."""

from __future__ import annotations

from breadth.doctor.catalogue import FINDINGS, INFERENCE
from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import Check, Loop
from breadth.doctor.signs.inference_runs import of_inference
from breadth.doctor.signs.scores import is_training


def loops_of(evidence: Evidence) -> frozenset[Loop]:
    """Return the loops whose checks mean something here."""
    found: set[Loop] = set()
    if is_training(evidence) or evidence.data:
        found.add("training")
    if of_inference(evidence):
        found |= {"inference", "both"}
    if evidence.knobs.theirs:
        found.add("configuration")
    return frozenset(found)


def askable(evidence: Evidence, loops: frozenset[Loop]) -> list[str]:
    """Return the findings that may have something to say here: those of inference do not where there is no run, server or policy of it."""
    silent = () if "inference" in loops or evidence.server is not None or evidence.policy is not None else INFERENCE
    return [name for name in FINDINGS.names() if name not in silent]


def told(check: Check, evidence: Evidence, loops: frozenset[Loop]) -> bool:
    """Say whether a check that found nothing has really looked: its loop is there, or it reads what a probe says of a server."""
    return check.loop in loops or (evidence.server is not None and getattr(check, "of_server", False))


def unmeasured(check: Check, evidence: Evidence, loops: frozenset[Loop]) -> bool:
    """Say whether a user who gave a policy or a server alone would want to know what a sweep of it would tell."""
    given = evidence.policy is not None or evidence.server is not None
    return given and check.loop in ("inference", "both") and not told(check, evidence, loops)
