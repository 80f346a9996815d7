"""The start and the end of the rollouts are the first and last eighth of the steps."""

from __future__ import annotations

from pathlib import Path

from breadth.doctor.windows import windows
from breadth.runs.reader import Run
from breadth.runs.writer import RunWriter


def test_an_eighth_at_each_end(run: Run) -> None:
    start, end = windows(run)
    assert (start.name, start.first, start.last) == ("steps 1 to 2", 1, 2)
    assert (end.name, len(end.samples)) == ("steps 15 to 16", 16)
    assert start.graded
    assert start.classes[:4].tolist() == [0, 0, 1, 2]
    assert (start.classes == -1).sum() == 2


def test_one_step_is_one_window_and_none_is_none(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    assert windows(Run.open(tmp_path)) == ()
    writer.rollouts({"problem": ["a"], "reward": [None]}, 5)
    (only,) = windows(Run.open(tmp_path))
    assert only.name == "step 5"
    assert not only.graded
