"""``breadth import`` makes a run folder, says what it brought in, and never overwrites."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from breadth.api import importers_with
from breadth.base.errors import SettingsError
from breadth.cli.import_ import parse_columns
from breadth.runs.reader import Run

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_log_becomes_a_run(breadth: Command, log: Path, tmp_path: Path) -> None:
    done = breadth("import", log, "--to", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert "40 metric rows, 0 rollouts" in done.stdout
    assert len(Run.open(tmp_path / "run").series("entropy")) == 40
    again = breadth("import", log, "--to", tmp_path / "run")
    assert again.returncode == 2
    assert "never overwrites" in again.stderr


def test_json_tells_machines_the_same(breadth: Command, log: Path, tmp_path: Path) -> None:
    made = json.loads(breadth("import", log.parent, "--to", tmp_path / "run", "--json").stdout)
    assert (made["metric_rows"], made["rollouts"], made["remarks"]) == (40, 0, [])


def test_rows_of_ones_own_are_mapped(breadth: Command, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    rows = [{"iteration": step, "qid": "q", "text": "so \\boxed{4}", "points": step % 2} for step in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = ["step=iteration", "problem=qid", "completion=text", "reward=points"]
    done = breadth("import", path, "--to", tmp_path / "run", *[part for pair in pairs for part in ("--map", pair)])
    assert done.returncode == 0, done.stderr
    read = Run.open(tmp_path / "run").query("SELECT answer, reward FROM rollouts ORDER BY step").to_pylist()
    assert read == [{"answer": "4", "reward": float(step % 2)} for step in range(4)]


def test_a_log_cannot_write_to_the_terminal(breadth: Command, tmp_path: Path) -> None:
    path = tmp_path / "\x1b[31mred.jsonl"
    path.write_text('{"step": 1, "loss": 0.5}\n{"step": 2, "\x1b]0;title\x07')
    done = breadth("import", path, "--to", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    refused = breadth("import", path, "--to", tmp_path / "run", "--map", "\x1b[2J=x")
    assert refused.returncode == 2
    assert "\x1b" not in done.stderr + done.stdout + refused.stderr
    assert "row 2" in done.stderr


def test_a_mapping_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match="--map reward=score"):
        parse_columns(["reward"])
    assert importers_with(parse_columns(None)) is None
    assert importers_with({}) is None
