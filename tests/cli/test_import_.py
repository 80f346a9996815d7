"""``breadth import`` makes a run folder, says what it brought in, and never overwrites."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from breadth.api import importers_with
from breadth.base.errors import SettingsError
from breadth.cli.output import parse_columns
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
    assert (made["folder"], made["unused"]) == (str(tmp_path / "run"), [])
    (run,) = made["runs"]
    assert run == {
        "run": str(tmp_path / "run"),
        "metric_rows": 40,
        "rollouts": 0,
        "problems": 0,
        "remarks": [],
    }


def test_several_runs_become_a_folder_each(breadth: Command, log: Path, tmp_path: Path) -> None:
    for name in ("a", "B/run", "b/run"):
        folder = tmp_path / "logs" / name
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_bytes(log.read_bytes())
    (tmp_path / "logs" / "notes.md").write_text("buy milk")
    done = breadth("import", tmp_path / "logs", "--to", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    assert "3 runs, a run folder each" in done.stdout
    assert "1 files were passed over" in done.stderr
    names = sorted(folder.name for folder in (tmp_path / "runs").iterdir())
    assert len({name.casefold() for name in names}) == 3
    runs = [Run.open(tmp_path / "runs" / name) for name in names]
    assert [run.header.name for run in runs] == names
    assert [len(run.series("entropy")) for run in runs] == [40, 40, 40]


def test_runs_in_sequence_and_in_one_table_become_a_folder_each(breadth: Command, tmp_path: Path) -> None:
    table = tmp_path / "both.jsonl"
    rows = [{"step": n % 20, "entropy": 0.5 if n < 20 else 0.1, "reward": 0.5} for n in range(32)]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert breadth("import", table, "--to", tmp_path / "sequence").returncode == 0
    found = {folder.name: Run.open(folder) for folder in (tmp_path / "sequence").iterdir()}
    assert {name: (len(run.all_runs), len(run.points)) for name, run in found.items()} == {
        "both-1-of-2": (1, 20),
        "both-2-of-2": (1, 12),
    }
    assert set(found["both-2-of-2"].series("entropy").values.tolist()) == {0.1}
    stacked = [{"step": n // 2, "run": f"../{n % 2}", "entropy": 0.5} for n in range(32)]
    table.write_text("".join(json.dumps(row) + "\n" for row in stacked))
    assert breadth("import", table, "--to", tmp_path / "stacked").returncode == 0
    assert sorted(folder.name for folder in (tmp_path / "stacked").iterdir()) == ["both-..-0", "both-..-1"]


def test_a_failed_import_of_several_runs_leaves_nothing(breadth: Command, log: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"step": "never", "loss": 1}\n')
    before = sorted(tmp_path.rglob("*"))
    done = breadth("import", log, broken, "--to", tmp_path / "runs")
    assert done.returncode == 2
    assert sorted(tmp_path.rglob("*")) == before


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
