"""Bars: plain lines where there is no terminal, and what is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from breadth.lab.trials.experiment import Trial
from breadth.lab.trials.folder import prepare, write_found
from breadth.lab.trials.progress_bar import lesson_bar, trial_bar
from breadth.lab.trials.runner import Failure

TRIALS = [Trial(name, "m:w", units=10) for name in ("a", "b", "c")]


def test_each_trial_that_ends_is_a_line_with_an_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare(TRIALS, tmp_path)
    write_found(tmp_path / "a", {}, 1.0)
    with trial_bar(TRIALS, tmp_path) as watch:
        watch.units(TRIALS[1], 5)
        watch.ended(TRIALS[1], None)
        watch.ended(TRIALS[2], Failure(TRIALS[2], "no luck", tmp_path))
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("b ended; 2 of 3 trials, about ")
    assert second == "c FAILED; 3 of 3 trials, about 0 s left"


def test_lessons_are_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    with lesson_bar(600) as told:
        for step in range(1, 601):
            told(step, 1 / step)
    assert capsys.readouterr().err.splitlines() == ["step 500 of 600, loss 0.002", "step 600 of 600, loss 0.002"]
