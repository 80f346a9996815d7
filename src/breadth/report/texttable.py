"""Tables in the terminal: numbers are never cut; what does not fit side by side is printed row by row."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text

from breadth.report.pen import Pen, indented, more, pairs
from breadth.report.sections import Table
from breadth.report.style import SHOWN_ROWS
from breadth.report.tabulation import Entry, Tabulation, tabulate

_NARROWEST = 12
"""Columns a text may be squeezed to before the table is printed row by row."""
_GAP = 2
"""Spaces between columns."""


def table(rows: Table, pen: Pen) -> list[RenderableType]:
    """Print a table with its heading, footnotes and caption."""
    known = tabulate(rows)
    widths = _widths(known, pen)
    shown: list[RenderableType] = [_grid(known, widths, pen)] if widths else _cards(known, pen)
    hidden = len(known.rows) - SHOWN_ROWS
    footnotes = [f"{flag}  {reason}" for flag, reason in known.footnotes]
    return [*pen.heading(rows.title), *shown, *pen.notes("" if rows.rows else "No rows.", more(hidden, "more row"), *footnotes, rows.note)]


def _widths(known: Tabulation, pen: Pen) -> list[int]:
    """Share the width out: every column as wide as it likes, or numbers whole and words squeezed; none when even that is too wide."""
    wanted = [_column_width(known, index, heading, pen) for index, heading in enumerate(known.headings)]
    least = [_least(known, index, want, pen) for index, want in enumerate(wanted)]
    spare = pen.width - sum(least) - _GAP * len(least)
    if spare < 0:
        return []
    widths = list(least)
    by_need = sorted(range(len(least)), key=lambda index: wanted[index] - least[index])
    for place, index in enumerate(by_need):  # those who lack little get it all, the others share what is left
        extra = min(wanted[index] - least[index], spare // (len(least) - place))
        widths[index] += extra
        spare -= extra
    return widths


def _column_width(known: Tabulation, index: int, heading: str, pen: Pen) -> int:
    cells = [cell_len(_written(row[index], pen).plain) for row in known.rows[:SHOWN_ROWS]]
    return max([1, cell_len(pen.safe(heading)), *cells])


def _least(known: Tabulation, index: int, wanted: int, pen: Pen) -> int:
    longest_word = max(map(cell_len, pen.safe(known.headings[index]).split()), default=0)
    if any(row[index].numeric for row in known.rows[:SHOWN_ROWS]):
        return _column_width(known, index, longest_word * "x", pen)
    return min(wanted, max(longest_word, _NARROWEST))


def _grid(known: Tabulation, widths: Sequence[int], pen: Pen) -> Grid:
    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    for width, right in zip(widths, known.right, strict=True):
        grid.add_column(justify="right" if right else "left", width=width, overflow="fold")
    grid.add_row(*(pen.words(heading, "bold") for heading in known.headings))
    grid.add_row(*(pen.block("─" * width, "muted") for width in widths))
    for row in known.rows[:SHOWN_ROWS]:
        grid.add_row(*(_written(entry, pen) for entry in row))
    return grid


def _cards(known: Tabulation, pen: Pen) -> list[RenderableType]:
    """Print each row as its first cell and a list of the others."""
    cards: list[RenderableType] = []
    for row in known.rows[:SHOWN_ROWS]:
        listed = [(pen.words(heading), _written(entry, pen)) for heading, entry in zip(known.headings[1:], row[1:], strict=True)]
        cards.append(pen.words(f"{known.headings[0]}: {_written(row[0], pen).plain}", "bold"))
        cards.append(indented([pairs([*listed], pen.width)]))
    return cards


def _written(entry: Entry, pen: Pen) -> Text:
    return pen.words(f"{entry.text} [{entry.footnote}]" if entry.footnote else entry.text)
