"""What a check returns: found, with proof and prescriptions; excluded, by a number; or cannot tell. And all checks.

`explain_finding` and `list_findings` write the pages of ``breadth doctor --explain`` from the docstrings of the checks
and of their constants.
"""

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
"""Where the failure is."""
Confidence = Literal["certain", "strong", "likely"]
"""``certain``: counted, or arithmetic on settings; ``strong``: shown by a 95 % interval; ``likely``: another cause
would look the same.
"""
Need = Literal["rollouts", "settings", "data"]
"""Evidence without which a check is not called: the run's rollouts, the trainer's settings, a sample of the training
data. `breadth.doctor.diagnosis` says instead how to give it.
"""
FINDING_SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.NOTE)
"""Severities of findings, worst first."""


@dataclass(frozen=True)
class Change:
    """One setting to change, by our name for it; a dialect spells it for the trainer or server."""

    setting: str
    """A field of `TrainerConfig`, or a name that only dialects know, e.g. ``chain``."""
    value: Any
    """What to set it to."""


@dataclass(frozen=True)
class Prescription:
    """One thing to do about a finding."""

    action: str
    """What to do, in one sentence without a trainer's setting names."""
    why: str
    """Why it helps here."""
    changes: tuple[Change, ...] = ()
    """The settings to change, with those it needs to take effect; empty where it is no setting."""
    side_effect: str = ""
    """What it costs or may break."""
    source: str = ""
    """The paper or issue that shows that it helps."""
    effect: str = ""
    """Its name in `breadth.doctor.lab_effects.LAB_EFFECTS`; empty where the lab has not measured it."""


@dataclass(frozen=True)
class Finding:
    """A failure that was found."""

    name: str
    """Its name in the catalogue."""
    severity: Severity
    """critical, warning or note."""
    confidence: Confidence
    """How sure the check is."""
    loop: Loop
    """Where the failure is."""
    headline: str
    """One self-contained sentence with its number."""
    evidence: tuple[Fact, ...]
    """The numbers that prove it, with the steps they come from."""
    disproof: str
    """What observation would disprove it."""
    cost: str = ""
    """What it has cost so far."""
    prescriptions: tuple[Prescription, ...] = ()
    """What to do: going back first, then by what the lab found (`breadth.doctor.lab_effects`)."""
    invalidates: tuple[str, ...] = ()
    """Findings that read the same numbers and are not reliable while this one holds."""
    explained_by: tuple[str, ...] = ()
    """Other findings of the same diagnosis that may be its cause."""


@dataclass(frozen=True)
class Excluded:
    """A failure that was looked for and is not there."""

    name: str
    """Name of the check."""
    because: str = ""
    """The number that excludes it, as half a sentence."""


@dataclass(frozen=True)
class CannotTell:
    """An inconclusive check: what is missing, and what to switch on."""

    name: str
    """Name of the check."""
    missing: str
    """What it needs, and what it got instead."""
    switch_on: str = ""
    """The exact setting that would show it, where there is one."""
    undecided: bool = False
    """Whether the numbers are there and do not decide. Otherwise other data would show it, which the log of a healthy
    run may lack too."""


CheckResult: TypeAlias = Finding | Excluded | CannotTell | None
"""What a check returns; None: it does not apply to this evidence."""


class Check(Protocol):
    """A frozen dataclass whose fields are its constants, each with its reason.

    It may have ``needs``, a tuple of `Need`. Ours have ``summary`` and ``first_step`` too, texts for the page of all
    findings: what it means, in half a line, and the first thing to do about it, for any trainer or server.
    """

    loop: ClassVar[Loop]
    """Where the failure is."""
    causes: ClassVar[tuple[str, ...]]
    """Findings that may cause this one."""

    def check(self, evidence: Evidence) -> CheckResult:
        """Look for the failure."""
        ...


def worst_severity(findings: Sequence[Finding]) -> Severity | None:
    """Return the worst severity found; None where nothing was found."""
    return min((finding.severity for finding in findings), key=FINDING_SEVERITIES.index, default=None)


_PACKAGE = "breadth.doctor.findings"
_TRAINING_FINDINGS = (
    "numerical-failure",
    "score-collapse",
    "no-learning",
    "unreliable-metric",
    "entropy-collapse",
    "entropy-explosion",
    "fork-collapse",
    "template-collapse",
    "train-inference-mismatch",
    "stale-samples",
    "wrong-advantages",
    "truncation",
    "overly-hard",
    "zero-variance-groups",
    "length-collapse",
    "degenerate-rollouts",
    "format-collapse",
    "narrow-data-format",
    "overconfidence",
    "drift",
    "overfitting",
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
"""Findings of the inference loop, or of both loops at once."""
_CONFIGURATION_FINDINGS = (
    "no-op-settings",
    "contradictory-settings",
    "wrong-units",
)

FINDINGS = Catalogue(
    "findings",
    {
        name: f"{_PACKAGE}.{name.replace('-', '_')}:FINDING"
        for name in (*_TRAINING_FINDINGS, *INFERENCE_FINDINGS, *_CONFIGURATION_FINDINGS)
    },
)
"""Name -> the check, in the order they run; packages add theirs through the entry-point group ``breadth.findings``."""


def explain_finding(name: str) -> Page:
    """Explain one finding: its docstring, its constants with their reasons, and its possible causes."""
    check = FINDINGS.load(name)
    paragraphs = (inspect.getdoc(check) or "").split("\n\n")
    sections: list[Section] = [Text("\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))]
    reasons = field_reasons(type(check))
    constants = []
    for field in fields(check):
        value = getattr(check, field.name)
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
        constants.append(Fact(field.name, shown, note=reasons.get(field.name, "")))
    if constants:
        sections.append(Facts("Constants, and why", constants))
    if first_step := getattr(check, "first_step", ""):  # one from elsewhere may lack it
        sections.append(Facts("First thing to do", [Fact("for any trainer or server", first_step)]))
    if check.causes:
        sections.append(Facts("Possible causes", [Fact("other findings", ", ".join(check.causes))]))
    return Page(name, sections, subtitle=f"a finding of the doctor, about {loop_label(check.loop)}")


def list_findings() -> Page:
    """List every finding with its first sentence."""
    facts = [
        Fact(name, (inspect.getdoc(check) or "").partition("\n")[0], note=loop_label(check.loop))
        for name, check in FINDINGS
    ]
    return Page("What the doctor looks for", [Facts("Findings", facts)])


def loop_label(loop: Loop) -> str:
    """Return how a page names the loop of a finding."""
    return {
        "training": "training",
        "inference": "inference",
        "both": "both loops",
        "configuration": "the configuration",
    }[loop]


def field_reasons(cls: type) -> dict[str, str]:
    """Return the docstring under each field of a class: the reason of the constant."""
    body = ast.parse(dedent(inspect.getsource(cls))).body[0]
    reasons: dict[str, str] = {}
    nodes = body.body if isinstance(body, ast.ClassDef) else []
    for before, after in pairwise(nodes):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            value = after.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                reasons[before.target.id] = " ".join(value.value.split())
    return reasons
