"""The start and the end of the rollouts are the first and last eighth of the steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.doctor.windows import clip_to_range, windows
from breadth.measure.intervals import Interval
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


@pytest.mark.parametrize(
    ("name", "given", "cut"),
    [
        ("starved_groups", (0.875, 0.78, 1.047), (0.875, 0.78, 1.0)),
        ("truncated", (0.01, -0.02, 0.04), (0.01, 0.0, 0.04)),
        ("entropy", (0.1, -0.1, 2.0), (0.1, 0.0, 2.0)),
        ("reward", (-0.5, -1.5, 0.5), (-0.5, -1.5, 0.5)),
        ("starved_groups", (87.5, 80.0, 95.0), (87.5, 80.0, 95.0)),  # in percent: no share, and nothing is cut
    ],
)
def test_it_is_cut_to_what_can_be(
    name: str, given: tuple[float, float, float], cut: tuple[float, float, float]
) -> None:
    found = clip_to_range(name, Interval(*given, 0.95, "by hand"))
    assert (found.value, found.low, found.high) == cut
    assert found.method == "by hand"
