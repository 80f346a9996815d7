"""What the operating system gives: files and folders written whole or not at all, and the cores to use.

A file gets a temporary name next to its target, then it is renamed.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from breadth.base.errors import WriteError


@contextmanager
def atomic_file(target: Path, *, flush: bool = True) -> Iterator[Path]:
    """Yield a temporary path; on success it becomes ``target`` in one step, on failure nothing is left behind.

    Without ``flush`` the file is whole for every reader but may be lost with the machine's power: right where the
    source of the data is still there, and many times faster for many files. The temporary name starts with a dot and
    ends in the process id, so readers ignore it and two writers never share one.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        if flush:
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise write_error(target, error) from error
    finally:
        with suppress(OSError):  # there is none, or the disk is read-only; the error before this one says why
            temporary.unlink()


def write_text_file(target: Path, text: str) -> None:
    """Write a file a user asked for, whole or not at all; its folder is made where it is missing."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(target, error) from error
    with atomic_file(target) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield the path of a folder to make; on success it becomes ``target`` in one step, on failure nothing is left.

    A target that is there already is refused: a folder, unlike a file, cannot be replaced in one step.
    """
    if target.exists():
        raise WriteError(target, "exists already.", "Name a folder that does not exist, or move this one away.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
            made = Path(scratch) / target.name
            yield made
            made.rename(target)
    except OSError as error:
        raise write_error(target, error) from error


WRITE_REMEDIES = {
    errno.ENOENT: "Make its folder first, or name one that exists",
    errno.ENOTDIR: "Part of the path is a file: name a folder",
    errno.EEXIST: "Part of the path is a file: name a folder",
    errno.EISDIR: "There is a folder of this name: name a file",
    errno.ENAMETOOLONG: "Choose a shorter name",
    errno.EROFS: "The disk is read-only: choose a folder you may write to",
    errno.EACCES: "Choose a folder you may write to",
    errno.EPERM: "Choose a folder you may write to",
    errno.ENOSPC: "Free some space, or choose a folder on another disk",
    errno.EDQUOT: "Free some space, or choose a folder on another disk",
}
"""What to do about the operating system's refusals to write."""


def write_error(path: Path, error: OSError) -> WriteError:
    """Turn an operating-system error into one that says what to do."""
    remedy = WRITE_REMEDIES.get(error.errno or 0, "Free some space or choose a folder you may write to")
    return WriteError(
        path,
        f"could not be written: {error.strerror or error}.",
        f"{remedy}, then run the same command again; what was there before is untouched.",
    )


def available_cores() -> int:
    """Return how many cores this process may use; not every system can say, then how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
