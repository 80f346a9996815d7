"""What the operating system gives: files and folders written whole or not at all, and the cores to use.

A file gets a temporary name next to its target, then it is renamed.
"""

from __future__ import annotations

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
        with suppress(FileNotFoundError, PermissionError):
            temporary.unlink()


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


def write_error(path: Path, error: OSError) -> WriteError:
    """Turn an operating-system error into one that says what to do."""
    return WriteError(
        path,
        f"could not be written: {error.strerror or error}.",
        "Free some space or choose a folder you may write to, then run the same command again; what was there before is"
        " untouched.",
    )


def available_cores() -> int:
    """Return how many cores this process may use; not every system can say, then how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
