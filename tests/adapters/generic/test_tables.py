"""Opening files of rows of every form."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.generic import tables as module
from breadth.adapters.generic.importer import IMPORTER
from breadth.adapters.generic.tables import (
    csv_rows,
    delimiter_of,
    document_rows,
    flatten_row,
    header_cells,
    is_numeric,
    preview_table,
    read_document_rows,
    read_rows,
)
from breadth.base.errors import BrokenFileError
from breadth.runs import parquet as parquet_reader
from breadth.runs.schema import MetricRow, Remark

DOCUMENT_ROWS = [{"step": n, "loss": 0.5, "reward": n / 10} for n in range(1, 5)]


def read_document(folder: Path, content: str) -> list[MetricRow]:
    path = folder / "metrics.json"
    path.write_text(content)
    kind = IMPORTER.recognises(path, path.read_bytes())
    assert kind is not None
    return [record for record in IMPORTER.read(path, kind) if isinstance(record, MetricRow)]


@pytest.mark.parametrize("indent", [None, 2])
def test_the_rows_under_a_key_are_read(indent: int | None, tmp_path: Path) -> None:
    found = read_document(
        tmp_path, json.dumps({"total_steps": 4, "config": {"lr": 1}, "steps": DOCUMENT_ROWS}, indent=indent)
    )
    assert [(row.step, row.values) for row in found] == [(n, {"loss": 0.5, "reward": n / 10}) for n in range(1, 5)]


def test_lists_of_numbers_are_columns(tmp_path: Path) -> None:
    found = read_document(tmp_path, json.dumps({"history": {"reward": [0.1, 0.2, 0.3], "loss": [3, 2, 1]}, "seed": 1}))
    assert [(row.step, row.values) for row in found] == [
        (1, {"reward": 0.1, "loss": 3.0}),
        (2, {"reward": 0.2, "loss": 2.0}),
        (3, {"reward": 0.3, "loss": 1.0}),
    ]


def test_tables_in_a_row_are_joined() -> None:
    row = {"step": 1, "metrics": {"reward": 0.5}, "train": {"loss": {"pg": 1.0}}, "eval": {"acc": 0.25}}
    assert flatten_row(row) == {"step": 1, "reward": 0.5, "train/loss/pg": 1.0, "eval/acc": 0.25}


def test_nested_lines_are_read(tmp_path: Path) -> None:
    lines = [{"step": n, "metrics": {"train": {"reward": 0.5}, "eval": {"reward": 0.25}}} for n in range(3)]
    found = read_document(tmp_path, "".join(json.dumps(line) + "\n" for line in lines))
    assert found[:2] == [MetricRow({"train/reward": 0.5}, 0), MetricRow({"reward": 0.25}, 0, split="eval")]


def test_other_documents_hold_no_rows(tmp_path: Path) -> None:
    assert document_rows([1, 2]) == []
    assert document_rows({"model": {"layers": [1, 2, 3]}, "name": "x"}) == []
    path = tmp_path / "config.json"
    path.write_text('{"learning_rate": 1e-5, "sizes": [1, 2, 3, 4]}')
    assert IMPORTER.recognises(path, path.read_bytes()) is None
    with pytest.raises(BrokenFileError):
        list(read_document_rows(path))


Rows = list[tuple[int, dict[str, str | None]]]


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def rows(path: Path) -> Rows:
    return [row for batch in csv_rows(path) if not isinstance(batch, Remark) for row in batch]


def remarks(path: Path) -> list[tuple[str, int | None]]:
    return [(batch.problem, batch.row) for batch in csv_rows(path) if isinstance(batch, Remark)]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters(tmp_path: Path, delimiter: str) -> None:
    path = write(tmp_path, f"step{delimiter}reward\n1{delimiter}0,5\n".replace("0,5", "0.5"))
    assert rows(path) == [(2, {"step": "1", "reward": "0.5"})]


def test_a_delimiter_inside_quotes_is_none() -> None:
    assert delimiter_of('"a,b,c,d";e;f') == ";"
    assert header_cells('\ufeff"a,b";c\r') == ["a,b", "c"]


def test_cells_with_quotes_delimiters_and_line_breaks(tmp_path: Path) -> None:
    path = write(tmp_path, 'id,text,end\r\n1,"two\r\nlines, and a ""quote""",x\r\n2,plain,y\r\n')
    assert rows(path) == [
        (2, {"id": "1", "text": 'two\nlines, and a "quote"', "end": "x"}),
        (4, {"id": "2", "text": "plain", "end": "y"}),
    ]
    assert remarks(path) == []


def test_byte_order_mark_empty_cells_and_nameless_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff,step,reward\n0,1,\n\n1,2,0.5\n")
    assert rows(path) == [(2, {"step": "1", "reward": None}), (4, {"step": "2", "reward": "0.5"})]


def test_uneven_rows_are_kept_and_told(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b\n1\n1,2\n1,2,3\n")
    assert [row for _, row in rows(path)] == [{"a": "1", "b": None}, {"a": "1", "b": "2"}, {"a": "1", "b": "2"}]
    assert remarks(path) == [("2 rows have more or fewer cells than the header; what has no name was left out.", 2)]


def test_a_quote_without_end_costs_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, 'step,note\n1,fine\n2,"never closed\n3,fine\n4,"closed"\n')
    # The quote opened in row 3 closes at the one of row 5, whose rest is then read as part of the cell: no end is
    # missing.
    assert [row["step"] for _, row in rows(path)] == ["1", "2"]
    path = write(tmp_path, 'step,note\n1,fine\n2,"never closed\n3,fine\n4,fine\n')
    assert rows(path) == [
        (2, {"step": "1", "note": "fine"}),
        (3, {"step": "2", "note": '"never closed'}),
        (4, {"step": "3", "note": "fine"}),
        (5, {"step": "4", "note": "fine"}),
    ]
    assert remarks(path) == [("a quote is opened and never closed; the line was read as it is.", 3)]


def test_a_quote_over_the_longest_record_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RECORD_LENGTH", 40)
    path = write(tmp_path, 'a,b\n1,"open\n' + "2,x\n" * 30 + '3,"y"\n')
    assert [row["a"] for _, row in rows(path)] == ["1", *["2"] * 30, "3"]


def test_batches_are_bounded_in_rows_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a,b\n" + "1,2\n" * 20)
    monkeypatch.setattr(module, "MAX_BATCH_ROWS", 8)
    assert [len(batch) for batch in csv_rows(path) if not isinstance(batch, Remark)] == [8, 8, 4]
    monkeypatch.setattr(module, "MAX_BATCH_CHARACTERS", 10)
    assert [len(batch) for batch in csv_rows(path) if not isinstance(batch, Remark)] == [5, 5, 5, 5, 0]
    monkeypatch.setattr(module, "MAX_BATCH_CELLS", 6)
    assert [len(batch) for batch in csv_rows(path) if not isinstance(batch, Remark)] == [3, 3, 3, 3, 3, 3, 2]


def test_repairs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RECORD_LENGTH", 10)
    path = write(tmp_path, "a,b\n" + ('"open,x\n' + "1,2\n" * 9) * 40)
    problem, row = remarks(path)[-1]
    assert problem == "too many quotes are never closed; the rest was not read."
    # The quote of every tenth row is the 21st at row 2 + 20 x 10.
    assert row == 202


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = write(tmp_path, b"a,b\n1,\xff\n")
    assert rows(path) == [(2, {"a": "1", "b": "\ufffd"})]
    assert remarks(path)[0][0] == "1 rows are not UTF-8; the odd bytes were replaced."


def test_a_cell_longer_than_the_csv_module_likes(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b\n1," + "x" * 300_000 + "\n")
    assert len(rows(path)[0][1]["b"] or "") == 300_000


def test_old_mac_line_ends_do_not_raise(tmp_path: Path) -> None:
    assert rows(write(tmp_path, "a,b\r1,2\r3,4")) == []


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert rows(write(tmp_path, "")) == []


CELLS = st.text(st.sampled_from('ab",;\n 1'), max_size=6)


@settings(max_examples=60, deadline=None)
@given(table=st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=5))
def test_what_the_csv_module_wrote_comes_back(tmp_path_factory: pytest.TempPathFactory, table: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([["a", "b"], *table])
    path = write(tmp_path_factory.mktemp("csv"), text.getvalue())
    assert [[row["a"] or "", row["b"] or ""] for _, row in rows(path)] == [cells for cells in table if any(cells)]


@settings(max_examples=80, deadline=None)
@given(content=st.binary(max_size=120) | st.text(st.sampled_from('"a,\n\r;'), max_size=80).map(str.encode))
def test_any_bytes_give_rows_or_remarks(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    for _, row in rows(write(tmp_path_factory.mktemp("csv"), content)):
        assert all(name for name in row)


ROWS: list[dict[str, Any]] = [{"step": 1, "reward": 0.5, "note": "a"}, {"step": 2, "reward": None, "note": "b"}]


def parquet(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def read(path: Path, form: str) -> list[tuple[int, dict[str, Any]]]:
    return [row for batch in read_rows(path, form) if not isinstance(batch, Remark) for row in batch]


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
    seen = preview_table(Path("table"), content)
    assert seen is not None
    assert (seen.format, dict(seen.columns)) == (form, {"step": True, "reward": True, "note": False})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\0\0,\0",
        b"[1, 2]",
        b"[",
        b"just a line\n",
        b'{\n  "pretty": {\n  }\n}',
        b"x" * 300 + b",y\n",
        b'["a", "b"]',
    ],
)
def test_no_table(content: bytes) -> None:
    assert preview_table(Path("table"), content) is None


def test_a_row_longer_than_what_is_seen_shows_its_keys() -> None:
    seen = preview_table(Path("t"), b'{"prompt": "?", "completion": "' + b"x" * 70_000)
    assert seen is not None
    assert dict(seen.columns) == {"prompt": False, "completion": False}


def test_parquet_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_reader, "PARQUET_BATCH_ROWS", 3)
    path = parquet(tmp_path / "t.parquet", [{"n": n, "text": str(n)} for n in range(10)], row_group_size=4)
    batches = [batch for batch in read_rows(path, "Parquet") if not isinstance(batch, Remark)]
    assert max(map(len, batches)) <= 3
    assert [number for batch in batches for number, _ in batch] == list(range(1, 11))
    assert [row["n"] for batch in batches for _, row in batch] == list(range(10))
    seen = preview_table(path, path.read_bytes())
    assert seen is not None
    assert dict(seen.columns) == {"n": True, "text": False}


def test_batches_of_long_texts_are_small(tmp_path: Path) -> None:
    rows = [{"completion": f"{n} " * 300_000} for n in range(40)]  # about 0.6 MB each, 16 MB at a time
    path = parquet(tmp_path / "t.parquet", rows, use_dictionary=False)
    sizes = [len(batch) for batch in read_rows(path, "Parquet") if not isinstance(batch, Remark)]
    assert sum(sizes) == 40
    assert max(sizes) <= 25


def test_cut_parquet_says_so(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", ROWS)
    path.write_bytes(path.read_bytes()[:-20])
    seen = preview_table(path, path.read_bytes())
    assert seen is not None
    assert dict(seen.columns) == {}
    with pytest.raises(BrokenFileError, match="is not readable Parquet"):
        read(path, "Parquet")


def test_a_damaged_column_name_says_so(tmp_path: Path) -> None:
    path = parquet(tmp_path / "t.parquet", [{"completion": "x"}])
    path.write_bytes(path.read_bytes().replace(b"completion", b"\xff" * 10))
    seen = preview_table(path, path.read_bytes())
    assert seen is not None
    assert dict(seen.columns) == {}
    with pytest.raises(BrokenFileError, match="is not readable"):
        read(path, "Parquet")


def test_a_json_list(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([*ROWS, 7]), encoding="utf-8")
    assert read(path, "JSON") == [(1, ROWS[0]), (2, ROWS[1])]
    assert [batch.problem for batch in read_rows(path, "JSON") if isinstance(batch, Remark)] == [
        "1 entries are not JSON objects; left out."
    ]


def test_a_cut_or_huge_json_list_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(ROWS)[:-5], encoding="utf-8")
    with pytest.raises(BrokenFileError, match="not a whole JSON list"):
        read(path, "JSON")
    monkeypatch.setattr(module, "MAX_ROW_BYTES", 10)
    with pytest.raises(BrokenFileError, match="a JSON list is read up to"):
        read(path, "JSON")


@pytest.mark.parametrize("form", ["JSON", "JSONL", "CSV", "Parquet"])
def test_a_folder_is_a_clear_error(tmp_path: Path, form: str) -> None:
    with pytest.raises(BrokenFileError):
        read(tmp_path, form)


@pytest.mark.parametrize(
    ("value", "number"),
    [(1, True), ("1e-3", True), ("nan", True), (True, True), ("x", False), (None, False), ([], False)],
)
def test_is_number(value: Any, number: bool) -> None:
    assert is_numeric(value) is number


def test_a_list_of_rewards_gives_its_mean_and_its_spread() -> None:
    row = {"step": 1, "rewards": [0.0, 0.5, 1.0, 0.5], "texts": ["a", "b"], "losses": [1.0, 2.0]}
    assert flatten_row(row) == row | {"rewards_mean": 0.5, "rewards_std": pytest.approx(0.125**0.5)}
    assert flatten_row({"rewards": [1.0]}) == {"rewards": [1.0]}
    assert flatten_row({"rewards": [1.0, None]}) == {"rewards": [1.0, None]}
    assert flatten_row({"rewards": [0.0, 1.0], "rewards_mean": 7.0})["rewards_mean"] == 7.0


def test_a_list_of_scores_inside_a_document_is_a_course() -> None:
    scores = [0.1 * place for place in range(9)]
    rows = document_rows({"run": "a", "episodes": {"reward": scores}, "manifest": {"seeds": [1, 2, 3]}})
    assert [(row["step"], row["reward"]) for row in rows] == [(place, 0.1 * (place - 1)) for place in range(1, 10)]
    assert document_rows({"episodes": {"seeds": scores}}) == []
