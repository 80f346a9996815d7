"""Find the trainer states of an ``output_dir``: every checkpoint folder holds a copy of one log, each longer than the last."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from breadth.adapters.trl.history import CHECKPOINT, History, load_history, output_folder
from breadth.base.errors import BreadthError

STATE = "trainer_state.json"


def states_in(folder: Path) -> list[Path]:
    """List the trainer states of an ``output_dir``, the one with the longest log last."""
    found = [path for path in (folder / STATE, *folder.glob(f"checkpoint-*/{STATE}")) if path.is_file()]
    return sorted(found, key=_progress)


def newest_history(folder: Path) -> History | None:
    """Return the longest log history of an ``output_dir``, or None when there is none that can be read."""
    for path in reversed(states_in(folder)):
        try:
            status = path.stat()
            return _remembered(path, status.st_mtime_ns, status.st_size)
        except (BreadthError, OSError):
            continue
    return None


@lru_cache(maxsize=1)
def _remembered(path: Path, _changed: int, _size: int) -> History:
    """Keep the history asked for last: each of a run's thousand completions files asks for the same one."""
    return load_history(path)


def without_older_copies(paths: Sequence[Path]) -> list[Path]:
    """Drop each trainer state whose rows are the beginning of another's in the same ``output_dir``.

    A run started afresh into an old folder leaves states that do not continue one another: those all stay.
    """
    longest: dict[Path, list[list[str]]] = {}
    dropped = set()
    for path in sorted((path for path in paths if path.name == STATE), key=_progress, reverse=True):
        kept = longest.setdefault(output_folder(path), [])
        rows = _row_texts(path)
        if rows is not None and any(other[: len(rows)] == rows for other in kept):
            dropped.add(path)
        elif rows is not None:
            kept.append(rows)
    return [path for path in paths if path not in dropped]


def _progress(path: Path) -> tuple[int, int]:
    """Order states by how far training had come: the step in the file's first lines, else in the folder's name."""
    try:
        with path.open("rb") as file:
            found = re.search(rb'"global_step":\s*(\d{1,15})', file.read(4096))
    except OSError:
        found = None
    folder = CHECKPOINT.fullmatch(path.parent.name)
    step = int(found[1]) if found else int(folder[1]) if folder else -1
    return step, folder is None


def _row_texts(path: Path) -> list[str] | None:
    try:
        return [repr(sorted(row.items())) for row in load_history(path).rows]
    except (BreadthError, RecursionError):
        return None
