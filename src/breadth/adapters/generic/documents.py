"""Rows inside JSON documents: a list of rows under some key, columns as lists, and tables nested in a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from breadth.adapters.sniff import BOM
from breadth.base.errors import BrokenFileError
from breadth.runs.jsonl import MAX_ROW_BYTES, read_error, try_parse_json

WRAPPERS = frozenset({"metrics", "data", "stats", "logs", "log", "values", "scalars", "payload"})
"""Keys around a row's metrics that say nothing of them."""
MAX_NESTING = 3
"""Levels of nested tables that are read."""
MIN_DOCUMENT_ROWS = 3
"""Rows that make a list in a document a log."""


def flatten_row(row: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Return a row whose nested tables are joined by ``/``: ``{"train": {"loss": 1}}`` becomes ``train/loss``."""
    if depth == 0 and not any(isinstance(value, dict) for value in row.values()):
        return dict(row)
    flat: dict[str, Any] = {}
    for name, value in row.items():
        whole = f"{prefix}{name}"
        if isinstance(value, dict) and depth < MAX_NESTING:
            inner = flatten_row(value, prefix if str(name).casefold() in WRAPPERS else f"{whole}/", depth + 1)
            flat |= {key: entry for key, entry in inner.items() if key not in flat and key not in row}
        elif depth == 0 or isinstance(value, int | float | str | None):
            flat[whole] = value
    return flat


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
    """Return the rows of two or more lists of numbers of one length, numbered from 1 where none is the step."""
    columns = {
        str(name): value
        for name, value in table.items()
        if isinstance(value, list)
        and len(value) >= MIN_DOCUMENT_ROWS
        and all(isinstance(entry, int | float | None) for entry in value)
    }
    length = max(map(len, columns.values()), default=0)
    columns = {name: value for name, value in columns.items() if len(value) == length}
    if len(columns) < 2:
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
