"""The process of a trial: result, reason, the parent's end, and a channel that libraries cannot disturb."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from breadth.lab.trials.experiment import (
    FAILURE_FILE,
    LOG_FILE,
    RESULT_FILE,
    ExperimentTrial,
    prepare_trials,
    read_result,
)
from breadth.lab.trials.worker import SECONDS_SPENT_FILE

WORK = """
import os, subprocess, sys, time
def double(settings, folder, base, told):
    print("a library talks")
    subprocess.run(["echo", "and its child"])
    print("and complains", file=sys.stderr)
    told(1)
    told(2)
    return {"twice": 2 * settings["value"], "base": str(base)}
def crash(settings, folder, base, told):
    raise ValueError("no such luck")
def wait(settings, folder, base, told):
    told(1)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "works_of_test.py").write_text(WORK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def begin(work: str, folder: Path, *base: str) -> subprocess.Popen[str]:
    prepare_trials([ExperimentTrial("trial", f"works_of_test:{work}", {"value": 21})], folder)
    command = [sys.executable, "-m", "breadth.lab.trials.worker", str(folder / "trial"), *base]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def told_by(process: subprocess.Popen[str], status: int) -> list[dict[str, object]]:
    """Return all that a process tells its parent; its standard input stays open until it ends."""
    with process:
        assert process.stdout is not None
        lines = [json.loads(line) for line in process.stdout]
        assert process.wait() == status
    return lines


def test_the_result_is_written_and_only_our_own_lines_reach_the_parent(tmp_path: Path) -> None:
    assert told_by(begin("double", tmp_path, "some/base"), 0) == [{"units": 1}, {"units": 2}]
    one = read_result(tmp_path / "trial")
    assert one is not None
    assert one.result == {"twice": 42, "base": "some/base"}
    assert sorted((tmp_path / "trial" / LOG_FILE).read_text().split("\n")) == [
        "",
        "a library talks",
        "and complains",
        "and its child",
    ]
    assert not (tmp_path / "trial" / SECONDS_SPENT_FILE).exists()


def test_a_crash_is_told_in_a_line_and_kept_in_full(tmp_path: Path) -> None:
    assert told_by(begin("crash", tmp_path), 1) == [{"reason": "ValueError: no such luck"}]
    assert "in crash" in (tmp_path / "trial" / FAILURE_FILE).read_text()
    assert not (tmp_path / "trial" / RESULT_FILE).exists()


def test_work_that_cannot_be_found_is_a_reason_too(tmp_path: Path) -> None:
    (line,) = told_by(begin("nothing", tmp_path), 1)
    assert "nothing" in str(line["reason"])


def test_it_ends_when_its_parent_does(tmp_path: Path) -> None:
    with begin("wait", tmp_path) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert json.loads(process.stdout.readline()) == {"units": 1}
        process.stdin.close()  # what the system does when the parent is gone
        assert process.wait(10) == 1
