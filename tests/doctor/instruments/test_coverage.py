"""pass@k and maj@k of a small run, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.doctor.instruments.coverage import coverage
from breadth.doctor.windows import windows
from breadth.report.cells import Missing
from breadth.report.sections import Curve, Table
from breadth.runs.reader import Run
from breadth.runs.writer import RunWriter


def value(cell: object) -> float:
    return float(getattr(cell, "value", cell))  # type: ignore[arg-type]  # a cell is a number or has one


def test_the_table_holds_the_numbers_worked_out_by_hand(run: Run) -> None:
    table, chart, silent = coverage(windows(run))
    assert isinstance(table, Table)
    start, end = table.rows
    # start: problem a has 2 of 4 right, b 0 of 4. pass@1 = (2/4 + 0)/2, pass@4 = (1 + 0)/2; a's vote: 3 leads 2:1:1.
    assert [value(cell) for cell in start[1:]] == pytest.approx([2, 0.25, 0.5, 0.5])
    # end: a has 4 of 4, b none.
    assert [value(cell) for cell in end[1:]] == pytest.approx([2, 0.5, 0.5, 0.5])
    assert isinstance(silent, Table)
    assert [row[1:] for row in silent.rows] == [(0.5, 0.0), (0.5, 0.5)]
    assert isinstance(chart, Curve)
    by_name = {series.name: series for series in chart.series}
    # pass@2 at the start: a = 1 - C(2,2)/C(4,2) = 5/6, b = 0.
    assert list(by_name["pass@k, start"].x) == [1, 2, 4]
    assert by_name["pass@k, start"].y == pytest.approx([0.25, 5 / 12, 0.5])
    # maj@2 at the start, a: {3,3} wins (1/6), {3,x} shares (4/6 * 1/2), {4,5} loses: 1/2; b: 0.
    assert by_name["maj@k, start"].y == pytest.approx([0.25, 0.25, 0.5])


def test_an_interval_covers_its_value_and_stays_in_bounds(run: Run) -> None:
    (table, *_) = coverage(windows(run))
    assert isinstance(table, Table)
    cell = table.rows[0][2]
    assert 0 <= cell.low <= 0.25 <= cell.high <= 1  # type: ignore[union-attr]  # an interval by construction


@pytest.mark.parametrize("rewards", [[1.0, 0.5, 0.0, 0.0], [1.0, None, 0.0, 0.0]])
def test_without_grades_there_is_no_coverage(tmp_path: Path, rewards: list[float | None]) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a"] * 4, "reward": rewards}, 1)
    assert coverage(windows(Run.open(tmp_path))) == []


def test_one_rollout_a_problem_has_no_curve(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a", "b"], "reward": [1.0, 0.0]}, 1)
    assert coverage(windows(Run.open(tmp_path))) == []


def test_texts_without_answers_have_coverage_but_no_vote(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a", "a"], "reward": [1.0, 0.0]}, 1)
    (table, chart, _) = coverage(windows(Run.open(tmp_path)))
    assert isinstance(table, Table)
    assert isinstance(table.rows[0][4], Missing)
    assert isinstance(chart, Curve)
    assert [series.name for series in chart.series] == ["pass@k, all"]


def test_groups_of_another_size_are_left_out(tmp_path: Path) -> None:
    rows = {"problem": ["a", "a", "b", "b", "c"], "reward": [1.0, 0.0, 0.0, 0.0, 1.0]}
    RunWriter(tmp_path).rollouts(rows, 1)
    (table, *_) = coverage(windows(Run.open(tmp_path)))
    assert isinstance(table, Table)
    assert [value(cell) for cell in table.rows[0][1:4]] == pytest.approx([2, 0.25, 0.5])
