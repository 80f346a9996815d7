"""pass@k and maj@k of a small run, worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.doctor.evidence.record import rollout_windows
from breadth.doctor.rollout_instruments import completion_table, coverage_sections, diversity_table, group_chart
from breadth.report.cells import Missing
from breadth.report.sections import Curve, Groups, Outcome, Table
from breadth.runs.reader import Run
from breadth.runs.writer import RunWriter


def value(cell: object) -> float:
    return float(getattr(cell, "value", cell))  # type: ignore[arg-type]  # a cell is a number or has one


def test_the_table_holds_the_numbers_worked_out_by_hand(run: Run) -> None:
    table, chart, silent = coverage_sections(rollout_windows(run))
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
    (table, *_) = coverage_sections(rollout_windows(run))
    assert isinstance(table, Table)
    cell = table.rows[0][2]
    assert 0 <= cell.low <= 0.25 <= cell.high <= 1  # type: ignore[union-attr]  # an interval by construction


@pytest.mark.parametrize("rewards", [[1.0, 0.5, 0.0, 0.0], [1.0, None, 0.0, 0.0]])
def test_without_grades_there_is_no_coverage(tmp_path: Path, rewards: list[float | None]) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a"] * 4, "reward": rewards}, 1)
    assert coverage_sections(rollout_windows(Run.open(tmp_path))) == []


def test_one_rollout_a_problem_has_no_curve(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a", "b"], "reward": [1.0, 0.0]}, 1)
    assert coverage_sections(rollout_windows(Run.open(tmp_path))) == []


def test_texts_without_answers_have_coverage_but_no_vote(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a", "a"], "reward": [1.0, 0.0]}, 1)
    (table, chart, _) = coverage_sections(rollout_windows(Run.open(tmp_path)))
    assert isinstance(table, Table)
    assert isinstance(table.rows[0][4], Missing)
    assert isinstance(chart, Curve)
    assert [series.name for series in chart.series] == ["pass@k, all"]


def test_groups_of_another_size_are_left_out(tmp_path: Path) -> None:
    rows = {"problem": ["a", "a", "b", "b", "c"], "reward": [1.0, 0.0, 0.0, 0.0, 1.0]}
    RunWriter(tmp_path).rollouts(rows, 1)
    (table, *_) = coverage_sections(rollout_windows(Run.open(tmp_path)))
    assert isinstance(table, Table)
    assert [value(cell) for cell in table.rows[0][1:4]] == pytest.approx([2, 0.25, 0.5])


def test_solved_and_unsolved_are_counted_apart(run: Run) -> None:
    (table,) = diversity_table(rollout_windows(run))
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
    assert diversity_table(rollout_windows(Run.open(tmp_path))) == []


def test_without_grades_all_groups_are_one_row(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a", "a"], "answer": ["1", "2"]}, 1)
    (table,) = diversity_table(rollout_windows(Run.open(tmp_path)))
    assert isinstance(table, Table)
    assert [row[1] for row in table.rows] == ["all"]


WORKED = (
    "First add 3 + 4 = 7. Then 7 * 2 = 14, and 14 - 5 = 9, so we are done after these steps.\nThe answer is \\boxed{9}"
)
LOOPING = "The answer is \\boxed{4}. " + "again and again we go round " * 40
TORN = "I think the answer is \\boxed{3}. Wait: 2 + 2 = 4, so after checking the sum the answer is \\boxed{4}"


def test_each_window_is_a_row(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    writer.rollouts({"problem": ["a"] * 4, "completion": [WORKED, WORKED, WORKED, TORN]}, 1)
    writer.rollouts({"problem": ["a"] * 4, "completion": [LOOPING] * 3 + [WORKED]}, 2)
    run = Run.open(tmp_path)
    (table,) = completion_table(run, rollout_windows(run))
    assert isinstance(table, Table)
    start, end = table.rows
    assert start[:2] == ("step 1", 4)
    assert start[2].value == 0.0  # type: ignore[union-attr]  # an interval by construction
    assert start[5] == pytest.approx(0.25)
    assert end[2].value == 0.75  # type: ignore[union-attr]  # likewise
    assert "75%" in str(end[3])


def test_without_texts_there_is_nothing_to_say(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a"], "reward": [1.0]}, 1)
    run = Run.open(tmp_path)
    assert completion_table(run, rollout_windows(run)) == []


def test_every_outcome_has_its_mark(tmp_path: Path) -> None:
    rows = {
        "problem": ["a", "a", "b", "b", "b", "b"],
        "reward": [1.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        "answer": ["1", "1", "2", None, None, "3"],
        "truncated": [False, False, False, True, False, False],
    }
    RunWriter(tmp_path).rollouts(rows, 3)
    (picture,) = group_chart(rollout_windows(Run.open(tmp_path)))
    assert isinstance(picture, Groups)
    assert picture.title == "Groups of step 3"
    assert [(group.name, group.outcomes) for group in picture.groups] == [
        ("b", (Outcome.CORRECT, Outcome.WRONG, Outcome.UNPARSABLE, Outcome.TRUNCATED)),
        ("a", (Outcome.CORRECT, Outcome.CORRECT)),
    ]


def test_only_the_last_step_is_drawn(run: Run) -> None:
    (picture,) = group_chart(rollout_windows(run))
    assert isinstance(picture, Groups)
    assert [len(group.outcomes) for group in picture.groups] == [4, 4]


def test_no_grades_no_picture(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a"], "answer": ["1"]}, 1)
    assert group_chart(rollout_windows(Run.open(tmp_path))) == []
    assert group_chart(()) == []
