"""``python -m breadth.lab.trials.worker FOLDER [BASE]``: runs one trial, reports to its parent, and ends with it."""

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

from breadth.base.errors import BreadthError
from breadth.base.system import atomic_file
from breadth.lab.trials.experiment import FAILURE_FILE, LOG_FILE, read_trial, write_result

UNITS_KEY, REASON_KEY = "units", "reason"
"""What a line to the parent may say: units done so far; why it failed."""
SECONDS_SPENT_FILE = "seconds.txt"
"""File that keeps the seconds of earlier attempts until there is a result."""


def main(arguments: list[str]) -> int:
    """Do the trial of a folder; the exit status is 0 only if there is a result."""
    folder, base = Path(arguments[0]), Path(arguments[1]) if len(arguments) > 1 else None
    parent = _redirect_output(folder)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        _run_work(folder, base, parent)
    except Exception as error:  # noqa: BLE001 - whatever a listener does, the others' completions go on
        reason = str(error) if isinstance(error, BreadthError) else f"{type(error).__name__}: {error}"
        with atomic_file(folder / FAILURE_FILE) as temporary:
            temporary.write_text(traceback.format_exc(), encoding="utf-8")
        _send(parent, {REASON_KEY: reason})
        return 1
    return 0


def _run_work(folder: Path, base: Path | None, parent: TextIO) -> None:
    place, settings = read_trial(folder)
    module, _, name = place.partition(":")
    work, spent, began = getattr(import_module(module), name), read_spent_seconds(folder), time.monotonic()

    def report_units(units: int) -> None:
        _send(parent, {UNITS_KEY: units})
        (folder / SECONDS_SPENT_FILE).write_text(f"{spent + time.monotonic() - began:.1f}", encoding="utf-8")

    result = work(settings, folder, base, report_units)
    write_result(folder, result, spent + time.monotonic() - began)
    (folder / SECONDS_SPENT_FILE).unlink(missing_ok=True)


def read_spent_seconds(folder: Path) -> float:
    """Return the seconds of earlier attempts."""
    try:
        return float((folder / SECONDS_SPENT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0.0  # the first attempt, or one that was killed inside this very line


def _send(parent: TextIO, row: dict[str, object]) -> None:
    parent.write(orjson.dumps(row).decode() + "\n")
    parent.flush()


def _redirect_output(folder: Path) -> TextIO:
    """Return the way to the parent; what libraries print goes to the trial's log from here on."""
    parent = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with (folder / LOG_FILE).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    return parent


def _exit_with_parent() -> None:
    while os.read(0, 1024):  # nothing is ever sent: the end of the stream is the end of the parent
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
