"""Read verl's metrics: console lines ``step:N - name:value - ...`` and the JSONL of its ``file`` logger."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from breadth.adapters.printed import MetricReader, as_step, without_colour
from breadth.runs.lines import json_rows, text_rows
from breadth.runs.records import MetricRow, Record, Remark

PRINTED = re.compile(r"(?:^|[\s\])}])step:(\d{1,15}) - (?=[^\s:]+:)")
BETWEEN = " - "
REST = re.compile(r"\s.*", re.DOTALL)
HELD_OUT = ("val-", "val/")
"""How the names of validation metrics begin."""


def read_console(path: Path) -> Iterator[Record]:
    """Yield the metrics of a console log, whatever stands around them."""
    reader = MetricReader()
    for line in text_rows(path):
        if isinstance(line, Remark):
            yield line
            continue
        number, text = line
        found = printed_row(text)
        if found:
            step, row = found
            yield from metric_rows(step, reader.numbers(row, number))
    yield from reader.remarks(path)


def read_file_log(path: Path) -> Iterator[Record]:
    """Yield the metrics of the ``file`` logger: ``{"step": n, "data": {...}}`` a line."""
    reader = MetricReader()
    odd: list[int] = []
    for rows in json_rows(path):
        if isinstance(rows, Remark):
            yield rows
            continue
        for number, row in rows:
            data = row.get("data")
            if isinstance(data, dict):
                yield from metric_rows(as_step(row.get("step")), reader.numbers(data, number))
            else:
                odd.append(number)
    if odd:
        yield Remark(f"{len(odd)} rows have no table 'data'; left out.", str(path), odd[0])
    yield from reader.remarks(path)


def printed_row(line: str) -> tuple[int, dict[str, str]] | None:
    """Return the step and the values as printed of a console line, or None when it holds no metrics."""
    if "step:" not in line:
        return None
    text = without_colour(line)
    found = PRINTED.search(text)
    if not found:
        return None
    row = {}
    for part in text[found.end() :].split(BETWEEN):
        name, colon, value = part.rpartition(":")
        if colon:
            row[name.strip()] = REST.sub("", value.strip())
    return int(found[1]), row


def metric_rows(step: int | None, values: Mapping[str, Any]) -> Iterator[MetricRow]:
    """Yield a row's training metrics and, apart, those of the validation verl logs at the same step."""
    held_out = {name: value for name, value in values.items() if name.startswith(HELD_OUT)}
    trained = {name: value for name, value in values.items() if name not in held_out}
    if trained:
        yield MetricRow(trained, step)
    if held_out:
        yield MetricRow(held_out, step, split="eval")
