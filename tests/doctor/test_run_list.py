"""Several runs are a list; the numbers of a run have names."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from breadth.doctor.run_list import run_list_page, run_to_json, runs_to_json
from breadth.report.sections import Listing, Table
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter


def test_the_list_has_a_column_for_what_any_run_logged(tmp_path: Path) -> None:
    RunWriter(tmp_path / "a", Header(name="a", trainer="trl")).metrics(3, {"reward": 0.25})
    RunWriter(tmp_path / "b", Header(name="b")).rollouts(pa.table({"problem": ["p"]}), 0, split="eval")
    page = run_list_page([Run.open(tmp_path / name) for name in "ab"], [tmp_path])
    table, listing = page.sections
    assert isinstance(table, Table)
    assert isinstance(listing, Listing)
    assert [column.name for column in table.columns] == ["run", "number", "trainer", "steps", "reward", "eval rollouts"]
    (first, second) = table.rows
    assert (first[:4], first[5]) == (("a", 1, "trl", "3 to 3"), "-")  # a narrow terminal heads each run with its name
    assert tuple(second) == ("b", 2, "-", "-", "-", 1)
    assert listing.text == f"breadth show {tmp_path} --run a"


def test_numbers_have_names_and_held_out_rollouts_are_apart(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "mine", Header(name="mine"))
    for step, right in enumerate([[True, False], [True, True]]):
        rows = [
            {"problem": name, "answer": str(int(grade)), "correct": grade} for name in ("p", "q") for grade in right
        ]
        writer.rollouts(pa.Table.from_pylist(rows), step)
    writer.rollouts(pa.table({"problem": ["h", "h"], "answer": ["1", "2"], "correct": [False, False]}), 1, split="eval")
    run = run_to_json(Run.open(tmp_path / "mine"))
    assert (run["name"], run["files"], run["steps"], run["metrics"]) == ("mine", [str(tmp_path / "mine")], None, {})
    found = run["rollouts"]
    assert [found[split]["count"] for split in ("train", "eval")] == [8, 2]
    start, now = (found["train"]["windows"][when] for when in ("start", "now"))
    assert (start["samples_per_problem"], start["problems"]) == (2, 2)
    assert [start[name]["value"] for name in ("pass_at_1", "pass_at_k", "distinct_answers")] == [0.5, 1.0, 2.0]
    assert [now[name]["value"] for name in ("pass_at_1", "maj_at_k", "distinct_answers")] == [1.0, 1.0, 1.0]
    assert found["eval"]["windows"]["all"]["pass_at_k"]["value"] == 0.0


def test_numbers_that_json_cannot_hold_are_named(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "odd", Header(name="odd"))
    for step in range(9):
        writer.metrics(step, {"entropy": float("nan"), "reward": float("inf"), "mine": 1.0})
    document = runs_to_json([Run.open(tmp_path / "odd")])
    assert json.loads(json.dumps(document, allow_nan=False))["runs"][0]["other_metrics"] == ["mine"]
