"""Metric rows of logged numbers: held-out scores apart, rows of one step joined, restarts kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from breadth.adapters.scalars import WINDOW, StepMerger, in_order, metric_rows, storable_name
from breadth.runs.records import MetricRow


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
    assert [row.step for row in merged([MetricRow({"a": 1.0}, 5), MetricRow({"a": 2.0}), MetricRow({"a": 3.0}, 1)])] == [5, None, 1]


def test_open_steps_are_bounded() -> None:
    merger = StepMerger()
    done = [row.step for step in range(10 * WINDOW) for row in merger.add(MetricRow({"a": 1.0}, step))]
    assert done == list(range(9 * WINDOW))


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.integers(0, 9)), max_size=30))
def test_the_last_value_of_each_name_and_step_survives(points: list[tuple[int, str, int]]) -> None:
    rows = merged([MetricRow({name: float(value)}, step) for step, name, value in points])
    expected = {(step, name): float(value) for step, name, value in points}
    assert {(row.step, name): value for row in rows for name, value in row.values.items()} == expected
