"""``breadth lab smollm2`` as a command: what it refuses before it begins, and what it tells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from breadth.base.errors import BreadthError
from breadth.cli.main import app
from breadth.lab.trials.experiment import Trial
from breadth.lab.trials.runner import Failure


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["lab", "smollm2", *map(str, arguments)])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "small.gguf"
    file.write_bytes(b"GGUF")
    return file


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read"), (b"PK", "is no GGUF file")])
def test_what_is_no_model_is_refused(content: bytes | None, words: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.gguf"
    if content is not None:
        file.write_bytes(content)
    error = call(file, "--out", tmp_path / "out").exception
    assert isinstance(error, BreadthError)
    assert words in str(error)
    assert not (tmp_path / "out").exists()


def test_without_gguf_it_says_what_to_install(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("breadth.lab.rung.model.find_spec", lambda name: None if name == "gguf" else object())
    error = call(model, "--out", tmp_path / "out").exception
    assert isinstance(error, BreadthError)
    assert 'pip install "gguf' in str(error)


def test_what_failed_is_told_with_its_reason(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def run_trials(trials: Sequence[Trial], folder: Path, base: Path, jobs: int, _: Any) -> list[Failure]:
        asked.update(
            names=[trial.name for trial in trials], folder=folder, base=base, jobs=jobs, plan=trials[0].settings["plan"]
        )
        return [Failure(trials[-1], "no luck", folder / "log.txt")]

    monkeypatch.setattr("breadth.lab.rung.model.check_libraries", lambda _: None)
    monkeypatch.setattr("breadth.lab.rung.model.unpack", lambda place, folder: folder.mkdir(parents=True))
    monkeypatch.setattr("breadth.lab.trials.runner.run_trials", run_trials)
    out = tmp_path / "out"
    result = call(
        model, "--seeds", "2", "--steps", "3", "--jobs", "1", "--out", out, "--json", "--html", tmp_path / "page.html"
    )
    assert result.exit_code == 1
    assert "base failed: no luck" in result.stderr
    assert json.loads(result.stdout)["sections"][0]["headline"] == "At no seed have both arms ended."
    assert (tmp_path / "page.html").read_text().startswith("<!")
    # SHA-256 of the four letters.
    weights = "b83633aa78534479"
    assert asked["names"] == ["protected/seed-0", "plain/seed-0", "protected/seed-1", "plain/seed-1", "base"]
    assert (asked["folder"], asked["base"], asked["jobs"], asked["plan"]["steps"]) == (
        out,
        out / f"model-{weights}",
        1,
        3,
    )
    written = json.loads((out / "results.json").read_text())
    assert written["command"] == "breadth lab smollm2 small.gguf --seeds 2 --steps 3"
    assert written["base"] == weights
