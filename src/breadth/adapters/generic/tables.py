"""Open any file of rows (JSONL, JSON, CSV, Parquet): what columns it has, and its rows in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from json import JSONDecoder
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from breadth.adapters.generic.csv_rows import BATCH, BATCH_SIZE, csv_rows, header_cells
from breadth.adapters.heads import BOM, first_objects, leading_keys, parsed
from breadth.base.errors import BrokenFileError
from breadth.runs.lines import LONGEST, json_rows, unreadable
from breadth.runs.records import Remark

Rows = list[tuple[int, dict[str, Any]]]
"""Numbered rows, each column -> value."""
LONGEST_NAME = 200
"""Characters of a column's name; a longer first line is no header."""


@dataclass(frozen=True)
class Glimpse:
    """What the start of a file shows."""

    form: str
    """JSONL, JSON, CSV or Parquet."""
    columns: Mapping[str, bool]
    """Column -> whether its first values are numbers."""


def glimpse(path: Path, start: bytes) -> Glimpse | None:
    """Return a file's form and columns, or None when it is no file of rows."""
    text = start.removeprefix(BOM).lstrip()
    if text.startswith(b"PAR1"):
        return _parquet_glimpse(path)
    if text.startswith(b"{"):
        return _glimpse_of("JSONL", first_objects(start) or ([dict.fromkeys(leading_keys(start))] if b"\n" not in text else []))
    if text.startswith(b"["):
        return _glimpse_of("JSON", _first_of_list(text))
    return _csv_glimpse(text)


def rows_of(path: Path, form: str) -> Iterator[Rows | Remark]:
    """Yield a file's rows in batches, and what was odd about it."""
    readers: dict[str, Callable[[Path], Iterator[Any]]] = {
        "JSONL": json_rows,
        "JSON": _list_rows,
        "CSV": csv_rows,
        "Parquet": _parquet_rows,
    }
    return readers[form](path)


def is_number(value: Any) -> bool:
    """Say whether a value, or the text of a cell, is a number."""
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return isinstance(value, int | float)


def _glimpse_of(form: str, rows: list[dict[str, Any]]) -> Glimpse | None:
    columns: dict[str, bool] = {}
    for row in rows:
        for name, value in row.items():
            columns[name] = columns.get(name, False) or is_number(value)
    return Glimpse(form, columns) if columns else None


def _first_of_list(text: bytes) -> list[dict[str, Any]]:
    """Return the first object of a JSON list, alone: the list itself may be long."""
    try:
        first, _ = JSONDecoder().raw_decode(text[1:].lstrip().decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return []
    return [first] if isinstance(first, dict) else []


def _csv_glimpse(text: bytes) -> Glimpse | None:
    lines = text.decode("utf-8", errors="replace").splitlines()[:8]
    if not lines or "\0" in lines[0]:
        return None
    header = header_cells(lines[0])
    if len(header) < 2 or max(map(len, header)) > LONGEST_NAME:
        return None
    rows = [dict(zip(header, header_cells(line), strict=False)) for line in lines[1:]]
    known = {name: any(is_number(row.get(name)) for row in rows) for name in header if name}
    return Glimpse("CSV", known) if known else None


def _parquet_glimpse(path: Path) -> Glimpse | None:
    """Return a Parquet file's columns; none at all where its end is missing, so that reading it says so."""
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError):
        return Glimpse("Parquet", {}) if path.is_file() else None
    numeric = {field.name: pa.types.is_integer(field.type) or pa.types.is_floating(field.type) for field in schema}
    return Glimpse("Parquet", numeric)


def _list_rows(path: Path) -> Iterator[Rows | Remark]:
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= LONGEST else b""
    except OSError as error:
        raise unreadable(path, error) from error
    rows = parsed(content.removeprefix(BOM))
    if not isinstance(rows, list):
        what = "is not a whole JSON list." if content else f"has {size / 1e6:,.0f} MB; a JSON list is read up to {LONGEST / 1e6:,.0f} MB."
        raise BrokenFileError(path, what, "Write one JSON object per line (JSONL) instead: it can be read in parts and survives a crash.")
    odd = [number for number, row in enumerate(rows, 1) if not isinstance(row, dict)]
    if odd:
        yield Remark(f"{len(odd)} entries are not JSON objects; left out.", str(path), odd[0])
    yield [(number, row) for number, row in enumerate(rows, 1) if isinstance(row, dict)]


def _parquet_rows(path: Path) -> Iterator[Rows | Remark]:
    first = 1
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_batch_rows(file.metadata)):
                rows = batch.to_pylist()
                yield list(enumerate(rows, first))
                first += len(rows)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BrokenFileError(
            path, f"is not readable as Parquet past row {first - 1} ({str(error)[:200]}).", "Copy or write the file again."
        ) from error


def _batch_rows(metadata: Any) -> int:
    """Return how many rows to take at a time, so that a batch stays small however long its texts are."""
    size = sum(metadata.row_group(place).total_byte_size for place in range(metadata.num_row_groups))
    return int(min(BATCH, max(1, BATCH_SIZE * metadata.num_rows // max(size, 1))))
