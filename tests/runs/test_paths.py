"""A run folder in an object store opens like a local one, through fsspec."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fsspec
import pytest

from breadth.base.errors import BrokenFileError, MissingExtraError, NotARunError, SettingsError, UnknownFormatError
from breadth.doctor.overview import overview
from breadth.runs import paths
from breadth.runs.importing import import_files, list_files
from breadth.runs.paths import (
    display_name,
    explain_remote_errors,
    is_remote,
    is_system_folder,
    locate,
    raise_if_named,
    source_name,
    walk_folder,
)
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
    assert overview(run).title == "bucket"


@pytest.mark.parametrize("kind", ["file", "local", "FILE"])
def test_the_address_of_a_file_has_no_password(kind: str) -> None:
    with pytest.raises(SettingsError) as caught:
        locate(f"{kind}://user:secret@host/run")
    assert "secret" not in str(caught.value)


def test_an_address_without_a_run_is_reported() -> None:
    with pytest.raises(NotARunError, match="memory://bucket/nothing"):
        Run.open("memory://bucket/nothing")


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(MissingExtraError, match=r"breadth\[remote\]"):
        locate("s3://bucket/run")


def test_an_address_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for job in (locate, Run.open):
        with pytest.raises(SettingsError, match=r"s3:// addresses needs a package[\s\S]*pip \(s3:// needs s3fs"):
            job("s3://bucket/run")
    with pytest.raises(SettingsError, match=r"nonsense:// is no kind of address we know"):
        locate("nonsense://bucket/run")


def test_what_a_store_raises_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no credentials")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "info", refuse)
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "isfile", refuse)
    with pytest.raises(NotARunError, match=r"RuntimeError: no credentials[\s\S]*credentials"):
        Run.open("memory://bucket/run")


@pytest.mark.parametrize("address", ["ftp://127.0.0.1:9/run", "zip://run::missing.zip"])
def test_a_store_that_cannot_be_opened_is_reported(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotARunError, match=r"cannot be read: \w+Error[\s\S]*Check the address"):
        locate(address)


@pytest.mark.parametrize("place", ["s3://bucket/run", Path("s3://bucket/run"), Path("az:/bucket")])
def test_an_address_is_no_folder_to_write_to(
    place: Path | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = Path(__file__)
    for job in (
        lambda: RunWriter(place),  # type: ignore[arg-type]  # users give texts too
        lambda: import_files([log], Path(place)),
        lambda: import_files([Path(place)], log),
    ):
        with pytest.raises(SettingsError, match=r"(s3|az)://bucket\S* is an address; [\s\S]*Name a local path"):
            job()
    assert list(tmp_path.iterdir()) == []


def test_a_whole_disk_is_refused_before_anything_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "walk", None)
    with pytest.raises(UnknownFormatError, match="is a whole disk"):
        list_files(Path(tmp_path.anchor))


@pytest.mark.parametrize("name", ["/proc", "/proc/self", "/sys", "/dev"])
def test_the_systems_own_folders_are_refused(tmp_path: Path, name: str) -> None:
    if not Path(name).is_dir():
        pytest.skip(f"this system has no {name}")
    (tmp_path / "link").symlink_to(name)
    for path in (Path(name), tmp_path / "link"):
        with pytest.raises(UnknownFormatError, match="belongs to the operating system"):
            list_files(path)
    assert not is_system_folder(Path("/dev") / "shm" / "run")
    assert not is_system_folder(tmp_path)


def test_a_folder_of_very_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "MAX_LISTED_FILES", 2)
    for number in range(3):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(UnknownFormatError, match="holds more than 2 files"):
        walk_folder(tmp_path)


def test_only_files_are_listed(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/1.txt", "a.txt", ".git/x.txt", "b/.hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert [str(file.relative_to(tmp_path)) for file in walk_folder(tmp_path)] == ["a.txt", "b/1.txt", "b/2.txt"]


def test_a_folder_that_may_not_be_read_is_said_and_one_inside_it_passed_over(tmp_path: Path) -> None:
    raise_if_named(tmp_path, PermissionError(13, "Permission denied", str(tmp_path / "inside")))
    with pytest.raises(BrokenFileError, match="cannot be read: Permission denied"):
        raise_if_named(tmp_path, PermissionError(13, "Permission denied", str(tmp_path)))


def test_what_a_run_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert display_name(Path("/x/remedies/plain/seed-0/run"), "run") == "plain/seed-0"
    assert display_name(Path("/x/outputs/mine"), "my run") == "my run"
    assert display_name(Path("/run")) == "run"
    assert display_name(locate("memory://bucket/run")) == "bucket"
    assert display_name(locate("memory://user:secret@bucket/run?key=secret")) == "***@bucket"
    assert source_name(locate("memory://user:secret@bucket/exp/log.jsonl?key=secret")) == "exp"
    assert source_name(locate("memory://bucket/exp3.jsonl?sv=1&sig=secret")) == "exp3"
    (tmp_path / "exp3" / "run").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "exp3" / "run")
    for place in (Path(), Path("../run")):
        assert display_name(place, "run") == f"{tmp_path.name}/exp3"


def test_a_file_of_a_run_is_called_by_what_tells_it_apart(tmp_path: Path) -> None:
    (tmp_path / "exp3" / "run").mkdir(parents=True)
    assert source_name(Path("/x/qwen2.5/trainer_state.json")) == "qwen2.5"
    assert source_name(Path("/x/exp3/run/metrics.jsonl")) == "x/exp3"
    assert source_name(Path("/x/exp3/seed-1.csv")) == "seed-1"
    assert source_name(tmp_path / "exp3" / "run") == f"{tmp_path.name}/exp3"


def test_what_a_library_says_of_an_address_with_a_password_is_left_out() -> None:
    with (
        pytest.raises(NotARunError) as caught,
        explain_remote_errors(locate("memory://user:hunter22@bucket/run")),
    ):
        raise OSError("no host for user hunter22")
    assert (caught.value.__cause__, caught.value.__suppress_context__) == (None, True), "a traceback shows the cause"
    assert "hunter22" not in str(caught.value)
    assert "***@bucket/run: cannot be read: OSError." in str(caught.value)
    with pytest.raises(NotARunError, match="OSError: no host"), explain_remote_errors(locate("memory://bucket/run")):
        raise OSError("no host")
