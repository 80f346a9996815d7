"""``python -m breadth.lab.trials.worker FOLDER [BASE]``: does one trial, tells its parent how far it is, and ends when the parent does."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import TextIO

import orjson

from breadth.base.atomic import atomic_file
from breadth.base.errors import BreadthError
from breadth.lab.trials.experiment import FAILED, LOG, asked, write_found

UNITS, REASON = "units", "reason"
"""What a line to the parent may say: units done so far; why it failed."""
SPENT = "seconds.txt"
"""Beside the result while there is none: seconds of earlier attempts."""


def main(arguments: list[str]) -> int:
    """Do the trial of a folder; the exit status is 0 only if there is a result."""
    folder, base = Path(arguments[0]), Path(arguments[1]) if len(arguments) > 1 else None
    parent = _only_the_parent_listens(folder)
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    try:
        _work(folder, base, parent)
    except Exception as error:  # noqa: BLE001 - whatever went wrong is the trial's result, for the parent to tell
        reason = str(error) if isinstance(error, BreadthError) else f"{type(error).__name__}: {error}"
        with atomic_file(folder / FAILED) as temporary:
            temporary.write_text(traceback.format_exc(), encoding="utf-8")
        _tell(parent, {REASON: reason})
        return 1
    return 0


def _work(folder: Path, base: Path | None, parent: TextIO) -> None:
    place, settings = asked(folder)
    module, _, name = place.partition(":")
    work, spent, began = getattr(import_module(module), name), _spent(folder), time.monotonic()

    def told(units: int) -> None:
        _tell(parent, {UNITS: units})
        (folder / SPENT).write_text(f"{spent + time.monotonic() - began:.1f}", encoding="utf-8")

    result = work(settings, folder, base, told)
    write_found(folder, result, spent + time.monotonic() - began)
    (folder / SPENT).unlink(missing_ok=True)


def _spent(folder: Path) -> float:
    try:
        return float((folder / SPENT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0.0  # the first attempt, or one that was killed inside this very line


def _tell(parent: TextIO, row: dict[str, object]) -> None:
    parent.write(orjson.dumps(row).decode() + "\n")
    parent.flush()


def _only_the_parent_listens(folder: Path) -> TextIO:
    """Return the way to the parent; what libraries print goes to the trial's log from here on."""
    parent = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with (folder / LOG).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    return parent


def _end_with_the_parent() -> None:
    while os.read(0, 1024):  # nothing is ever sent: the end of the stream is the end of the parent
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
