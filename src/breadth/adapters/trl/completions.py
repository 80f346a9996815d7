"""Read the completions TRL stores with ``log_completions=True``: one Parquet file a logging step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from breadth.adapters.rows import RowReader, as_text, reward_columns
from breadth.adapters.trl.arguments import reward_weights
from breadth.adapters.trl.history import eval_steps, newest_history, output_folder
from breadth.base.errors import BrokenFileError
from breadth.runs.records import Record, Remark, RolloutBatch
from breadth.runs.schema import REWARD_PREFIX

COLUMNS = {
    "step": "step",
    "prompt": "prompt",
    "completion": "completion",
    "advantage": "advantage",
    "solution": "reference",
    "reference": "reference",
    "origin": "origin",
    "answer": "answer",
    "correct": "correct",
    "tokens": "tokens",
    "token_ids": "token_ids",
    "truncated": "truncated",
}
"""TRL's columns -> ours; those after ``advantage`` are what a reward function may add with ``log_extra`` (``solution`` is
what TRL's own accuracy rewards add)."""
NEEDED = {"step", "prompt", "completion"}
BATCH = 1024
"""Rows read at a time: some 30 MB of long reasoning."""
LOGGED_REWARD = re.compile(r"rewards/(.+)/mean")


@dataclass(frozen=True)
class _Surroundings:
    """What the run's own log says that a completions file does not."""

    rewards: frozenset[str]
    """Names of the reward functions; empty when unknown."""
    eval_steps: frozenset[int]
    """Steps whose file an evaluation has overwritten."""
    weights: Sequence[float] | None
    """Weights of the reward functions, in order; None when unknown."""


def has_completions(path: Path) -> bool:
    """Say whether a Parquet file is one of TRL's completions files, damaged ones by name."""
    try:
        return set(pq.read_schema(path).names) >= NEEDED
    except (pa.ArrowException, OSError):
        return path.name.startswith("completions_")


def read_completions(path: Path) -> Iterator[Record]:
    """Yield a completions file in batches.

    TRL stores no group id: rows of a group are adjacent and share their prompt. Nor does it store the total reward: with one reward
    function it is that one; with several it is their weighted sum where ``grpo_config.json`` beside the files tells the
    weights, else their plain sum, with a remark. A file holds the last batch generated, so with several steps per
    generation successive files repeat the same rollouts.
    """
    known = _surroundings(output_folder(path))
    groups = _Groups()
    first = 1
    try:
        file = pq.ParquetFile(path)
        for name in sorted(NEEDED - set(file.schema_arrow.names)):
            raise BrokenFileError(
                path, f"has no column {name!r} (it has {file.schema_arrow.names}).", "Choose a completions file of TRL's."
            )
        rewards = _reward_names(file.schema_arrow, known)
        yield from _said_of_total(path, rewards, known)
        for batch in file.iter_batches(BATCH):
            yield from _batch(batch, path, first, rewards, known, groups)
            first += len(batch)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BrokenFileError(
            path, f"is not readable Parquet ({error}).", "Delete it: TRL was stopped while writing it, the other steps are unaffected."
        ) from error


def _batch(
    batch: pa.RecordBatch, path: Path, first: int, rewards: Sequence[str], known: _Surroundings, groups: _Groups
) -> Iterator[Record]:
    rows = batch.to_pylist()
    for row in rows:
        row["completion"] = spoken(row.get("completion"))
    reader = RowReader({**COLUMNS, **reward_columns(rewards)})
    table, remarks = reader.table(rows, path, first)
    yield from remarks
    table = _with(table, "reward", pa.array(_totals(table, rewards, known.weights), pa.float64())) if rewards else table
    steps = table.column("step").to_pylist()
    if None in steps:
        yield Remark(f"{steps.count(None)} rows carry no step; taken as step 0.", str(path), first)
        table = _with(table, "step", table.column("step").fill_null(0))
    group, sample = groups.number(table.column("problem").to_pylist(), steps)
    table = _with(_with(table, "group", pa.array(group, pa.string())), "sample", pa.array(sample, pa.int32()))
    yield RolloutBatch(table, "eval" if known.eval_steps.intersection(steps) else "train")


def spoken(completion: Any) -> Any:
    """Return what the policy said: the content alone where the completion is a single chat message."""
    if isinstance(completion, list) and len(completion) == 1 and isinstance(completion[0], Mapping):
        return as_text(completion[0].get("content") or "")
    return completion


class _Groups:
    """Numbers groups and places in them as rows go by: a change of prompt or step starts the next group."""

    def __init__(self) -> None:
        self.current: tuple[str, int] | None = None
        self.group, self.place = -1, 0

    def number(self, problems: Sequence[str], steps: Sequence[int]) -> tuple[list[str], list[int]]:
        groups, places = [], []
        for row in zip(problems, steps, strict=True):
            fresh = row != self.current
            self.group += fresh
            self.place = 0 if fresh else self.place + 1
            self.current = row
            groups.append(f"{row[1]}-{self.group}")
            places.append(self.place)
        return groups, places


def _surroundings(folder: Path) -> _Surroundings:
    history = newest_history(folder)
    names = {name for row in history.rows for name in row} if history else set()
    found = (LOGGED_REWARD.fullmatch(str(name)) for name in names)
    return _Surroundings(
        frozenset(match[1] for match in found if match), eval_steps(history) if history else frozenset(), reward_weights(folder)
    )


def _reward_names(schema: pa.Schema, known: _Surroundings) -> list[str]:
    """Return the reward functions' columns: those the log names, else every column of floats that is not one of ours."""
    floats = [field.name for field in schema if pa.types.is_floating(field.type) and field.name not in COLUMNS]
    named = [name for name in floats if name in known.rewards]
    return named or floats


def _said_of_total(path: Path, rewards: Sequence[str], known: _Surroundings) -> Iterator[Remark]:
    if len(rewards) > 1 and (known.weights is None or len(known.weights) != len(rewards)):
        yield Remark(
            f"TRL stores no total reward and the weights of {', '.join(rewards)} are unknown; the reward is their plain sum.",
            str(path),
            None,
            "If you set reward_weights, save the settings beside the completions: "
            "Path(args.output_dir, 'grpo_config.json').write_text(args.to_json_string())",
        )


def _totals(table: pa.Table, rewards: Sequence[str], weights: Sequence[float] | None) -> list[float | None]:
    """Add up the reward functions that apply to each row, as TRL does; null where none does."""
    used = weights if weights is not None and len(weights) == len(rewards) else [1.0] * len(rewards)
    columns = [table.column(f"{REWARD_PREFIX}{name}").to_pylist() for name in rewards]
    return [_total(row, used) for row in zip(*columns, strict=True)]


def _total(row: Sequence[float | None], weights: Sequence[float]) -> float | None:
    parts = [weight * value for weight, value in zip(weights, row, strict=True) if value is not None]
    return sum(parts) if parts else None


def _with(table: pa.Table, name: str, column: Any) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.append_column(name, column) if place < 0 else table.set_column(place, name, column)
