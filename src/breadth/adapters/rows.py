"""Turn rows of any trainer (one dict a rollout) into a table with our columns; what does not fit is kept, with a remark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from breadth.measure.answers import stated_answer
from breadth.runs.problems import problem_id
from breadth.runs.records import Remark
from breadth.runs.schema import PROBLEM_SCHEMA, REWARD_PREFIX, column_type

Rows = Sequence[Mapping[str, Any]]
LEFT_OUT = object()


@dataclass(frozen=True)
class RowReader:
    """Reads rows whose keys mean what ``columns`` says."""

    columns: Mapping[str, str]
    """Trainer's key -> our column. A key that is nowhere in here goes into ``extra``."""
    ignored: frozenset[str] = frozenset()
    """Keys that repeat what another column already says."""

    def table(self, rows: Rows, path: Path, first: int = 1) -> tuple[pa.Table, list[Remark]]:
        """Return the rows as a table and what was odd about them; ``first`` is the number of the first row in its file."""
        remarks: list[Remark] = []
        columns: dict[str, pa.Array] = {}
        keys = set().union(*rows) if rows else set()
        for theirs, ours in self.columns.items():
            if theirs in keys and ours not in columns:
                columns[ours] = _column([row.get(theirs) for row in rows], ours, theirs, path, first, remarks)
        self._derive(columns, len(rows))
        rest = keys - self.columns.keys() - self.ignored
        if rest:
            columns["extra"] = pa.array([_extra(row, rest) for row in rows], pa.string())
        return pa.table(columns), remarks

    def _derive(self, columns: dict[str, pa.Array], count: int) -> None:
        """Fill in what follows from other columns: the problem's id, the stated answer, the place in the file."""
        if "problem" not in columns and "prompt" in columns:
            columns["problem"] = pa.array(_ids(columns["prompt"].to_pylist()), pa.string())
        if "answer" not in columns and "completion" in columns:
            answers = [None if text is None else stated_answer(text) for text in columns["completion"].to_pylist()]
            columns["answer"] = pa.array(answers, pa.string())
        if "sample" not in columns:
            columns["sample"] = pa.array(range(count), pa.int32())


def _ids(prompts: Sequence[str | None]) -> list[str]:
    known: dict[str | None, str] = {}
    for prompt in prompts:
        if prompt not in known:
            known[prompt] = problem_id(prompt or "")
    return [known[prompt] for prompt in prompts]


def _extra(row: Mapping[str, Any], keys: set[str]) -> str | None:
    kept = {key: row[key] for key in keys if key in row}
    return orjson.dumps(kept, default=str, option=orjson.OPT_SORT_KEYS).decode("utf-8", errors="replace") if kept else None


def _column(values: list[Any], ours: str, theirs: str, path: Path, first: int, remarks: list[Remark]) -> pa.Array:
    kind = arrow_type(ours)
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        return _coerced(values, kind, theirs, path, first, remarks)


def _coerced(values: list[Any], kind: pa.DataType, theirs: str, path: Path, first: int, remarks: list[Remark]) -> pa.Array:
    """Convert value by value; what cannot be converted becomes null, with one remark that names the first such row."""
    convert = _converter(kind)
    converted = [None if value is None else convert(value) for value in values]
    bad = [place for place, value in enumerate(converted) if value is LEFT_OUT]
    if bad:
        shown = repr(values[bad[0]])[:60]
        remarks.append(Remark(f"{theirs!r} is {shown}, not {kind}, in {len(bad)} rows; left empty there.", str(path), first + bad[0]))
    return pa.array([None if value is LEFT_OUT else value for value in converted], kind)


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
        return _as_integer
    if pa.types.is_boolean(kind):
        return _as_truth
    return _as_list(_converter(kind.value_type))


def as_text(value: Any) -> str:
    """Return text as it is (chat messages as one text), anything else as JSON."""
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode("utf-8")
    if isinstance(value, list) and value and all(isinstance(turn, Mapping) and "content" in turn for turn in value):
        return "\n".join(f"{turn.get('role', '')}: {as_text(turn['content'])}" for turn in value)
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode("utf-8", errors="replace")


def _as_number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return LEFT_OUT


def _as_integer(value: Any) -> Any:
    number = _as_number(value)
    return int(number) if number is not LEFT_OUT and math.isfinite(number) and number == int(number) and abs(number) < 2**31 else LEFT_OUT


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
    return {key: f"{REWARD_PREFIX}{key}" for key in keys}
