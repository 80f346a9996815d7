"""Texts of the start and the end are read for degeneration, formats and changed answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.doctor.instruments.texts import texts
from breadth.doctor.windows import windows
from breadth.report.sections import Table
from breadth.runs.reader import Run
from breadth.runs.writer import RunWriter

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
    (table,) = texts(run, windows(run))
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
    assert texts(run, windows(run)) == []
