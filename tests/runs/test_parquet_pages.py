"""Pages say what they unpack to, whatever the footer says."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from breadth.runs.parquet_pages import (
    RowLengths,
    ThriftReader,
    footer_sizes,
    longest_row,
    max_unpacked_bytes,
    read_page_sizes,
    unpack_page,
)

ROWS = 5_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    table = pa.table({"number": rng.integers(0, 2**60, ROWS), "text": [f"text {place % 7}" for place in range(ROWS)]})
    pq.write_table(table, tmp_path / "table.parquet", compression="snappy", use_dictionary=["text"])
    return tmp_path / "table.parquet"


def test_pages_hold_every_value_and_no_more_than_the_footer_says(path: Path) -> None:
    group = pq.ParquetFile(path).metadata.row_group(0)
    with path.open("rb") as file:
        numbers, texts = (read_page_sizes(file, group.column(place)) for place in range(2))
    assert (numbers.values, texts.values) == (ROWS, ROWS)
    assert (numbers.has_dictionary, texts.has_dictionary) == (False, True)
    assert numbers.encoded >= 8 * ROWS  # eight bytes per number, and the levels
    for place, found in enumerate((numbers, texts)):
        said = footer_sizes(group.column(place))
        assert 0 < found.largest <= found.encoded <= said.encoded  # the footer counts headers too
        assert said.encoded <= max_unpacked_bytes(group.column(place))


def test_a_column_cut_short_is_refused(path: Path) -> None:
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    path.write_bytes(path.read_bytes()[: column.data_page_offset + 2])
    with path.open("rb") as file, pytest.raises(ValueError, match="no whole header"):
        read_page_sizes(file, column)


def test_numbers_of_seven_bits() -> None:
    # By hand: field 1 (head 0x15: delta 1, kind 5) is 300 as zigzag 600 = 0xd8 0x04; then the end.
    assert ThriftReader(bytes([0x15, 0xD8, 0x04, 0x00])).read_struct() == {1: 300}
    assert ThriftReader(bytes([0x03])).read_zigzag() == -2
    with pytest.raises(ValueError, match="has no end"):
        ThriftReader(b"\xff" * 20).read_varint()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "lz4", "zstd", "brotli"])
def test_pages_add_up_to_what_an_honest_footer_says(tmp_path: Path, version: str, codec: str) -> None:
    table = pa.table(
        {
            "text": [f"text {number} " * 20 for number in range(5000)],
            "few": ["a", "b"] * 2500,
            "ids": [list(range(number % 7)) for number in range(5000)],
            "number": np.arange(5000.0),
            "nothing": pa.nulls(5000, pa.int32()),
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression=codec, data_page_version=version, data_page_size=4096)
    group = pq.read_metadata(path).row_group(0)
    with path.open("rb") as file:
        for number in range(group.num_columns):
            column = group.column(number)
            found, said = read_page_sizes(file, column), footer_sizes(column)
            assert (found.values, found.has_dictionary) == (said.values, said.has_dictionary)
            headers = 60 * (2 + said.encoded // 1000)
            assert found.encoded <= said.encoded <= found.encoded + headers, "a footer counts the headers too"
            assert 0 < found.largest <= found.encoded


def test_a_header_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["x" * 5000] * 50}), path, compression="zstd")
    column = pq.read_metadata(path).row_group(0).column(0)
    beyond = b"\x15\x00\x15\x02\x15\xff\xff\x03\x00"  # a page of 32 KB in a column of less
    for content in (b"", b"\0" * 9000, b"\xff" * 9000, b"\x1c" * 9000, beyond + b"\0" * 9000):
        with pytest.raises(ValueError, match="page"):
            read_page_sizes(io.BytesIO(b"PAR1" + content), column)


def test_fields_of_every_kind_are_read_past() -> None:
    # Field 1 true, 2 a byte, 3 the number -3, 4 a double, 5 the text ab, 6 a struct with field 1 = 1, 20 the number 2.
    data = b"\x11\x13\x07\x15\x05\x17" + b"\0" * 8 + b"\x18\x02ab\x1c\x15\x02\x00\x05\x28\x04\x00"
    reader = ThriftReader(data + b"rest")
    assert reader.read_struct() == {1: True, 2: None, 3: -3, 4: None, 5: None, 6: {1: 1}, 20: 2}
    assert reader.place == len(data)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
def test_the_longest_row_is_found_by_its_levels(tmp_path: Path, version: str, codec: str) -> None:
    sizes = [3, 0, 1, 700, *[5] * 3000, 20_000, *[0] * 5000, 2, 19_999]
    lists = [list(range(size)) for size in sizes]
    path = tmp_path / "lists.parquet"
    table = pa.table({"flat": lists, "deep": [[values[:1], values[1:]] for values in lists]})
    pq.write_table(table, path, data_page_version=version, compression=codec, data_page_size=4096)
    metadata = pq.ParquetFile(path).metadata
    with path.open("rb") as file:
        found = [
            longest_row(file, metadata.row_group(0).column(place), metadata.schema.column(place).max_repetition_level)
            for place in range(2)
        ]
    assert found == [20_000, 20_000]


def test_rows_by_hand() -> None:
    lengths = RowLengths(1)
    lengths.add_levels(bytes([0b11, 0b11110110]), 8)  # a group of packed levels, the lowest bit first: 0 1 1 0 1 1 1 1
    assert (lengths.current, lengths.longest) == (5, 5)
    lengths.add_levels(bytes([4 << 1, 1, 2 << 1, 0]), 6)  # four more of this row, then two rows of one value
    assert (lengths.current, lengths.longest) == (1, 9)
    lengths.add_levels(bytes([0xC8, 1, 1]), 3)  # more levels than the page has values
    assert (lengths.current, lengths.longest) == (4, 9)


def test_lists_packed_in_a_way_we_cannot_unpack_are_refused() -> None:
    with pytest.raises(ValueError, match="LZO"):
        unpack_page(b"", "LZO", 1)
