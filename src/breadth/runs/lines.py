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
"""Bytes handed on at a time: a few thousand rollouts, small beside any machine's memory."""
PIECE = 1 << 18
"""Bytes taken from a file at once: they stay in the processor's cache while they are cut into lines."""
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
    row, size, rest = 1, 0, b""
    lines: list[bytes] = []
    piece = file.read(min(PIECE, BLOCK))
    while piece:
        parts = piece.split(b"\n")
        parts[0] = rest + parts[0]
        rest = parts.pop()
        lines += parts
        size += len(piece)
        too_large = len(rest) > LONGEST
        if lines and (too_large or size >= BLOCK):
            yield row, lines
            row, size, lines = row + len(lines), 0, []
        piece = b""
        if too_large:
            length, piece = _skip_line(file, len(rest))
            yield too_long(path, row, length)
            row, rest = row + 1, b""
        piece = piece or file.read(min(max(PIECE, len(rest)), BLOCK))  # a long row is fetched in larger and larger pieces
    if rest:
        lines.append(rest)
    if lines:
        yield row, lines


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
        objects = _whole_block(lines)
        if objects is None:
            yield from _row_by_row(path, first, lines)
        else:
            yield list(zip(range(first, first + len(lines)), objects, strict=True))


def _whole_block(lines: list[bytes]) -> list[dict[str, Any]] | None:
    """Parse a block in which every line is a JSON object, as nearly all are; None for any other."""
    try:
        rows = [orjson.loads(line) for line in lines]
    except orjson.JSONDecodeError:
        return None
    return rows if set(map(type, rows)) == {dict} else None


def _row_by_row(path: Path, first: int, lines: list[bytes]) -> Iterator[list[tuple[int, dict[str, Any]]] | Remark]:
    rows: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, first):
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            row = _second_try(line)
        if isinstance(row, dict):
            rows.append((number, row))
        elif line.strip():
            yield _not_an_object(path, number, line)
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
