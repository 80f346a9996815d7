"""Tests of numbers, steps and metric rows as printed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.adapters.printed import FAR, MOST_NAMES, MetricReader, as_number, as_step, beginning, far_start, without_colour
from breadth.runs.lines import HEAD


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


@pytest.mark.parametrize("odd", ["", "abc", "0.5 tokens", "__import__('os')", "1" * 401, [1.0], {"a": 1}, b"1", "np.float64()"])
def test_what_is_no_number(odd: object) -> None:
    assert as_number(odd) is None


@pytest.mark.parametrize(
    ("value", "step"),
    [(7, 7), ("12", 12), (3.0, 3), ("np.int64(4)", 4), (0, 0), (-1, None), (2.5, None), (math.nan, None), (math.inf, None), (True, None)],
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


def test_far_start_reads_on_only_in_long_text(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(b"x" * (FAR + 10))
    assert far_start(log, b"x" * HEAD) == b"x" * FAR
    assert far_start(log, b"short") == b"short"
    assert far_start(log, b"\0" * HEAD) == b"\0" * HEAD
    assert far_start(tmp_path / "absent.log", b"y" * HEAD) == b"y" * HEAD
