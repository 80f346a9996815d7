"""The newest groups are drawn with what became of each rollout, the most mixed first."""

from __future__ import annotations

from pathlib import Path

from breadth.doctor.instruments.groups import groups
from breadth.doctor.windows import windows
from breadth.report.sections import Groups, Outcome
from breadth.runs.reader import Run
from breadth.runs.writer import RunWriter


def test_every_outcome_has_its_mark(tmp_path: Path) -> None:
    rows = {
        "problem": ["a", "a", "b", "b", "b", "b"],
        "reward": [1.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        "answer": ["1", "1", "2", None, None, "3"],
        "truncated": [False, False, False, True, False, False],
    }
    RunWriter(tmp_path).rollouts(rows, 3)
    (picture,) = groups(windows(Run.open(tmp_path)))
    assert isinstance(picture, Groups)
    assert picture.title == "Groups of step 3"
    assert [(group.name, group.outcomes) for group in picture.groups] == [
        ("b", (Outcome.CORRECT, Outcome.WRONG, Outcome.UNPARSABLE, Outcome.TRUNCATED)),
        ("a", (Outcome.CORRECT, Outcome.CORRECT)),
    ]


def test_only_the_last_step_is_drawn(run: Run) -> None:
    (picture,) = groups(windows(run))
    assert isinstance(picture, Groups)
    assert [len(group.outcomes) for group in picture.groups] == [4, 4]


def test_no_grades_no_picture(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["a"], "answer": ["1"]}, 1)
    assert groups(windows(Run.open(tmp_path))) == []
    assert groups(()) == []
