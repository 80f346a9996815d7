"""CSV in every state: delimiters, quotes, line breaks in cells, uneven rows, quotes without an end."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.generic import csv_rows as module
from breadth.adapters.generic.csv_rows import csv_rows, delimiter_of, header_cells
from breadth.runs.records import Remark

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
    assert rows(path) == [(2, {"id": "1", "text": 'two\nlines, and a "quote"', "end": "x"}), (4, {"id": "2", "text": "plain", "end": "y"})]
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
    # The quote opened in row 3 closes at the one of row 5, whose rest is then read as part of the cell: no end is missing.
    assert [row["step"] for _, row in rows(path)] == ["1", "2"]
    path = write(tmp_path, 'step,note\n1,fine\n2,"never closed\n3,fine\n4,fine\n')
    assert rows(path) == [
        (2, {"step": "1", "note": "fine"}),
        (3, {"step": "2", "note": '"never closed'}),
        (4, {"step": "3", "note": "fine"}),
        (5, {"step": "4", "note": "fine"}),
    ]
    assert remarks(path) == [("a quote is opened and never closed; the line was read as it stands.", 3)]


def test_a_quote_over_the_longest_record_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_RECORD", 40)
    path = write(tmp_path, 'a,b\n1,"open\n' + "2,x\n" * 30 + '3,"y"\n')
    assert [row["a"] for _, row in rows(path)] == ["1", *["2"] * 30, "3"]


def test_batches_are_bounded_in_rows_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a,b\n" + "1,2\n" * 20)
    monkeypatch.setattr(module, "BATCH", 8)
    assert [len(batch) for batch in csv_rows(path) if not isinstance(batch, Remark)] == [8, 8, 4]
    monkeypatch.setattr(module, "BATCH_SIZE", 10)
    assert [len(batch) for batch in csv_rows(path) if not isinstance(batch, Remark)] == [5, 5, 5, 5, 0]


def test_repairs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_RECORD", 10)
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
