"""Signs of trouble, from a run folder worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.base.errors import SettingsError
from breadth.lab.courses.signs import Sign, numbers_of
from breadth.runs.writer import RunWriter


def test_numbers_by_hand(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    for step in range(1, 13):
        late = step > 7
        rows = {
            "problem": ["p", "p", "q", "q"],
            "group": [f"{step}-0", f"{step}-0", f"{step}-1", f"{step}-1"],
            "reward": [1.0, 1.0, 1.0, 0.0] if late else [0.0, 0.0, 0.0, 1.0],
            "truncated": [True, False, False, False],
            "entropy": [[0.2, 0.2]] * 4 if late else [[0.4]] * 4,
            "logprobs": [[-0.3, -0.3]] * 4 if late else [[-0.6]] * 4,
        }
        writer.rollouts(rows, step)
        writer.metrics(step, {"entropy": 0.1 if late else 0.4})
    found = numbers_of(tmp_path)
    assert found["passed_start"] == 0.25
    assert found["passed_end"] == 0.75
    assert found["entropy_start"] == pytest.approx(0.4)
    assert found["entropy_ratio"] == pytest.approx(0.5)
    assert found["logged_ratio"] == pytest.approx(0.25)
    assert found["truncated"] == 0.25
    assert found["flat"] == 0.5
    assert found["surprise"] == pytest.approx(1.5)


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    RunWriter(tmp_path).rollouts({"problem": ["p"], "group": ["g"], "reward": [1.0]}, 1)
    found = numbers_of(tmp_path)
    assert found["entropy_ratio"] is found["surprise"] is found["logged_ratio"] is found["truncated"] is None
    assert not Sign("surprise", least=0).shows(found)
    assert Sign("surprise", least=0).words(found) == "no: surprise is not there, wanted 0 or more"


def test_a_sign_shows_inside_its_range() -> None:
    sign = Sign("flat", least=0.5, most=0.75)
    assert [sign.shows({"flat": value}) for value in (0.4, 0.5, 0.75, 0.8)] == [False, True, True, False]
    assert sign.words({"flat": 0.4}) == "no: flat is 0.4, wanted 0.5 or more and 0.75 or less"


def test_a_number_nobody_measures_is_refused() -> None:
    with pytest.raises(SettingsError, match="flat"):
        Sign("flatness")
