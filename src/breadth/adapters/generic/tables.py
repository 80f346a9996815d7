"""Open any file of rows (JSONL, JSON, CSV, Parquet): its columns, its rows in batches, rows inside a JSON document."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from json import JSONDecoder
from pathlib import Path
from typing import Any

import pyarrow as pa

from breadth.adapters.parse_values import sum_up_rewards
from breadth.base.errors import BrokenFileError
from breadth.runs.importer import BOM, first_objects, leading_keys
from breadth.runs.jsonl import (
    MAX_ROW_BYTES,
    MAX_ROW_KEYS,
    MAX_ROW_VALUES,
    has_too_many_values,
    read_error,
    read_json_rows,
    read_text_rows,
    try_parse_json,
)
from breadth.runs.names import match_name
from breadth.runs.parquet import read_parquet_rows, try_read_schema
from breadth.runs.schema import Remark

WRAPPERS = frozenset({"metrics", "data", "stats", "logs", "log", "values", "scalars", "payload"})
"""Keys around a row's metrics that say nothing of them."""
MAX_NESTING = 3
"""Levels of nested tables that are read."""
MIN_DOCUMENT_ROWS = 3
"""Rows that make a list in a document a log."""


def flatten_row(row: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Return a row whose nested tables are joined by ``/``: ``{"train": {"loss": 1}}`` becomes ``train/loss``.

    Lists of a group's rewards give their mean and spread.
    """
    if depth == 0 and not any(isinstance(value, dict | list) for value in row.values()):
        return dict(row)
    flat: dict[str, Any] = sum_up_rewards(row) if depth == 0 else {}
    for name, value in row.items():
        whole = f"{prefix}{name}"
        if isinstance(value, dict) and depth < MAX_NESTING:
            inner = flatten_row(value, prefix if str(name).casefold() in WRAPPERS else f"{whole}/", depth + 1)
            flat |= {key: entry for key, entry in inner.items() if key not in flat and key not in row}
        elif depth == 0 or isinstance(value, int | float | str | None):
            flat[whole] = value
    return flat


SCORES = frozenset({"reward", "accuracy"})
"""Metrics of ours that are the course of a run by themselves; other numbers are printed for many reasons."""


def document_rows(document: Any) -> list[dict[str, Any]]:
    """Return the rows of a document: its longest list of tables, or its lists of numbers as columns; else nothing."""
    if not isinstance(document, dict):
        return []
    inner = [value for value in document.values() if isinstance(value, dict)]
    lists = [value for table in (document, *inner) for value in table.values() if is_list_of_tables(value)]
    if lists:
        return max(lists, key=len)
    return next((rows for table in (document, *inner) if (rows := rows_of_columns(table))), [])


def is_list_of_tables(value: Any) -> bool:
    """Whether a value is a list of at least three tables."""
    return isinstance(value, list) and len(value) >= MIN_DOCUMENT_ROWS and all(isinstance(row, dict) for row in value)


def rows_of_columns(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of two or more lists of numbers of one length, numbered from 1 where none is the step.

    A list alone is one where its name means a score.
    """
    columns = {
        str(name): value
        for name, value in table.items()
        if isinstance(value, list)
        and len(value) >= MIN_DOCUMENT_ROWS
        and all(isinstance(entry, int | float | None) for entry in value)
    }
    length = max(map(len, columns.values()), default=0)
    columns = {name: value for name, value in columns.items() if len(value) == length}
    if len(columns) < 2 and not any((match_name(name) or ("",))[0] in SCORES for name in columns):
        return []
    if "steps" in columns:
        columns["step"] = columns.pop("steps")
    columns.setdefault("step", list(range(1, length + 1)))
    return [dict(zip(columns, entries, strict=True)) for entries in zip(*columns.values(), strict=True)]


def load_document_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file that is one JSON document; nothing for any other, or one that is too large."""
    try:
        content = path.read_bytes() if path.stat().st_size <= MAX_ROW_BYTES else b""
    except OSError as error:
        raise read_error(path, error) from error
    return document_rows(try_parse_json(content.removeprefix(BOM)))


def read_document_rows(path: Path) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """Yield the rows of a document, numbered by their place in the list."""
    rows = load_document_rows(path)
    if not rows:
        raise BrokenFileError(path, "holds no rows of metrics any more.", "Write one JSON object per line (JSONL).")
    yield list(enumerate(rows, 1))


DELIMITERS = ",;\t|"
MAX_BATCH_ROWS = 8192
"""Rows of a batch."""
MAX_BATCH_CHARACTERS = 16 << 20
"""Characters of a batch: a row of a reasoning model may have a hundred thousand."""
MAX_BATCH_CELLS = 1 << 18
"""Cells of a batch: each takes a hundred bytes, however short its text."""
MAX_RECORD_LENGTH = 16 << 20
"""Characters of one row; a longer one has an unclosed quote."""
MAX_REPAIRS = 20
"""Unclosed quotes repaired in one file; each costs reading what follows a second time."""
TEXT_BOM = "\ufeff"
CsvRows = list[tuple[int, dict[str, str | None]]]
"""Numbered rows, each column -> cell."""


def header_cells(line: str) -> list[str]:
    """Return the column names of a header line."""
    bare = line.removeprefix(TEXT_BOM).replace("\r", "")
    return next(csv.reader([bare], delimiter=delimiter_of(bare)), [])


def delimiter_of(line: str) -> str:
    """Return the delimiter a header line uses: the one that gives most columns."""
    outside_quotes = "".join(line.split('"')[::2])
    return max(DELIMITERS, key=outside_quotes.count)


def csv_rows(path: Path) -> Iterator[CsvRows | Remark]:
    """Yield rows a few thousand at a time; an empty cell is None."""
    if csv.field_size_limit() < MAX_RECORD_LENGTH:
        csv.field_size_limit(MAX_RECORD_LENGTH)  # a cell may hold a whole completion, the default is 128 KB
    table = _Table(path)
    rows: CsvRows = []
    size = cells = 0
    for number, row in table.rows():
        rows.append((number, row))
        size += sum(len(cell) for cell in row.values() if cell)
        cells += len(row)
        if len(rows) >= MAX_BATCH_ROWS or size >= MAX_BATCH_CHARACTERS or cells >= MAX_BATCH_CELLS:
            yield rows
            rows, size, cells = [], 0, 0
    yield rows
    yield from table.remarks()


class _Lines:
    """Gives lines to the csv module, and can return those of a row that does not end."""

    def __init__(self, path: Path) -> None:
        self.remarks: list[Remark] = []
        self.taken: list[tuple[int, str]] = []
        self.ended = False
        self._ahead: list[tuple[int, str]] = []
        self._source = read_text_rows(path)
        self._size = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._ahead.pop() if self._ahead else self._fresh()
        if line is None or self._size > MAX_RECORD_LENGTH:
            self.ended = True
            self._ahead += [line] if line else []
            raise StopIteration
        self.taken.append(line)
        self._size += len(line[1])
        return line[1] + "\n"

    def _fresh(self) -> tuple[int, str] | None:
        for line in self._source:
            if not isinstance(line, Remark):
                return line[0], line[1].removeprefix(TEXT_BOM).replace("\r", " ")
            self.remarks.append(line)
        return None

    def settle(self) -> None:
        """Forget the lines of the row just read."""
        self.taken.clear()
        self._size, self.ended = 0, False

    def take_back(self, keep: int) -> None:
        """Return the lines of the last row to be read again, except the first ones."""
        self._ahead += reversed(self.taken[keep:])
        self.settle()


class _Table:
    """Reads the rows of one CSV file and counts its problems."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = _Lines(path)
        self._uneven = self._first_uneven = 0
        self._unclosed: list[int] = []

    def rows(self) -> Iterator[tuple[int, dict[str, str | None]]]:
        header: list[str] = []
        for number, cells in self._records():
            if not header:
                header = cells
            elif any(cells):
                if len(cells) != len(header):
                    self._uneven += 1
                    self._first_uneven = self._first_uneven or number
                yield number, {name: cell or None for name, cell in zip_longest(header, cells[: len(header)]) if name}

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        delimiter = delimiter_of(next(self.lines, ""))
        self.lines.take_back(0)
        reader = csv.reader(self.lines, delimiter=delimiter)
        while len(self._unclosed) <= MAX_REPAIRS:
            self.lines.settle()
            cells = next_record(reader)
            if cells is None and not self.lines.taken:
                return
            number, text = self.lines.taken[0]
            if cells is None or self.lines.ended:
                self._unclosed.append(number)
                self.lines.take_back(1)
                cells = text.split(delimiter)
            yield number, cells

    def remarks(self) -> list[Remark]:
        """Return the problems of the file, once it is read."""
        remarks = list(self.lines.remarks)
        if self._uneven:
            problem = f"{self._uneven} rows have more or fewer cells than the header; what has no name was left out."
            remarks.append(
                Remark(
                    problem, str(self.path), self._first_uneven, "Quote cells that hold the delimiter or a line break."
                )
            )
        open_quote = "a quote is opened and never closed; the line was read as it is."
        remarks += [Remark(open_quote, str(self.path), row, "Close it.") for row in self._unclosed[:MAX_REPAIRS]]
        if len(self._unclosed) > MAX_REPAIRS:
            row = self._unclosed[-1]
            remarks.append(
                Remark(
                    "too many quotes are never closed; the rest was not read.",
                    str(self.path),
                    row,
                    "Export the file again.",
                )
            )
        return remarks


def next_record(reader: Iterator[list[str]]) -> list[str] | None:
    """Return the next row's cells; None at the end, and if a cell is too long."""
    try:
        return next(reader, None)
    except csv.Error:
        return None


NumberedRows = list[tuple[int, dict[str, Any]]]
"""Numbered rows, each column -> value."""
MIN_COMPLETION_CHARS = 20
"""Characters from which a text may be a completion; a shorter one is a label or a state."""
MAX_COLUMN_NAME_LENGTH = 200
"""Characters of a column's name; a longer first line is no header."""


@dataclass(frozen=True)
class TablePreview:
    """The format and columns of a file, from its start."""

    format: str
    """JSONL, JSON, CSV, Parquet, or Document: one JSON object that contains the rows."""
    columns: Mapping[str, bool]
    """Column -> whether its first values are numbers."""
    long_texts: frozenset[str] = frozenset()
    """Columns whose first values are texts long enough for a completion."""


def preview_table(path: Path, start: bytes) -> TablePreview | None:
    """Return a file's format and columns, or None if it is not a file of rows."""
    text = start.removeprefix(BOM).lstrip()
    if text.startswith(b"PAR1"):
        return preview_parquet(path)
    if text.startswith(b"{"):
        return preview_of_rows(
            "JSONL", first_objects(start) or ([dict.fromkeys(leading_keys(start))] if b"\n" not in text else [])
        )
    if text.startswith(b"["):
        return preview_of_rows("JSON", first_of_list(text))
    return preview_csv(text)


def read_rows(path: Path, form: str) -> Iterator[NumberedRows | Remark]:
    """Yield a file's rows in batches, and remarks on its problems."""
    readers: dict[str, Callable[[Path], Iterator[Any]]] = {
        "JSONL": read_json_rows,
        "JSON": read_json_list,
        "CSV": csv_rows,
        "Parquet": read_parquet,
        "Document": read_document_rows,
    }
    return readers[form](path)


def is_numeric(value: Any) -> bool:
    """Whether a value, or the text of a cell, is a number."""
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return isinstance(value, int | float)


def preview_of_rows(form: str, rows: list[dict[str, Any]]) -> TablePreview | None:
    """Return the columns of the first rows, and which hold numbers."""
    columns: dict[str, bool] = {}
    long_texts: set[str] = set()
    for row in rows:
        for name, value in flatten_row(row).items():
            columns[name] = columns.get(name, False) or is_numeric(value)
            if isinstance(value, str) and len(value) >= MIN_COMPLETION_CHARS:
                long_texts.add(name)
    return TablePreview(form, columns, frozenset(long_texts)) if columns else None


def preview_document(path: Path, start: bytes) -> TablePreview | None:
    """Return the columns of the rows inside a JSON document, or None if it is none or holds no rows."""
    if not start.removeprefix(BOM).lstrip().startswith(b"{") or not path.is_file():
        return None
    return preview_of_rows("Document", load_document_rows(path)[:8])


def first_of_list(text: bytes) -> list[dict[str, Any]]:
    """Return the first object of a JSON list, without reading the rest."""
    try:
        first, _ = JSONDecoder().raw_decode(text[1:].lstrip().decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return []
    return [first] if isinstance(first, dict) else []


def preview_csv(text: bytes) -> TablePreview | None:
    """Return the columns of a CSV file, or None if it is not one."""
    lines = text.decode("utf-8", errors="replace").splitlines()[:8]
    if not lines or "\0" in lines[0]:
        return None
    header = header_cells(lines[0])
    if len(header) < 2 or max(map(len, header)) > MAX_COLUMN_NAME_LENGTH:
        return None
    rows = [dict(zip(header, header_cells(line), strict=False)) for line in lines[1:]]
    known = {name: any(is_numeric(row.get(name)) for row in rows) for name in header if name}
    long_texts = {name for row in rows for name, cell in row.items() if len(cell) >= MIN_COMPLETION_CHARS}
    return TablePreview("CSV", known, frozenset(long_texts)) if known else None


def preview_parquet(path: Path) -> TablePreview | None:
    """Return a Parquet file's columns; none if it is truncated, so that reading it reports that."""
    schema = try_read_schema(path)
    if schema is None:
        return TablePreview("Parquet", {}) if path.is_file() else None
    numeric = {field.name: pa.types.is_integer(field.type) or pa.types.is_floating(field.type) for field in schema}
    return TablePreview("Parquet", numeric)


def read_json_list(path: Path) -> Iterator[NumberedRows | Remark]:
    """Yield the rows of a JSON list; other entries are left out with a remark."""
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= MAX_ROW_BYTES else b""
    except OSError as error:
        raise read_error(path, error) from error
    rows = try_parse_json(content.removeprefix(BOM))
    if not isinstance(rows, list):
        what = "is not a whole JSON list."
        if size > MAX_ROW_BYTES:
            what = f"has {size / 1e6:,.0f} MB; a JSON list is read up to {MAX_ROW_BYTES / 1e6:,.0f} MB."
        elif has_too_many_values(content):
            what = f"has more than {MAX_ROW_VALUES:,} values; a JSON list is read up to that."
        raise BrokenFileError(
            path, what, "Write one JSON object per line (JSONL) instead: it can be read in parts and survives a crash."
        )
    odd = [number for number, row in enumerate(rows, 1) if not isinstance(row, dict)]
    if odd:
        yield Remark(f"{len(odd)} entries are not JSON objects; left out.", str(path), odd[0])
    good = [(number, row) for number, row in enumerate(rows, 1) if isinstance(row, dict) and len(row) <= MAX_ROW_KEYS]
    if len(odd) + len(good) < len(rows):
        huge = len(rows) - len(odd) - len(good)
        yield Remark(f"{huge} entries have more than {MAX_ROW_KEYS:,} keys; left out.", str(path))
    yield good


def read_parquet(path: Path) -> Iterator[NumberedRows | Remark]:
    """Yield the rows of a Parquet file in batches."""
    first = 1
    for rows in read_parquet_rows(path):
        yield list(enumerate(rows, first))
        first += len(rows)
