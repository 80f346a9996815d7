"""What the operating system gives: files and folders written whole or not at all, and the cores to use.

A file gets a temporary name next to its target, then it is renamed.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from breadth.base.errors import SettingsError, WriteError, redact_address

STALE_SECONDS = 600
"""Age from which the temporary file of a process that is gone may be deleted: none takes so long to write."""
TEMPORARY_NAME = re.compile(r"\..+\.([^.]*)\.(\d+)\.\w+\.tmp")
_HOST = re.sub(r"[^A-Za-z0-9-]", "-", platform.node())[:40]
_files_begun = count()


@contextmanager
def atomic_file(target: Path, *, flush: bool = True) -> Iterator[Path]:
    """Yield a temporary path; on success it becomes ``target`` in one step, on failure nothing is left behind.

    With ``flush`` the file and its name are on the disk before this returns. Without it the file is whole for every
    reader but may be lost with the machine's power: right where the source of the data is still there, and many times
    faster for many files.
    """
    with _temporary_file(target) as temporary:
        yield temporary
        if flush:
            sync_to_disk(temporary)
        temporary.replace(target)
        if flush:
            sync_to_disk(target.parent)


def write_new_file(names: Iterator[Path], write: Callable[[Path], None], *, flush: bool = True) -> Path:
    """Write a file under the first of ``names`` that is free, even where others write as well; return that name.

    The names are in one folder. The file is there whole or not at all.
    """
    target = next(names)
    with _temporary_file(target) as temporary:
        write(temporary)
        if flush:
            sync_to_disk(temporary)
        while not rename_exclusively(temporary, target):
            target = next(names)
        if flush:
            sync_to_disk(target.parent)
    return target


def temporary_name(target: Path) -> Path:
    """Return a name next to a target that no other process takes; `remove_stale_files` knows it."""
    return target.with_name(f".{target.name}.{_HOST}.{os.getpid()}.{next(_files_begun)}.tmp")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder among the system's temporary ones, gone afterwards; what killed processes left goes too."""
    root = Path(tempfile.gettempdir())
    remove_stale_files(root)
    try:
        folder = Path(tempfile.mkdtemp(".tmp", f".breadth.{_HOST}.{os.getpid()}.", root))
    except OSError as error:
        raise write_error(root, error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _temporary_file(target: Path) -> Iterator[Path]:
    """Yield a name next to the target that no other writer has and readers ignore; it is gone afterwards."""
    temporary = temporary_name(target)
    try:
        yield temporary
    except OSError as error:
        raise write_error(target, error) from error
    finally:
        with suppress(OSError):  # on a disk that became read-only, the first error is the one to report
            temporary.unlink()


def rename_exclusively(source: Path, target: Path) -> bool:
    """Rename a file where no other has the name yet; say whether it did."""
    try:
        try:
            os.link(source, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links: reserve the name, then replace our own reservation
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            source.replace(target)
    except FileExistsError:
        return False
    return True


def sync_to_disk(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not path.is_dir():
            raise  # some network file systems cannot sync a folder
    finally:
        os.close(descriptor)


def remove_stale_files(folder: Path) -> None:
    """Delete temporary files and folders that processes of this machine left in a folder when they were killed."""
    with suppress(OSError):
        for path in folder.iterdir():
            found = TEMPORARY_NAME.fullmatch(path.name)
            if found and found[1] == _HOST and not process_exists(int(found[2])):
                with suppress(OSError):
                    # The process may run in another container of the same name: what is being written is young.
                    written_at = max(part.stat().st_mtime for part in (path, *path.rglob("*")))
                    if time.time() - written_at > STALE_SECONDS:
                        shutil.rmtree(path) if path.is_dir() else path.unlink()


def process_exists(number: int) -> bool:
    """Say whether a process of this number runs."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # it is somebody else's, or no number of a process; then nothing of it is deleted
    return True


ADDRESS = re.compile(r"\s*((?:[A-Za-z0-9+.-]+::)*[A-Za-z][A-Za-z0-9+.-]+):/+(\S.*)", re.DOTALL)
"""An address, also one that goes through others (``simplecache::http://``), and one that pathlib took for a path: it
makes one slash of two.
"""


def refuse_address(place: Path | str, why: str) -> None:
    """Raise for an address where only paths of this machine will do: it would be taken for a folder's name."""
    if address := ADDRESS.match(str(place)):
        raise SettingsError(
            f"{redact_address(f'{address[1]}://{address[2]}')} is an address; {why}.",
            "Name a local path, and copy it from or to the store with the store's own tool.",
        )


def write_text_file(target: Path, text: str) -> None:
    """Write a file a user asked for, whole or not at all; its folder is made where it is missing.

    A pipe or a device, such as /dev/stdout, is written into: a file must not take its place.
    """
    refuse_address(target, "the file is written on this machine")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_text(text, encoding="utf-8", errors="replace")
            return
    except OSError as error:
        raise write_error(target, error) from error
    remove_stale_files(target.parent)
    with atomic_file(target) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield the path of a folder to make; on success it becomes ``target`` in one step, on failure nothing is left.

    A target that is there already is refused: a folder, unlike a file, cannot be replaced in one step.
    """
    if target.exists():
        raise WriteError(target, "exists already.", "Name a folder that does not exist, or move this one away.")
    scratch = temporary_name(target)
    try:
        scratch.mkdir(parents=True)
        remove_stale_files(target.parent)
        made = scratch / target.name
        yield made
        made.rename(target)
    except OSError as error:
        raise write_error(target, error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


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
