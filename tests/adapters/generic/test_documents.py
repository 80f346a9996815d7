"""Rows are found inside JSON documents and nested tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from breadth.adapters.generic.documents import document_rows, flatten_row, read_document_rows
from breadth.adapters.generic.importer import IMPORTER
from breadth.base.errors import BrokenFileError
from breadth.runs.schema import MetricRow

ROWS = [{"step": n, "loss": 0.5, "reward": n / 10} for n in range(1, 5)]


def read(folder: Path, content: str) -> list[MetricRow]:
    path = folder / "metrics.json"
    path.write_text(content)
    kind = IMPORTER.recognises(path, path.read_bytes())
    assert kind is not None
    return [record for record in IMPORTER.read(path, kind) if isinstance(record, MetricRow)]


@pytest.mark.parametrize("indent", [None, 2])
def test_the_rows_under_a_key_are_read(indent: int | None, tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps({"total_steps": 4, "config": {"lr": 1}, "steps": ROWS}, indent=indent))
    assert [(row.step, row.values) for row in found] == [(n, {"loss": 0.5, "reward": n / 10}) for n in range(1, 5)]


def test_lists_of_numbers_are_columns(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps({"history": {"reward": [0.1, 0.2, 0.3], "loss": [3, 2, 1]}, "seed": 1}))
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
    found = read(tmp_path, "".join(json.dumps(line) + "\n" for line in lines))
    assert found[:2] == [MetricRow({"train/reward": 0.5}, 0), MetricRow({"reward": 0.25}, 0, split="eval")]


def test_other_documents_hold_no_rows(tmp_path: Path) -> None:
    assert document_rows([1, 2]) == []
    assert document_rows({"model": {"layers": [1, 2, 3]}, "name": "x"}) == []
    path = tmp_path / "config.json"
    path.write_text('{"learning_rate": 1e-5, "sizes": [1, 2, 3, 4]}')
    assert IMPORTER.recognises(path, path.read_bytes()) is None
    with pytest.raises(BrokenFileError):
        list(read_document_rows(path))
