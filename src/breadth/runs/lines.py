"""Read text files of rows (JSONL, console logs) in blocks, whatever state they are in.

A row that cannot be read is a remark, never a crash and never silence; memory stays flat however long the file is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from breadth.base.errors import BrokenFileError
from breadth.runs.records import Remark

BLOCK = 8 << 20
"""Bytes read at a time: a few thousand rollouts, small beside any machine's memory."""
LONGEST = 64 << 20
"""Longest row read, in bytes; a longer one is a dump of something else, or newlines were lost."""
HEAD = 1 << 16
"""Bytes an importer sees of a file to recognise it."""


def head(path: Path) -> bytes:
    """Return the first bytes of a file, for recognising it."""
    try:
        with path.open("rb") as file:
            return file.read(HEAD)
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> BrokenFileError:
    """Turn an operating-system refusal to read into an error that says what to do."""
    return BrokenFileError(path, f"cannot be read: {error.strerror or error}.", "Check that it exists and that you may read it.")


def blocks(path: Path) -> Iterator[tuple[int, list[bytes]] | Remark]:
    """Yield ``(row number of the first line, lines)`` block by block, and a remark for each line over the limit."""
    try:
        with path.open("rb") as file:
            yield from _blocks(file, path)
    except OSError as error:
        raise unreadable(path, error) from error


def _blocks(file: Any, path: Path) -> Iterator[tuple[int, list[bytes]] | Remark]:
    row, rest = 1, b""
    while block := file.read(BLOCK):
        whole, newline, rest = (rest + block).rpartition(b"\n")
        if newline:
            lines = whole.split(b"\n")
            yield row, lines
            row += len(lines)
        elif len(rest) > LONGEST:
            size, rest = _skip_line(file, len(rest))
            yield too_long(path, row, size)
            row += 1
    if rest:
        yield row, rest.removesuffix(b"\n").split(b"\n")  # more than one row where the file ends soon after an over-long one


def _skip_line(file: Any, size: int) -> tuple[int, bytes]:
    """Read past the end of an over-long line; return its size and what follows it in the last block."""
    while block := file.read(BLOCK):
        line, newline, rest = block.partition(b"\n")
        size += len(line)
        if newline:
            return size, rest
    return size, b""


def too_long(path: Path, row: int, size: int) -> Remark:
    """Remark on a row over the limit."""
    return Remark(
        f"a single row of {size / 1e6:,.0f} MB was left out (the limit is {LONGEST / 1e6:,.0f} MB).",
        str(path),
        row,
        "Write one JSON object per line; if newlines were lost, restore them.",
    )


def text_rows(path: Path) -> Iterator[tuple[int, str] | Remark]:
    """Yield ``(row number, text)``; bytes that are not UTF-8 become the replacement character, with one remark per file."""
    odd = 0
    for block in blocks(path):
        if isinstance(block, Remark):
            yield block
            continue
        first, lines = block
        for offset, line in enumerate(lines):
            text = line.decode("utf-8", errors="replace")
            odd += "\ufffd" in text
            yield first + offset, text.rstrip("\r")
    if odd:
        yield Remark(f"{odd} rows are not UTF-8; the odd bytes were replaced.", str(path), None, "Save the file as UTF-8.")


def json_rows(path: Path) -> Iterator[list[tuple[int, dict[str, Any]]] | Remark]:
    """Yield lists of ``(row number, object)``, a block at a time, and a remark for each row that is not a JSON object."""
    for block in blocks(path):
        if isinstance(block, Remark):
            yield block
            continue
        first, lines = block
        rows: list[tuple[int, dict[str, Any]]] = []
        for offset, line in enumerate(lines):
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                row = _second_try(line)
            if isinstance(row, dict):
                rows.append((first + offset, row))
            elif line.strip():
                yield _not_an_object(path, first + offset, line)
        yield rows


def _second_try(line: bytes) -> Any:
    """Read what strict JSON refuses but Python's writer produces: NaN, Infinity, huge integers; None when it is not JSON."""
    try:
        return json.loads(line.decode("utf-8-sig", errors="replace"))
    except (ValueError, RecursionError):
        return None


def _not_an_object(path: Path, row: int, line: bytes) -> Remark:
    start = line[:60].decode("utf-8", errors="replace")
    return Remark(
        f"not a JSON object, left out: {start!r}.",
        str(path),
        row,
        "If it is the last row, the writer was stopped while writing (or still is); otherwise repair the row.",
    )
