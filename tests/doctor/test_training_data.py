"""Training data is told from rollouts by its columns, and read as the text whose format is learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from breadth.doctor.training_data import MOST, is_data, read_data

ROW = {"question": "What is 1 + 1, and why?", "answer": "2"}


@pytest.mark.parametrize(
    ("row", "data"),
    [
        (ROW, True),
        ({"prompt": "p", "response": "r"}, True),
        ({**ROW, "reward": 1.0}, False),
        ({"input": "i", "output": "o", "score": 1, "step": 3}, False),
        ({"step": 1, "data": {}}, False),
        ({"text": "only text"}, False),
    ],
)
def test_columns_tell(tmp_path: Path, row: dict[str, Any], data: bool) -> None:
    line = json.dumps(row).encode() + b"\n"
    assert is_data(tmp_path / "x.jsonl", line) is data


def test_solutions_are_read_where_they_say_something_else_the_question(tmp_path: Path) -> None:
    solved = {**ROW, "solution": "We add one and one, which is two."}
    talked = {
        "prompt": "p q r s",
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "You add them up, so two."}],
    }
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (ROW, solved, talked)) + "not json\n")
    assert read_data(tmp_path / "x.jsonl") == (ROW["question"], solved["solution"], "You add them up, so two.")


def test_parquet_and_json_documents_are_read_too_and_no_more_than_needed(tmp_path: Path) -> None:
    rows = [{"question": f"What is {number} plus one?", "answer": str(number)} for number in range(MOST + 10)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    (tmp_path / "x.json").write_text(json.dumps(rows[:3]))
    assert is_data(tmp_path / "x.parquet", b"PAR1")
    assert len(read_data(tmp_path / "x.parquet")) == MOST
    assert read_data(tmp_path / "x.json")[2] == "What is 2 plus one?"
