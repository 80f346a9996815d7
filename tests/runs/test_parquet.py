"""Parquet files are read in small batches; what unfolds to far more than its file is refused, whatever it claims."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from breadth.base.errors import BrokenFileError
from breadth.runs import parquet
from breadth.runs.parquet import read_parquet_rows


def write_bomb(path: Path, text: str, rows: int) -> Path:
    """Write rows of one text, which a dictionary holds once."""
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))
    table = pa.table({"step": np.zeros(rows, np.int64), "problem": texts})
    pq.write_table(table, path, row_group_size=rows, compression="zstd")
    return path


READ_WITHIN_BOUNDS = """
import resource, sys
from pathlib import Path
from breadth.base.errors import BrokenFileError
from breadth.runs.parquet import read_parquet_rows
import pyarrow.compute
room = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (room, room))
try:
    print(sum(map(len, read_parquet_rows(Path(sys.argv[1])))))
except BrokenFileError as error:
    print(error)
"""


def read_within_bounds(path: Path) -> str:
    """Read a Parquet file in a process that gets one more gigabyte of memory."""
    command = [sys.executable, "-c", READ_WITHIN_BOUNDS, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of the process is read from /proc")
def test_a_parquet_bomb_is_refused_within_a_gigabyte(tmp_path: Path) -> None:
    path = write_bomb(tmp_path / "bomb.parquet", "x" * 8192, 1_000_000)
    assert path.stat().st_size < 20_000
    assert "unfolds from" in read_within_bounds(path)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of the process is read from /proc")
def test_long_texts_that_repeat_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    path = write_bomb(tmp_path / "prompts.parquet", "x" * 500_000, 2000)
    assert read_within_bounds(path) == "2000"


def test_too_many_rows_for_the_file_and_too_long_lists_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_bomb(tmp_path / "rows.parquet", "x", 5_000_000)
    with pytest.raises(BrokenFileError, match="5,000,000 rows in"):
        next(read_parquet_rows(rows))
    monkeypatch.setattr(parquet, "MAX_HELD_BYTES", 1 << 20)
    nested = tmp_path / "nested.parquet"
    pq.write_table(pa.table({"ids": [[0] * 1_000_000]}), nested, compression="zstd")
    with pytest.raises(BrokenFileError, match="unfolds from"):
        next(read_parquet_rows(nested))
    texts = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"messages": [[{"content": "x" * 5000}]] * 1000}), texts, compression="zstd")
    with pytest.raises(BrokenFileError, match="unfolds from"):
        next(read_parquet_rows(texts))


def test_ordinary_nested_texts_are_read(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": f"question {number} " * 300}]} for number in range(500)]
    path = tmp_path / "chat.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    assert [row for batch in read_parquet_rows(path) for row in batch] == rows


def write_number(number: int, size: int = 0) -> bytes:
    """Return a number as a footer holds it, in so many bytes."""
    groups: list[int] = []
    while number or not groups or len(groups) < size:
        groups.append(number & 0x7F)
        number >>= 7
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


def lie(path: Path, replaced: dict[int, int]) -> Path:
    """Change numbers in a footer; nothing moves."""
    data = path.read_bytes()
    start = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    footer = data[start:]
    for old, new in replaced.items():
        there = write_number(2 * old)
        assert there in footer
        footer = footer.replace(there, write_number(2 * new, len(there)))
    path.write_bytes(data[:start] + footer)
    return path


def encoded_sizes(path: Path) -> dict[int, int]:
    """Return the sizes in a footer, each with a small one instead."""
    group = pq.read_metadata(path).row_group(0)
    sizes = [group.column(number).total_uncompressed_size for number in range(group.num_columns)]
    return dict.fromkeys([size for size in (*sizes, group.total_byte_size) if size > 10_000], 100)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of the process is read from /proc")
@pytest.mark.parametrize("kind", ["dictionary", "one text", "prefixes", "list"])
def test_a_footer_that_claims_little_is_not_believed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "bomb.parquet"
    options: dict[str, Any] = {"compression": "zstd", "write_statistics": False}
    if kind == "dictionary":
        write_bomb(path, "x" * 1_000_000, 4000)
        lie(path, encoded_sizes(path))
    elif kind == "one text":
        pq.write_table(pa.table({"text": ["x" * 600_000_000]}), path, use_dictionary=False, **options)
        lie(path, encoded_sizes(path))
    elif kind == "prefixes":
        texts = pa.array([f"{'x' * 200_000}{number}" for number in range(6000)])
        encoding = {"text": "DELTA_BYTE_ARRAY"}
        pq.write_table(pa.table({"text": texts}), path, use_dictionary=False, column_encoding=encoding, **options)
        lie(path, encoded_sizes(path))
    else:
        ids = pa.ListArray.from_arrays([0, 90_000_000], pa.array(np.zeros(90_000_000, np.int32)))
        pq.write_table(pa.table({"ids": ids}), path, data_page_size=1 << 30, **options)
        lie(path, {90_000_000: 3})
    assert path.stat().st_size < 100_000
    assert "unfolds from" in read_within_bounds(path)


def test_texts_that_share_their_beginnings_are_read(tmp_path: Path) -> None:
    texts = [f"{'the same beginning ' * 50}{number}" for number in range(3000)]
    path = tmp_path / "a.parquet"
    encoding = {"text": "DELTA_BYTE_ARRAY"}
    pq.write_table(pa.table({"text": texts}), path, use_dictionary=False, column_encoding=encoding)
    assert [row["text"] for batch in read_parquet_rows(path) for row in batch] == texts


def test_one_row_larger_than_is_safe_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MAX_ROW_VALUES", 3_000_000)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"ids": [list(range(3_000_001))]}), path)
    with pytest.raises(BrokenFileError, match="a single row of 24 MB and 3,000,002 values is too large"):
        next(read_parquet_rows(path))


def test_every_field_of_a_struct_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = pa.array(np.zeros(3000, np.bool_))
    structs = pa.StructArray.from_arrays([flags] * 6, names=list("abcdef"))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"flags": pa.ListArray.from_arrays(pa.array([0, 1000, 2000, 3000]), structs)}), path)
    monkeypatch.setattr(parquet, "BATCH_VALUES", 10_000)
    assert [len(rows) for rows in read_parquet_rows(path)] == [1, 1, 1]  # 1000 objects of 6 + 3 values each
    monkeypatch.setattr(parquet, "BATCH_VALUES", 9000)
    monkeypatch.setattr(parquet, "MAX_ROW_VALUES", 9000)
    with pytest.raises(BrokenFileError, match="a single row of 0 MB and 9,001 values is too large"):
        next(read_parquet_rows(path))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of the process is read from /proc")
def test_a_row_that_is_a_whole_column_is_refused_within_a_gigabyte(tmp_path: Path) -> None:
    ends = pa.array([0] + [100_000_000] * 64, pa.int32())
    values = pa.DictionaryArray.from_arrays(pa.array(np.arange(100_000_000) % 2, pa.int8()), pa.array([0.0, 0.5]))
    lists = pa.ListArray.from_arrays(ends, values.cast(pa.float64()))
    other = np.random.default_rng(0).bytes(40 << 20)
    padding = pa.array([other[: 20 << 20], other[20 << 20 :], *[b""] * 62])
    path = tmp_path / "row.parquet"
    table = pa.table({"logprobs": lists, "other": padding})
    pq.write_table(table, path, compression="none", use_dictionary=["logprobs.list.element"], row_group_size=64)
    assert "a single row of 100,000,000 values" in read_within_bounds(path)


def test_a_column_of_a_row_group_is_not_fetched_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "texts.parquet"
    texts = [np.random.default_rng(number).bytes(40_000).hex() for number in range(200)]
    pages = {"data_page_size": 1 << 16, "write_batch_size": 1}
    pq.write_table(pa.table({"text": texts}), path, compression="none", use_dictionary=False, **pages)
    monkeypatch.setattr(parquet, "READ_BYTES", 1 << 16)
    fetched = []

    class Reader(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            fetched.append(size or 0)
            return super().read(size)

    monkeypatch.setattr(parquet, "is_remote", lambda _: True)
    with Reader(path) as file:
        monkeypatch.setattr(Path, "open", lambda *_: file)
        assert [row["text"] for rows in read_parquet_rows(path) for row in rows] == texts
    assert max(fetched) < 1 << 20
