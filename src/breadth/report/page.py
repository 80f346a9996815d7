"""A report as one record: title, sections and where the numbers come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breadth.report.sections import Fact, Section


@dataclass(frozen=True)
class Page:
    """Everything one command has to say, ready for the terminal, for JSON or for a browser."""

    title: str
    """What the report is about."""
    sections: Sequence[Section] = ()
    """Its parts, most important first."""
    subtitle: str = ""
    """One line under the title, e.g. what was read."""
    provenance: Sequence[Fact] = ()
    """Where the numbers come from: files, versions, settings, seeds. Shown last."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sections", tuple(self.sections))
        object.__setattr__(self, "provenance", tuple(self.provenance))
