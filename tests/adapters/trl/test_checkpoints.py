"""Tests of finding the newest of many copies of one log."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from breadth.adapters.trl.checkpoints import newest_history, states_in, without_older_copies


def log_row(step: int, **more: Any) -> dict[str, Any]:
    return {"loss": 0.5 / step, "reward": step / 10, "entropy": 1.0, "epoch": step / 100, "step": step, **more}


def state(rows: list[Any], **more: Any) -> dict[str, Any]:
    steps = [row["step"] for row in rows if isinstance(row, dict) and "step" in row]
    return {"best_metric": None, "epoch": 1.0, "global_step": max(steps, default=0), "log_history": rows, "logging_steps": 5, **more}


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, sort_keys=True))
    return path


def test_only_the_newest_copy_of_one_log_is_kept(tmp_path: Path) -> None:
    rows = [log_row(step) for step in (5, 10, 15)]
    rows[1]["grad_norm"] = math.nan
    paths = [write(tmp_path / f"checkpoint-{count * 5}" / "trainer_state.json", state(rows[:count])) for count in (1, 2, 3)]
    other = write(tmp_path / "other" / "checkpoint-5" / "trainer_state.json", state([log_row(5, kl=0.1)]))
    console = tmp_path / "train.log"
    assert without_older_copies([*paths, other, console]) == [paths[2], other, console]
    final = write(tmp_path / "trainer_state.json", state(rows))
    assert without_older_copies([*paths, final]) == [final]


def test_states_of_a_run_started_afresh_all_stay(tmp_path: Path) -> None:
    old = write(tmp_path / "checkpoint-500" / "trainer_state.json", state([log_row(5), log_row(500)]))
    new = write(tmp_path / "checkpoint-100" / "trainer_state.json", state([log_row(5, reward=0.9), log_row(100)]))
    broken = tmp_path / "checkpoint-700" / "trainer_state.json"
    broken.parent.mkdir()
    broken.write_text("{")
    assert without_older_copies([new, old, broken]) == [new, old, broken]


def test_the_newest_history_of_a_folder_passes_over_broken_ones(tmp_path: Path) -> None:
    assert newest_history(tmp_path) is None
    good = write(tmp_path / "checkpoint-9" / "trainer_state.json", state([log_row(9)]))
    bad = tmp_path / "checkpoint-10" / "trainer_state.json"
    bad.parent.mkdir()
    bad.write_text("{")
    assert states_in(tmp_path) == [good, bad]
    found = newest_history(tmp_path)
    assert found is not None
    assert [row["step"] for row in found.rows] == [9]


def test_a_state_nested_beyond_reason_stays(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text('{"log_history": [{"loss": ' + "[" * 990 + "]" * 990 + "}]}")
    assert without_older_copies([path]) == [path]


def test_the_newest_history_is_read_again_when_the_file_has_changed(tmp_path: Path) -> None:
    write(tmp_path / "trainer_state.json", state([log_row(1)]))
    first = newest_history(tmp_path)
    assert newest_history(tmp_path) is first
    write(tmp_path / "trainer_state.json", state([log_row(1), log_row(2)]))
    second = newest_history(tmp_path)
    assert second is not None
    assert [row["step"] for row in second.rows] == [1, 2]
