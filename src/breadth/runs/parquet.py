"""Read Parquet files in small batches, however they are encoded; what unfolds to more than is safe is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from breadth.base.catalogue import LazyModule
from breadth.base.errors import BrokenFileError
from breadth.runs.jsonl import MAX_ROW_BYTES, MAX_ROW_VALUES, OBJECT_VALUES, read_error, require_regular_file
from breadth.runs.parquet_pages import PageSizes, footer_sizes, longest_row, max_unpacked_bytes, read_page_sizes
from breadth.runs.paths import is_remote

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = LazyModule("pyarrow"), LazyModule("pyarrow.parquet")

BATCH_BYTES = 4 << 20
"""Decoded bytes of a batch of Parquet rows, about: as Python objects they take up to ten times as much."""
BATCH_VALUES = 1 << 20
"""Values in the lists and structs of a batch, about: truth values take a bit each, and as Python objects 60 bytes."""
READ_BYTES = 1 << 20
"""Bytes of a column that are fetched from the disk at a time; otherwise pyarrow fetches all of a row group's column."""
PARQUET_BATCH_ROWS = 8192
"""Rows of a batch of Parquet rows."""
MAX_HELD_BYTES = 256 << 20
"""Bytes that must be in memory at once at most: of pages, and of lists however small the file is, because one row may
hold all of a list column.
"""
MAX_DECODED_BYTES = 1 << 30
"""Decoded bytes of a whole file, which are accepted however small it is: they are read batch by batch."""
MAX_FREE_ROWS = 1 << 22
"""Rows that are accepted however small the file is; a row of anything real takes a byte or more."""
MAX_UNFOLDING = 30
"""How many times as large as its file decoded data may be beyond these sizes; text reaches 10."""
VALUE_BYTES = {"BOOLEAN": 0.125, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12, "BYTE_ARRAY": 4}
"""Decoded bytes per value by Parquet type, without the text itself."""
MIN_LIST_VALUE_BYTES = 4
"""Bytes counted for a value in a list at least: as a Python object even a truth value takes eight."""


WRITE_AGAIN = "Copy or write the file again."
"""What to do about a damaged Parquet file whose writer is not known."""


class GroupSize(NamedTuple):
    """How large a row group of a Parquet file is once it is decoded, in bytes."""

    rows: int
    """Rows of it."""
    decoded: float
    """All of it."""
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
    with parquet_errors(path, remedy), path.open("rb") as raw, open_parquet(path) as file:
        for place, group in enumerate(measure_groups(path, raw, file)):
            for batch in file.iter_batches(group.batch_rows, row_groups=[place], use_threads=False):
                yield from split_batch(batch)


def read_parquet_rows(path: Path, remedy: str = WRITE_AGAIN) -> Iterator[list[dict[str, Any]]]:
    """Yield a Parquet file's rows in lists that stay small however it is encoded."""
    for batch in read_parquet_batches(path, remedy):
        with parquet_errors(path, remedy):
            rows = batch.to_pylist()
        yield rows
        del rows  # the next are made only then


def open_parquet(path: Path, read_dictionary: list[str] | None = None) -> pq.ParquetFile:
    """Open a Parquet file, local or remote, to be read page by page."""
    source = path.open("rb") if is_remote(path) else path
    return pq.ParquetFile(source, read_dictionary=read_dictionary, pre_buffer=False, buffer_size=READ_BYTES)


def split_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Halve a batch until its parts are small, or one row; raises ValueError where one row is too large."""
    values = sum(count_values(column) for column in batch.columns if pa.types.is_nested(column.type))
    if batch.nbytes <= BATCH_BYTES and values <= BATCH_VALUES:
        yield batch
        return
    if len(batch) < 2:
        if batch.nbytes > MAX_ROW_BYTES or values > MAX_ROW_VALUES:
            size = f"{batch.nbytes / 1e6:,.0f} MB and {values:,} values"
            raise ValueError(f"a single row of {size} is too large to be read")
        yield batch
        return
    middle = len(batch) // 2
    yield from split_batch(batch.slice(0, middle))
    yield from split_batch(batch.slice(middle))


def measure_groups(path: Path, file: IO[bytes], table: pq.ParquetFile, *, lists: bool = True) -> list[GroupSize]:
    """Measure the row groups of a Parquet file; refuse it where it unfolds to far more than it is on disk.

    A thousand bytes can encode a thousand million equal values: what counts is the values and not their encoding. The
    pages of lists need not be looked at (``lists``) for a reader whose memory is limited.
    """
    size, metadata = path.stat().st_size, table.metadata
    if metadata.num_rows > max(MAX_FREE_ROWS, MAX_UNFOLDING * size):
        raise BrokenFileError(
            path,
            f"has {metadata.num_rows:,} rows in {size:,} bytes, which no run writes.",
            "Delete it; if the rows are real, write them in smaller files.",
        )
    groups: list[GroupSize] = []
    decoded = 0.0
    for place in range(metadata.num_row_groups):
        open_columns(table, place)
        groups.append(measure_group(path, file, metadata, place, lists=lists))
        decoded += groups[-1].decoded
        if decoded > max(MAX_UNFOLDING * size, MAX_DECODED_BYTES):
            raise too_large_decoded(path, size, decoded)
    return groups


def open_columns(table: pq.ParquetFile, place: int) -> None:
    """Let pyarrow read the description of every column of a row group, and none of its values.

    A damaged description raises here. The same description asked for by `RowGroupMetaData.column` ends the process
    (pyarrow 26). A batch of no rows is refused by `ParquetFile.iter_batches`, but not by its reader, which divides by
    it only where there is no column.
    """
    if table.metadata.num_columns:
        next(table.reader.iter_batches(0, row_groups=[place], column_indices=None, use_threads=False), None)


def measure_group(
    path: Path, file: IO[bytes], metadata: pq.FileMetaData, place: int, *, lists: bool = True
) -> GroupSize:
    """Measure one row group; texts are looked at where a few of them could stand for many."""
    file_size = path.stat().st_size
    allowed = MAX_UNFOLDING * file_size
    group = metadata.row_group(place)
    decoded = pages = in_lists = longest = 0.0
    for number in range(group.num_columns):
        column = group.column(number)
        is_list, kind = metadata.schema.column(number).max_repetition_level > 0, column.physical_type
        found = measure_pages(file, column, is_list=is_list and lists)
        width = VALUE_BYTES.get(kind, found.encoded)
        size = max(found.values * (max(width, MIN_LIST_VALUE_BYTES) if is_list else width), found.encoded)
        pages += found.largest
        in_lists += size if is_list else 0
        decoded += size
        if (
            pages > MAX_HELD_BYTES
            or in_lists > max(allowed, MAX_HELD_BYTES)
            or decoded > max(allowed, MAX_DECODED_BYTES)
        ):
            raise too_large_decoded(path, file_size, decoded)
        if is_list and lists and size > MAX_ROW_BYTES:
            check_longest_row(file, column, metadata.schema.column(number).max_repetition_level)
        if kind == "BYTE_ARRAY":
            total, widest = measure_texts(path, place, column, found, allowed)
            decoded += total
            in_lists += total if is_list else widest
            longest = max(longest, widest)
    if pages + in_lists > max(allowed, MAX_HELD_BYTES):
        raise too_large_decoded(path, file_size, decoded)
    return GroupSize(group.num_rows, decoded, longest)


def measure_pages(file: IO[bytes], column: pq.ColumnChunkMetaData, *, is_list: bool) -> PageSizes:
    """Return the sizes of a column chunk's pages: by the footer where nothing can be hidden behind it."""
    limit = max_unpacked_bytes(column)
    is_text = column.physical_type == "BYTE_ARRAY"
    if not is_list and limit * (max(column.num_values, 1) if is_text else 1) <= BATCH_BYTES:
        return footer_sizes(column)
    return read_page_sizes(file, column)


def check_longest_row(file: IO[bytes], column: pq.ColumnChunkMetaData, max_level: int) -> None:
    """Refuse a list column with a row of too many values: Arrow decodes a whole row, however small a batch is."""
    values = longest_row(file, column, max_level)
    if values > MAX_ROW_VALUES:
        raise ValueError(f"a single row of {values:,} values is too large to be read")


def measure_texts(
    path: Path, place: int, column: pq.ColumnChunkMetaData, pages: PageSizes, allowed: float
) -> tuple[float, float]:
    """Return the bytes of a column's texts beyond its encoded size, and of the longest; both 0 where it is small."""
    encoded = pages.encoded
    if pages.values * encoded <= BATCH_BYTES:
        return 0, 0
    if not pages.has_dictionary and not pages.shares_prefixes:
        return 0, pages.largest if encoded > max(BATCH_BYTES, MAX_UNFOLDING * column.total_compressed_size) else 0
    import pyarrow.compute as pc

    name = column.path_in_schema
    in_dictionary = pages.has_dictionary and not pages.shares_prefixes  # pyarrow cannot read both as indices
    rows = PARQUET_BATCH_ROWS if in_dictionary else max(1, BATCH_BYTES // encoded)
    total = widest = 0
    with open_parquet(path, [name] if in_dictionary else None) as file:
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


def count_values(array: pa.Array) -> int:
    """Return how many values a column becomes as Python objects, those in its lists and structs included."""
    if pa.types.is_map(array.type):
        return OBJECT_VALUES * len(array.keys) + count_values(array.items)
    if pa.types.is_struct(array.type):
        return OBJECT_VALUES * len(array) + sum(map(count_values, array.flatten()))
    return len(array) + count_values(array.flatten()) if pa.types.is_nested(array.type) else len(array)


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
