"""Read ``*_rollout_summaries.jsonl``: one row a trajectory, with its rewards and lengths and without its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from breadth.adapters.printed import as_number, as_step
from breadth.adapters.rows import RowReader, as_text
from breadth.runs.lines import json_rows
from breadth.runs.records import Record, Remark, RolloutBatch
from breadth.runs.schema import Split

SUMMARY_KEYS = frozenset({"schema_version", "split", "iteration", "group_idx", "traj_idx"})
"""Keys at the head of every summary."""
KNOWN_VERSION = 1
TRAIN = "train"
COLUMNS = ("step", "problem", "group", "sample", "reward", "correct", "tokens", "origin")
READER = RowReader({name: name for name in COLUMNS}, frozenset({"schema_version", "iteration", "group_idx", "traj_idx"}))


def read_summaries(path: Path) -> Iterator[Record]:
    """Yield the trajectories in blocks, training and evaluation apart."""
    versions: set[str] = set()
    for block in json_rows(path):
        if isinstance(block, Remark):
            yield block
            continue
        versions.update(as_text(row.get("schema_version")) for _, row in block)
        for split in ("train", "eval"):
            yield from _batch([(number, row) for number, row in block if _split(row) == split], split, path)
    versions.discard(str(KNOWN_VERSION))
    if versions:
        yield _newer(path, min(versions))


def _batch(rows: list[tuple[int, dict[str, Any]]], split: Split, path: Path) -> Iterator[Record]:
    if not rows:
        return
    table, remarks = READER.table([_flat(row) for _, row in rows], path, rows[0][0])
    yield from remarks
    yield RolloutBatch(table, split)


def _split(row: Mapping[str, Any]) -> Split:
    return "train" if row.get("split", TRAIN) == TRAIN else "eval"


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary under our column names; what it has no column for stays as it is and goes into ``extra``."""
    step = as_step(row.get("iteration")) or 0
    name, index = as_text(row.get("split", TRAIN)), as_text(row.get("group_idx"))
    rest = {key: value for key, value in row.items() if key not in COLUMNS}
    return {
        **rest,
        "step": step,
        "problem": f"{name}/{step}/{index}" if name == TRAIN else f"{name}/{index}",
        "group": f"{name}/{step}/{index}",
        "sample": row.get("traj_idx"),
        "reward": row.get("total_reward"),
        "correct": _correct(row),
        "tokens": _tokens(row),
        "origin": _origin(row.get("tags")),
    }


def _turns(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    turns = row.get("steps")
    return [turn for turn in turns if isinstance(turn, Mapping)] if isinstance(turns, list) else []


def _tokens(row: Mapping[str, Any]) -> int | None:
    lengths = [as_step(turn.get("ac_len")) for turn in _turns(row)]
    return sum(length or 0 for length in lengths) if any(length is not None for length in lengths) else None


def _correct(row: Mapping[str, Any]) -> bool | None:
    """Return the grade that the cookbook's problem environments log at the last turn (``correct``: 0 or 1)."""
    places = [turn.get("metrics") for turn in reversed(_turns(row))] + [row.get("trajectory_metrics")]
    grades = (place["correct"] for place in places if isinstance(place, Mapping) and "correct" in place)
    grade = as_number(next(grades, None))
    return bool(grade) if grade in (0.0, 1.0) else None


def _origin(tags: Any) -> str | None:
    return ", ".join(as_text(tag) for tag in tags) if isinstance(tags, list) and tags else None


def _newer(path: Path, version: str) -> Remark:
    return Remark(
        f"rows of schema version {version} were read as version {KNOWN_VERSION}.", str(path), None, "Check the rewards and lengths."
    )
