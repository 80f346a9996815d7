"""Tests of turning rows of dicts into tables."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from breadth.adapters.rows import RowReader, arrow_type, as_text, reward_columns, with_steps
from breadth.runs.writer import problem_id

PATH = Path("rows.jsonl")
READER = RowReader(
    {"q": "prompt", "a": "completion", "r": "reward", "ok": "correct", "t": "step", "ids": "token_ids"},
    frozenset({"same"}),
)


def test_columns_are_named_and_typed() -> None:
    rows = [
        {"q": "1+1?", "a": r"so \boxed{2}", "r": 1, "ok": True, "t": 5, "ids": [1, 2]},
        {"q": "1+2?", "a": "no idea", "r": 0.5, "ok": None, "t": 5, "ids": None},
    ]
    table, remarks = READER.table(rows, PATH)
    assert remarks == []
    assert table.to_pydict() == {
        "prompt": ["1+1?", "1+2?"],
        "completion": [r"so \boxed{2}", "no idea"],
        "reward": [1.0, 0.5],
        "correct": [True, None],
        "step": [5, 5],
        "token_ids": [[1, 2], None],
        "problem": [problem_id("1+1?"), problem_id("1+2?")],
        "answer": ["2", None],
        "sample": [0, 1],
    }
    assert {name: table.schema.field(name).type for name in table.column_names} == {
        name: arrow_type(name) for name in table.column_names
    }


def test_what_has_no_column_is_kept_as_json() -> None:
    table, _ = READER.table([{"q": "x", "b": 1, "same": 9}, {"q": "y", "a": "z", "c": {"d": math.nan}}], PATH)
    assert [json.loads(text) for text in table.column("extra").to_pylist()] == [{"b": 1}, {"c": {"d": None}}]


def test_of_two_keys_for_one_column_the_second_is_kept_as_json() -> None:
    table, _ = RowReader({"q": "prompt", "ref": "reference", "gold": "reference"}).table(
        [{"q": "x", "ref": "1", "gold": "2"}], PATH
    )
    assert table.column("reference").to_pylist() == ["1"]
    assert json.loads(table.column("extra")[0].as_py()) == {"gold": "2"}


def test_wrong_types_are_converted_or_left_empty_with_the_row_named() -> None:
    rows: list[dict[str, Any]] = [
        {"q": "x", "r": "0.5", "ok": 1.0, "t": "7"},
        {"q": ["y"], "r": {"a": 1}, "ok": 0, "t": 2.5},
        {"q": 3, "r": [], "ok": "yes", "t": 8.0},
    ]
    table, remarks = READER.table(rows, PATH, [10, 20, 30])
    assert table.column("prompt").to_pylist() == ["x", '["y"]', "3"]
    assert table.column("reward").to_pylist() == [0.5, None, None]
    assert table.column("correct").to_pylist() == [True, False, None]
    assert table.column("step").to_pylist() == [7, None, 8]
    assert table.column("sample").to_pylist() == [9, 19, 29]
    assert [(remark.row, remark.problem) for remark in remarks] == [
        (20, "'r' is {'a': 1}, not double, in 2 rows; left empty there."),
        (30, "'ok' is 'yes', not bool, in 1 rows; left empty there."),
        (20, "'t' is 2.5, not int64, in 1 rows; left empty there."),
    ]


def test_rewards_that_are_no_finite_numbers_stay() -> None:
    table, remarks = READER.table([{"q": "x", "r": math.nan}, {"q": "x", "r": math.inf}, {"q": "x", "r": None}], PATH)
    rewards = table.column("reward").to_pylist()
    assert math.isnan(rewards[0])
    assert rewards[1:] == [math.inf, None]
    assert remarks == []


def test_numbers_beyond_their_type_are_left_empty() -> None:
    table, remarks = READER.table([{"q": "x", "r": 10**400, "t": 10**30, "ids": [2**40]}], PATH)
    assert (
        table.column("reward").to_pylist()
        == table.column("step").to_pylist()
        == table.column("token_ids").to_pylist()
        == [None]
    )
    assert len(remarks) == 3


def test_text_that_utf8_cannot_hold_and_bytes_are_repaired() -> None:
    table, _ = READER.table([{"q": "a\ud800", "a": b"\xff4", "odd\ud800": 2**70}], PATH)
    assert table.column("prompt").to_pylist() == ["a?"]
    assert table.column("completion").to_pylist() == ["\ufffd4"]
    assert json.loads(table.column("extra")[0].as_py()) == {"odd\ud800": 2**70}


def test_chat_becomes_text() -> None:
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}]
    assert as_text(chat) == "user: hi\nassistant: "
    assert (
        as_text([{"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]}])
        == "user: one two"
    )
    assert as_text([]) == "[]"
    assert as_text({"b": 1, "a": None}) == '{"a":null,"b":1}'


def test_values_nested_beyond_reason_are_named_not_kept() -> None:
    deep: list[Any] = []
    chat: Any = "end"
    for _ in range(5000):
        deep = [deep]
        chat = [{"role": "user", "content": chat}]
    table, remarks = READER.table([{"q": deep, "a": chat, "r": deep, "other": deep}], PATH)
    assert (
        table.column("prompt").to_pylist()
        == table.column("completion").to_pylist()
        == ['"nested too deeply to be kept"']
    )
    assert table.column("extra").to_pylist() == ['"nested too deeply to be kept"']
    assert [remark.problem for remark in remarks] == [
        "'r' is a list nested too deeply, not double, in 1 rows; left empty there."
    ]


def test_no_rows_make_an_empty_table() -> None:
    table, remarks = READER.table([], PATH)
    assert len(table) == 0
    assert remarks == []


def test_unknown_columns_of_ours_are_an_error_of_the_importer() -> None:
    with pytest.raises(KeyError):
        arrow_type("prompts")
    assert arrow_type("reward/format") == pa.float64()
    assert reward_columns(["format", "\ud800"]) == {"format": "reward/format", "\ud800": "reward/?"}


def test_steps_are_filled_in() -> None:
    table = pa.table({"step": pa.array([3, None, -1], pa.int64())})
    filled, missing = with_steps(table, 7)
    assert (filled.column("step").to_pylist(), missing) == ([3, 7, 7], 2)
    assert with_steps(table.slice(0, 1), 7)[1] == 0
    filled, missing = with_steps(pa.table({"a": ["x", "y"]}), 7)
    assert (filled.column("step").to_pylist(), missing) == ([7, 7], 2)
