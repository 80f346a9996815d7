"""A prescription in the user's own words: the trainer's settings, or for inference our policy.toml and the server's request."""

from __future__ import annotations

from collections.abc import Mapping

from breadth.doctor.dialects import Dialect, dialect_of
from breadth.doctor.evidence import Evidence
from breadth.doctor.finding import Finding, Prescription


def patch(prescription: Prescription, finding: Finding, evidence: Evidence) -> tuple[str, ...]:
    """Word the changes of a prescription, a line each; nothing where nobody has a setting for them."""
    lines: list[str] = []
    for dialect in speakers(finding, evidence):
        lines += dialect.patch(prescription.changes, evidence.knobs)
    return tuple(lines)


def speakers(finding: Finding, evidence: Evidence) -> tuple[Dialect, ...]:
    """Return whose words are wanted: the trainer's; of inference our policy's, and the server's where it is known."""
    if finding.loop not in ("inference", "both"):
        return () if evidence.dialect is None else (evidence.dialect,)
    server = dialect_of(_server(evidence.server))
    policy = dialect_of("policy")
    return tuple(one for one in (policy, server) if one is not None)


def _server(found: Mapping[str, object] | None) -> str:
    """Return which server was probed."""
    dialect = {} if found is None else found.get("dialect", {})
    return str(dialect.get("kind", "")) if isinstance(dialect, Mapping) else ""
