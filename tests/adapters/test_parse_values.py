"""Tests of numbers, steps and metric rows as printed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.parse_values import (
    MOST_NAMES,
    WINDOW,
    MetricReader,
    StepMerger,
    as_number,
    as_step,
    beginning,
    in_order,
    metric_rows,
    storable_name,
    without_colour,
)
from breadth.runs.schema import MetricRow


def merged(rows: list[MetricRow]) -> list[MetricRow]:
    merger = StepMerger()
    return [done for row in rows for done in merger.add(row)] + merger.rest()


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
    assert list(in_order(values, ("env/all/", "env/"))) == ["env/all/reward", "env/maths/reward", "z", "a"]


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
    done = [row.step for step in range(10 * WINDOW) for row in merger.add(MetricRow({"a": 1.0}, step))]
    assert done == list(range(9 * WINDOW))


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
    assert "\x1b[0m" not in without_colour(text + "\x1b[0m")


def test_colour_codes_go() -> None:
    assert without_colour("\x1b[36m(TaskRunner pid=7)\x1b[0m step:1\x1b[1;32m!") == "(TaskRunner pid=7) step:1!"


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
    reader.numbers({f"name {index}": "x" for index in range(MOST_NAMES + 7)})
    said = reader.remarks(Path("a.log"))
    assert len(said) == MOST_NAMES + 1
    assert said[-1].problem.startswith("7 values under other names")


def test_a_name_that_utf8_cannot_hold_is_repaired() -> None:
    assert MetricReader().numbers({"a\ud800": 1}) == {"a?": 1.0}


def test_a_value_nested_beyond_reason_is_named() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    assert beginning(deep) == "a list nested too deeply"
    assert beginning("x" * 100) == "'" + "x" * 59
