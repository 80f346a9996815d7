"""A report in the terminal: width-aware, readable without colour, piped or not, and deaf to escapes in the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType

from breadth.report import sections
from breadth.report.page import Page
from breadth.report.pen import Pen, indented, pairs
from breadth.report.sections import Fact, Facts, Listing, Text, Verdict
from breadth.report.style import SEVERITIES
from breadth.report.tabulation import fact_text
from breadth.report.textfigures import curve, groups, trace
from breadth.report.texttable import table


def render_terminal(page: Page, console: Console) -> None:
    """Print the report on a console, at its width but never wider than 160 columns."""
    pen = Pen.of(console)
    parts: list[Sequence[RenderableType]] = [[pen.words(page.title, "bold"), *pen.notes(page.subtitle)]]
    parts += [_DRAWN_BY[type(part)](part, pen) for part in page.sections]
    if page.provenance:
        parts.append([*pen.heading("Where this comes from"), _listed(page.provenance, pen)])
    for part in parts:
        console.print(Group(*part), width=pen.width, highlight=False, crop=False)
        console.print()


def _verdict(found: Verdict, pen: Pen) -> list[RenderableType]:
    sign = SEVERITIES[found.severity]
    head = pen.words(f"{pen.symbol(sign)} {found.severity.value.upper()}", sign.color)
    inside: list[RenderableType] = [pen.words(found.headline, "bold"), *pen.prose(found.body)]
    numbers: list[RenderableType] = [pen.words(""), _listed(found.numbers, pen)] if found.numbers else []
    return [head, indented([*inside, *numbers])]


def _text(words: Text, pen: Pen) -> list[RenderableType]:
    return [*pen.heading(words.title), *pen.prose(words.text)]


def _listing(lines: Listing, pen: Pen) -> list[RenderableType]:
    copied = pen.block(lines.text.rstrip("\n"))
    return [*pen.heading(lines.title), copied, *pen.notes(lines.note)]


def _facts(listed: Facts, pen: Pen) -> list[RenderableType]:
    return [*pen.heading(listed.title), _listed(listed.facts, pen)]


def _listed(facts: Sequence[Fact], pen: Pen) -> RenderableType:
    rows = [(pen.words(fact.name), Group(pen.words(fact_text(fact)), *pen.notes(fact.note))) for fact in facts]
    return pairs([(name, value) for name, value in rows], pen.width)


_DRAWN_BY: Mapping[type, Callable[[Any, Pen], list[RenderableType]]] = {
    sections.Verdict: _verdict,
    sections.Text: _text,
    sections.Listing: _listing,
    sections.Facts: _facts,
    sections.Table: table,
    sections.Curve: curve,
    sections.Groups: groups,
    sections.Trace: trace,
}
