"""Distinct answers on solved and unsolved problems, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.doctor.instruments.answers import answers
from breadth.doctor.windows import windows
from breadth.report.sections import Table
from breadth.runs.reader import Run
from breadth.runs.writer import RunWriter


def test_solved_and_unsolved_are_counted_apart(run: Run) -> None:
    (table,) = answers(windows(run))
    assert isinstance(table, Table)
    shown = {(row[0], row[1]): row[2:] for row in table.rows}
    start = shown["steps 1 to 2", "solved"]
    # a: answers 3, 3, 4, 5 at both steps: 3 distinct, all read; b: 7, 8, 9 and one unreadable: 3 distinct, 3/4 read
    assert start[0] == 2
    assert start[1].value == pytest.approx(3.0)  # type: ignore[union-attr]  # an interval by construction
    assert shown["steps 1 to 2", "unsolved"][3].value == pytest.approx(0.75)  # type: ignore[union-attr]  # likewise
    assert shown["steps 15 to 16", "unsolved"][1].value == pytest.approx(1.0)  # type: ignore[union-attr]  # likewise


def test_no_readable_answer_no_table(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a", "a"], "reward": [1.0, 0.0]}, 1)
    assert answers(windows(Run.open(tmp_path))) == []


def test_without_grades_all_groups_are_one_row(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a", "a"], "answer": ["1", "2"]}, 1)
    (table,) = answers(windows(Run.open(tmp_path)))
    assert isinstance(table, Table)
    assert [row[1] for row in table.rows] == ["all"]
