"""An import makes one run folder per run, whole or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from breadth.base.errors import BrokenFileError, SettingsError, UnknownFormatError, WriteError
from breadth.doctor.save_runs import save_runs
from breadth.runs.reader import Run
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter


def metrics(path: Path, rows: int = 12) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"step": n, "entropy": 0.5, "reward": 0.5}) + "\n" for n in range(rows)))
    return path


def test_one_run_is_the_folder_itself(tmp_path: Path) -> None:
    (made,) = save_runs([metrics(tmp_path / "rollouts.jsonl")], tmp_path / "mine").runs
    assert made.folder == tmp_path / "mine"
    assert Run.open(tmp_path / "mine").header.name == "mine"


def test_what_cannot_be_read_in_a_folder_is_listed_and_the_rest_is_kept(tmp_path: Path) -> None:
    for name in ("a", "b"):
        metrics(tmp_path / "logs" / f"{name}.jsonl")
    (tmp_path / "logs" / "c.json").write_text('{"log_history": [{"step": 1, "loss": ')
    (tmp_path / "logs" / "train.py").write_text("from trl import GRPOConfig\nargs = GRPOConfig(num_generations=4)\n")
    saved = save_runs([tmp_path / "logs"], tmp_path / "runs")
    assert [made.folder for made in saved.runs] == [tmp_path / "runs" / "a", tmp_path / "runs" / "b"]
    assert [Path(remark.file).name for remark in saved.unused] == ["c.json"]


def test_nothing_is_left_of_an_import_that_fails(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"log_history": [{"step": 1, "loss": ')
    good = metrics(tmp_path / "a.jsonl")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BrokenFileError):
        save_runs([good, tmp_path / "c.json"], tmp_path / "runs")
    assert sorted(tmp_path.iterdir()) == before


def test_no_folder_above_the_target_is_left_of_an_import_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    with pytest.raises(UnknownFormatError, match="nothing to import"):
        save_runs([tmp_path / "notes"], tmp_path / "new" / "folder" / "run")
    with pytest.raises(SettingsError, match="is an address"):
        save_runs([tmp_path / "notes"], Path("s3://user:secret@bucket/run"))
    with pytest.raises(SettingsError, match="is an address; an import reads"):
        save_runs([Path("s3://bucket/run")], tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
    save_runs([metrics(tmp_path / "a.jsonl")], tmp_path / "new" / "folder" / "run")
    assert Run.open(tmp_path / "new" / "folder" / "run").header.name == "run"


def test_what_a_killed_import_left_is_removed_by_the_next(tmp_path: Path) -> None:
    killed = f"""if True:
        import os, signal
        from pathlib import Path
        from breadth.doctor import save_runs
        save_runs.import_recognised = lambda *parts, **settings: os.kill(os.getpid(), signal.SIGKILL)
        save_runs.save_runs([Path({str(metrics(tmp_path / "a.jsonl"))!r})], Path({str(tmp_path / "run")!r}))"""
    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == -signal.SIGKILL
    (left,) = (path for path in tmp_path.iterdir() if path.is_dir())
    os.utime(left, (0, 0))
    save_runs([tmp_path / "a.jsonl"], tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "run"]


def test_run_folders_and_existing_targets_are_refused(tmp_path: Path) -> None:
    RunWriter(tmp_path / "runs" / "one", Header(name="one")).metrics(1, {"entropy": 0.5})
    with pytest.raises(UnknownFormatError, match="is a run folder already"):
        save_runs([tmp_path / "runs"], tmp_path / "copy")
    with pytest.raises(WriteError, match="never overwrites"):
        save_runs([metrics(tmp_path / "a.jsonl")], tmp_path / "runs")
    (tmp_path / "notes").mkdir()
    with pytest.raises(UnknownFormatError, match="nothing to import"):
        save_runs([tmp_path / "notes"], tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
