"""Read numbers, steps and metric rows as Python, numpy, torch and JSON print them; nothing is evaluated."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from breadth.runs.schema import MetricRow, Remark, Split

HELD_OUT = ("eval/", "eval_", "test/", "val/", "val_", "validation/", "val-core/", "val-aux/")
"""Prefixes under which trainers log scores on held-out problems."""
WINDOW = 64
"""Steps kept open for late rows: asynchronous trainers run a handful of steps apart."""


def metric_rows(values: Mapping[str, float], step: int | None, time: float | None = None) -> list[MetricRow]:
    """Make metric rows of the numbers of one step: a train row, and an eval row whose names lose their prefix.

    Left together, ``eval/reward`` would pass for the reward of training at every step that logs no other.
    """
    parts: dict[Split, dict[str, float]] = {"train": {}, "eval": {}}
    for name, value in values.items():
        bare = _without_held_out(name)
        parts["eval" if bare else "train"][storable_name(bare or name)] = value
    return [MetricRow(part, step, time, split) for split, part in parts.items() if part]


def is_held_out(name: str) -> bool:
    """Say whether a name is that of a score on held-out problems."""
    return bool(_without_held_out(name))


def storable_name(name: str) -> str:
    """Return a metric's name with what UTF-8 cannot hold (halves of surrogate pairs) replaced."""
    return name if name.isascii() else name.encode("utf-8", errors="replace").decode("utf-8")


def in_order(values: Mapping[str, float], prefixes: Sequence[str]) -> dict[str, float]:
    """Return the numbers with those first whose names have one of the prefixes, in the prefixes' order.

    Where several names mean the same, the first one stands for it.
    """
    ranks = {
        name: next((rank for rank, prefix in enumerate(prefixes) if name.startswith(prefix)), len(prefixes))
        for name in values
    }
    return {name: values[name] for name in sorted(values, key=ranks.__getitem__)}


@lru_cache(maxsize=4096)
def _without_held_out(name: str) -> str:
    lower = name.casefold()
    return next((name[len(prefix) :] for prefix in HELD_OUT if lower.startswith(prefix)), "")


class StepMerger:
    """Joins rows of one step that were written apart, and hands them on in order of steps.

    A name that is logged for an earlier step than before means a restart: then all that is open is handed on first. A
    name logged twice for one step keeps the later value. A step's time is that of its first row.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, Split], tuple[dict[str, float], float | None]] = {}
        self._last: dict[tuple[Split, str], int] = {}

    def add(self, row: MetricRow) -> list[MetricRow]:
        """Take a row; return the rows that are complete by now."""
        if row.step is None:
            return [*self.rest(), row]
        back = any(self._last.get((row.split, name), -1) > row.step for name in row.values)
        done = self.rest() if back else []
        self._last.update(((row.split, name), row.step) for name in row.values)
        values, time = self._open.get((row.step, row.split), ({}, None))
        values.update(row.values)
        self._open[row.step, row.split] = (values, row.time if time is None else time)
        if len(self._open) > WINDOW:
            done.append(self._close(min(self._open)))
        return done

    def rest(self) -> list[MetricRow]:
        """Return every open row, in order of steps, and start afresh."""
        self._last.clear()
        return [self._close(key) for key in sorted(self._open)]

    def _close(self, key: tuple[int, Split]) -> MetricRow:
        values, time = self._open.pop(key)
        return MetricRow(values, key[0], time, key[1])


COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
WRAPPER = re.compile(r"[A-Za-z_][\w.]*\(\s*([^,()]*)[^()]*\)")
LONGEST_NUMBER = 400
"""Longer text is no number a trainer prints (the longest float has 325 digits)."""
LARGEST_STEP = 2**53
"""Steps beyond this are not exact as floats, and no run takes them."""
MOST_NAMES = 50
"""Names that are no numbers, told apart in the remarks of one file; the others are counted."""


def without_colour(line: str) -> str:
    """Return a console line without its ANSI colour codes."""
    return COLOUR.sub("", line) if "\x1b" in line else line


def as_number(value: Any) -> float | None:
    """Return what a number stands for, or None when it stands for none.

    Quoted numbers, ``np.float64(0.5)`` and ``tensor(0.5, device='cuda:0')`` count as numbers; null and ``None`` are
    NaN, because that is what trainers turn NaN into on the way to JSON; an integer beyond a float's range is infinite.
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
        more = (
            [Remark(f"{self._more} values under other names are not numbers either; left out.", str(path))]
            if self._more
            else []
        )
        return said + more
