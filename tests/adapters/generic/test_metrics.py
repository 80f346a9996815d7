"""Foreign tables of metrics: names, steps, clocks, exports of Weights & Biases."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from breadth.adapters.generic.layout import layout_of
from breadth.adapters.generic.metrics import MetricTable, unix_time
from breadth.base.errors import UnknownFormatError
from breadth.runs.records import MetricRow

PATH = Path("table.csv")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


def table(rows: list[dict[str, Any]], mapping: dict[str, str] | None = None) -> tuple[list[MetricRow], list[str]]:
    columns = dict.fromkeys(name for row in rows for name in row)
    made = MetricTable(layout_of(columns, mapping or {}, "metrics"), columns, PATH)
    found = [record for record in made.records(list(enumerate(rows, 1))) if isinstance(record, MetricRow)]
    return found, [remark.problem for remark in made.remarks()]


def test_weights_and_biases_history() -> None:
    rows = [
        {
            "_step": "0",
            "_timestamp": "1700000000.5",
            "_runtime": "3",
            "train/global_step": "10",
            "train/reward": "0.25",
            "eval/reward": None,
        },
        {
            "_step": "1",
            "_timestamp": "1700000001.5",
            "_runtime": "4",
            "train/global_step": "10",
            "train/reward": None,
            "eval/reward": "0.5",
        },
    ]
    found, remarks = table(rows)
    assert found == [
        MetricRow({"_step": 0.0, "_runtime": 3.0, "train/reward": 0.25}, 10, 1700000000.5),
        MetricRow({"_step": 1.0, "_runtime": 4.0}, 10, 1700000001.5),
        MetricRow({"reward": 0.5}, 10, 1700000001.5, "eval"),
    ]
    assert remarks == []


def test_an_exported_chart_loses_its_runs_name_and_its_band() -> None:
    found, _ = table([{"Step": "5", "lr-3 - train/reward": "0.5", "lr-3 - train/reward__MIN": "0.4", "lr-3 - train/reward__MAX": "0.6"}])
    assert found == [MetricRow({"train/reward": 0.5}, 5)]


def test_a_chart_of_several_runs_is_refused() -> None:
    with pytest.raises(UnknownFormatError, match=r"several runs \(a, b"):
        table([{"Step": 1, "a - reward": 0.5, "b - reward": 0.6}])


@pytest.mark.parametrize("column", ["run", "run_id", "model"])
def test_stacked_runs_are_refused_and_one_is_not(column: str) -> None:
    found, remarks = table([{column: "a", "step": 1, "reward": 0.5}, {column: "a", "step": 2, "reward": 0.5}])
    assert [dict(row.values) for row in found] == [{"reward": 0.5}, {"reward": 0.5}]
    assert remarks == []
    with pytest.raises(UnknownFormatError, match="several runs"):
        table([{column: "a", "step": 1, "reward": 0.5}, {column: "b", "step": 1, "reward": 0.5}])


def test_a_mapping_renames_and_a_lookalike_steps_aside() -> None:
    found, _ = table([{"it": 3, "score": 0.5, "reward": 9.0}], {"step": "it", "reward": "score"})
    assert found == [MetricRow({"reward": 0.5, "raw/reward": 9.0}, 3)]


def test_without_a_step_column_rows_are_numbered_later() -> None:
    assert table([{"score": 0.5}], {"reward": "score"})[0] == [MetricRow({"reward": 0.5}, None)]


def test_rows_without_their_step_are_left_out_and_told() -> None:
    found, remarks = table([{"step": 1, "a": 1}, {"step": None, "a": 2}, {"step": "x", "a": 3}, {"step": -1, "a": 4}])
    assert [row.step for row in found] == [1]
    assert remarks == ["3 rows have no step under 'step'; left out."]


def test_text_is_told_once_for_each_column_and_nan_is_kept() -> None:
    found, remarks = table([{"step": 1, "a": "text", "b": "NaN"}, {"step": 2, "a": "more", "b": "inf"}])
    assert math.isnan(found[0].values["b"])
    assert found[1].values == {"b": math.inf}
    assert remarks == ["'a' is 'text', not a number, in 2 rows; left out there."]


def test_a_split_column_tells_evaluation_apart() -> None:
    found, _ = table(
        [{"step": 1, "split": "train", "reward": 0.1}, {"step": 1, "split": "Validation", "reward": 0.2}, {"step": 2, "reward": 0.3}]
    )
    assert [(row.step, row.split, dict(row.values)) for row in found] == [
        (1, "train", {"reward": 0.1}),
        (1, "eval", {"reward": 0.2}),
        (2, "train", {"reward": 0.3}),
    ]


def test_a_column_of_seconds_since_the_start_stays_a_metric() -> None:
    assert table([{"step": 1, "time": 12.5, "reward": 0.5}])[0] == [MetricRow({"time": 12.5, "reward": 0.5}, 1)]


def test_columns_that_come_later_are_metrics_too() -> None:
    made = MetricTable(layout_of(["step", "a"], {}, "metrics"), ["step", "a"], PATH)
    assert list(made.records([(1, {"step": 1, "b": 2.0})])) == [MetricRow({"b": 2.0}, 1)]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (NOON, NOON),
        (str(NOON), NOON),
        ("2026-03-01T12:00:00", NOON),
        ("2026-03-01T13:00:00+01:00", NOON),
        ("2026-03-01 12:00:00Z", NOON),
        (datetime(2026, 3, 1, 12), NOON),
        (datetime(2026, 3, 1, 12, tzinfo=UTC), NOON),
        (12.5, None),
        (math.nan, None),
        (None, None),
        ("soon", None),
        ([], None),
        ("1e400", None),
    ],
)
def test_moments(value: Any, seconds: float | None) -> None:
    assert unix_time(value) == seconds
