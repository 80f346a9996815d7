"""Files in any state are read block by block; what cannot be read becomes a remark with its row."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breadth.base.errors import BrokenFileError
from breadth.runs import jsonl
from breadth.runs.jsonl import parse_json, read_blocks, read_head, read_json_rows, read_text_rows, try_parse_json
from breadth.runs.reader import read_points
from breadth.runs.schema import Remark


def read(path: Path) -> tuple[list[tuple[int, dict[str, object]]], list[Remark]]:
    rows: list[tuple[int, dict[str, object]]] = []
    remarks: list[Remark] = []
    for block in read_json_rows(path):
        if isinstance(block, Remark):
            remarks.append(block)
        else:
            rows += block
    return rows, remarks


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=30), st.integers(1, 50))
def test_any_block_size_gives_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory, content: list[bytes], size: int
) -> None:
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(b"\n".join(content))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "BLOCK_BYTES", size)
        got: list[tuple[int, bytes]] = []
        for block in read_blocks(path):
            assert not isinstance(block, Remark)
            got += [(block[0] + offset, line) for offset, line in enumerate(block[1])]
    expected = [(row, line) for row, line in enumerate(content, 1)]
    if expected and not expected[-1][1]:
        expected.pop()  # a trailing newline opens no further row
    assert got == expected


def test_nan_infinity_and_huge_numbers_are_read_as_python_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"r": NaN, "s": -Infinity, "t": 1e400, "u": 123456789012345678901234567890}\n')
    ((_, row),), remarks = read(path)
    assert math.isnan(row["r"])  # type: ignore[arg-type]  # json gives float here
    assert (row["s"], row["t"], row["u"]) == (-math.inf, math.inf, 123456789012345678901234567890)
    assert remarks == []


def test_a_half_written_last_line_is_remarked_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a": ')
    rows, remarks = read(path)
    assert rows == [(1, {"a": 1}), (2, {"a": 2})]
    assert [(remark.row, "stopped while writing" in remark.remedy) for remark in remarks] == [(3, True)]


def test_blank_lines_are_passed_over_and_other_values_remarked(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('\n{"a": 1}\n\n  \n[1, 2]\n3\n')
    rows, remarks = read(path)
    assert rows == [(2, {"a": 1})]
    assert [remark.row for remark in remarks] == [5, 6]


def test_a_row_of_a_hundred_megabytes_is_left_out_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(b'{"a": 1}\n{"text": "')
        for _ in range(100):
            file.write(b"x" * 1_000_000)
        file.write(b'"}\n{"a": 2}\n')
    rows, remarks = read(path)
    assert rows == [(1, {"a": 1}), (3, {"a": 2})]
    assert [remark.row for remark in remarks] == [2]
    assert "100 MB" in remarks[0].problem


def test_bytes_that_are_not_utf8_are_replaced_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"good\r\nbad \xff\xfe\n")
    got = list(read_text_rows(path))
    assert got[:2] == [(1, "good"), (2, "bad \ufffd\ufffd")]
    assert isinstance(got[2], Remark)
    path.write_bytes(b'{"a": "\xff"}\n')
    assert read(path) == ([(1, {"a": "\ufffd"})], [])


def test_deeply_nested_json_is_a_remark_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("[" * 100_000 + "\n" + json.dumps({"a": 1}) + "\n")
    rows, remarks = read(path)
    assert rows == [(2, {"a": 1})]
    assert len(remarks) == 1


def test_lines_that_are_objects_only_together_are_remarked(tmp_path: Path) -> None:
    """A piece is parsed as one list; broken lines must not pass because their neighbours complete them."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1\n"b": 2}\n{"c": 3}\n')
    rows, remarks = read(path)
    assert rows == [(3, {"c": 3})]
    assert [remark.row for remark in remarks] == [1, 2]


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}\r\n')
    assert read(path) == ([(1, {"a": 1}), (2, {"a": 2})], [])


@given(st.lists(st.integers(0, 40), max_size=20), st.integers(1, 30))
def test_rows_after_over_long_ones_keep_their_numbers(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], size: int
) -> None:
    path = tmp_path_factory.mktemp("long") / "file"
    path.write_bytes(b"".join(b"x" * length + b"\n" for length in lengths))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "BLOCK_BYTES", size)
        patch.setattr(jsonl, "MAX_ROW_BYTES", 30 + size)
        got = [
            (block[0] + offset, len(line))
            for block in read_blocks(path)
            if not isinstance(block, Remark)
            for offset, line in enumerate(block[1])
        ]
        left_out = [block.row for block in read_blocks(path) if isinstance(block, Remark)]
    assert got == [(row, length) for row, length in enumerate(lengths, 1) if row not in left_out]
    assert all(lengths[row - 1] > 30 for row in left_out if row)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BrokenFileError, match="is a folder, not a file"):
        read_head(tmp_path)
    for action in (lambda: read_head(tmp_path / "none"), lambda: list(read_blocks(tmp_path / "none"))):
        with pytest.raises(BrokenFileError, match="Check that it exists"):
            action()


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="this system makes up no files")
def test_a_file_that_the_system_makes_up_is_not_read() -> None:
    assert read_head(Path("/proc/version")) == b""  # reading its neighbour /proc/kmsg never ends


@given(st.binary(max_size=80))
def test_no_bytes_make_the_lenient_reader_raise(text: bytes) -> None:
    try_parse_json(text)


def test_deep_nesting_is_not_json() -> None:
    assert try_parse_json(b"[" * 100_000) is None
    with pytest.raises(ValueError, match=r"nested too deeply|recursion"):
        parse_json("[" * 100_000)


def test_what_python_writes_is_json() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": NaN}').keys() == {"a"}
    assert parse_json('{"a": -Infinity, "b": 1e999}') == {"a": -math.inf, "b": math.inf}
    assert parse_json(str(10**400)) == 10**400


def test_a_row_of_too_many_values_or_keys_is_a_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_ROW_VALUES", 100)
    monkeypatch.setattr(jsonl, "MAX_ROW_KEYS", 20)
    path = tmp_path / "a.jsonl"
    keys = json.dumps(dict.fromkeys(map(str, range(21)), 1))
    path.write_text('{"a": 1}\n{"a": [' + "[]," * 60 + "0]}\n" + keys + '\n{"a": "' + "x" * 300 + '"}\n')
    rows, remarks = read(path)
    assert [number for number, _ in rows] == [1, 4]
    assert [(remark.row, "more than" in remark.problem) for remark in remarks] == [(2, True), (3, True)]
    with pytest.raises(ValueError, match="more than 100 values"):
        parse_json("[" + "1," * 200 + "1]")
    with pytest.raises(ValueError, match="more than 100 values"):
        parse_json('{"a":' * 40 + "1" + "}" * 40)  # an object takes as much as three values
    with pytest.raises(ValueError, match="more than 100 values"):
        parse_json(json.dumps(dict.fromkeys(map(str, range(60)), 1)))  # a key takes as much as a value
    assert len(parse_json(json.dumps(dict.fromkeys(map(str, range(45)), 1)))) == 45


def memory_of_rows(path: Path, rows: int) -> int:
    """Bytes of Python objects at most while rows of a hundred thousand keys are read as metrics."""
    with path.open("w") as file:
        for row in range(rows):
            json.dump({"step": row, "values": {"a": {str(row * 100_000 + key): 1.5 for key in range(100_000)}}}, file)
            file.write("\n")
    tracemalloc.start()
    read_points(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def test_a_large_row_is_gone_before_the_next_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    memory_of_rows(path, 1)  # whatever is imported or cached the first time
    assert memory_of_rows(path, 4) < 1.4 * memory_of_rows(path, 1)


def test_a_hole_of_terabytes_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_ROW_BYTES", 1 << 20)
    monkeypatch.setattr(jsonl, "MAX_SKIPPED_BYTES", 4 << 20)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n')
    with path.open("r+b") as file:
        file.truncate(1 << 42)
    rows, remarks = read(path)
    assert [row for _, row in rows] == [{"a": 1}]
    assert [("with all behind it" in remark.problem, remark.row) for remark in remarks] == [(True, 2)]


def test_very_many_bad_rows_are_counted_and_the_file_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "MAX_ROW_REMARKS", 3)
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n' + "x\n" * 10 + '{"a": 2}')
    rows, remarks = read(path)
    assert [number for number, _ in rows] == [1, 12]
    assert [remark.row for remark in remarks] == [2, 3, 4, None]
    assert remarks[-1].problem == "7 more rows are no JSON objects; left out."
    monkeypatch.setattr(jsonl, "MAX_BAD_ROWS", 5)
    path.write_text("x\n" * 200_000)
    rows, remarks = read(path)
    assert (rows, "the rest of the file was not read" in remarks[-1].problem) == ([], True)
