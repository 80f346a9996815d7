"""Read CSV in whatever state people export it: quotes, line breaks in cells, other delimiters, rows of unequal length."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from breadth.runs.lines import text_rows
from breadth.runs.records import Remark

DELIMITERS = ",;\t|"
BATCH = 8192
"""Rows handed on at a time, at most."""
BATCH_SIZE = 16 << 20
"""Characters handed on at a time: a row of a reasoning model may have a hundred thousand."""
LONGEST_RECORD = 16 << 20
"""Characters of one row; beyond it a quote was opened and never closed."""
MOST_REPAIRS = 20
"""Quotes without an end that are passed over in one file; each costs reading what follows a second time."""
BOM = "\ufeff"
Rows = list[tuple[int, dict[str, str | None]]]
"""Numbered rows, each column -> cell."""


def header_cells(line: str) -> list[str]:
    """Return the column names of a header line."""
    bare = line.removeprefix(BOM).replace("\r", "")
    return next(csv.reader([bare], delimiter=delimiter_of(bare)), [])


def delimiter_of(line: str) -> str:
    """Return the delimiter a header line uses: the one that gives most columns."""
    outside_quotes = "".join(line.split('"')[::2])
    return max(DELIMITERS, key=outside_quotes.count)


def csv_rows(path: Path) -> Iterator[Rows | Remark]:
    """Yield rows a few thousand at a time; an empty cell is None."""
    if csv.field_size_limit() < LONGEST_RECORD:
        csv.field_size_limit(LONGEST_RECORD)  # a cell may hold a whole completion, the default is 128 KB
    table = _Table(path)
    rows: Rows = []
    size = 0
    for number, row in table.rows():
        rows.append((number, row))
        size += sum(len(cell) for cell in row.values() if cell)
        if len(rows) >= BATCH or size >= BATCH_SIZE:
            yield rows
            rows, size = [], 0
    yield rows
    yield from table.remarks()


class _Lines:
    """Hands lines to the csv module, and can take back those of a row that does not end."""

    def __init__(self, path: Path) -> None:
        self.remarks: list[Remark] = []
        self.taken: list[tuple[int, str]] = []
        self.ended = False
        self._ahead: list[tuple[int, str]] = []
        self._source = text_rows(path)
        self._size = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._ahead.pop() if self._ahead else self._fresh()
        if line is None or self._size > LONGEST_RECORD:
            self.ended = True
            self._ahead += [line] if line else []
            raise StopIteration
        self.taken.append(line)
        self._size += len(line[1])
        return line[1] + "\n"

    def _fresh(self) -> tuple[int, str] | None:
        for line in self._source:
            if not isinstance(line, Remark):
                return line[0], line[1].removeprefix(BOM).replace("\r", " ")
            self.remarks.append(line)
        return None

    def settle(self) -> None:
        """Forget the lines of the row just read."""
        self.taken.clear()
        self._size, self.ended = 0, False

    def take_back(self, keep: int) -> None:
        """Put the lines of the row just read back to be read again, but for the first ones."""
        self._ahead += reversed(self.taken[keep:])
        self.settle()


class _Table:
    """Reads the rows of one file and keeps count of what was odd."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = _Lines(path)
        self._uneven: list[int] = []
        self._unclosed: list[int] = []

    def rows(self) -> Iterator[tuple[int, dict[str, str | None]]]:
        header: list[str] = []
        for number, cells in self._records():
            if not header:
                header = cells
            elif any(cells):
                if len(cells) != len(header):
                    self._uneven.append(number)
                yield number, {name: cell or None for name, cell in zip_longest(header, cells[: len(header)]) if name}

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        delimiter = delimiter_of(next(self.lines, ""))
        self.lines.take_back(0)
        reader = csv.reader(self.lines, delimiter=delimiter)
        while len(self._unclosed) <= MOST_REPAIRS:
            self.lines.settle()
            cells = _next_record(reader)
            if cells is None and not self.lines.taken:
                return
            number, text = self.lines.taken[0]
            if cells is None or self.lines.ended:
                self._unclosed.append(number)
                self.lines.take_back(1)
                cells = text.split(delimiter)
            yield number, cells

    def remarks(self) -> list[Remark]:
        """Say what was odd about the file, once it is read."""
        said = list(self.lines.remarks)
        if self._uneven:
            problem = f"{len(self._uneven)} rows have more or fewer cells than the header; what has no name was left out."
            said.append(Remark(problem, str(self.path), self._uneven[0], "Quote cells that hold the delimiter or a line break."))
        open_quote = "a quote is opened and never closed; the line was read as it stands."
        said += [Remark(open_quote, str(self.path), row, "Close it.") for row in self._unclosed[:MOST_REPAIRS]]
        if len(self._unclosed) > MOST_REPAIRS:
            row = self._unclosed[-1]
            said.append(Remark("too many quotes are never closed; the rest was not read.", str(self.path), row, "Export the file again."))
        return said


def _next_record(reader: Iterator[list[str]]) -> list[str] | None:
    """Return the next row's cells; None at the end, and where a cell is longer than any cell may be."""
    try:
        return next(reader, None)
    except csv.Error:
        return None
