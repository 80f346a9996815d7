"""Make metric rows of a foreign table with one row a step."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from breadth.adapters.generic.layout import Layout, chart_names
from breadth.adapters.generic.several import MODELS, RUNS, Several, several_runs
from breadth.adapters.generic.tables import Rows
from breadth.adapters.printed import MetricReader, as_number, as_step
from breadth.adapters.rows import as_text
from breadth.adapters.scalars import metric_rows
from breadth.runs.records import MetricRow, Record, Remark

UNIX = 1e9
"""No clock of a training run shows less (September 2001); smaller numbers are seconds since its start."""
TRAIN = frozenset({"train", "training"})


class MetricTable:
    """Reads the batches of one table and keeps count of what was odd."""

    def __init__(self, layout: Layout, columns: Collection[str], path: Path) -> None:
        self._path = path
        self._step, self._time, self._split = (layout.theirs(name) for name in ("step", "time", "split"))
        self._runs = Several((name for name in columns if name not in layout.columns), {*RUNS, *MODELS}, path)
        self._aside = {self._step, self._split, *self._runs.columns}
        self._names = self._chart(columns) or dict(layout.columns)
        self._taken = set(self._names.values())
        self._reader = MetricReader()
        self._without_step: list[int] = []

    def records(self, rows: Rows) -> Iterator[Record]:
        """Yield the metric rows of a batch."""
        self._runs.add(row for _, row in rows)
        self._runs.refuse_several()
        for number, row in rows:
            step = as_step(row.get(self._step)) if self._step else None
            if self._step and step is None:
                self._without_step.append(number)
            else:
                yield from self._rows(row, number, step)

    def remarks(self) -> list[Remark]:
        """Say what was odd about the table, once it is read."""
        said = self._reader.remarks(self._path)
        if self._without_step:
            problem = f"{len(self._without_step)} rows have no step under {self._step!r}; left out."
            said.append(Remark(problem, str(self._path), self._without_step[0], "Map another column: step=COLUMN."))
        return said

    def _chart(self, columns: Collection[str]) -> dict[str, str]:
        """Return the names of an exported chart without its run's; empty for any other table."""
        chart = chart_names(name for name in columns if name not in self._aside)
        runs = sorted({run for run, _ in chart.values()})
        if len(runs) > 1:
            raise several_runs(self._path, f"{', '.join(runs[:3])}, ...")
        self._aside |= {name for name in columns if chart and name not in chart}
        return {name: metric for name, (_, metric) in chart.items()}

    def _rows(self, row: Mapping[str, Any], number: int, step: int | None) -> list[MetricRow]:
        time = unix_time(row.get(self._time)) if self._time else None
        aside = self._aside if time is None else {*self._aside, self._time}
        figures = {self._name(name): value for name, value in row.items() if value is not None and name not in aside}
        values = self._reader.numbers(figures, number)
        if self._split and as_text(row.get(self._split) or "train").casefold() not in TRAIN:
            return [MetricRow(values, step, time, "eval")] if values else []
        return metric_rows(values, step, time)

    def _name(self, column: str) -> str:
        """Return a column's metric; one that only looks like ours gives way to the one that was mapped."""
        return self._names.get(column) or (f"raw/{column}" if column in self._taken else column)


def unix_time(value: Any) -> float | None:
    """Return a moment in Unix seconds: from seconds, a date or its ISO text; None when it is not one."""
    seconds = as_number(value)
    if isinstance(value, str) and seconds is None:
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        seconds = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return seconds if seconds is not None and UNIX < seconds < UNIX * 1000 else None
