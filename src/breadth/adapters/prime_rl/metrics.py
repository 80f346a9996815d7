"""Read prime-rl's ``metrics.jsonl``, to which trainer and orchestrator append at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from breadth.adapters.printed import MetricReader, as_number, as_step
from breadth.adapters.scalars import StepMerger, in_order, metric_rows
from breadth.runs.lines import json_rows
from breadth.runs.records import MetricRow, Record, Remark

CLOCKS = ("step", "time")
FIRST = ("train/agg/effective/", "train/agg/all/", "train/agg/")
"""All environments before single ones, and of those the rollouts that were trained on: failed ones count as zero reward."""
ORCHESTRATOR = frozenset({"time/wait_for_policy", "time/wait_for_ckpt"})
SHARED = ("time/step", "time/save_ckpt")
"""Names that trainer and orchestrator both log, for different things."""


def read_metrics(path: Path) -> Iterator[Record]:
    """Yield one row a step (and one for its evaluations), whoever logged what when."""
    reader, merger = MetricReader(), StepMerger()
    for block in json_rows(path):
        if isinstance(block, Remark):
            yield block
            continue
        for number, row in block:
            for part in _rows(row, reader, number):
                yield from (_ordered(done) for done in merger.add(part))
    yield from (_ordered(done) for done in merger.rest())
    yield from reader.remarks(path)


def _rows(row: Mapping[str, Any], reader: MetricReader, number: int) -> list[MetricRow]:
    values = reader.numbers({name: value for name, value in row.items() if name not in CLOCKS}, number)
    if not ORCHESTRATOR.isdisjoint(row):
        values = {f"orchestrator/{name}" if name in SHARED else name: value for name, value in values.items()}
    return metric_rows(values, as_step(row.get("step")), as_number(row["time"]) if "time" in row else None)


def _ordered(row: MetricRow) -> MetricRow:
    return MetricRow(in_order(row.values, FIRST), row.step, row.time, row.split)
