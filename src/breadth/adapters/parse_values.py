"""Read numbers, steps and metric rows as Python, numpy, torch and JSON print them; nothing is evaluated."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from breadth.measure.answers import stated_answer
from breadth.runs.schema import PROBLEM_SCHEMA, REWARD_PREFIX, MetricRow, Remark, Split, column_type
from breadth.runs.writer import problem_id

HELD_OUT = ("eval/", "eval_", "test/", "val/", "val_", "validation/", "val-core/", "val-aux/")
"""Prefixes under which trainers log scores on held-out problems."""
MAX_OPEN_STEPS = 64
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


def order_by_prefix(values: Mapping[str, float], prefixes: Sequence[str]) -> dict[str, float]:
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
            return [*self.flush(), row]
        back = any(self._last.get((row.split, name), -1) > row.step for name in row.values)
        done = self.flush() if back else []
        self._last.update(((row.split, name), row.step) for name in row.values)
        values, time = self._open.get((row.step, row.split), ({}, None))
        values.update(row.values)
        self._open[row.step, row.split] = (values, row.time if time is None else time)
        if len(self._open) > MAX_OPEN_STEPS:
            done.append(self._close(min(self._open)))
        return done

    def flush(self) -> list[MetricRow]:
        """Return every open row, in order of steps, and start afresh."""
        self._last.clear()
        return [self._close(key) for key in sorted(self._open)]

    def _close(self, key: tuple[int, Split]) -> MetricRow:
        values, time = self._open.pop(key)
        return MetricRow(values, key[0], time, key[1])


COLOUR_CODE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
WRAPPER = re.compile(r"[A-Za-z_][\w.]*\(\s*([^,()]*)[^()]*\)")
MAX_NUMBER_LENGTH = 400
"""Longer text is no number a trainer prints (the longest float has 325 digits)."""
MAX_STEP = 2**53
"""Steps beyond this are not exact as floats, and no run takes them."""
MAX_REMARKED_NAMES = 50
"""Names that are no numbers, told apart in the remarks of one file; the others are counted."""


def strip_colour(line: str) -> str:
    """Return a console line without its ANSI colour codes."""
    return COLOUR_CODE.sub("", line) if "\x1b" in line else line


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
    return int(number) if number is not None and 0 <= number < MAX_STEP and number == int(number) else None


def _from_text(text: str) -> float | None:
    if len(text) > MAX_NUMBER_LENGTH:
        return None
    wrapped = WRAPPER.fullmatch(text.strip())
    bare = wrapped[1] if wrapped else text.strip()
    if bare in ("None", "True", "False"):
        return {"None": math.nan, "True": 1.0, "False": 0.0}[bare]
    try:
        return float(bare)
    except ValueError:
        return None


def preview_value(value: Any) -> str:
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
        if name not in self._odd and len(self._odd) >= MAX_REMARKED_NAMES:
            self._more += 1
            return
        count, shown, first = self._odd.get(name) or (0, preview_value(value), number)
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


Rows = Sequence[Mapping[str, Any]]
LEFT_OUT = object()
TEXT = {str, type(None)}
TOO_DEEP = '"nested too deeply to be kept"'


@dataclass(frozen=True)
class RowReader:
    """Reads rows whose keys mean what ``columns`` says."""

    columns: Mapping[str, str]
    """Trainer's key -> our column; of several for one column, the first that occurs. All other keys go into ``extra``.
    """
    ignored: frozenset[str] = frozenset()
    """Keys that repeat what another column already says."""

    def table(self, rows: Rows, path: Path, first: int | Sequence[int] = 1) -> tuple[pa.Table, list[Remark]]:
        """Return the rows as a table and what was odd about them; ``first`` is the first row's number in its file, or all rows'."""
        numbers = range(first, first + len(rows)) if isinstance(first, int) else first
        remarks: list[Remark] = []
        columns: dict[str, pa.Array] = {}
        texts: dict[str, list[Any]] = {}
        keys = set().union(*rows) if rows else set()
        used = set(self.ignored)
        for theirs, ours in self.columns.items():
            if theirs in keys and ours not in columns:
                columns[ours], texts[ours] = _column(
                    [row.get(theirs) for row in rows], ours, theirs, path, numbers, remarks
                )
                used.add(theirs)
        _derive(columns, texts, numbers)
        rest = keys - used
        if rest:
            columns["extra"] = pa.array([_extra(row, rest) for row in rows], pa.string())
        return pa.table(columns), remarks


def _derive(columns: dict[str, pa.Array], texts: Mapping[str, Sequence[Any]], numbers: Sequence[int]) -> None:
    """Fill in what follows from other columns: the problem's id, the stated answer, the place in the file."""
    if "problem" not in columns and "prompt" in columns:
        columns["problem"] = pa.array(_ids(texts["prompt"]), pa.string())
    if "answer" not in columns and "completion" in columns:
        columns["answer"] = pa.array(
            [stated_answer(text) if text else None for text in texts["completion"]], pa.string()
        )
    if "sample" not in columns:
        columns["sample"] = pa.array([number - 1 for number in numbers], pa.int32())


def _ids(prompts: Sequence[str | None]) -> list[str]:
    known = {prompt: problem_id(prompt or "") for prompt in dict.fromkeys(prompts)}
    return [known[prompt] for prompt in prompts]


def fill_missing_steps(table: pa.Table, step: int) -> tuple[pa.Table, int]:
    """Put ``step`` where a row has none, or a negative one; return the table and how many rows that were."""
    import pyarrow.compute as pc  # slow to load, and most logs hold no rollouts

    place = table.schema.get_field_index("step")
    if place < 0:
        return table.append_column("step", pa.array([step] * len(table), pa.int64())), len(table)
    known = pc.fill_null(pc.greater_equal(table.column(place), 0), fill_value=False)
    missing = len(table) - (pc.sum(known).as_py() or 0)
    return (
        (table.set_column(place, "step", pc.if_else(known, table.column(place), step)), missing)
        if missing
        else (table, 0)
    )


def _extra(row: Mapping[str, Any], keys: set[str]) -> str | None:
    kept = {key: row[key] for key in keys if key in row}
    return _as_json(kept) if kept else None


def _column(
    values: list[Any], ours: str, theirs: str, path: Path, numbers: Sequence[int], remarks: list[Remark]
) -> tuple[pa.Array, list[Any]]:
    """Return a column and the values that went into it."""
    kind = arrow_type(ours)
    if not pa.types.is_string(kind) or set(map(type, values)) <= TEXT:
        with suppress(pa.ArrowException, OverflowError, TypeError, ValueError):
            return pa.array(values, kind), values
    converted = _coerced(values, kind, theirs, path, numbers, remarks)
    return pa.array(converted, kind), converted


def _coerced(
    values: list[Any], kind: pa.DataType, theirs: str, path: Path, numbers: Sequence[int], remarks: list[Remark]
) -> list[Any]:
    """Convert value by value; what cannot be converted becomes null, with one remark that names the first such row."""
    convert = _converter(kind)
    converted = [None if value is None else convert(value) for value in values]
    bad = [place for place, value in enumerate(converted) if value is LEFT_OUT]
    if bad:
        shown = preview_value(values[bad[0]])
        remarks.append(
            Remark(
                f"{theirs!r} is {shown}, not {kind}, in {len(bad)} rows; left empty there.", str(path), numbers[bad[0]]
            )
        )
    return [None if value is LEFT_OUT else value for value in converted]


def arrow_type(ours: str) -> pa.DataType:
    """Return the type of one of our columns, problem columns included."""
    found = column_type(ours)
    if found is None and ours in PROBLEM_SCHEMA.names:
        found = PROBLEM_SCHEMA.field(ours).type
    if found is None:
        raise KeyError(ours)
    return found


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_string(kind):
        return as_text
    if pa.types.is_floating(kind):
        return _as_number
    if pa.types.is_integer(kind):
        return partial(_as_integer, limit=2 ** (kind.bit_width - 1))
    if pa.types.is_boolean(kind):
        return _as_truth
    return _as_list(_converter(kind.value_type))


def as_text(value: Any) -> str:
    """Return text as it is (chat messages as one text, their parts' text joined), anything else as JSON."""
    try:
        return _text(value)
    except RecursionError:
        return TOO_DEEP


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode("utf-8")
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if _is_chat(value, "content"):
        return "\n".join(f"{turn.get('role') or ''}: {_text(turn['content'] or '')}" for turn in value)
    if _is_chat(value, "text"):
        return "".join(_text(part["text"] or "") for part in value)
    return _as_json(value)


def _is_chat(value: Any, key: str) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(turn, Mapping) and key in turn for turn in value)


def _as_json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS).decode("utf-8")
    except TypeError:  # halves of surrogate pairs, integers beyond 64 bits
        pass
    try:
        return json.dumps(value, default=str)
    except RecursionError:
        return TOO_DEEP


def _as_number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return LEFT_OUT


def _as_integer(value: Any, limit: int) -> Any:
    number = _as_number(value)
    whole = number is not LEFT_OUT and math.isfinite(number) and number == int(number)
    return int(number) if whole and abs(number) < limit else LEFT_OUT


def _as_truth(value: Any) -> Any:
    number = _as_number(value)
    return bool(number) if number in (0.0, 1.0) else LEFT_OUT


def _as_list(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def converted(value: Any) -> Any:
        parts = [convert(part) for part in value] if isinstance(value, list) else [LEFT_OUT]
        return LEFT_OUT if LEFT_OUT in parts else parts

    return converted


def reward_columns(keys: Sequence[str]) -> dict[str, str]:
    """Map a trainer's reward components to columns ``reward/<name>``."""
    return {key: f"{REWARD_PREFIX}{storable_name(key)}" for key in keys}
