"""``breadth show`` reads a run folder or a trainer's files, for people and for machines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from breadth.cli.show import open_run
from breadth.runs.importing import import_files

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_log_is_shown_without_being_imported_first(breadth: Command, log: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    done = breadth("show", log)
    assert done.returncode == 0, done.stderr
    assert "falling" in done.stdout
    assert "log_completions" in done.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_run_folder_and_files_show_the_same_numbers(breadth: Command, log: Path, tmp_path: Path) -> None:
    import_files([log], tmp_path / "trainer_state")
    direct, folder = (json.loads(breadth("show", path, "--json").stdout) for path in (log, tmp_path / "trainer_state"))
    assert direct["sections"] == folder["sections"]


def test_the_page_is_one_file_that_asks_for_nothing(breadth: Command, log: Path, tmp_path: Path) -> None:
    done = breadth("show", log, "--html", tmp_path / "report.html")
    assert "wrote" in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "http://" not in page.replace("http://www.w3.org/", "")
    assert "https://" not in page


def test_the_temporary_run_is_gone_afterwards(log: Path) -> None:
    with open_run([log]) as run:
        folder = run.folder
        assert folder.exists()
    assert not folder.exists()
