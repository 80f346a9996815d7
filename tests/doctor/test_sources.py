"""Every file is told for what it is; a broken one that was found is a remark, one that was named an error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from breadth.base.errors import BreadthError, BrokenFileError, UnknownFormatError
from breadth.doctor.sources import LONGEST_TOML, sort_sources
from breadth.runs.importer import all_importers


def test_a_broken_policy_that_was_named_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('[strategy]\nkind = "no-such"\n')
    with pytest.raises(BreadthError, match="no-such"):
        sort_sources([tmp_path / "policy.toml"], all_importers())


def test_hidden_files_and_the_inside_of_run_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config.py").write_text("GRPOConfig(")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.toml").write_text("schema = 1\n")
    (tmp_path / "run" / "inside.py").write_text("GRPOConfig(")
    found = sort_sources([tmp_path], all_importers())
    assert found.folders == [tmp_path / "run"]
    assert not found.unused


def test_links_that_lead_up_and_pipes_are_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "above" / "run"
    inside.mkdir(parents=True)
    (tmp_path / "above" / "notes.md").write_text("not asked for")
    (inside / "up").symlink_to("..")
    (inside / "self").symlink_to(".")
    (inside / "gone").symlink_to("nowhere")
    os.mkfifo(inside / "pipe")
    found = sort_sources([inside], all_importers())
    assert sorted(Path(one.file).name for one in found.unused) == ["gone", "pipe"]
    with pytest.raises(BrokenFileError, match="a pipe or a device"):
        sort_sources([inside / "pipe"], all_importers())


def test_a_toml_file_that_is_too_long_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "zeros.toml").open("wb") as file:
        file.truncate(LONGEST_TOML + 1)
    with pytest.raises(UnknownFormatError, match="nothing but zeros"):
        sort_sources([tmp_path / "zeros.toml"], all_importers())
