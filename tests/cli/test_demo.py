"""``breadth demo``: a small one from end to end, and what is printed, written and refused for one that is finished."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("trl", reason="the extra 'train' is not installed")

from breadth.base.errors import BrokenFileError
from breadth.cli.main import app
from breadth.lab.demo.plan import DemoPlan
from breadth.lab.reasoner import PretrainingPlan, ReasonerShape, pretrain, save_reasoner
from breadth.lab.task.teacher import ArithmeticFacts, Teacher

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "base"
    save_reasoner(
        pretrain(
            Teacher(ArithmeticFacts(prime=7)),
            PretrainingPlan(steps=10, batch=8),
            ReasonerShape(hidden=32, layers=1, heads=2, inner=32),
        ),
        folder,
    )
    return folder


@pytest.fixture(scope="module")
def finished(tiny_plan: DemoPlan, base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A demo that was run: its folder, what it printed, what it said on the way."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("breadth.cli.demo.FAST_DEMO", tiny_plan)
        done = CliRunner().invoke(app, ["demo", "--fast", "--out", str(folder), "--base", str(base)])
    assert done.exit_code == 0, (done.output, done.exception)
    return folder, done.stdout, done.stderr


def test_it_ends_with_the_table_what_it_means_and_the_page(finished: tuple[Path, str, str]) -> None:
    folder, shown, said = finished
    assert "The four corners: accuracy at equal tokens" in shown
    assert "plain GRPO" in shown
    assert "At equal tokens" in shown
    assert str(folder / "report.html") in shown.replace("\n", "")
    assert "protected: step 2 of 2" in said
    html = (folder / "report.html").read_text()
    assert "A reply of the protected arm" in html
    assert "<script" not in html
    assert {"plain", "protected", "results.json"} <= {path.name for path in folder.iterdir()}


def test_the_same_again_as_json_and_as_a_page_elsewhere(
    tiny_plan: DemoPlan, finished: tuple[Path, str, str], base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("breadth.cli.demo.FAST_DEMO", tiny_plan)
    page = tmp_path / "page.html"
    done = CliRunner().invoke(
        app, ["demo", "--fast", "--out", str(finished[0]), "--base", str(base), "--json", "--html", str(page)]
    )
    sections = json.loads(done.stdout)["sections"]
    (corners, *_) = [section["title"] for section in sections if section["kind"] == "table"]
    assert corners.startswith("The four corners")
    assert page.read_text().startswith("<!doctype html>")
    assert str(page) in done.stderr.replace("\n", "")


def test_another_seed_in_the_same_folder_is_refused(
    tiny_plan: DemoPlan, finished: tuple[Path, str, str], base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("breadth.cli.demo.FAST_DEMO", tiny_plan)
    done = CliRunner().invoke(app, ["demo", "--fast", "--seed", "1", "--out", str(finished[0]), "--base", str(base)])
    assert isinstance(done.exception, BrokenFileError)
    assert "--out" in done.exception.remedy


def test_an_interruption_is_two_sentences(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("breadth.cli.demo.run_demo", interrupted)
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out"), "--base", str(base)])
    assert done.exit_code == 130
    assert "the same command resumes from there" in done.stderr


def test_a_base_that_is_none_is_an_error_with_a_remedy(breadth: Command, tmp_path: Path) -> None:
    done = breadth("demo", "--base", tmp_path / "none")
    assert done.returncode == 2
    assert "breadth lab pretrain" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_says_what_it_does(breadth: Command) -> None:
    shown = breadth("demo", "--help").stdout
    assert all(option in shown for option in ("--fast", "--seed", "--out", "--base", "--json", "--html", "--open"))
