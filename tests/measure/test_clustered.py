"""Ratios over whole problems: against hand counts, and against the spread of the problems themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.measure.clustered import quotient, resample
from breadth.measure.intervals import ratio_interval


def test_value_is_the_ratio_of_sums() -> None:
    resamples = resample({"a": [1, 2, 1], "b": [0, 1, 0], "n": [2, 2, 4], "one": [1, 1, 1]}, ["x", "x", "y"])
    assert resamples.ratio("a", "n", (0, 1)).value == 4 / 8
    assert resamples.ratio("b", "one", (0, 1)).value == 1 / 3
    assert resamples.ratio("a", "n", (0, 1)).method == "cluster bootstrap over 2 problems"
    assert resamples.sums["a"].tolist() == [3, 1]


def test_agrees_with_the_bootstrap_of_summed_clusters() -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 9, 120)
    totals = rng.binomial(counts, 0.4)
    ours = resample({"t": totals, "n": counts}, np.arange(120) // 3, seed=5).ratio("t", "n", (0, 1))
    theirs = ratio_interval(totals.reshape(40, 3).sum(1), counts.reshape(40, 3).sum(1), seed=5)
    assert (ours.value, ours.low, ours.high) == pytest.approx((theirs.value, theirs.low, theirs.high), abs=1e-12)


def test_rows_of_one_problem_are_not_independent_evidence() -> None:
    rng = np.random.default_rng(2)
    columns = {"t": np.repeat(rng.integers(0, 2, 40), 10), "n": np.ones(400)}
    rows = resample(columns, np.arange(400)).ratio("t", "n", (0, 1))
    problems = resample(columns, np.repeat(np.arange(40), 10)).ratio("t", "n", (0, 1))
    # Ten copies of each row: the honest interval is wider by about the square root of ten.
    assert 2.5 < (problems.high - problems.low) / (rows.high - rows.low) < 4


def test_a_difference_rests_on_the_same_resamples() -> None:
    rng = np.random.default_rng(3)
    hard = rng.normal(0, 5, 60)
    resamples = resample({"a": hard + 1, "b": hard, "n": np.ones(60)}, np.arange(60))
    gap = resamples.interval(lambda c: c["a"] / c["n"] - c["b"] / c["n"], "n", (-100, 100))
    # The two columns differ by exactly 1 on every problem, however much the problems differ.
    assert gap.value == pytest.approx(1)
    assert gap.method.endswith("no spread")
    assert resamples.ratio("a", "n", (-100, 100)).high - resamples.ratio("a", "n", (-100, 100)).low > 2


def test_a_ratio_without_counts_is_nan_and_the_others_stand() -> None:
    resamples = resample({"t": [0, 1], "n": [1, 1], "none": [0, 0]}, [1, 2])
    empty = resamples.ratio("t", "none", (0, 1))
    assert math.isnan(empty.value)
    assert (empty.low, empty.high, empty.method) == (0, 1, "no problems")
    assert resamples.ratio("t", "n", (0, 1)).value == 0.5


def test_problems_without_a_count_are_not_counted_as_evidence() -> None:
    resamples = resample({"t": [1, 0, 0, 0], "n": [2, 1, 0, 0]}, [1, 2, 3, 4])
    interval = resamples.ratio("t", "n", (0, 1))
    assert interval.value == 1 / 3
    assert interval.method.startswith("cluster bootstrap over 2 problems")


def test_no_rows_at_all() -> None:
    only = resample({"t": [], "n": []}, []).ratio("t", "n", (0, 8))
    assert math.isnan(only.value)
    assert (only.low, only.high) == (0, 8)


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MeasureError, match="Lengths differ"):
        resample({"t": [1.0]}, [1, 2])
    with pytest.raises(MeasureError, match="1 of 1 values of t are NaN or infinite"):
        resample({"t": [math.nan]}, [1])


def test_quotient_has_nan_for_nothing() -> None:
    assert quotient(np.array([1.0, 1.0]), np.array([4.0, 0.0])).tolist() == pytest.approx([0.25, math.nan], nan_ok=True)
