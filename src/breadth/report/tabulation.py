"""A table as text, the same for every renderer: headings with units, cells with lined-up digits, footnotes for what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breadth.report.cells import Cell, Missing, interval_origin, is_number
from breadth.report.numerals import cell_text, shared_decimals
from breadth.report.outline import letter
from breadth.report.plaintext import one_line
from breadth.report.sections import Column, Fact, Table


@dataclass(frozen=True)
class Entry:
    """One cell as text."""

    text: str
    """What stands in the cell."""
    numeric: bool = False
    """Whether it is a number."""
    footnote: str = ""
    """Letter of the footnote that says why there is no value."""
    origin: str = ""
    """How its interval was made."""


@dataclass(frozen=True)
class Tabulation:
    """A table with everything decided but the drawing."""

    headings: tuple[str, ...]
    """Column names with their units."""
    right: tuple[bool, ...]
    """Which columns stand on the right."""
    rows: tuple[tuple[Entry, ...], ...]
    """The cells."""
    footnotes: tuple[tuple[str, str], ...]
    """Letter and reason, in order of appearance."""


def tabulate(table: Table) -> Tabulation:
    """Decide digits, sides and footnotes of a table."""
    reasons = _reasons(table)
    columns = [_entries(column, cells, reasons) for column, cells in _by_column(table)]
    return Tabulation(
        headings=tuple(one_line(f"{column.name} ({column.unit})" if column.unit else column.name) for column in table.columns),
        right=tuple(_stands_right(column, cells) for column, cells in _by_column(table)),
        rows=tuple(zip(*columns, strict=True)),
        footnotes=tuple((flag, one_line(reason)) for reason, flag in reasons.items()),
    )


def fact_text(fact: Fact) -> str:
    """Write the value of a fact; a missing one gives its reason at once."""
    text = cell_text(fact.value, fact.unit)
    return f"{text}: {one_line(fact.value.reason)}" if isinstance(fact.value, Missing) else text


def _by_column(table: Table) -> list[tuple[Column, list[Cell]]]:
    return [(column, [row[index] for row in table.rows]) for index, column in enumerate(table.columns)]


def _reasons(table: Table) -> dict[str, str]:
    missing = [cell.reason for row in table.rows for cell in row if isinstance(cell, Missing)]
    return {reason: letter(index) for index, reason in enumerate(dict.fromkeys(missing))}


def _entries(column: Column, cells: Sequence[Cell], reasons: dict[str, str]) -> list[Entry]:
    decimals = shared_decimals(cells, column.unit) if column.decimals is None else column.decimals
    return [
        Entry(
            cell_text(cell, column.unit, decimals, bare=True),
            is_number(cell),
            reasons[cell.reason] if isinstance(cell, Missing) else "",
            interval_origin(cell),
        )
        for cell in cells
    ]


def _stands_right(column: Column, cells: Sequence[Cell]) -> bool:
    if column.align != "auto":
        return column.align == "right"
    present = [cell for cell in cells if cell is not None and not isinstance(cell, Missing)]
    return bool(present) and all(map(is_number, present))
