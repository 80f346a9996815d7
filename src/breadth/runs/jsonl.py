"""Read files of rows (JSONL, console logs, Parquet) in blocks, also damaged ones.

A row that cannot be read is a remark, never a crash and never silence; memory stays flat however long the file is, and
however much its encoding can unfold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from breadth.base.catalogue import LazyModule
from breadth.base.errors import BrokenFileError
from breadth.runs.schema import Remark

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = LazyModule("pyarrow"), LazyModule("pyarrow.parquet")

BLOCK_BYTES = 1 << 20
"""Bytes handed on at a time: a thousand rollouts, small enough to stay in the processor's cache on their way into
Arrow.
"""
PIECE_BYTES = 1 << 18
"""Bytes taken from a file at once: they stay in the processor's cache while they are cut into lines."""
MAX_ROW_BYTES = 64 << 20
"""Longest row read, in bytes; a longer one is a dump of something else, or newlines were lost."""
MAX_SKIPPED_BYTES = 1 << 30
"""Bytes of a longer row that are read past; then the rest of the file is left out: it may be a hole of terabytes."""
MAX_ROW_VALUES = 4_000_000
"""Values of a JSON text at most, a key counted as one: each can take two hundred bytes while it becomes a Python
object."""
OBJECT_VALUES = 3
"""Values that an object counts as: it takes 250 bytes however little is in it."""
MAX_ROW_KEYS = 100_000
"""Keys of a row at most: each may become a metric or a column of its own."""
MAX_ROW_REMARKS = 100
"""Rows of a file that are remarked on one by one; further ones are counted."""
MAX_BAD_ROWS = 1_000_000
"""Rows that are no JSON objects after which a file is not read further: it is something else."""
NEWLINE = ord("\n")
HEAD_BYTES = 1 << 16
"""Bytes an importer sees of a file to recognise it."""


def read_head(path: Path) -> bytes:
    """Return the first bytes of a file, for recognising it; refuse a pipe or a device, which cannot be read twice."""
    try:
        require_regular_file(path)
        if path.stat().st_size == 0:  # also files that a system makes up, such as /proc/kmsg, whose reading never ends
            return b""
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError as error:
        raise read_error(path, error) from error


def require_regular_file(path: Path) -> None:
    """Refuse a folder, a pipe or a device before it is opened: reading one may never end."""
    if not path.is_file() and path.exists():
        what = "a folder" if path.is_dir() else "a pipe or a device"
        raise BrokenFileError(path, f"is {what}, not a file.", "Save what it holds to a file, and name that.")


def read_error(path: Path, error: OSError) -> BrokenFileError:
    """Turn an operating-system refusal to read into an error that says what to do."""
    return BrokenFileError(
        path, f"cannot be read: {error.strerror or error}.", "Check that it exists and that you may read it."
    )


class Piece(NamedTuple):
    """Whole lines of a file, not cut apart yet."""

    first: int
    """Row number of the first line."""
    rows: int
    """How many lines."""
    text: bytes
    """The lines, without the last one's newline."""


def read_blocks(path: Path) -> Iterator[tuple[int, list[bytes]] | Remark]:
    """Yield ``(row number of the first line, lines)`` block by block, and a remark for each line over the limit."""
    first, size = 1, 0
    lines: list[bytes] = []
    for piece in read_pieces(path):
        if not isinstance(piece, Remark):
            lines += piece.text.split(b"\n")
            size += len(piece.text)
        if lines and (isinstance(piece, Remark) or size >= BLOCK_BYTES):
            yield first, lines
            first, size, lines = first + len(lines), 0, []
        if isinstance(piece, Remark):
            yield piece
            first += 1
    if lines:
        yield first, lines


def read_pieces(path: Path) -> Iterator[Piece | Remark]:
    """Yield a file's lines in pieces that fit the processor's cache, and a remark for each line over the limit."""
    try:
        require_regular_file(path)
        with path.open("rb") as file:
            yield from _split_pieces(file, path)
    except OSError as error:
        raise read_error(path, error) from error


def _split_pieces(file: Any, path: Path) -> Iterator[Piece | Remark]:
    row, rest = 1, b""
    block = file.read(min(PIECE_BYTES, BLOCK_BYTES))
    while block:
        cut = block.rfind(b"\n")
        if cut < 0:
            rest += block
        else:
            text = b"".join((rest, memoryview(block)[:cut]))
            rest = block[cut + 1 :]
            # ``bytes.count`` takes four times as long.
            count = int(np.count_nonzero(np.frombuffer(text, np.uint8) == NEWLINE)) + 1
            yield Piece(row, count, text)
            row += count
        block = b""
        if len(rest) > MAX_ROW_BYTES:
            size, block = skip_line(file, len(rest))
            yield row_too_long(path, row, size)
            if size > MAX_SKIPPED_BYTES:
                return
            row, rest = row + 1, b""
        block = block or file.read(
            min(max(PIECE_BYTES, len(rest)), BLOCK_BYTES)
        )  # a long row is fetched in larger and larger parts
    if rest:
        yield Piece(row, 1, rest)


def skip_line(file: Any, size: int) -> tuple[int, bytes]:
    """Read past the end of an over-long line; return its size and what follows it in the last block.

    A line over `MAX_SKIPPED_BYTES` is not read to its end.
    """
    while size <= MAX_SKIPPED_BYTES and (block := file.read(BLOCK_BYTES)):
        line, newline, rest = block.partition(b"\n")
        size += len(line)
        if newline:
            return size, rest
    return size, b""


def row_too_long(path: Path, row: int, size: int) -> Remark:
    """Remark on a row over the limit."""
    what = (
        f"a single row of more than {MAX_SKIPPED_BYTES / 1e6:,.0f} MB was left out, with all behind it"
        if size > MAX_SKIPPED_BYTES
        else f"a single row of {size / 1e6:,.0f} MB was left out"
    )
    return Remark(
        f"{what} (the limit is {MAX_ROW_BYTES / 1e6:,.0f} MB).",
        str(path),
        row,
        "Write one JSON object per line; if newlines were lost, restore them.",
    )


def read_text_rows(path: Path) -> Iterator[tuple[int, str] | Remark]:
    """Yield ``(row number, text)``; bytes that are not UTF-8 are replaced, with one remark per file."""
    odd = 0
    for block in read_blocks(path):
        if isinstance(block, Remark):
            yield block
            continue
        first, lines = block
        for offset, line in enumerate(lines):
            text = line.decode("utf-8", errors="replace")
            odd += "\ufffd" in text
            yield first + offset, text.rstrip("\r")
    if odd:
        yield Remark(
            f"{odd} rows are not UTF-8; the odd bytes were replaced.", str(path), None, "Save the file as UTF-8."
        )


def read_json_rows(path: Path) -> Iterator[list[tuple[int, dict[str, Any]]] | Remark]:
    """Yield lists of ``(row number, object)``, block by block, and a remark for each row that is no JSON object."""
    return map(_number_rows, read_json_blocks(path))  # which keeps no block while the next is parsed


def _number_rows(
    block: tuple[list[int], list[dict[str, Any]]] | Remark,
) -> list[tuple[int, dict[str, Any]]] | Remark:
    return block if isinstance(block, Remark) else list(zip(*block, strict=True))


def read_json_blocks(path: Path) -> Iterator[tuple[list[int], list[dict[str, Any]]] | Remark]:
    """Yield ``(row numbers, objects)``, a block at a time, and a remark for each row that is not a JSON object.

    Of very many such rows, the first are remarked on and the others counted.
    """
    numbers: list[int] = []
    rows: list[dict[str, Any]] = []
    size = bad = 0
    for piece in read_pieces(path):
        if isinstance(piece, Remark):
            yield piece
            continue
        objects = parse_piece(piece)
        if objects is None:
            for remark in _parse_row_by_row(path, piece, numbers, rows):
                bad += 1
                if bad <= MAX_ROW_REMARKS:
                    yield remark
        else:
            numbers += range(piece.first, piece.first + piece.rows)
            rows += objects
        del objects  # a row may take half a gigabyte, and the next as much
        size += len(piece.text)
        if size >= BLOCK_BYTES:
            yield numbers, rows
            numbers, rows, size = [], [], 0
        if bad > MAX_BAD_ROWS:
            break
    if rows:
        yield numbers, rows
    if bad > MAX_ROW_REMARKS:
        rest = "; the rest of the file was not read" if bad > MAX_BAD_ROWS else ""
        yield Remark(f"{bad - MAX_ROW_REMARKS:,} more rows are no JSON objects; left out{rest}.", str(path))


def parse_piece(piece: Piece) -> list[dict[str, Any]] | None:
    """Parse a piece in which every line is a JSON object, as nearly all are, in one go; None for any other.

    JSON has no bare newline inside a value, so lines joined by commas are a list of as many objects as there are lines.
    """
    if has_too_many_values(piece.text):
        return None
    try:
        rows = orjson.loads(b"[%b]" % piece.text.replace(b"\n", b","))
    except orjson.JSONDecodeError:
        return None
    if len(rows) != piece.rows or set(map(type, rows)) != {dict}:
        return None
    return rows if len(piece.text) < MAX_ROW_KEYS or max(map(len, rows)) <= MAX_ROW_KEYS else None


def _parse_row_by_row(path: Path, piece: Piece, numbers: list[int], rows: list[dict[str, Any]]) -> Iterator[Remark]:
    """Add the lines that are objects to ``numbers`` and ``rows``; yield a remark for each of the others."""
    for number, line in enumerate(piece.text.split(b"\n"), piece.first):
        row = try_parse_json(line)
        if isinstance(row, dict) and len(row) <= MAX_ROW_KEYS:
            numbers.append(number)
            rows.append(row)
        elif has_too_many_values(line) or isinstance(row, dict):
            most = f"{MAX_ROW_KEYS:,} keys" if isinstance(row, dict) else f"{MAX_ROW_VALUES:,} values"
            problem = f"a single row with more than {most} was left out."
            yield Remark(problem, str(path), number, "Write one JSON object per line.")
        elif line.strip():
            yield not_an_object(path, number, line)


def has_too_many_values(text: bytes | str) -> bool:
    """Say whether a JSON text would take a gigabyte as Python objects, by its commas, colons and brackets."""
    if len(text) <= MAX_ROW_VALUES / OBJECT_VALUES:
        return False
    comma, colon, bracket, brace = (
        map(text.count, (b",", b":", b"[", b"{")) if isinstance(text, bytes) else map(text.count, (",", ":", "[", "{"))
    )
    return comma + colon + bracket + OBJECT_VALUES * brace > MAX_ROW_VALUES


def parse_json(text: bytes | str) -> Any:
    """Parse JSON, with the NaN, Infinity and huge integers that Python writes; raise ValueError on anything else."""
    if has_too_many_values(text):
        raise ValueError(f"it has more than {MAX_ROW_VALUES:,} values")
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        pass
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8-sig", errors="replace"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def try_parse_json(text: bytes | str) -> Any:
    """Parse JSON as `parse_json` does; None when it is not JSON."""
    try:
        return parse_json(text)
    except ValueError:
        return None


def not_an_object(path: Path, row: int, line: bytes) -> Remark:
    """Remark on a row that is not a JSON object."""
    start = line[:60].decode("utf-8", errors="replace")
    return Remark(
        f"not a JSON object, left out: {start!r}.",
        str(path),
        row,
        "If it is the last row, the writer was stopped while writing (or still is); otherwise repair the row.",
    )
