"""Read numbers, steps and metric rows the way Python, numpy, torch and JSON print them, without evaluating anything."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from breadth.adapters.scalars import storable_name
from breadth.runs.lines import HEAD
from breadth.runs.records import Remark

COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
WRAPPER = re.compile(r"[A-Za-z_][\w.]*\(\s*([^,()]*)[^()]*\)")
LONGEST_NUMBER = 400
"""Longer text is no number a trainer prints (the longest float has 325 digits)."""
LARGEST_STEP = 2**53
"""Steps beyond this are not exact as floats, and no run takes them."""
MOST_NAMES = 50
"""Names that are no numbers, told apart in the remarks of one file; the others are counted."""
FAR = 4 << 20
"""How far into a console log its first metrics are looked for: start-up noise fills megabytes."""


def without_colour(line: str) -> str:
    """Return a console line without its ANSI colour codes."""
    return COLOUR.sub("", line) if "\x1b" in line else line


def as_number(value: Any) -> float | None:
    """Return what a number stands for, or None when it stands for none.

    Quoted numbers, ``np.float64(0.5)`` and ``tensor(0.5, device='cuda:0')`` count as numbers; null and ``None`` are NaN,
    because that is what trainers turn NaN into on the way to JSON; an integer beyond a float's range is infinite.
    """
    if isinstance(value, str):
        return _from_text(value)
    if value is None:
        return math.nan
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def as_step(value: Any) -> int | None:
    """Return a step (a whole number from 0 on), or None when it is not one."""
    number = None if isinstance(value, bool) else as_number(value)
    return int(number) if number is not None and 0 <= number < LARGEST_STEP and number == int(number) else None


def _from_text(text: str) -> float | None:
    if len(text) > LONGEST_NUMBER:
        return None
    wrapped = WRAPPER.fullmatch(text.strip())
    bare = wrapped[1] if wrapped else text.strip()
    if bare in ("None", "True", "False"):
        return {"None": math.nan, "True": 1.0, "False": 0.0}[bare]
    try:
        return float(bare)
    except ValueError:
        return None


def beginning(value: Any) -> str:
    """Return how a value that does not fit begins, for a remark."""
    try:
        return repr(value)[:60]
    except RecursionError:
        return f"a {type(value).__name__} nested too deeply"


class MetricReader:
    """Reads the numbers of one file's metric rows and keeps count of what was no number."""

    def __init__(self) -> None:
        self._odd: dict[str, tuple[int, str, int | None]] = {}
        self._more = 0

    def numbers(self, row: Mapping[str, Any], number: int | None = None) -> dict[str, float]:
        """Return the row's numbers by name; the rest is remembered for :meth:`remarks`."""
        values = {}
        for name, value in row.items():
            found = as_number(value)
            if found is None:
                self._note(str(name), value, number)
            else:
                values[storable_name(str(name))] = found
        return values

    def _note(self, name: str, value: Any, number: int | None) -> None:
        if name not in self._odd and len(self._odd) >= MOST_NAMES:
            self._more += 1
            return
        count, shown, first = self._odd.get(name) or (0, beginning(value), number)
        self._odd[name] = (count + 1, shown, first)

    def remarks(self, path: Path) -> list[Remark]:
        """Say once for each name what was no number, how often and where first."""
        said = [
            Remark(f"{name!r} is {shown}, not a number, in {count} rows; left out there.", str(path), first)
            for name, (count, shown, first) in self._odd.items()
        ]
        more = [Remark(f"{self._more} values under other names are not numbers either; left out.", str(path))] if self._more else []
        return said + more


def far_start(path: Path, start: bytes) -> bytes:
    """Return more of a console log than its first 64 KB: trainers print their set-up before the first metrics.

    Only for a file whose start is text and fills the 64 KB; anything else comes back as it is.
    """
    if len(start) < HEAD or b"\0" in start:
        return start
    try:
        with path.open("rb") as file:
            return file.read(FAR)
    except OSError:
        return start
