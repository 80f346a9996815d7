"""Pages say what they unpack to, whatever the footer says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from breadth.runs.parquet_pages import ThriftReader, footer_sizes, max_unpacked_bytes, read_page_sizes

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
