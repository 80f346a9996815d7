"""What the doctor says: a finding with its proof and prescriptions, or that it cannot tell and what would let it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from textwrap import dedent
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

from breadth.base.catalogue import Catalogue
from breadth.report.sections import Fact, Facts, Page, Section, Severity, Text

if TYPE_CHECKING:
    from breadth.doctor.evidence.record import Evidence


Loop = Literal["training", "inference", "both", "configuration"]
"""Where the trouble sits."""
Confidence = Literal["certain", "strong", "likely"]
"""``certain``: counted, or arithmetic on settings.

``strong``: a 95 % interval says so. ``likely``: so it looks, and another cause would
look the same."""
SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.NOTE)
"""What a finding can be, worst first."""


@dataclass(frozen=True)
class Change:
    """One setting to change, by our name for it; a dialect words it."""

    setting: str
    """A field of `Knobs`, or a name that only dialects know, e.g. ``chain``."""
    value: Any
    """What to set it to."""


@dataclass(frozen=True)
class Prescription:
    """Something to do about a finding."""

    action: str
    """What to do, in one sentence that needs no dialect."""
    why: str
    """What it does here."""
    changes: tuple[Change, ...] = ()
    """The settings it takes, those included that let it act at all; none where it is no setting."""
    side_effect: str = ""
    """What it costs or may break."""
    source: str = ""
    """Who found that it helps."""


@dataclass(frozen=True)
class Finding:
    """A failure that is there."""

    name: str
    """Its name in the catalogue."""
    severity: Severity
    """critical, warning or note."""
    confidence: Confidence
    """How sure."""
    loop: Loop
    """Where the trouble sits."""
    headline: str
    """One sentence that stands alone, with its number."""
    evidence: tuple[Fact, ...]
    """The numbers that prove it, with the steps they come from."""
    disproof: str
    """What one would have to see to take it back."""
    cost: str = ""
    """What it has cost so far."""
    prescriptions: tuple[Prescription, ...] = ()
    """What to do, the largest effect to be expected first."""
    invalidates: tuple[str, ...] = ()
    """Findings that read the same numbers and must not be believed while this one holds."""
    explained_by: tuple[str, ...] = ()
    """Other findings of the same diagnosis that may be its cause."""


@dataclass(frozen=True)
class CannotTell:
    """A failure that may be there or not: what is missing, and what to switch on."""

    name: str
    """The finding that was asked."""
    missing: str
    """What it would need, and what was there instead."""
    switch_on: str = ""
    """The exact setting that would show it, where there is one."""


CheckResult: TypeAlias = Finding | CannotTell | None
"""What a check returns; None is: looked, not there."""


class Check(Protocol):
    """A frozen dataclass whose fields are its constants, each with its reason."""

    loop: ClassVar[Loop]
    """Where the trouble sits."""
    causes: ClassVar[tuple[str, ...]]
    """Findings that may be the cause of this one."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Look for the failure."""
        ...


def worst_severity(findings: Sequence[Finding]) -> Severity | None:
    """Return the worst severity found; None where nothing was found."""
    return min((one.severity for one in findings), key=SEVERITIES.index, default=None)


_HERE = "breadth.doctor.findings"
_TRAINING = (
    "unreliable-metric",
    "entropy-collapse",
    "entropy-explosion",
    "fork-collapse",
    "train-inference-mismatch",
    "truncation",
    "overly-hard",
    "zero-variance-groups",
    "length-collapse",
    "degenerate-rollouts",
    "format-collapse",
    "narrow-data-format",
    "overconfidence",
    "drift",
    "reward-hacking",
    "diversity-transfer",
    "saturation",
)
INFERENCE_FINDINGS = (
    "over-thinking",
    "oscillation",
    "over-sampling",
    "under-sampling",
    "vote-without-diversity",
    "useless-confidence",
    "max-tokens-ignored",
    "repetition-loops",
    "processed-logprobs",
    "bottleneck",
)
"""What can be found in the inference loop alone, or in both loops at once."""
_CONFIGURATION = (
    "no-op-settings",
    "contradictory-settings",
    "wrong-units",
)

FINDINGS = Catalogue(
    "findings",
    {name: f"{_HERE}.{name.replace('-', '_')}:FINDING" for name in (*_TRAINING, *INFERENCE_FINDINGS, *_CONFIGURATION)},
)
"""Name -> the check; a package adds its own through the entry-point group ``breadth.findings``."""


def explain_finding(name: str) -> Page:
    """Explain one finding."""
    check = FINDINGS.load(name)
    sections: list[Section] = [Text(_prose(inspect.getdoc(check) or ""))]
    why = field_reasons(type(check))
    constants = [
        Fact(field.name, _shown(getattr(check, field.name)), note=why.get(field.name, "")) for field in fields(check)
    ]
    if constants:
        sections.append(Facts("Constants, and why", constants))
    if check.causes:
        sections.append(Facts("What may be behind it", [Fact("other findings", ", ".join(check.causes))]))
    return Page(name, sections, subtitle=f"a finding of the doctor, about {_about(check)}")


def list_findings() -> Page:
    """List every finding with its first sentence."""
    facts = [
        Fact(name, (inspect.getdoc(check) or "").partition("\n")[0], note=_about(check)) for name, check in FINDINGS
    ]
    return Page("What the doctor looks for", [Facts("Findings", facts)])


def _about(check: Any) -> str:
    return {
        "training": "training",
        "inference": "inference",
        "both": "both loops",
        "configuration": "the configuration",
    }[check.loop]


def _shown(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else value


def _prose(text: str) -> str:
    """Join lines that were only broken to fit the file."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def field_reasons(cls: type) -> dict[str, str]:
    """Return the text under each field: the one place where a constant's reason stands."""
    body = ast.parse(dedent(inspect.getsource(cls))).body[0]
    found: dict[str, str] = {}
    nodes = body.body if isinstance(body, ast.ClassDef) else []
    for before, after in pairwise(nodes):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            value = after.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[before.target.id] = " ".join(value.value.split())
    return found
