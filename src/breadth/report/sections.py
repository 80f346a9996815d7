"""The sections of a report and the page that holds them: frozen records, independent of their rendering.

Any text may come from a log or a model; renderers treat it as plain text. Sequences are stored as tuples, so lists and
arrays work too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from breadth.base.errors import MeasureError
from breadth.report.cells import Cell, enum_member, floats, to_cell


class Severity(StrEnum):
    """How much a verdict matters; its value is the word a reader sees."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTE = "note"
    GOOD = "good"
    CANNOT_TELL = "cannot tell"


class Outcome(StrEnum):
    """What became of one sample; its value is the word a reader sees."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSABLE = "unparsable"
    TRUNCATED = "truncated"


@dataclass(frozen=True)
class Fact:
    """One named value: a number in a verdict, a line of provenance, something that is there or missing."""

    name: str
    """What it is."""
    value: Cell
    """Its value; ``Missing(reason)`` where there is none."""
    unit: str = ""
    """Unit of the value; ``%`` shows a fraction as a percentage."""
    note: str = ""
    """What a reader should know about it, e.g. the setting that would switch it on."""

    def __post_init__(self) -> None:
        _set(self, value=to_cell(self.value))


@dataclass(frozen=True)
class Verdict:
    """What we found, how bad it is, and the numbers that prove it."""

    severity: Severity
    """How much it matters."""
    headline: str
    """One sentence that is understood alone."""
    body: str = ""
    """The reasons and what to do; a blank line starts a new paragraph."""
    numbers: Sequence[Fact] = ()
    """The numbers that prove it."""

    def __post_init__(self) -> None:
        _set(self, severity=enum_member(Severity, self.severity, "severities"), numbers=tuple(self.numbers))


@dataclass(frozen=True)
class Column:
    """One column of a table: its heading and how its cells are written."""

    name: str
    """Heading."""
    unit: str = ""
    """Unit of all its numbers, shown in the heading; ``%`` shows fractions as percentages."""
    align: Literal["auto", "left", "right"] = "auto"
    """Side of the cells; ``auto`` puts a column of numbers right and anything else left."""
    decimals: int | None = None
    """Digits after the point of lone numbers; by default three significant digits, lined up where that is possible."""


@dataclass(frozen=True)
class Table:
    """Rows under headings."""

    title: str
    """Heading of the section."""
    columns: Sequence[Column]
    """Headings, left to right."""
    rows: Sequence[Sequence[Cell]]
    """One sequence of cells per row, one cell per column."""
    note: str = ""
    """Caption below the table."""

    def __post_init__(self) -> None:
        rows = tuple(tuple(to_cell(cell) for cell in row) for row in self.rows)
        for index, row in enumerate(rows):
            if len(row) != len(self.columns):
                raise MeasureError(
                    f"Row {index} of the table '{self.title}' has {len(row)} cells for {len(self.columns)} columns.",
                    "Give every row one cell per column; use None or Missing(reason) where there is no value.",
                )
        _set(self, columns=tuple(self.columns), rows=rows)


@dataclass(frozen=True)
class Axis:
    """What one side of a chart measures."""

    label: str
    """The quantity."""
    unit: str = ""
    """Its unit; ``%`` shows fractions as percentages."""


@dataclass(frozen=True)
class Series:
    """One line of a chart. A y that is NaN leaves a gap; nothing is drawn across it."""

    name: str
    """What the line shows."""
    x: Sequence[float]
    """Positions of the points."""
    y: Sequence[float]
    """Their values."""
    low: Sequence[float] = ()
    """Lower ends of the band, one per point; empty for no band."""
    high: Sequence[float] = ()
    """Upper ends of the band."""

    def __post_init__(self) -> None:
        _set(self, x=floats(self.x), y=floats(self.y), low=floats(self.low), high=floats(self.high))
        if len(self.y) != len(self.x) or len(self.low) != len(self.high) or len(self.low) not in (0, len(self.x)):
            raise MeasureError(
                f"The series '{self.name}' has {len(self.x)} x, {len(self.y)} y, {len(self.low)} low and"
                f" {len(self.high)} high.",
                "Give one y per x, and either no band or one low and one high per x; use NaN where a value is missing.",
            )


@dataclass(frozen=True)
class Event:
    """Something that happened at one x, e.g. a change point."""

    x: float
    """Where it happened."""
    label: str
    """What happened."""

    def __post_init__(self) -> None:
        _set(self, x=float(self.x))


@dataclass(frozen=True)
class Curve:
    """One or more lines over a common axis, with bands and marked events."""

    title: str
    """Heading of the section."""
    series: Sequence[Series]
    """The lines."""
    x: Axis
    """What runs from left to right."""
    y: Axis
    """What runs upwards."""
    log_x: bool = False
    """Space x by ratio, as for budgets and numbers of samples; every x must then be above zero."""
    events: Sequence[Event] = ()
    """Points on x worth a mark."""
    band: str = "95% interval"
    """What the bands are, in the words of the legend."""
    note: str = ""
    """Caption below the chart."""

    def __post_init__(self) -> None:
        _set(self, series=tuple(self.series), events=tuple(self.events))
        xs = [x for line in self.series for x in line.x] + [event.x for event in self.events]
        if self.log_x and any(x <= 0 for x in xs):
            raise MeasureError(
                f"The curve '{self.title}' has a logarithmic x, but its smallest x is {min(xs):g}.",
                "Leave out what is not above zero, or set log_x=False.",
            )


@dataclass(frozen=True)
class Token:
    """A piece of a text, with its number."""

    text: str
    """The piece as decoded, white space included."""
    value: float | None = None
    """Its number; None or NaN where it has none."""
    kind: str = ""
    """What the piece belongs to, e.g. ``answer``; neighbours of one kind are bracketed together under its name."""

    def __post_init__(self) -> None:
        _set(self, value=None if self.value is None else float(self.value))


@dataclass(frozen=True)
class Trace:
    """A text as tokens, each shaded and underlined by its number."""

    title: str
    """Heading of the section."""
    tokens: Sequence[Token]
    """The text, in order."""
    measure: str = "entropy"
    """What the numbers are."""
    unit: str = ""
    """Their unit; ``%`` shows fractions as percentages."""
    note: str = ""
    """Caption below the text."""

    def __post_init__(self) -> None:
        _set(self, tokens=tuple(self.tokens))


@dataclass(frozen=True)
class Group:
    """All samples of one problem."""

    name: str
    """The problem."""
    outcomes: Sequence[Outcome]
    """What became of each sample, in the order they are drawn."""

    def __post_init__(self) -> None:
        _set(self, outcomes=tuple(enum_member(Outcome, outcome, "outcomes") for outcome in self.outcomes))


@dataclass(frozen=True)
class Groups:
    """A picture of groups: one row per problem, one mark per sample."""

    title: str
    """Heading of the section."""
    groups: Sequence[Group]
    """The problems, top to bottom."""
    note: str = ""
    """Caption below the picture."""

    def __post_init__(self) -> None:
        _set(self, groups=tuple(self.groups))


@dataclass(frozen=True)
class Text:
    """Paragraphs of plain text."""

    text: str
    """The text; a blank line starts a new paragraph."""
    title: str = ""
    """Heading of the section, if it needs one."""


@dataclass(frozen=True)
class Listing:
    """Text to copy unchanged: a setting, a command, a patch."""

    title: str
    """Heading of the section."""
    text: str
    """The lines; spaces and line breaks are kept."""
    note: str = ""
    """Caption below it, e.g. the file it belongs in."""


@dataclass(frozen=True)
class Facts:
    """Names and values: what is there, what is missing and how to log it."""

    title: str
    """Heading of the section."""
    facts: Sequence[Fact]
    """The list, top to bottom."""

    def __post_init__(self) -> None:
        _set(self, facts=tuple(self.facts))


Section: TypeAlias = Verdict | Table | Curve | Trace | Groups | Text | Listing | Facts
"""Anything a page may hold."""


def _set(record: Any, **values: Any) -> None:
    """Set normalised fields on a frozen record during its construction."""
    for name, value in values.items():
        object.__setattr__(record, name, value)


@dataclass(frozen=True)
class Page:
    """The whole result of one command, ready for the terminal, for JSON or for a browser."""

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
