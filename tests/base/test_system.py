"""Files and folders are written whole or not at all."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from breadth.base.errors import SettingsError, WriteError
from breadth.base.system import (
    atomic_file,
    atomic_folder,
    available_cores,
    process_exists,
    refuse_address,
    rename_exclusively,
    write_text_file,
)


def test_no_file_is_named_after_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("ftp://user:secret@host/x.html", "https://host/x.html?key=secret"):
        with pytest.raises(SettingsError, match="is an address") as caught:
            write_text_file(Path(place), "x")
        assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    refuse_address("C:/runs", "drives have one letter")
    refuse_address(tmp_path / "a:b", "no slash follows")


def test_a_finished_write_replaces_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with atomic_file(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_file(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="No space left") as caught, atomic_file(tmp_path / "a.txt") as temporary:
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert "Free some space" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="No such file"), atomic_file(tmp_path / "no" / "a.txt") as temporary:
        temporary.write_text("x")


def test_a_folder_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "made"
    with atomic_folder(target) as made:
        made.mkdir()
        (made / "a.txt").write_text("here")
        assert not target.exists()
    assert (target / "a.txt").read_text() == "here"
    assert [path.name for path in target.parent.iterdir()] == ["made"]


def test_half_a_folder_is_none(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="No space left"), atomic_folder(tmp_path / "made") as made:
        made.mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_of_a_folder_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 2**22 + 1)
    writer = atomic_folder(tmp_path / "made")
    made = writer.__enter__()
    made.mkdir()
    monkeypatch.undo()
    (left,) = tmp_path.iterdir()
    for path in (left, made):
        os.utime(path, (0, 0))
    with atomic_folder(tmp_path / "other") as other:
        other.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    with pytest.raises(WriteError):
        writer.__exit__(None, None, None)


def test_a_folder_that_is_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    with pytest.raises(WriteError, match="exists already"), atomic_folder(tmp_path / "made"):
        raise AssertionError


def test_what_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert available_cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1


def test_a_name_that_is_taken_is_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "new", tmp_path / "old"
    for has_links in (True, False):
        source.unlink(missing_ok=True)
        target.unlink(missing_ok=True)
        source.write_text("new")
        target.write_text("old")
        if not has_links:

            def refuse(*_: object) -> None:
                raise OSError(errno.EPERM, "no hard links here")

            monkeypatch.setattr(os, "link", refuse)
        assert not rename_exclusively(source, target)
        assert target.read_text() == "old"
        target.unlink()
        assert rename_exclusively(source, target)
        assert target.read_text() == "new"


def test_a_process_is_there_or_not() -> None:
    assert process_exists(os.getpid())
    assert not process_exists(2**22 + 1)


def test_a_file_that_was_asked_for_gets_its_folder(tmp_path: Path) -> None:
    write_text_file(tmp_path / "deep" / "er" / "page.html", "caf\u00e9")
    assert (tmp_path / "deep" / "er" / "page.html").read_text(encoding="utf-8") == "caf\u00e9"
    with pytest.raises(WriteError, match="Part of the path is a file: name a folder"):
        write_text_file(tmp_path / "deep" / "er" / "page.html" / "inside.html", "x")
    with pytest.raises(WriteError, match="There is a folder of this name: name a file"):
        write_text_file(tmp_path / "deep", "x")


def test_a_read_only_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(WriteError, match=r"Read-only file system[\s\S]*choose a folder you may write to"):
        write_text_file(tmp_path / "page.html", "x")
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(WriteError, match="Read-only file system"):
        write_text_file(tmp_path / "deep" / "page.html", "x")


def test_what_to_do_depends_on_why(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="Make its folder first"), atomic_file(tmp_path / "no" / "a.txt") as temporary:
        temporary.write_text("x")


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit((tmp_path / "pipe").read_text)
        write_text_file(tmp_path / "pipe", "a page")
        assert read.result() == "a page"
    assert (tmp_path / "pipe").is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]
