"""Folders of trials: what is asked, what was found, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.base.errors import BrokenFileError, WriteError
from breadth.lab.trials.experiment import Trial
from breadth.lab.trials.folder import ASKED, FAILED, FOUND, asked, done, found, prepare, write_found

TRIAL = Trial(
    "arm/seed-0",
    "module:work",
    {"rate": 0.1, "chain": {"kind": "plain", "high": float("inf")}, "parts": [{"low": 1}, {"low": 2}]},
)


def test_what_is_asked_is_read_back_and_the_same_is_accepted_again(tmp_path: Path) -> None:
    prepare([TRIAL], tmp_path)
    assert asked(tmp_path / TRIAL.name) == ("module:work", TRIAL.settings)
    prepare([TRIAL], tmp_path)


def test_another_setting_is_refused_by_its_name_and_both_values(tmp_path: Path) -> None:
    prepare([TRIAL], tmp_path)
    other = Trial(TRIAL.name, TRIAL.work, {"rate": 0.2, "chain": {"kind": "plain"}, "parts": [{"low": 1}, {"low": 3}]})
    with pytest.raises(BrokenFileError) as caught:
        prepare([other], tmp_path)
    assert "rate was 0.1, now 0.2" in str(caught.value)
    assert "chain.high was inf, now not set" in str(caught.value)
    assert "parts.1.low was 2, now 3" in str(caught.value)
    assert "parts.0" not in str(caught.value)
    assert "--out" in caught.value.remedy


def test_results_are_kept_and_an_earlier_failure_is_forgotten(tmp_path: Path) -> None:
    prepare([TRIAL], tmp_path)
    folder = tmp_path / TRIAL.name
    assert found(folder) is None
    assert done([TRIAL], tmp_path) == []
    (folder / FAILED).write_text("it broke")
    write_found(folder, {"value": 1.5, "nothing": float("nan")}, 2.04)
    (one,) = done([TRIAL], tmp_path)
    assert (one.trial, one.result, one.seconds) == (TRIAL, {"value": 1.5, "nothing": None}, 2.0)
    assert not (folder / FAILED).exists()


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"result": {}}', b'{"result": {}, "seconds"'])
def test_a_damaged_result_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FOUND).write_bytes(content)
    with pytest.raises(BrokenFileError, match="Delete it"):
        found(tmp_path)


@pytest.mark.parametrize("content", ["rate = ", "rate = 1", "work = 3"])
def test_a_damaged_question_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / ASKED).write_text(content)
    with pytest.raises(BrokenFileError, match="Move the folder away"):
        asked(tmp_path)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "arm").write_text("a file in the way")
    with pytest.raises(WriteError, match="could not be written"):
        prepare([TRIAL], tmp_path)
