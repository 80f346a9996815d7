"""Problem ids are stable, and a problem's text is stored once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from breadth.runs.problems import ProblemSink, problem_id


def test_ids_are_stable_short_and_distinct() -> None:
    assert problem_id("What is 1 + 1?") == "_SaTqIR7YR_Y"
    ids = {problem_id(f"problem {number}") for number in range(10_000)}
    assert len(ids) == 10_000
    assert {len(one) for one in ids} == {12}
    assert problem_id("\ud800")


def test_each_problem_is_written_once_with_its_first_text(tmp_path: Path) -> None:
    sink = ProblemSink(tmp_path / "p.parquet")
    sink.add(pa.table({"problem": ["a", "a", "b"], "prompt": ["1", "2", "3"]}))
    sink.add(pa.table({"problem": ["b", "c"], "prompt": ["4", "5"], "reference": ["r", "s"]}))
    sink.close()
    assert len(sink) == 3
    assert pq.read_table(tmp_path / "p.parquet").select(["problem", "prompt", "reference"]).to_pylist() == [
        {"problem": "a", "prompt": "1", "reference": None},
        {"problem": "b", "prompt": "3", "reference": None},
        {"problem": "c", "prompt": "5", "reference": "s"},
    ]


def test_no_problems_no_file(tmp_path: Path) -> None:
    sink = ProblemSink(tmp_path / "p.parquet")
    sink.close()
    assert not (tmp_path / "p.parquet").exists()
