"""``breadth show`` reads a run folder or a trainer's files, for people and for machines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from breadth.cli import main
from breadth.cli.show import open_run
from breadth.doctor.overview import overview
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


def test_a_run_that_is_just_called_run_is_shown_by_the_end_of_its_path(log: Path, tmp_path: Path) -> None:
    import_files([log], tmp_path / "exp3" / "run")
    with open_run([tmp_path / "exp3" / "run"]) as run:
        assert overview(run).title == f"{tmp_path.name}/exp3"
    with open_run([log]) as run:
        assert overview(run).title == "out"


@pytest.mark.parametrize(("address", "words"), [("/", "is a whole disk"), ("s3://bucket/run", "needs s3fs")])
def test_an_address_that_cannot_be_read_gets_two_sentences(
    address: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.setattr(sys, "argv", ["breadth", "show", address])
    with pytest.raises(SystemExit) as ended:
        main.run()
    assert ended.value.code == main.BAD_INPUT
    assert words in capsys.readouterr().err
