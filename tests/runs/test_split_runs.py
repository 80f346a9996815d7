"""Runs one behind the other in a log: told apart where the steps begin anew, not where a run goes on from a checkpoint."""

from __future__ import annotations

from breadth.runs.schema import MetricPoint
from breadth.runs.split_runs import MIN_RUN_ROWS, split_concatenated_runs


def rows(steps: range, attempt: int, source: int = 0, split: str = "train") -> list[MetricPoint]:
    return [MetricPoint(step, {"entropy": 0.5}, split, attempt=attempt, source=source) for step in steps]


def spans(points: list[MetricPoint]) -> list[tuple[int, int, int]]:
    """First step, last step and rows of each run."""
    return [(one[0].step, one[-1].step, len(one)) for one in split_concatenated_runs(points)]


def test_a_run_that_begins_where_the_first_began_is_another() -> None:
    assert spans([*rows(range(1, 31), 0), *rows(range(1, 11), 1)]) == [(1, 30, 30), (1, 10, 10)]


def test_a_restart_from_a_checkpoint_is_the_same_run() -> None:
    assert spans([*rows(range(1, 31), 0), *rows(range(21, 41), 1)]) == [(1, 40, 50)]


def test_a_false_start_is_not_a_run() -> None:
    assert spans([*rows(range(1, MIN_RUN_ROWS), 0), *rows(range(1, 31), 1)]) == [(1, 30, 30 + MIN_RUN_ROWS - 1)]
    assert spans([*rows(range(1, MIN_RUN_ROWS + 1), 0), *rows(range(1, 31), 1)]) == [
        (1, MIN_RUN_ROWS, MIN_RUN_ROWS),
        (1, 30, 30),
    ]


def test_after_a_false_start_the_next_run_counts_from_its_own_beginning() -> None:
    points = [*rows(range(5, 8), 0), *rows(range(1, 31), 1), *rows(range(3, 20), 2), *rows(range(1, 9), 3)]
    assert spans(points) == [(5, 19, 3 + 30 + 17), (1, 8, 8)]


def test_steps_that_are_printed_twice_are_one_run() -> None:
    points = [
        point
        for step in range(1, 31)
        for point in rows(range(step, step + 1), step - 1) + rows(range(step, step + 1), step)
    ]
    assert len(split_concatenated_runs(points)) == 1


def test_several_files_are_one_run_and_scores_stay_where_they_stand() -> None:
    assert spans([*rows(range(1, 31), 0), *rows(range(1, 11), 1, source=1)]) == [(1, 10, 40)]
    points = [
        *rows(range(1, 31), 0),
        *rows(range(30, 31), 0, split="eval"),
        *rows(range(1, 11), 1),
        *rows(range(10, 11), 1, split="eval"),
    ]
    assert spans(points) == [(1, 30, 31), (1, 10, 11)]
    assert split_concatenated_runs([]) == [()]
