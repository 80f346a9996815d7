"""Make metric rows of logged numbers: held-out scores apart, rows of one step that were written apart joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from breadth.runs.records import MetricRow
from breadth.runs.schema import Split

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
    ranks = {name: next((rank for rank, prefix in enumerate(prefixes) if name.startswith(prefix)), len(prefixes)) for name in values}
    return {name: values[name] for name in sorted(values, key=ranks.__getitem__)}


@lru_cache(maxsize=4096)
def _without_held_out(name: str) -> str:
    lower = name.casefold()
    return next((name[len(prefix) :] for prefix in HELD_OUT if lower.startswith(prefix)), "")


class StepMerger:
    """Joins rows of one step that were written apart, and hands them on in order of steps.

    A name that is logged for an earlier step than before means a restart: then all that is open is handed on first. A name
    logged twice for one step keeps the later value. A step's time is that of its first row.
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
