"""What the doctor says: a finding with its proof and prescriptions, or that it cannot tell and what would let it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

from breadth.report.sections import Fact, Severity

if TYPE_CHECKING:
    from breadth.doctor.evidence import Evidence

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

    knob: str
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
    voids: tuple[str, ...] = ()
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


Outcome: TypeAlias = Finding | CannotTell | None
"""What a check returns; None is: looked, not there."""


class Check(Protocol):
    """A frozen dataclass whose fields are its constants, each with its reason."""

    loop: ClassVar[Loop]
    """Where the trouble sits."""
    causes: ClassVar[tuple[str, ...]]
    """Findings that may be the cause of this one."""

    def check(self, evidence: Evidence) -> Outcome:
        """Look for the failure."""
        ...


def worst(findings: Sequence[Finding]) -> Severity | None:
    """Return the worst severity found; None where nothing was found."""
    return min((one.severity for one in findings), key=SEVERITIES.index, default=None)
