"""Opening files of rows of every form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from breadth.adapters.generic import tables as module
from breadth.adapters.generic.tables import glimpse, is_number, rows_of
from breadth.base.errors import BrokenFileError
from breadth.runs.records import Remark

ROWS: list[dict[str, Any]] = [{"step": 1, "reward": 0.5, "note": "a"}, {"step": 2, "reward": None, "note": "b"}]


def parquet(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def read(path: Path, form: str) -> list[tuple[int, dict[str, Any]]]:
    return [row for batch in rows_of(path, form) if not isinstance(batch, Remark) for row in batch]


@pytest.mark.parametrize(
    ("content", "form"),
    [
        (b'{"step": 1, "reward": 0.5, "note": "a"}\n{"step": 2', "JSONL"),
        (b'\xef\xbb\xbf\n{"step": 1, "reward": 0.5, "note": "a"}', "JSONL"),
        (b'[{"step": 1, "reward": 0.5, "note": "a"}, {"step": ', "JSON"),
        (b"step,reward,note\n1,0.5,a\n", "CSV"),
        (b"\xef\xbb\xbfstep;reward;note\r\n1;0.5;a\r\n", "CSV"),
    ],
)
def test_form_and_columns(content: bytes, form: str) -> None:
    seen = glimpse(Path("table"), content)
    assert seen is not None
    assert (seen.form, dict(seen.columns)) == (form, {"step": True, "reward": True, "note": False})


@pytest.mark.parametrize(
    "content", [b"", b"\0\0\0\0,\0", b"[1, 2]", b"[", b"just a line\n", b'{\n  "pretty": {\n  }\n}', b"x" * 300 + b",y\n", b'["a", "b"]']
)
def test_no_table(content: bytes) -> None:
    assert glimpse(Path("table"), content) is None


def test_a_row_longer_than_what_is_seen_shows_its_keys() -> None:
    seen = glimpse(Path("t"), b'{"prompt": "?", "completion": "' + b"x" * 70_000)
    assert seen is not None
    assert dict(seen.columns) == {"prompt": False, "completion": False}


def test_parquet_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 3)
    path = parquet(tmp_path / "t.parquet", [{"n": n, "text": str(n)} for n in range(10)], row_group_size=4)
    batches = [batch for batch in rows_of(path, "Parquet") if not isinstance(batch, Remark)]
    assert max(map(len, batches)) <= 3
    assert [number for batch in batches for number, _ in batch] == list(range(1, 11))
    assert [row["n"] for batch in batches for _, row in batch] == list(range(10))
    seen = glimpse(path, path.read_bytes())
    assert seen is not None
    assert dict(seen.columns) == {"n": True, "text": False}


def test_batches_of_long_texts_are_small(tmp_path: Path) -> None:
    rows = [{"completion": f"{n} " * 300_000} for n in range(40)]  # about 0.6 MB each, 16 MB at a time
    path = parquet(tmp_path / "t.parquet", rows, use_dictionary=False)
    sizes = [len(batch) for batch in rows_of(path, "Parquet") if not isinstance(batch, Remark)]
    assert sum(sizes) == 40
    assert max(sizes) <= 25


def test_cut_parquet_says_so(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", ROWS)
    path.write_bytes(path.read_bytes()[:-20])
    seen = glimpse(path, path.read_bytes())
    assert seen is not None
    assert dict(seen.columns) == {}
    with pytest.raises(BrokenFileError, match="is not readable as Parquet past row 0"):
        read(path, "Parquet")


def test_a_json_list(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([*ROWS, 7]), encoding="utf-8")
    assert read(path, "JSON") == [(1, ROWS[0]), (2, ROWS[1])]
    assert [batch.problem for batch in rows_of(path, "JSON") if isinstance(batch, Remark)] == ["1 entries are not JSON objects; left out."]


def test_a_cut_or_huge_json_list_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(ROWS)[:-5], encoding="utf-8")
    with pytest.raises(BrokenFileError, match="not a whole JSON list"):
        read(path, "JSON")
    monkeypatch.setattr(module, "LONGEST", 10)
    with pytest.raises(BrokenFileError, match="a JSON list is read up to"):
        read(path, "JSON")


@pytest.mark.parametrize("form", ["JSON", "JSONL", "CSV", "Parquet"])
def test_a_folder_is_a_clear_error(tmp_path: Path, form: str) -> None:
    with pytest.raises(BrokenFileError):
        read(tmp_path, form)


@pytest.mark.parametrize(
    ("value", "number"), [(1, True), ("1e-3", True), ("nan", True), (True, True), ("x", False), (None, False), ([], False)]
)
def test_is_number(value: Any, number: bool) -> None:
    assert is_number(value) is number
