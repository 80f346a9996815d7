"""Paths of runs: a local folder, or an object store through fsspec (``s3://...``, ``gs://...``, ``memory://...``)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import cast

from breadth.base.errors import (
    BreadthError,
    BrokenFileError,
    MissingExtraError,
    NotARunError,
    SettingsError,
    UnknownFormatError,
    has_credentials,
    redact_address,
)

DEFAULT_RUN_NAME = "run"
"""What folders are called that lie next to other files of the same run."""


def locate(place: Path | str) -> Path:
    """Return a path for a folder's name or address; an address gives a path-like object that reads through fsspec."""
    if isinstance(place, Path) or "://" not in str(place):
        return Path(place)
    kind = str(place).partition("://")[0]
    if kind.lower() in ("file", "local") and has_credentials(
        str(place)
    ):  # it would become part of a path, and be shown
        raise SettingsError(
            f"{redact_address(str(place))} names a user, and files of this machine need none.", "Give the path."
        )
    try:
        from upath import UPath
    except ImportError as error:
        raise MissingExtraError(f"Reading {kind}:// addresses", "remote") from error
    try:
        path = UPath(place)
        path.fs  # noqa: B018 - fsspec looks for the package of this kind of address when it is first asked for
    except ImportError as error:
        raise SettingsError(
            f"Reading {kind}:// addresses needs a package that is not installed: {error}.",
            "Install it next to breadth with pip (s3:// needs s3fs, gs:// gcsfs, az:// adlfs), or copy the run folder"
            " to this machine.",
        ) from error
    except ValueError as error:
        raise SettingsError(
            f"{kind}:// is no kind of address we know.", "Give a folder, or an address such as s3://bucket/run."
        ) from error
    except Exception as error:  # noqa: BLE001 - whatever the library of that kind raises
        raise unreachable_address(str(place), error) from (None if has_secret(str(place)) else error)
    return cast("Path", path)


def has_secret(place: str) -> bool:
    """Say whether an address has something in it that is not shown."""
    return redact_address(place) != place


def unreachable_address(place: str, error: Exception) -> NotARunError:
    """Return the error for an address whose library failed; its words may repeat a password."""
    words = "" if has_secret(place) else f": {str(error)[:200]}"
    return NotARunError(
        place,
        f"cannot be read: {type(error).__name__}{words}.",
        "Check the address, the network and the credentials that its library expects.",
    )


@contextmanager
def explain_remote_errors(path: Path) -> Iterator[None]:
    """Turn whatever a file system's library raises while an address is first read into one of our errors."""
    try:
        yield
    except BreadthError:
        raise
    except Exception as error:
        if not is_remote(path):
            raise
        raise unreachable_address(str(path), error) from (None if has_secret(str(path)) else error)


MAX_LISTED_FILES = 100_000
"""Files listed under one folder; a larger one was hardly meant."""


SYSTEM_FOLDERS = tuple(map(Path, ("/proc", "/sys", "/dev")))
"""Folders whose files are not on a disk: reading some of them never ends."""


def is_system_folder(path: Path) -> bool:
    """Say whether a folder belongs to the operating system; /dev/shm is memory, where people do keep runs."""
    real = Path(os.path.realpath(path))
    return real in SYSTEM_FOLDERS or any(folder in real.parents for folder in SYSTEM_FOLDERS[:2])


def refuse_whole_disk(path: Path) -> None:
    """Raise for the root of a disk and for the system's own folders: nobody keeps a run there."""
    if path.absolute().parent == path.absolute():
        raise UnknownFormatError(path, "is a whole disk.", "Point at the folder of one run, or at a log file.")
    if is_system_folder(path):
        raise UnknownFormatError(
            path, "belongs to the operating system.", "Point at the folder of one run, or at a log file."
        )


def refuse_too_many_files(path: Path, found: int) -> None:
    """Raise where a folder holds more files than any run."""
    if found > MAX_LISTED_FILES:
        raise UnknownFormatError(
            path, f"holds more than {MAX_LISTED_FILES:,} files.", "Point at the folder of one run."
        )


def is_regular_file(path: Path) -> bool:
    """Say whether a path is a file or a link to one; no for a path that may not be looked at."""
    return path.is_file() if is_remote(path) else os.path.isfile(path)  # noqa: PTH113 - Path's raises there


def is_folder(path: Path) -> bool:
    """Say whether a path is a folder or a link to one; no for a path that may not be looked at."""
    return path.is_dir() if is_remote(path) else os.path.isdir(path)  # noqa: PTH112 - Path's raises there


def is_listed(path: Path) -> bool:
    """Say whether a folder lists this name; a link to nothing is listed, and reading it says that its file is gone."""
    return path.exists() or (not is_remote(path) and path.is_symlink())


def raise_if_named(folder: Path, error: OSError) -> None:
    """Raise where the folder itself cannot be read; one inside it is passed over."""
    if str(error.filename) == str(folder):
        raise BrokenFileError(
            folder, f"cannot be read: {error.strerror or error}.", "Check that you may read it."
        ) from error


def walk_folder(folder: Path) -> list[Path]:
    """List the files under a folder in order, without hidden ones, devices, and folders that may not be read."""
    if is_remote(folder):
        return sorted(file for file in folder.rglob("*") if file.is_file())
    refuse_whole_disk(folder)
    found: list[Path] = []
    for parent, folders, files in os.walk(folder, onerror=partial(raise_if_named, folder)):
        folders[:] = [name for name in folders if not name.startswith(".")]
        places = (Path(parent, name) for name in files if not name.startswith("."))
        found += filter(is_regular_file, places)
        refuse_too_many_files(folder, len(found))
    return sorted(found)


def is_remote(path: Path) -> bool:
    """Say whether a path reads through fsspec."""
    return not isinstance(path, Path)


def display_name(folder: Path, name: str = "") -> str:
    """Return what people call a run: its name, or the last telling parts of its path where it is just called run."""
    if name and name != DEFAULT_RUN_NAME:
        return name
    parts = [part for part in path_for_names(folder).parts if part not in (DEFAULT_RUN_NAME, "/", "..", ".")]
    return "/".join(parts[-2:]) or DEFAULT_RUN_NAME


def path_for_names(path: Path) -> Path:
    """Return the path that names are taken from: an absolute one, or an address without scheme, password and query."""
    if is_remote(path):
        return Path(redact_address(str(path)).partition("://")[2].partition("?")[0])
    return Path(os.path.abspath(path))  # noqa: PTH100 - Path's keeps '..'


GENERIC_STEMS = frozenset({"trainer_state", "metrics", "train", "log", "output", "run"})
"""File names that every run has, so the run is named after its folder."""
CHECKPOINT_FOLDER = re.compile(r"checkpoint-(\d+)")
"""Folder of a checkpoint inside a trainer's output folder, after which the run is named."""


def source_name(path: Path) -> str:
    """Return what people call the run of a file: the file's name, or its folder's where every run has such a file."""
    whole = path_for_names(path)
    if is_folder(path):
        return display_name(whole, whole.name)
    folder = whole.parent.parent if CHECKPOINT_FOLDER.fullmatch(whole.parent.name) else whole.parent
    return display_name(folder, folder.name) if whole.stem in GENERIC_STEMS else whole.stem
