"""Restarts and repeated files resolve to one value a step: the newest."""

from __future__ import annotations

import math

import pytest

from breadth.runs.series import MetricPoint, gather


def point(step: int, value: float, *, attempt: int = 0, source: int = 0, split: str = "train") -> MetricPoint:
    return MetricPoint(step, {"x": value}, split, 0, attempt, source)


def test_the_newest_attempt_of_each_step_counts() -> None:
    points = [point(1, 1.0), point(2, 2.0), point(3, 3.0), point(2, 20.0, attempt=1), point(3, 30.0, attempt=1), point(4, 40.0, attempt=1)]
    series = gather(points, "x", "train")
    assert series.steps.tolist() == [1, 2, 3, 4]
    assert series.values.tolist() == [1.0, 20.0, 30.0, 40.0]
    assert series.superseded == 2


def test_order_in_the_file_does_not_decide_between_attempts() -> None:
    assert gather([point(1, 9.0, attempt=1), point(1, 1.0)], "x", "train").values.tolist() == [9.0]


def test_a_later_file_wins_and_splits_stay_apart() -> None:
    points = [point(1, 1.0, attempt=5), point(1, 2.0, source=1), point(1, 3.0, split="eval")]
    assert gather(points, "x", "train").values.tolist() == [2.0]
    assert gather(points, "x", "eval").values.tolist() == [3.0]
    assert len(gather(points, "y", "train")) == 0


def test_finite_drops_nan_and_infinity() -> None:
    series = gather([point(1, math.nan), point(2, math.inf), point(3, 1.0)], "x", "train")
    assert series.finite.steps.tolist() == [3]


def test_a_stored_row_is_read_and_a_null_is_nan() -> None:
    read = MetricPoint.of({"step": 3, "values": {"a": None, "b": "inf", "c": 2}, "time": 5})
    assert (read.step, read.values["b"], read.values["c"], read.time) == (3, math.inf, 2.0, 5.0)
    assert math.isnan(read.values["a"])
    with pytest.raises(KeyError):
        MetricPoint.of({"values": {}})
