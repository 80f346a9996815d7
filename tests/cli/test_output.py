"""A page goes where the user asked, and progress never mixes with output."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from breadth.cli.output import deliver, progress
from breadth.report.sections import Page, Text

PAGE = Page("A title", [Text("Some words.")])


def test_terminal_json_and_html(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    deliver(PAGE, as_json=False, html=None)
    assert "Some words." in capsys.readouterr().out
    deliver(PAGE, as_json=True, html=tmp_path / "a.html")
    shown = capsys.readouterr()
    assert json.loads(shown.out)["title"] == "A title"
    assert "wrote" in shown.err
    assert "Some words." in (tmp_path / "a.html").read_text()


def test_progress_is_silent_when_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("working") as said:
        said("half")
    assert capsys.readouterr() == ("", "")


def test_progress_names_files_as_they_are(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A file's name may look like rich's markup, and a closing tag that closes nothing was an error."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress("looking") as said:
        said("[/nothing] \x1b]0;owned\x07[bold]log[/bold].json")
        time.sleep(0.3)  # rich draws by a clock of its own
    assert "[/nothing] [bold]log[/bold].json" in (shown := capsys.readouterr().err)
    assert "owned" not in shown


def test_the_place_of_a_page_is_named_without_what_acts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    deliver(PAGE, as_json=True, html=tmp_path / "a\x1b[2J\u202e.html")
    assert capsys.readouterr().err.endswith("/a.html\n")
