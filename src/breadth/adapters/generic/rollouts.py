"""Make rollouts of a foreign table with one row a completion."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from breadth.adapters.generic.layout import Layout
from breadth.adapters.generic.several import MODELS, RUNS, Several, refuse_summaries
from breadth.adapters.generic.tables import Rows
from breadth.adapters.printed import as_step
from breadth.adapters.rows import RowReader, arrow_type, as_text
from breadth.runs.problems import problem_id
from breadth.runs.records import Record, Remark, RolloutBatch
from breadth.runs.schema import Split

OWN = {"breadth/step": "step", "breadth/problem": "problem"}
"""Keys added to rows whose file has no such column; no file has columns of these names."""
UNKNOWN = "unknown"
"""Problem of rows that do not say what they are about."""
TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
TRAIN = frozenset({"train", "training"})


class RolloutTable:
    """Reads the batches of one table and keeps count of what was odd."""

    def __init__(self, layout: Layout, batch: Rows, path: Path) -> None:
        columns = dict.fromkeys(name for _, row in batch for name in row)
        refuse_summaries((name for name in columns if name not in layout.columns), path)
        self._path, self._layout = path, layout
        self._step, self._split, self._problem, self._prompt = (layout.theirs(name) for name in ("step", "split", "problem", "prompt"))
        self._columns = {theirs: ours for theirs, ours in layout.columns.items() if theirs != self._split and _fits(theirs, ours, batch)}
        self._exact = [theirs for theirs, ours in self._columns.items() if not pa.types.is_floating(arrow_type(ours))]
        self._truths = [theirs for theirs, ours in self._columns.items() if pa.types.is_boolean(arrow_type(ours))]
        self._runs = Several(columns, RUNS if self._step else (), path)
        self._models = Several(columns, MODELS, path)
        self._without_step = self._without_problem = 0

    def records(self, rows: Rows) -> Iterator[Record]:
        """Yield the rollouts of a batch, training and evaluation apart."""
        for several in (self._runs, self._models):
            several.add(row for _, row in rows)
        self._runs.refuse_several()
        parts: dict[Split, Rows] = {}
        for number, row in rows:
            parts.setdefault(self._split_of(row), []).append((number, self._prepared(row)))
        reader = RowReader({**self._columns, **OWN}, frozenset({self._split} if self._split else ()))
        for split, part in parts.items():
            table, remarks = reader.table([row for _, row in part], self._path, [number for number, _ in part])
            yield from remarks
            yield RolloutBatch(table, split)

    def remarks(self) -> list[Remark]:
        """Say what was assumed and what was odd, once the table is read."""
        said = [self._layout.guess] if self._layout.guess else []
        if not self._step:
            said.append("rows carry no step; they were taken as one evaluation, at step 0.")
        if self._without_step:
            said.append(f"{self._without_step} rows have no step under {self._step!r}; they were put at step 0.")
        if self._without_problem:
            said.append(f"{self._without_problem} rows do not say which problem they are about; they share the problem '{UNKNOWN}'.")
        if self._models.found:
            said.append(f"samples of several models stand side by side ({self._models.found}): they are no draws from one policy.")
        return [Remark(problem, str(self._path)) for problem in said]

    def _split_of(self, row: Mapping[str, Any]) -> Split:
        if self._split and row.get(self._split) is not None:
            return "train" if as_text(row[self._split]).casefold() in TRAIN else "eval"
        return "train" if self._step else "eval"

    def _prepared(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with its step and problem in place, without the marks of its file's format (NaN for missing, truth as text)."""
        ready = {name: value for name, value in row.items() if value is not None}
        for name in self._exact:
            if type(ready.get(name)) is float and math.isnan(ready[name]):
                del ready[name]
        for name in self._truths:
            if isinstance(ready.get(name), str):
                ready[name] = TRUTHS.get(ready[name].strip().casefold(), ready[name])
        step = as_step(row.get(self._step)) if self._step else 0
        self._without_step += step is None
        ready[self._step or "breadth/step"] = step or 0
        if ready.get(self._problem or "") is None:
            ready[self._problem or "breadth/problem"] = self._stand_in(ready)
        return ready

    def _stand_in(self, row: Mapping[str, Any]) -> str:
        prompt = row.get(self._prompt) if self._prompt else None
        self._without_problem += prompt is None
        return UNKNOWN if prompt is None else problem_id(as_text(prompt))


def _fits(theirs: str, ours: str, batch: Rows) -> bool:
    """Say whether a column may stand for a per-token one of ours: it must hold lists (a mean goes to ``extra``)."""
    first = next((row[theirs] for _, row in batch if row.get(theirs) is not None), None)
    return not pa.types.is_list(arrow_type(ours)) or first is None or isinstance(first, list)
