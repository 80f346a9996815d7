"""Notebooks as data: code, printed lines and progress tables, whatever else is in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters import notebooks
from breadth.adapters.notebooks import code_cells, is_notebook, progress_rows, read_log_lines, read_output
from breadth.base.errors import BrokenFileError
from breadth.runs.importer import all_importers, recognise


def write_notebook(folder: Path, document: Any) -> Path:
    path = folder / "a.ipynb"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_code_and_output_are_read_in_order(tmp_path: Path) -> None:
    page = ["<table><tr><th>Step</th><th>reward</th></tr>", "<tr><td>1</td><td>0.5</td></tr></table>"]
    cells = [
        {"cell_type": "markdown", "source": "text"},
        {"cell_type": "code", "source": ["!ls\n", "x = 1"], "outputs": [{"output_type": "stream", "text": "a\rb\nc"}]},
        {"cell_type": "code", "source": "y", "outputs": [{"output_type": "display_data", "data": {"text/html": page}}]},
        {"cell_type": "code", "outputs": [{"output_type": "error", "traceback": ["a"]}, None]},
    ]
    path = write_notebook(tmp_path, {"cells": cells})
    assert is_notebook(path)
    assert list(code_cells(path)) == ["pass\nx = 1", "y", ""]
    assert list(read_output(path)) == ["a", "b", "c", {"Step": "1", "reward": "0.5"}]
    assert list(read_log_lines(path)) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<p>Step</p>",
        "<table>",
        "<table><tr><th>Name</th></tr><tr><td>1</td></tr></table>",
        "<table><tr><th>Step</th></tr></table>",
        "<table><tr><th>Step</th><th>reward</th></tr><tr><td>1</td></tr></table>",
        "<table>" + "<tr " * 100_000,
        "<table><tr>" + "<td " * 100_000,
    ],
)
def test_other_pages_are_no_progress(page: str) -> None:
    assert list(progress_rows(page)) == []


def test_a_page_saved_from_a_notebook_has_its_tables(tmp_path: Path) -> None:
    table = "<table class='dataframe'><tr><th>Step</th><th>reward</th></tr><tr><td>{}</td><td>0.5</td></tr></table>"
    page = tmp_path / "saved.HTML"
    page.write_text(f"<html><table><tr><th>x</th></tr></table>{table.format(1)}<p>{table.format(2)}</html>")
    assert list(read_output(page)) == [{"Step": "1", "reward": "0.5"}, {"Step": "2", "reward": "0.5"}]
    assert recognise(page, all_importers()).kind == "notebook"


def test_a_notebook_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebooks, "MAX_NOTEBOOK_BYTES", 10)
    with pytest.raises(BrokenFileError, match="larger than 10 bytes"):
        list(read_output(write_notebook(tmp_path, {"cells": []})))


@pytest.mark.parametrize("document", ["{", "[" * 100_000, "no JSON", b"\xff".decode("latin-1")])
def test_what_is_no_notebook_is_an_error(tmp_path: Path, document: str) -> None:
    with pytest.raises(BrokenFileError, match="no notebook"):
        list(read_output(write_notebook(tmp_path, document)))


@pytest.mark.parametrize("document", [[], 3, {"cells": 3}, {"cells": [3, {"cell_type": "code", "outputs": 3}]}])
def test_a_notebook_without_output_says_nothing(tmp_path: Path, document: Any) -> None:
    assert list(read_output(write_notebook(tmp_path, document))) == []
