"""Read the completions TRL stores with ``log_completions=True``: one Parquet file per logging step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breadth.adapters.parse_values import RowReader, as_number, as_step, as_text, fill_missing_steps, reward_columns
from breadth.adapters.trl.history import History, eval_steps, is_eval, newest_history, output_folder, reward_weights
from breadth.base.catalogue import LazyModule
from breadth.base.errors import BrokenFileError
from breadth.runs.parquet import read_parquet_rows, try_read_schema
from breadth.runs.schema import REWARD_PREFIX, Record, Remark, RolloutBatch

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = LazyModule("pyarrow"), LazyModule("pyarrow.parquet")

TRL_COLUMNS = {
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
"""TRL's columns -> ours; those after ``advantage`` can be added by a reward function with ``log_extra``
(``solution`` is added by TRL's own accuracy rewards)."""
TRL_REQUIRED_COLUMNS = {"step", "prompt", "completion"}
STOPPED_WRITING = "Delete it: TRL was stopped while writing it; the other steps are unaffected."
LOGGED_REWARD = re.compile(r"rewards/(.+)/mean")
SUM_PRECISION = 1e-5
"""Relative rounding error of a sum of means that TRL takes in single precision."""


@dataclass(frozen=True)
class _LogFacts:
    """What the run's log says that a completions file does not."""

    rewards: frozenset[str] = frozenset()
    """Names of the reward functions; empty if unknown."""
    eval_steps: frozenset[int] = frozenset()
    """Steps whose file an evaluation has overwritten."""
    plain_sum: bool = False
    """Whether every logged reward is the plain sum of the functions' means, so that all weights are 1."""


def has_completions(path: Path) -> bool:
    """Whether a Parquet file is one of TRL's completions files; a damaged one is recognised by its name."""
    schema = try_read_schema(path)
    if schema is None:
        return path.name.startswith("completions_")
    return set(schema.names) >= TRL_REQUIRED_COLUMNS


def read_completions(path: Path) -> Iterator[Record]:
    """Yield a completions file in batches.

    TRL stores no group id: rows of a group are adjacent and share their prompt. It does not store the total reward
    either. With one reward function it is that one. With several it is their weighted sum if ``grpo_config.json`` next
    to the files has the weights, else their plain sum, with a remark unless the log shows that all weights are 1. A
    file contains the last batch generated, so with several steps per generation successive files repeat rollouts.
    """
    folder = output_folder(path)
    history = newest_history(folder)
    facts = _learn_from_log(history) if history else _LogFacts()
    groups = _GroupCounter()
    try:
        schema = pq.read_schema(path)
        for name in sorted(TRL_REQUIRED_COLUMNS - set(schema.names)):
            raise BrokenFileError(
                path, f"has no column {name!r} (it has {schema.names}).", "Choose one of TRL's completions files."
            )
        names = reward_names(schema, facts)
        weights = known_weights(names, facts, folder)
        if weights is None:
            yield Remark(
                f"TRL stores no total reward and the weights of {', '.join(names)} are unknown; the reward is their"
                " plain sum.",
                str(path),
                None,
                "If you set reward_weights, save the settings next to the completions: "
                "Path(args.output_dir, 'grpo_config.json').write_text(args.to_json_string())",
            )
        rewards = dict(zip(names, weights or [1.0] * len(names), strict=True))
        first = 1
        for rows in read_parquet_rows(path, STOPPED_WRITING):
            yield from _read_batch(rows, path, first, rewards, facts.eval_steps, groups)
            first += len(rows)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BrokenFileError(path, f"is not readable Parquet ({error}).", STOPPED_WRITING) from error


def _read_batch(
    rows: list[dict[str, Any]],
    path: Path,
    first: int,
    rewards: Mapping[str, float],
    evaluated: frozenset[int],
    groups: _GroupCounter,
) -> Iterator[Record]:
    for row in rows:
        row["completion"] = completion_text(row.get("completion"))
    table, remarks = RowReader({**TRL_COLUMNS, **reward_columns(list(rewards))}).table(rows, path, first)
    yield from remarks
    named = as_step(path.stem.rpartition("_")[2]) or 0
    table, unnumbered = fill_missing_steps(table, named)
    if unnumbered:
        yield Remark(f"{unnumbered} rows carry no step; taken as step {named}.", str(path), first)
    if rewards:
        table = table.append_column("reward", pa.array(total_rewards(table, rewards), pa.float64()))
    steps = table.column("step").to_pylist()
    group, sample = groups.number(table.column("problem").to_pylist(), steps)
    table = table.set_column(table.schema.get_field_index("sample"), "sample", pa.array(sample, pa.int32()))
    yield RolloutBatch(
        table.append_column("group", pa.array(group, pa.string())), "train" if evaluated.isdisjoint(steps) else "eval"
    )


def completion_text(completion: Any) -> Any:
    """Return the completion as text: only the content if it is a single chat message."""
    if isinstance(completion, list) and len(completion) == 1 and isinstance(completion[0], Mapping):
        return as_text(completion[0].get("content") or "")
    return completion


class _GroupCounter:
    """Numbers groups and the samples in them: a change of prompt or step starts the next group."""

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


@lru_cache(maxsize=1)
def _learn_from_log(history: History) -> _LogFacts:
    """Read the facts from the log; cached, because each of a run's thousand files asks."""
    rows = [row for row in history.rows if not is_eval(row)]
    found = (LOGGED_REWARD.fullmatch(name) for name in {str(name) for row in rows for name in row})
    names = frozenset(match[1] for match in found if match)
    totals = [row for row in rows if "reward" in row and all(f"rewards/{name}/mean" in row for name in names)]
    plain = bool(names and totals) and all(is_plain_sum(row, names) for row in totals)
    return _LogFacts(names, eval_steps(history), plain)


def is_plain_sum(row: Mapping[str, Any], names: frozenset[str]) -> bool:
    """Whether a log row's reward is the plain sum of the functions' means."""
    parts = [as_number(row[f"rewards/{name}/mean"]) for name in names]
    numbers = [part for part in parts if part is not None]
    total = as_number(row["reward"])
    return (
        total is not None
        and len(numbers) == len(parts)
        and abs(total - sum(numbers)) <= SUM_PRECISION * max(map(abs, numbers))
    )


def reward_names(schema: pa.Schema, facts: _LogFacts) -> list[str]:
    """Return the reward functions' columns: those in the log, else every column of floats that is not one of ours."""
    floats = [field.name for field in schema if pa.types.is_floating(field.type) and field.name not in TRL_COLUMNS]
    named = [name for name in floats if name in facts.rewards]
    return named or floats


def known_weights(names: Sequence[str], facts: _LogFacts, folder: Path) -> Sequence[float] | None:
    """Return the weights of the reward functions, or None if unknown."""
    saved = reward_weights(folder)
    if saved is not None and len(saved) == len(names):
        return saved
    return [1.0] * len(names) if len(names) < 2 or (facts.plain_sum and facts.rewards == set(names)) else None


def total_rewards(table: pa.Table, rewards: Mapping[str, float]) -> list[float | None]:
    """Sum the reward functions that apply to each row, as TRL does; None if none applies."""
    columns = [table.column(f"{REWARD_PREFIX}{name}").to_pylist() for name in rewards]
    totals: list[float | None] = []
    for row in zip(*columns, strict=True):
        parts = [weight * value for weight, value in zip(rewards.values(), row, strict=True) if value is not None]
        totals.append(sum(parts) if parts else None)
    return totals
