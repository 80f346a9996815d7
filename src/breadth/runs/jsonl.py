"""Read files of rows (JSONL, console logs, Parquet) in blocks, also damaged ones.

A row that cannot be read is a remark, never a crash and never silence; memory stays flat however long the file is, and
however much its encoding can unfold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from breadth.base.catalogue import LazyModule
from breadth.base.errors import BrokenFileError
from breadth.runs.paths import is_remote
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
            row, rest = row + 1, b""
        block = block or file.read(
            min(max(PIECE_BYTES, len(rest)), BLOCK_BYTES)
        )  # a long row is fetched in larger and larger parts
    if rest:
        yield Piece(row, 1, rest)


def skip_line(file: Any, size: int) -> tuple[int, bytes]:
    """Read past the end of an over-long line; return its size and what follows it in the last block."""
    while block := file.read(BLOCK_BYTES):
        line, newline, rest = block.partition(b"\n")
        size += len(line)
        if newline:
            return size, rest
    return size, b""


def row_too_long(path: Path, row: int, size: int) -> Remark:
    """Remark on a row over the limit."""
    return Remark(
        f"a single row of {size / 1e6:,.0f} MB was left out (the limit is {MAX_ROW_BYTES / 1e6:,.0f} MB).",
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
    for block in read_json_blocks(path):
        yield block if isinstance(block, Remark) else list(zip(*block, strict=True))


def read_json_blocks(path: Path) -> Iterator[tuple[list[int], list[dict[str, Any]]] | Remark]:
    """Yield ``(row numbers, objects)``, a block at a time, and a remark for each row that is not a JSON object."""
    numbers: list[int] = []
    rows: list[dict[str, Any]] = []
    size = 0
    for piece in read_pieces(path):
        if isinstance(piece, Remark):
            yield piece
            continue
        objects = parse_piece(piece)
        if objects is None:
            yield from _parse_row_by_row(path, piece, numbers, rows)
        else:
            numbers += range(piece.first, piece.first + piece.rows)
            rows += objects
        size += len(piece.text)
        if size >= BLOCK_BYTES:
            yield numbers, rows
            numbers, rows, size = [], [], 0
    if rows:
        yield numbers, rows


def parse_piece(piece: Piece) -> list[dict[str, Any]] | None:
    """Parse a piece in which every line is a JSON object, as nearly all are, in one go; None for any other.

    JSON has no bare newline inside a value, so lines joined by commas are a list of as many objects as there are lines.
    """
    try:
        rows = orjson.loads(b"[%b]" % piece.text.replace(b"\n", b","))
    except orjson.JSONDecodeError:
        return None
    return rows if len(rows) == piece.rows and set(map(type, rows)) == {dict} else None


def _parse_row_by_row(path: Path, piece: Piece, numbers: list[int], rows: list[dict[str, Any]]) -> Iterator[Remark]:
    """Add the lines that are objects to ``numbers`` and ``rows``; yield a remark for each of the others."""
    for number, line in enumerate(piece.text.split(b"\n"), piece.first):
        row = try_parse_json(line)
        if isinstance(row, dict):
            numbers.append(number)
            rows.append(row)
        elif line.strip():
            yield not_an_object(path, number, line)


def parse_json(text: bytes | str) -> Any:
    """Parse JSON, with the NaN, Infinity and huge integers that Python writes; raise ValueError on anything else."""
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


BATCH_BYTES = 4 << 20
"""Decoded bytes of a batch of Parquet rows, about: as Python objects they take up to ten times as much."""
PARQUET_BATCH_ROWS = 8192
"""Rows of a batch of Parquet rows."""
MAX_HELD_BYTES = 256 << 20
"""Decoded bytes that must be in memory at once, which are accepted however small the file is."""
MAX_DECODED_BYTES = 1 << 30
"""Decoded bytes of a whole file, which are accepted however small it is: they are read batch by batch."""
MAX_FREE_ROWS = 1 << 22
"""Rows that are accepted however small the file is; a row of anything real takes a byte or more."""
MAX_UNFOLDING = 30
"""How many times as large as its file decoded data may be beyond these sizes; text reaches 10."""
VALUE_BYTES = {"BOOLEAN": 0.125, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12, "BYTE_ARRAY": 4}
"""Decoded bytes per value by Parquet type, without the text itself."""


WRITE_AGAIN = "Copy or write the file again."
"""What to do about a damaged Parquet file whose writer is not known."""


class GroupSize(NamedTuple):
    """How large a row group of a Parquet file is once it is decoded, in bytes."""

    rows: int
    """Rows of it."""
    decoded: float
    """All of it."""
    held: float
    """What may have to be in memory at once: pages, and lists, because one row may hold all of a list column."""
    longest: float
    """The longest text, at most."""

    @property
    def batch_rows(self) -> int:
        """Rows to decode at a time."""
        mean = self.decoded / max(self.rows, 1)
        return int(min(PARQUET_BATCH_ROWS, max(1, BATCH_BYTES / max(mean, self.longest, 1))))


@contextmanager
def parquet_errors(path: Path, remedy: str = WRITE_AGAIN) -> Iterator[None]:
    """Turn what pyarrow raises on a damaged file into an error that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:  # a damaged column name is a UnicodeDecodeError
        if isinstance(error, OSError) and error.errno is not None:
            raise read_error(path, error) from error
        raise BrokenFileError(path, f"is not readable Parquet ({str(error)[:200]}).", remedy) from error


def try_read_schema(path: Path) -> pa.Schema | None:
    """Return the columns of a Parquet file with their types; None where it cannot be read."""
    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError, ValueError):  # a damaged column name is a UnicodeDecodeError
        return None


def read_parquet_batches(path: Path, remedy: str = WRITE_AGAIN) -> Iterator[pa.RecordBatch]:
    """Yield a Parquet file in batches that stay small however it is encoded; ``remedy`` is for a damaged one."""
    require_regular_file(path)
    with parquet_errors(path, remedy), open_parquet(path) as file:
        for place, group in enumerate(measure_groups(path, file)):
            for batch in file.iter_batches(group.batch_rows, row_groups=[place], use_threads=False):
                yield from split_batch(batch)


def read_parquet_rows(path: Path, remedy: str = WRITE_AGAIN) -> Iterator[list[dict[str, Any]]]:
    """Yield a Parquet file's rows in lists that stay small however it is encoded."""
    for batch in read_parquet_batches(path, remedy):
        with parquet_errors(path, remedy):
            rows = batch.to_pylist()
        yield rows


def open_parquet(path: Path, read_dictionary: list[str] | None = None) -> pq.ParquetFile:
    """Open a Parquet file, local or remote, to be read page by page."""
    source = path.open("rb") if is_remote(path) else path
    return pq.ParquetFile(source, read_dictionary=read_dictionary, pre_buffer=False)


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a batch until its parts are small, or one row."""
    if batch.nbytes <= BATCH_BYTES or len(batch) < 2:
        yield batch
        return
    middle = len(batch) // 2
    yield from split_batch(batch.slice(0, middle))
    yield from split_batch(batch.slice(middle))


def measure_groups(path: Path, file: pq.ParquetFile) -> list[GroupSize]:
    """Measure the row groups of a Parquet file; refuse it where it unfolds to far more than it is on disk.

    A thousand bytes can encode a thousand million equal values: what counts is the values and not their encoding.
    """
    size, metadata = path.stat().st_size, file.metadata
    if metadata.num_rows > max(MAX_FREE_ROWS, MAX_UNFOLDING * size):
        raise BrokenFileError(
            path,
            f"has {metadata.num_rows:,} rows in {size:,} bytes, which no run writes.",
            "Delete it; if the rows are real, write them in smaller files.",
        )
    groups: list[GroupSize] = []
    for place in range(metadata.num_row_groups):
        open_columns(file, place)
        groups.append(measure_group(path, metadata, place, MAX_UNFOLDING * size))
        decoded = sum(group.decoded for group in groups)
        if decoded > max(MAX_UNFOLDING * size, MAX_DECODED_BYTES):
            raise too_large_decoded(path, size, decoded)
    return groups


def open_columns(file: pq.ParquetFile, place: int) -> None:
    """Let pyarrow read the description of every column of a row group, and none of its values.

    A damaged description raises here. The same description asked for by `RowGroupMetaData.column` ends the process
    (pyarrow 26). A batch of no rows is refused by `ParquetFile.iter_batches`, but not by its reader, which divides by
    it only where there is no column.
    """
    if file.metadata.num_columns:
        next(file.reader.iter_batches(0, row_groups=[place], column_indices=None, use_threads=False), None)


def measure_group(path: Path, metadata: pq.FileMetaData, place: int, allowed: float) -> GroupSize:
    """Measure one row group by its footer; texts are looked at where a few of them could stand for many."""
    group = metadata.row_group(place)
    decoded = held = longest = 0.0
    for number in range(group.num_columns):
        column = group.column(number)
        values, encoded, kind = column.num_values, column.total_uncompressed_size, column.physical_type
        size = max(values * VALUE_BYTES.get(kind, encoded), encoded)
        is_list = metadata.schema.column(number).max_repetition_level > 0
        held += encoded + (size if is_list else 0)
        decoded += size
        if held > max(allowed, MAX_HELD_BYTES) or decoded > max(allowed, MAX_DECODED_BYTES):
            raise too_large_decoded(path, path.stat().st_size, decoded)
        if kind == "BYTE_ARRAY":
            total, widest = measure_texts(path, place, column, allowed)
            decoded += total
            held += total if is_list else widest
            longest = max(longest, widest)
    if held > max(allowed, MAX_HELD_BYTES):
        raise too_large_decoded(path, path.stat().st_size, decoded)
    return GroupSize(group.num_rows, decoded, held, longest)


def measure_texts(path: Path, place: int, column: pq.ColumnChunkMetaData, allowed: float) -> tuple[float, float]:
    """Return the bytes of a column's texts beyond its encoded size, and of the longest; both 0 where it is small."""
    encoded = column.total_uncompressed_size
    if column.num_values * encoded <= BATCH_BYTES:
        return 0, 0
    if not column.has_dictionary_page and "DELTA_BYTE_ARRAY" not in column.encodings:
        return 0, encoded if encoded > max(BATCH_BYTES, MAX_UNFOLDING * column.total_compressed_size) else 0
    import pyarrow.compute as pc

    name = column.path_in_schema
    rows = PARQUET_BATCH_ROWS if column.has_dictionary_page else max(1, BATCH_BYTES // encoded)
    total = widest = 0
    with open_parquet(path, [name]) as file:
        for batch in file.iter_batches(rows, row_groups=[place], columns=[name], use_threads=False):
            texts = innermost_values(batch.column(0))
            if isinstance(texts, pa.DictionaryArray):
                lengths = pc.binary_length(texts.dictionary)
                total += pc.sum(lengths.take(texts.indices)).as_py() or 0
            else:
                lengths = pc.binary_length(texts)
                total += pc.sum(lengths).as_py() or 0
            widest = max(widest, pc.max(lengths).as_py() or 0)
            if total > max(allowed, MAX_DECODED_BYTES):
                raise too_large_decoded(path, path.stat().st_size, total)
    return max(0, total - encoded), widest


def innermost_values(array: pa.Array) -> pa.Array:
    """Return the values of a column inside its lists and structs; of a map, its items."""
    while pa.types.is_nested(array.type):
        if pa.types.is_map(array.type):
            array = array.items
        elif pa.types.is_struct(array.type):
            array = array.flatten()[0]
        else:
            array = array.flatten()
    return array


def too_large_decoded(path: Path, size: int, decoded: float) -> BrokenFileError:
    """Return the error of a Parquet file that unfolds to more than is safe to read."""
    return BrokenFileError(
        path,
        f"unfolds from {size:,} bytes to {decoded / 1e9:,.1f} GB or more, which is not safe to read.",
        "If you meant to write this, write it in smaller files or row groups, or as JSONL.",
    )
