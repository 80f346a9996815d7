"""``breadth compare`` as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from breadth.base.errors import BreadthError
from breadth.cli.main import app
from breadth.runs.schema import Header
from breadth.runs.writer import RunWriter


def write_run(folder: Path, at: dict[int, list[str]]) -> None:
    """Write held-out replies to two problems whose right answer is 1."""
    writer = RunWriter(folder, Header(name=folder.name))
    for step, answers in at.items():
        rows = {
            "problem": ["a"] * 4 + ["b"] * 4,
            "answer": answers,
            "correct": [answer == "1" for answer in answers],
            "tokens": [9] * 8,
        }
        writer.rollouts(rows, step, split="eval")


BROAD, NARROW = [*"12341235"], [*"11112222"]


def run(*words: object) -> str:
    result = CliRunner().invoke(app, ["compare", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_checkpoints_of_one_run_and_two_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "a", {0: BROAD, 50: NARROW})
    write_run(tmp_path / "b", {9: NARROW})
    one = json.loads(run(tmp_path / "a", "--json"))
    assert one["subtitle"].count("step") == 2
    two = json.loads(
        run(f"{tmp_path / 'a'}@0", tmp_path / "b", "--samples", 4, "--json", "--html", tmp_path / "x.html")
    )
    assert two["subtitle"].endswith("b, step 9")
    assert (tmp_path / "x.html").exists()


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    write_run(tmp_path / "a", {0: BROAD})
    with pytest.raises(BreadthError, match="one policy only"):
        run(tmp_path / "a")
    with pytest.raises(BreadthError, match="Both"):
        run(tmp_path / "a", tmp_path / "a", "--samples", 2, "--tokens", 2)
    with pytest.raises(BreadthError, match="not a run folder"):
        run(tmp_path / "nothing", tmp_path / "a")
