"""A page goes where the user asked, and progress never mixes with output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from breadth.cli.output import deliver, progress
from breadth.report.page import Page
from breadth.report.sections import Text

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
