"""The folder of a sweep: one set of wishes, failures drawn anew, samples with all they cost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from breadth.base.errors import BrokenFileError
from breadth.inference.policy import Policy
from breadth.inference.records import Sampling
from breadth.inference.strategies.single import Single
from breadth.inference.sweep_plan import SweepPlan, plain_arm
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter
from breadth.runtime.driver import Driver
from breadth.runtime.journal import JOURNAL_FILE
from breadth.runtime.questions import Question
from breadth.runtime.sweep_folder import SweepFolder, SweepOptions, reset_failed_tasks, sample_row
from breadth.testing.strategies import HumpModel

PLAN = SweepPlan(Policy(), (plain_arm((1,)),), (1,), 4)


def test_a_plan_is_found_again(tmp_path: Path) -> None:
    assert SweepFolder(tmp_path / "run", SweepOptions(), "hash").plan is None
    SweepFolder(tmp_path / "run", SweepOptions(), "hash").save_plan(PLAN)
    assert SweepFolder(tmp_path / "run", SweepOptions(), "hash").plan == PLAN


def test_other_wishes_are_refused_by_name(tmp_path: Path) -> None:
    SweepFolder(tmp_path / "run", SweepOptions(), "hash")
    with pytest.raises(BrokenFileError, match=r"other settings \(widths, seed\)"):
        SweepFolder(tmp_path / "run", SweepOptions(widths=(1, 2), seed=1), "hash")
    with pytest.raises(BrokenFileError, match="other questions"):
        SweepFolder(tmp_path / "run", SweepOptions(), "other")


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    RunWriter(tmp_path / "run", Header(name="training"))
    with pytest.raises(BrokenFileError, match="no sweep"):
        SweepFolder(tmp_path / "run", SweepOptions(), "hash")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").write_text("dear")
    with pytest.raises(BrokenFileError, match="other files"):
        SweepFolder(tmp_path / "notes", SweepOptions(), "hash")
    (tmp_path / "empty").mkdir()
    SweepFolder(tmp_path / "empty", SweepOptions(), "hash")


def test_tasks_that_failed_last_are_drawn_anew_and_stay_charged(tmp_path: Path) -> None:
    lost = [
        {"task": "a", "fingerprint": "x"},
        {
            "task": "a",
            "path": "",
            "place": "0.0",
            "kind": "arrived",
            "candidate": {"text": "1"},
            "spend": {"output_tokens": 3},
        },
        {"task": "a", "path": "", "place": "1.0", "kind": "failed", "reason": "down", "spend": {"calls": 2}},
    ]
    kept = [
        {"task": "b", "path": "", "place": "0.0", "kind": "failed", "reason": "down"},
        {"task": "b", "path": "", "place": "0.0'", "kind": "arrived", "candidate": {"text": "1"}},
    ]
    path = tmp_path / JOURNAL_FILE
    path.write_bytes(b"\n".join(orjson.dumps(row) for row in lost + kept) + b'\n{"task": "c", "pa')
    reset_failed_tasks(tmp_path)
    *whole, cut = path.read_bytes().split(b"\n")
    assert [orjson.loads(line) for line in whole] == [
        lost[0],
        {"task": "a", "path": "", "place": "0.0", "kind": "discarded", "spend": {"output_tokens": 3}},
        {"task": "a", "path": "", "place": "1.0", "kind": "discarded", "spend": {"calls": 2}},
        *kept,
    ]
    assert cut == b'{"task": "c", "pa'


def test_a_sample_keeps_its_cost_its_grade_and_how_sure_it_was() -> None:
    question = Question("q", "1 + 1?", "#### 2")
    policy = Policy(sampling=Sampling(max_tokens=64, top_logprobs=20), model="m")
    driver = Driver(HumpModel(lambda _: 1.0, {"1 + 1?": "2"}, natural_length=3))
    solved = asyncio.run(driver.solve(Single(), policy.task(question.prompt)))
    row = sample_row(question, 2, "as it comes", solved)
    extra = orjson.loads(row.pop("extra"))
    assert row == {
        "problem": "q",
        "sample": 2,
        "completion": "hmm hmm hmm The answer is 2.",
        "answer": "2",
        "correct": True,
        "tokens": 7,
        "truncated": False,
    }
    assert extra["confidence"] == pytest.approx(float(solved.arrived[0].confidences[0]))  # type: ignore[index] # asked for
    assert (extra["calls"], extra["input_tokens"], extra["label"], extra["model"]) == (1, 10, "as it comes", "m")
    assert sample_row(Question("q", "1 + 1?"), 0, "x", solved)["correct"] is None
