"""Read what trainers log: numbers and steps as Python, numpy, torch and JSON print them, metric rows, rollout rows.

Nothing is evaluated. A rollout row (one dict) becomes a row of a table with our columns; a value that does not fit is
kept, with a remark.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from breadth.base.catalogue import LazyModule
from breadth.base.errors import HIDDEN, is_secret_name
from breadth.runs.names import match_name
from breadth.runs.schema import (
    PROBLEM_COLUMN_NAMES,
    REWARD_PREFIX,
    MetricRow,
    Remark,
    Split,
    column_type,
    problem_schema,
)
from breadth.runs.writer import problem_id

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LazyModule("pyarrow")

HELD_OUT = re.compile(
    r"(?:(?:eval|test|val|validation|val-env|eval-rollout|held[-_]?out|holdout|dev)/|val-(?=(?:core|aux)/)"
    r"|(?:eval|val|held_?out|holdout|validation)_|test_(?!pass|case|time|suite|_))",
    re.IGNORECASE,
)
"""Prefixes under which trainers log scores on held-out problems."""
OF_TRAINING = re.compile(
    r"val/(?:ratio|ratio_var|clipfrac_avg|num_eos_tokens|sequence_lengths\w*|stop_rate|advantages_\w+|rho_\w+|num_\w+_tokens|total_reward_groups"
    r"|actor_tokens_per_second|contain_eos_token)",
    re.IGNORECASE,
)
"""Names of TRL's PPO and of open-instruct that stand under ``val/`` (value, or validity) and are of training."""
MAX_OPEN_STEPS = 64
"""Steps kept open for late rows: the parts of an asynchronous trainer are a few steps apart."""


def metric_rows(values: Mapping[str, float], step: int | None, time: float | None = None) -> list[MetricRow]:
    """Make metric rows of the numbers of one step: a train row, and an eval row with the prefix removed.

    In one row, ``eval/reward`` would be read as the training reward at every step that logs no other.
    """
    parts: dict[Split, dict[str, float]] = {"train": {}, "eval": {}}
    for name, value in values.items():
        bare = strip_held_out_prefix(name)
        parts["eval" if bare else "train"][storable_name(bare or name)] = value
    return [MetricRow(part, step, time, split) for split, part in parts.items() if part]


TRAIN_SPLITS = frozenset({"train", "training"})
"""Words for the problems trained on; every other word (test, val, validation, dev) names held-out ones."""


def as_split(word: Any) -> Split:
    """Return our split for a trainer's or data set's word for it."""
    return "train" if as_text(word).strip().casefold() in TRAIN_SPLITS else "eval"


def is_held_out(name: str) -> bool:
    """Whether a name is that of a score on held-out problems."""
    return bool(strip_held_out_prefix(name))


def storable_name(name: str) -> str:
    """Return a metric's name with characters replaced that UTF-8 cannot hold (halves of surrogate pairs).

    The progress table of transformers in a notebook puts spaces around the slashes of a name.
    """
    name = name.replace(" / ", "/")
    return name if name.isascii() else name.encode("utf-8", errors="replace").decode("utf-8")


def order_by_prefix(values: Mapping[str, float], prefixes: Sequence[str]) -> dict[str, float]:
    """Return the numbers with those first whose names have one of the prefixes, in the order of the prefixes.

    If several names mean the same metric, the first one counts.
    """
    ranks = {
        name: next((rank for rank, prefix in enumerate(prefixes) if name.startswith(prefix)), len(prefixes))
        for name in values
    }
    return {name: values[name] for name in sorted(values, key=ranks.__getitem__)}


@lru_cache(maxsize=4096)
def strip_held_out_prefix(name: str) -> str:
    """Return a name without its held-out prefix; empty if it has none."""
    found = HELD_OUT.match(name)
    return name[found.end() :] if found and not OF_TRAINING.fullmatch(name) else ""


class StepMerger:
    """Merges rows of one step that were written separately, and returns them in order of steps.

    A name logged for an earlier step than before means a restart: then all open rows are returned first. A name logged
    twice for one step keeps the later value. A step's time is that of its first row.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, Split], tuple[dict[str, float], float | None]] = {}
        self._last: dict[tuple[Split, str], int] = {}

    def add(self, row: MetricRow) -> list[MetricRow]:
        """Add a row; return the rows that are complete now."""
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
        """Return every open row, in order of steps, and start over."""
        self._last.clear()
        return [self._close(key) for key in sorted(self._open)]

    def _close(self, key: tuple[int, Split]) -> MetricRow:
        values, time = self._open.pop(key)
        return MetricRow(values, key[0], time, key[1])


COLOUR_CODE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
WRAPPER = re.compile(r"[A-Za-z_][\w.]*\(\s*([^,()]*)[^()]*\)")
STEP_OF_MANY = re.compile(r"\s*(\d{1,15})\s*/\s*\d{1,15}\s*")
MAX_NUMBER_LENGTH = 400
"""Longer text is not a number that a trainer prints (the longest float has 325 digits)."""
MAX_STEP = 2**53
"""Steps beyond this are not exact as floats, and no run takes them."""
MIN_GROUP = 2
"""Rewards of a list that are a group's."""
MIN_UNIX_TIME = 1e9
"""September 2001: a smaller clock counts the seconds since the start of a run."""
MAX_REMARKED_NAMES = 50
"""Names with values that are not numbers, listed in the remarks of one file; the others are counted."""


def strip_colour(line: str) -> str:
    """Return a console line without its ANSI colour codes."""
    return COLOUR_CODE.sub("", line) if "\x1b" in line else line


def as_number(value: Any) -> float | None:
    """Return a value as a number, or None if it is not one.

    Quoted numbers, ``np.float64(0.5)`` and ``tensor(0.5, device='cuda:0')`` count as numbers; null and ``None`` are
    NaN, because that is what trainers turn NaN into on the way to JSON; an integer beyond a float's range is infinite.
    """
    if type(value) is float:  # nearly every value of every log
        return value
    if isinstance(value, str):
        return parse_number(value)
    if value is None:
        return math.nan
    if not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def as_step(value: Any) -> int | None:
    """Return a step (a whole number from 0 on; ms-swift writes ``5/900``), or None if it is not one."""
    if isinstance(value, str) and (found := STEP_OF_MANY.fullmatch(value)):
        value = found[1]
    number = None if isinstance(value, bool) else as_number(value)
    return int(number) if number is not None and 0 <= number < MAX_STEP and number == int(number) else None


def parse_number(text: str) -> float | None:
    """Return the number that a text prints, with the wrappers of numpy and torch; None if it is not one."""
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
    """Return the start of a value that does not fit, for a remark."""
    try:
        return repr(value)[:60]
    except RecursionError:
        return f"a {type(value).__name__} nested too deeply"


class MetricReader:
    """Reads the numbers of one file's metric rows and counts values that are not numbers."""

    def __init__(self) -> None:
        self._odd: dict[str, tuple[int, str, int | None]] = {}
        self._more = 0

    def numbers(self, row: Mapping[str, Any], number: int | None = None) -> dict[str, float]:
        """Return the row's numbers by name; the rest is remembered for :meth:`remarks`."""
        values = {}
        for name, value in row.items():
            found = as_number(value)
            if found is None:
                self._count_odd(str(name), value, number)
            else:
                values[storable_name(str(name))] = found
        return values

    def _count_odd(self, name: str, value: Any, number: int | None) -> None:
        if name not in self._odd and len(self._odd) >= MAX_REMARKED_NAMES:
            self._more += 1
            return
        count, shown, first = self._odd.get(name) or (
            0,
            HIDDEN if is_secret_name(name) else preview_value(value),
            number,
        )
        self._odd[name] = (count + 1, shown, first)

    def remarks(self, path: Path) -> list[Remark]:
        """Return one remark per name whose values were not numbers: how often and where first."""
        remarks = [
            Remark(f"{name!r} is {shown}, not a number, in {count} rows; left out there.", str(path), first)
            for name, (count, shown, first) in self._odd.items()
        ]
        more = (
            [Remark(f"{self._more} values under other names are not numbers either; left out.", str(path))]
            if self._more
            else []
        )
        return remarks + more


RolloutRows = Sequence[Mapping[str, Any]]
UNCONVERTIBLE = object()
TEXT_TYPES = {str, type(None)}
TOO_DEEP = '"nested too deeply to be kept"'


def sum_up_rewards(row: Mapping[str, Any]) -> dict[str, float]:
    """Return mean and spread of each list of a row that holds the rewards of a group, under names that mean those.

    Hand-written loops log ``"rewards": [0.0, 1.0, 0.0]`` next to the loss.
    """
    found: dict[str, float] = {}
    for name, value in row.items():
        if not isinstance(value, list) or len(value) < MIN_GROUP or (match_name(str(name)) or "")[:1] != ("reward",):
            continue
        rewards = [number for entry in value if (number := as_number(entry)) is not None and math.isfinite(number)]
        if len(rewards) == len(value):
            found |= {f"{name}_mean": statistics.fmean(rewards), f"{name}_std": statistics.pstdev(rewards)}
    return {name: number for name, number in found.items() if name not in row}


@dataclass(frozen=True)
class RowReader:
    """Reads rows of a trainer into a table with our columns."""

    columns: Mapping[str, str]
    """Trainer's key -> our column; of several for one column, the first that occurs. All other keys go into ``extra``.
    """
    ignored: frozenset[str] = frozenset()
    """Keys that repeat another column."""

    def table(self, rows: RolloutRows, path: Path, first: int | Sequence[int] = 1) -> tuple[pa.Table, list[Remark]]:
        """Return the rows as a table, and remarks; ``first`` is the row number of the first row, or of each."""
        numbers = range(first, first + len(rows)) if isinstance(first, int) else first
        remarks: list[Remark] = []
        columns: dict[str, pa.Array] = {}
        texts: dict[str, list[Any]] = {}
        keys = set().union(*rows) if rows else set()
        used = set(self.ignored)
        for theirs, ours in self.columns.items():
            if theirs in keys and ours not in columns:
                columns[ours], texts[ours] = build_column(
                    [row.get(theirs) for row in rows], ours, theirs, path, numbers, remarks
                )
                used.add(theirs)
        add_derived_columns(columns, texts, numbers)
        rest = keys - used
        if rest:
            columns["extra"] = pa.array(
                [
                    to_json_text({key: row[key] for key in rest if key in row}) if rest & row.keys() else None
                    for row in rows
                ],
                pa.string(),
            )
        return pa.table(columns), remarks


def add_derived_columns(
    columns: dict[str, pa.Array], texts: Mapping[str, Sequence[Any]], numbers: Sequence[int]
) -> None:
    """Add what follows from other columns: the problem's id, the stated answer, the index in the file."""
    if "problem" not in columns and "prompt" in columns:
        known = {prompt: problem_id(prompt or "") for prompt in dict.fromkeys(texts["prompt"])}
        columns["problem"] = pa.array([known[prompt] for prompt in texts["prompt"]], pa.string())
    if "answer" not in columns and "completion" in columns:
        from breadth.measure.answers import final_answer  # its patterns take time to compile; a log has no completions

        cut = columns["truncated"].to_pylist() if "truncated" in columns else [None] * len(texts["completion"])
        columns["answer"] = pa.array(
            [
                final_answer(text, truncated=bool(flag)) if text else None
                for text, flag in zip(texts["completion"], cut, strict=True)
            ],
            pa.string(),
        )
    if "sample" not in columns:
        columns["sample"] = pa.array([number - 1 for number in numbers], pa.int32())


def fill_missing_steps(table: pa.Table, step: int) -> tuple[pa.Table, int]:
    """Set ``step`` where a row has none, or a negative one; return the table and how many rows changed."""
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


def build_column(
    values: list[Any], ours: str, theirs: str, path: Path, numbers: Sequence[int], remarks: list[Remark]
) -> tuple[pa.Array, list[Any]]:
    """Return a column and the values that went into it."""
    kind = arrow_type(ours)
    if not pa.types.is_string(kind) or set(map(type, values)) <= TEXT_TYPES:
        with suppress(pa.ArrowException, OverflowError, TypeError, ValueError):
            return pa.array(values, kind), values
    converted = convert_values(values, kind, theirs, path, numbers, remarks)
    return pa.array(converted, kind), converted


def convert_values(
    values: list[Any], kind: pa.DataType, theirs: str, path: Path, numbers: Sequence[int], remarks: list[Remark]
) -> list[Any]:
    """Convert value by value; what cannot be converted becomes null, with a remark that names the first such row."""
    convert = converter_of(kind)
    converted = [None if value is None else convert(value) for value in values]
    bad = [place for place, value in enumerate(converted) if value is UNCONVERTIBLE]
    if bad:
        shown = preview_value(values[bad[0]])
        remarks.append(
            Remark(
                f"{theirs!r} is {shown}, not {kind}, in {len(bad)} rows; left empty there.", str(path), numbers[bad[0]]
            )
        )
    return [None if value is UNCONVERTIBLE else value for value in converted]


def arrow_type(ours: str) -> pa.DataType:
    """Return the type of one of our columns, problem columns included."""
    found = column_type(ours)
    if found is None and ours in PROBLEM_COLUMN_NAMES:
        found = problem_schema().field(ours).type
    if found is None:
        raise KeyError(ours)
    return found


def converter_of(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return the function that converts values to a type."""
    if pa.types.is_string(kind):
        return as_text
    if pa.types.is_floating(kind):
        return _as_float
    if pa.types.is_integer(kind):
        return partial(_as_integer, limit=2 ** (kind.bit_width - 1))
    if pa.types.is_boolean(kind):
        return _as_bool
    return _as_list(converter_of(kind.value_type))


def as_text(value: Any) -> str:
    """Return text unchanged, chat messages as one text with their parts joined, anything else as JSON."""
    try:
        return _join_text(value)
    except RecursionError:
        return TOO_DEEP


def _join_text(value: Any) -> str:
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode("utf-8")
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if is_chat(value, "content"):
        return "\n".join(f"{turn.get('role') or ''}: {_join_text(turn['content'] or '')}" for turn in value)
    if is_chat(value, "text"):
        return "".join(_join_text(part["text"] or "") for part in value)
    return to_json_text(value)


def is_chat(value: Any, key: str) -> bool:
    """Whether a value is a list of tables that all have the key, such as messages."""
    return isinstance(value, list) and bool(value) and all(isinstance(turn, Mapping) and key in turn for turn in value)


def to_json_text(value: Any) -> str:
    """Return a value as JSON text."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS).decode("utf-8")
    except TypeError:  # halves of surrogate pairs, integers beyond 64 bits
        pass
    try:
        return json.dumps(value, default=str)
    except RecursionError:
        return TOO_DEEP


def _as_float(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return UNCONVERTIBLE


def _as_integer(value: Any, limit: int) -> Any:
    number = _as_float(value)
    whole = number is not UNCONVERTIBLE and math.isfinite(number) and number == int(number)
    return int(number) if whole and abs(number) < limit else UNCONVERTIBLE


def _as_bool(value: Any) -> Any:
    number = _as_float(value)
    return bool(number) if number in (0.0, 1.0) else UNCONVERTIBLE


def _as_list(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert_list(value: Any) -> Any:
        parts = [convert(part) for part in value] if isinstance(value, list) else [UNCONVERTIBLE]
        return UNCONVERTIBLE if UNCONVERTIBLE in parts else parts

    return convert_list


def reward_columns(keys: Sequence[str]) -> dict[str, str]:
    """Map a trainer's reward components to columns ``reward/<name>``."""
    return {key: f"{REWARD_PREFIX}{storable_name(key)}" for key in keys}
