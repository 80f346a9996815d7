"""Read Jupyter notebooks as data: the code of their cells, and what training has printed below them.

A notebook often is the only log of a run: lines of text, or the table in which transformers shows its progress. A page
saved from one has the tables too. Nothing in them is executed; pages are searched as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import unescape
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from breadth.base.errors import BrokenFileError
from breadth.runs.jsonl import read_error, read_text_rows
from breadth.runs.schema import Remark

NOTEBOOK_SUFFIX = ".ipynb"
OUTPUT_SUFFIXES = frozenset({NOTEBOOK_SUFFIX, ".html", ".htm"})
"""Suffixes of files that keep the output of cells: notebooks, and pages saved from them."""
MAX_NOTEBOOK_BYTES = 32_000_000
"""Bytes of a notebook that is read: pictures among its outputs are most of it."""
STEP_HEADER = "Step"
"""First column of transformers' progress table."""
TABLE_ROW, TABLE_CELL = re.compile(r"<tr\b"), re.compile(r"<t[dh]\b[^<>]{0,200}>([^<]*)")
NO_VALUE = frozenset({"", "No log"})
"""Cells of a metric that was not logged at a step."""

TableRow: TypeAlias = dict[str, str]
"""A row of a progress table: column -> cell, as printed."""


def is_notebook(path: Path) -> bool:
    """Say by its name whether a file is a notebook."""
    return path.suffix.casefold() == NOTEBOOK_SUFFIX


def read_page(path: Path) -> str:
    """Return the text of a notebook or page; refuse one that is too large."""
    try:
        if path.stat().st_size > MAX_NOTEBOOK_BYTES:
            remedy = "Clear the pictures among its outputs, or save the log as a text."
            raise BrokenFileError(path, f"is larger than {MAX_NOTEBOOK_BYTES:,} bytes.", remedy)
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise read_error(path, error) from error


def read_cells(path: Path) -> list[Mapping[str, Any]]:
    """Return the code cells of a notebook."""
    try:
        document = orjson.loads(read_page(path))
    except orjson.JSONDecodeError as error:
        raise BrokenFileError(
            path, f"is no notebook: {error}.", "Save it again, or export it as a Python file."
        ) from error
    cells = document.get("cells") if isinstance(document, Mapping) else None
    return [
        cell
        for cell in (cells if isinstance(cells, list) else ())
        if isinstance(cell, Mapping) and cell.get("cell_type") == "code"
    ]


def code_cells(path: Path) -> Iterator[str]:
    """Yield the code of each cell; shell and notebook commands become ``pass``."""
    for cell in read_cells(path):
        text = join_lines(cell.get("source"))
        yield "\n".join(re.sub(r"^(\s*)[!%].*", r"\1pass", line) for line in text.splitlines())


def join_lines(text: Any) -> str:
    """Return a text that a notebook keeps whole or as a list of lines."""
    return "".join(str(line) for line in text) if isinstance(text, list) else str(text or "")


def read_output(path: Path) -> Iterator[str | TableRow]:
    """Yield what the cells of a notebook printed, in order: lines of text, and rows of progress tables."""
    if not is_notebook(path):
        yield from progress_rows(read_page(path))
        return
    for cell in read_cells(path):
        outputs = cell.get("outputs")
        for output in outputs if isinstance(outputs, list) else ():
            if not isinstance(output, Mapping):
                continue
            if output.get("output_type") == "stream":
                yield from join_lines(output.get("text")).replace("\r", "\n").splitlines()
            data = output.get("data")
            if isinstance(data, Mapping) and "text/html" in data:
                yield from progress_rows(join_lines(data["text/html"]))


def read_log_lines(path: Path) -> Iterator[tuple[int, str] | Remark]:
    """Yield the numbered lines of a text, or those that a notebook's cells printed."""
    if not is_notebook(path):
        yield from read_text_rows(path)
        return
    for number, line in enumerate(read_output(path), 1):
        if isinstance(line, str):
            yield number, line


def progress_rows(page: str) -> Iterator[TableRow]:
    """Yield the rows of progress tables, without empty cells; nothing of any other table."""
    for part in page.split("<table")[1:]:
        table = part.partition("</table")[0]
        rows = [[unescape(cell).strip() for cell in TABLE_CELL.findall(row)] for row in TABLE_ROW.split(table)[1:]]
        header = rows[0] if rows else []
        if not header or header[0] != STEP_HEADER:
            continue
        for cells in rows[1:]:
            if len(cells) == len(header):
                yield {name: cell for name, cell in zip(header, cells, strict=True) if cell not in NO_VALUE}
