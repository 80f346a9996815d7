"""A run folder in an object store opens like a local one, through fsspec."""

from __future__ import annotations

import sys
from pathlib import Path

import fsspec
import pytest

from breadth.base.errors import MissingExtraError, NotARunError
from breadth.doctor.overview import overview
from breadth.runs.paths import display_name, is_remote, locate
from breadth.runs.reader import Run
from breadth.runs.writer import RunWriter


def test_names_are_local_and_addresses_are_not(tmp_path: Path) -> None:
    assert locate(str(tmp_path)) == tmp_path
    assert not is_remote(locate(tmp_path))
    assert is_remote(locate("memory://bucket/run"))


def test_a_run_in_an_object_store_opens_and_answers(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run")
    for step in range(1, 4):
        writer.metrics(step, {"entropy": 1.0 / step})
        writer.rollouts({"problem": ["a", "a"], "reward": [0.0, 1.0], "answer": ["1", "2"]}, step)
    fsspec.filesystem("memory").put(str(tmp_path / "run"), "/bucket/run", recursive=True)
    run = Run.open("memory://bucket/run")
    assert run.series("entropy").values.tolist() == [1.0, 0.5, 1 / 3]
    assert run.query("SELECT sum(reward) s FROM rollouts")["s"].to_pylist() == [3.0]
    assert overview(run).title == "run"


def test_an_address_without_a_run_is_reported() -> None:
    with pytest.raises(NotARunError, match="memory://bucket/nothing"):
        Run.open("memory://bucket/nothing")


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(MissingExtraError, match=r"breadth\[remote\]"):
        locate("s3://bucket/run")


def test_what_a_run_is_called() -> None:
    assert display_name(Path("/x/remedies/plain/seed-0/run"), "run") == "plain/seed-0"
    assert display_name(Path("/x/outputs/mine"), "my run") == "my run"
    assert display_name(Path("run")) == "run"
