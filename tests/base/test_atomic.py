"""A file is written whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from breadth.base.atomic import whole_file
from breadth.base.errors import WriteError


def test_a_finished_write_replaces_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with whole_file(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), whole_file(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="No space left") as caught, whole_file(tmp_path / "a.txt") as temporary:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "Free some space" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="No such file"), whole_file(tmp_path / "no" / "a.txt") as temporary:
        temporary.write_text("x")
