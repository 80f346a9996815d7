"""Tables for the page: they scroll inside their own box, and long ones fold without a script."""

from __future__ import annotations

from collections.abc import Sequence

from breadth.report.markup import Element, element
from breadth.report.numerals import ABSENT
from breadth.report.plaintext import one_line
from breadth.report.sections import Table
from breadth.report.style import SHOWN_ROWS
from breadth.report.tabulation import Entry, Tabulation, tabulate
from breadth.report.webprose import caption, section, value_nodes


def table(rows: Table, key: str) -> Element:
    """Draw a table with its heading, footnotes and caption."""
    return section(rows.title, *bare_table(rows, key), caption(rows.note), kind="table")


def bare_table(rows: Table, key: str) -> list[Element]:
    """Draw a table without heading and caption; ``key`` makes its ids unique on the page."""
    known = tabulate(rows)
    rest = known.rows[SHOWN_ROWS:]
    grid = element(
        "table",
        element("thead", element("tr", *_headings(known))),
        element("tbody", *(_row(row, known.right) for row in known.rows[:SHOWN_ROWS])),
        element("tbody", *(_row(row, known.right) for row in rest), class_="rest") if rest else None,
    )
    box = element("div", grid, class_="scroll", tabindex=0, role="region", aria_label=one_line(rows.title) or "table")
    parts = [box] if rows.rows else [box, element("p", "No rows.", class_="caption")]
    folded = [element("div", *_switch(len(known.rows), key), *parts, class_="folding")] if rest else parts
    return folded + _footnotes(known)


def _headings(known: Tabulation) -> list[Element]:
    return [
        element("th", heading, scope="col", class_="right" if right else None)
        for heading, right in zip(known.headings, known.right, strict=True)
    ]


def _row(row: Sequence[Entry], right: Sequence[bool]) -> Element:
    return element("tr", *(_data(entry, side) for entry, side in zip(row, right, strict=True)))


def _data(entry: Entry, right: bool) -> Element:
    names = [name for name, holds in (("right", right), ("absent", entry.text == ABSENT)) if holds]
    flag = element("sup", entry.footnote) if entry.footnote else None
    shown = value_nodes(entry.text, numeric=entry.numeric, origin=entry.origin)
    return element("td", *shown, flag, class_=" ".join(names) or None)


def _switch(count: int, key: str) -> list[Element]:
    """Make a check box that shows the folded rows; it needs no script."""
    words = element(
        "label",
        element("span", f"Show all {count:,} rows", class_="folded"),
        element("span", f"Show the first {SHOWN_ROWS} rows", class_="unfolded"),
        for_=f"{key}-rows",
    )
    return [element("input", type_="checkbox", id=f"{key}-rows", class_="switch"), words]


def _footnotes(known: Tabulation) -> list[Element]:
    if not known.footnotes:
        return []
    lines = [element("li", element("sup", flag), f" {reason}") for flag, reason in known.footnotes]
    return [element("ul", *lines, class_="footnotes")]
