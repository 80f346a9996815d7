"""Tests of numbers, steps and metric rows as printed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.parse_values import (
    MAX_OPEN_STEPS,
    MAX_REMARKED_NAMES,
    MetricReader,
    RowReader,
    StepMerger,
    arrow_type,
    as_number,
    as_step,
    as_text,
    fill_missing_steps,
    metric_rows,
    order_by_prefix,
    preview_value,
    reward_columns,
    storable_name,
    strip_colour,
    strip_held_out_prefix,
)
from breadth.runs.schema import MetricRow
from breadth.runs.writer import problem_id


def merged(rows: list[MetricRow]) -> list[MetricRow]:
    merger = StepMerger()
    return [done for row in rows for done in merger.add(row)] + merger.flush()


def test_held_out_scores_are_rows_of_their_own_without_prefix() -> None:
    values = {
        "train/reward": 0.1,
        "eval/reward": 0.2,
        "eval_length": 3.0,
        "test/env/all/reward/total": 0.4,
        "value_loss": 0.5,
        "eval/": 0.6,
    }
    train, held_out = metric_rows(values, 7, 1.5)
    assert train == MetricRow({"train/reward": 0.1, "value_loss": 0.5, "eval/": 0.6}, 7, 1.5)
    assert held_out == MetricRow({"reward": 0.2, "length": 3.0, "env/all/reward/total": 0.4}, 7, 1.5, "eval")


def test_no_numbers_make_no_row() -> None:
    assert metric_rows({}, 1) == []


def test_names_become_storable() -> None:
    assert storable_name("Länge") == "Länge"
    assert storable_name("a\ud800b") == "a?b"


def test_in_order_puts_prefixes_first_and_keeps_the_rest() -> None:
    values = {"z": 1.0, "env/maths/reward": 2.0, "env/all/reward": 3.0, "a": 4.0}
    assert list(order_by_prefix(values, ("env/all/", "env/"))) == ["env/all/reward", "env/maths/reward", "z", "a"]


def test_rows_of_one_step_are_joined_whoever_came_first() -> None:
    rows = [
        MetricRow({"reward": 1.0}, 1, 10.0),
        MetricRow({"reward": 2.0}, 2, 20.0),
        MetricRow({"entropy": 0.1}, 1, 21.0),
        MetricRow({"reward": 0.5}, 1, 22.0, "eval"),
        MetricRow({"entropy": 0.2}, 2),
    ]
    assert merged(rows) == [
        MetricRow({"reward": 0.5}, 1, 22.0, "eval"),
        MetricRow({"reward": 1.0, "entropy": 0.1}, 1, 10.0),
        MetricRow({"reward": 2.0, "entropy": 0.2}, 2, 20.0),
    ]


def test_a_name_that_goes_back_starts_afresh() -> None:
    rows = [MetricRow({"reward": float(place)}, step) for place, step in enumerate([1, 2, 3, 2, 3, 4])]
    assert [row.step for row in merged(rows)] == [1, 2, 3, 2, 3, 4]


def test_a_name_logged_twice_keeps_the_later_value() -> None:
    assert merged([MetricRow({"queue": 1.0}, 1), MetricRow({"queue": 2.0}, 1)]) == [MetricRow({"queue": 2.0}, 1)]


def test_a_row_without_step_keeps_its_place() -> None:
    assert [
        row.step for row in merged([MetricRow({"a": 1.0}, 5), MetricRow({"a": 2.0}), MetricRow({"a": 3.0}, 1)])
    ] == [5, None, 1]


def test_open_steps_are_bounded() -> None:
    merger = StepMerger()
    done = [row.step for step in range(10 * MAX_OPEN_STEPS) for row in merger.add(MetricRow({"a": 1.0}, step))]
    assert done == list(range(9 * MAX_OPEN_STEPS))


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.integers(0, 9)), max_size=30))
def test_the_last_value_of_each_name_and_step_survives(points: list[tuple[int, str, int]]) -> None:
    rows = merged([MetricRow({name: float(value)}, step) for step, name, value in points])
    expected = {(step, name): float(value) for step, name, value in points}
    assert {(row.step, name): value for row in rows for name, value in row.values.items()} == expected


@pytest.mark.parametrize(
    ("printed", "number"),
    [
        ("1.72e-08", 1.72e-08),
        (" 0.5 ", 0.5),
        ("np.float64(0.25)", 0.25),
        ("np.float32(-3e-05)", -3e-05),
        ("numpy.int64(7)", 7.0),
        ("tensor(0.5, device='cuda:0')", 0.5),
        ("tensor(-1.5)", -1.5),
        ("True", 1.0),
        ("False", 0.0),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("1e400", math.inf),
        (3, 3.0),
        (True, 1.0),
        (10**400, math.inf),
        (-(10**400), -math.inf),
    ],
)
def test_numbers_in_every_dress(printed: object, number: float) -> None:
    assert as_number(printed) == number


@pytest.mark.parametrize("missing", [None, "None", "nan", "np.float64(nan)", math.nan])
def test_null_stands_for_nan(missing: object) -> None:
    found = as_number(missing)
    assert found is not None
    assert math.isnan(found)


@pytest.mark.parametrize(
    "odd", ["", "abc", "0.5 tokens", "__import__('os')", "1" * 401, [1.0], {"a": 1}, b"1", "np.float64()"]
)
def test_what_is_no_number(odd: object) -> None:
    assert as_number(odd) is None


@pytest.mark.parametrize(
    ("value", "step"),
    [
        (7, 7),
        ("12", 12),
        (3.0, 3),
        ("np.int64(4)", 4),
        (0, 0),
        (-1, None),
        (2.5, None),
        (math.nan, None),
        (math.inf, None),
        (True, None),
    ],
)
def test_steps_are_whole_numbers_from_zero_on(value: object, step: int | None) -> None:
    assert as_step(value) == step


@given(st.floats(allow_nan=False))
@settings(max_examples=100)
def test_a_printed_float_comes_back_to_the_last_digit(value: float) -> None:
    assert as_number(repr(value)) == as_number(f"np.float64({value!r})") == as_number(value) == value


@given(st.text(max_size=60))
@settings(max_examples=100)
def test_no_text_raises(text: str) -> None:
    found = as_number(text)
    assert found is None or isinstance(found, float)
    assert "\x1b[0m" not in strip_colour(text + "\x1b[0m")


def test_colour_codes_go() -> None:
    assert strip_colour("\x1b[36m(TaskRunner pid=7)\x1b[0m step:1\x1b[1;32m!") == "(TaskRunner pid=7) step:1!"


def test_what_is_no_number_is_said_once_a_name() -> None:
    reader = MetricReader()
    assert reader.numbers({"reward": "0.5", "note": "hello"}, 3) == {"reward": 0.5}
    assert reader.numbers({"reward": [1], "note": "again"}, 4) == {}
    said = reader.remarks(Path("a.log"))
    assert [(remark.problem, remark.row) for remark in said] == [
        ("'note' is 'hello', not a number, in 2 rows; left out there.", 3),
        ("'reward' is [1], not a number, in 1 rows; left out there.", 4),
    ]


def test_a_flood_of_odd_names_is_counted() -> None:
    reader = MetricReader()
    reader.numbers({f"name {index}": "x" for index in range(MAX_REMARKED_NAMES + 7)})
    said = reader.remarks(Path("a.log"))
    assert len(said) == MAX_REMARKED_NAMES + 1
    assert said[-1].problem.startswith("7 values under other names")


def test_a_name_that_utf8_cannot_hold_is_repaired() -> None:
    assert MetricReader().numbers({"a\ud800": 1}) == {"a?": 1.0}


def test_a_value_nested_beyond_reason_is_named() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    assert preview_value(deep) == "a list nested too deeply"
    assert preview_value("x" * 100) == "'" + "x" * 59


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
    filled, missing = fill_missing_steps(table, 7)
    assert (filled.column("step").to_pylist(), missing) == ([3, 7, 7], 2)
    assert fill_missing_steps(table.slice(0, 1), 7)[1] == 0
    filled, missing = fill_missing_steps(pa.table({"a": ["x", "y"]}), 7)
    assert (filled.column("step").to_pylist(), missing) == ([7, 7], 2)


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("eval/reward", "reward"),
        ("Validation/accuracy", "accuracy"),
        ("val-core/gsm8k/acc/mean@8", "core/gsm8k/acc/mean@8"),
        ("val-env/sokoban/success", "sokoban/success"),
        ("held_out/acc", "acc"),
        ("test_acc", "acc"),
        ("test_pass_rate", ""),
        ("val/sequence_lengths", ""),
        ("val/ratio", ""),
        ("value_loss", ""),
        ("evaluations", ""),
    ],
)
def test_held_out_names_are_told_from_those_of_training(name: str, bare: str) -> None:
    assert strip_held_out_prefix(name) == bare


def test_a_step_of_many_is_its_first_number() -> None:
    assert as_step("5/900") == 5
    assert as_step("5/") is None
