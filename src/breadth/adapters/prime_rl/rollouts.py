"""Read files of verifiers' records (episodes, flat results) into batches of rollouts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from breadth.adapters.prime_rl.results import result_rows
from breadth.adapters.prime_rl.traces import Row, trace_rows
from breadth.adapters.rows import RowReader
from breadth.runs.lines import json_rows
from breadth.runs.records import Record, Remark, RolloutBatch
from breadth.runs.schema import REWARD_PREFIX, ROLLOUT_TYPES, Split

STEP = re.compile(r"step_(\d{1,15})")
COLUMNS = {name: name for name in (*ROLLOUT_TYPES, "prompt", "reference", "origin") if name not in ("split", "extra")}


def read_episodes(path: Path) -> Iterator[Record]:
    """Yield a rollout for each trace of a trained agent."""
    return _read(path, trace_rows)


def read_results(path: Path) -> Iterator[Record]:
    """Yield a rollout for each row of ``results.jsonl``."""
    return _read(path, result_rows)


def step_of(path: Path) -> int | None:
    """Return the step that a folder of the path names (``step_12``), the innermost one."""
    found = (STEP.fullmatch(part) for part in reversed(path.parts))
    return next((int(step[1]) for step in found if step), None)


def split_of(path: Path) -> Split | None:
    """Return which problems a file of prime-rl is about: its folders are ``step_N/{train,eval}/{all,effective}``."""
    named = path.parts[-3] if step_of(path) is not None and len(path.parts) > 2 else None
    return "train" if named == "train" else "eval" if named == "eval" else None


def _read(path: Path, rows_of: Callable[[Mapping[str, Any]], list[Row]]) -> Iterator[Record]:
    empty = 0
    for block in json_rows(path):
        if isinstance(block, Remark):
            yield block
            continue
        found = [rows_of(record) for _, record in block]
        empty += sum(not rows for rows in found)
        yield from _batches([row for rows in found for row in rows], path, block[0][0] if block else 1)
    if empty:
        yield Remark(f"{empty} records hold no rollout of a trained agent (failed before the first turn, or judges only).", str(path))


def _batches(rows: list[Row], path: Path, first: int) -> Iterator[Record]:
    """Yield a batch for each split; the folder knows better than a record which step and split it is counted in."""
    step, split = step_of(path), split_of(path)
    parts: dict[Split, list[Row]] = {}
    for row in rows:
        own = row.pop("split", None)
        row["step"] = step if step is not None else row["step"] or 0
        parts.setdefault(split or own or "eval", []).append(row)
    for where, part in parts.items():
        rewards = {name: name for row in part for name in row if name.startswith(REWARD_PREFIX)}
        table, remarks = RowReader({**COLUMNS, **rewards}).table(part, path, first)
        yield from remarks
        yield RolloutBatch(table, where)
