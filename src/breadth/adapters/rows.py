"""Turn rows of any trainer (one dict a rollout) into a table with our columns; what does not fit is kept, with a remark."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from breadth.adapters.parse_values import beginning, storable_name
from breadth.measure.answer_extraction import stated_answer
from breadth.runs.schema import PROBLEM_SCHEMA, REWARD_PREFIX, Remark, column_type
from breadth.runs.writer import problem_id

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


def with_steps(table: pa.Table, step: int) -> tuple[pa.Table, int]:
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
        shown = beginning(values[bad[0]])
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
