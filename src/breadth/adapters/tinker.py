"""Read what tinker-cookbook writes: ``metrics.jsonl`` and ``*_rollout_summaries.jsonl``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from breadth.adapters.parse_values import (
    MetricReader,
    RowReader,
    as_number,
    as_step,
    as_text,
    is_held_out,
    metric_rows,
    order_by_prefix,
)
from breadth.runs.importer import first_objects, leading_keys
from breadth.runs.jsonl import read_json_rows
from breadth.runs.names import match_name
from breadth.runs.schema import EntropyKind, LoggedEntropyKind, MetricRow, Record, Remark, RolloutBatch, Split

SUMMARY_KEYS = frozenset({"schema_version", "split", "iteration", "group_idx", "traj_idx"})
"""First keys of every summary."""
KNOWN_VERSION = 1
TRAIN_SPLIT = "train"
TRAJECTORY_COLUMNS = ("step", "problem", "group", "sample", "reward", "correct", "tokens", "origin")
READER = RowReader(
    {name: name for name in TRAJECTORY_COLUMNS}, frozenset({"schema_version", "iteration", "group_idx", "traj_idx"})
)


def read_summaries(path: Path) -> Iterator[Record]:
    """Yield the trajectories in blocks, training and evaluation separately."""
    versions: set[str] = set()
    for block in read_json_rows(path):
        if isinstance(block, Remark):
            yield block
            continue
        versions.update(as_text(row.get("schema_version")) for _, row in block)
        for split in ("train", "eval"):
            yield from summary_batch(
                [(number, row) for number, row in block if split_of_row(row) == split], split, path
            )
    versions.discard(str(KNOWN_VERSION))
    if versions:
        problem = f"rows of schema version {min(versions)} were read as version {KNOWN_VERSION}."
        yield Remark(problem, str(path), None, "Check the rewards and lengths.")


def summary_batch(rows: list[tuple[int, dict[str, Any]]], split: Split, path: Path) -> Iterator[Record]:
    """Yield the rollouts of one split of a block."""
    if not rows:
        return
    table, remarks = READER.table([flatten_summary(row) for _, row in rows], path, rows[0][0])
    yield from remarks
    yield RolloutBatch(table, split)


def split_of_row(row: Mapping[str, Any]) -> Split:
    """Return the split of a summary."""
    return "train" if row.get("split", TRAIN_SPLIT) == TRAIN_SPLIT else "eval"


def flatten_summary(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary under our column names; what has no column goes into ``extra``."""
    step = as_step(row.get("iteration")) or 0
    name, index = as_text(row.get("split", TRAIN_SPLIT)), as_text(row.get("group_idx"))
    tags = row.get("tags")
    rest = {key: value for key, value in row.items() if key not in TRAJECTORY_COLUMNS}
    return {
        **rest,
        "step": step,
        "problem": f"{name}/{step}/{index}" if name == TRAIN_SPLIT else f"{name}/{index}",
        "group": f"{name}/{step}/{index}",
        "sample": row.get("traj_idx"),
        "reward": row.get("total_reward"),
        "correct": grade_of(row),
        "tokens": count_action_tokens(row),
        "origin": ", ".join(map(as_text, tags)) if isinstance(tags, list) and tags else None,
    }


def turns_of(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the turns of a trajectory."""
    turns = row.get("steps")
    return [turn for turn in turns if isinstance(turn, Mapping)] if isinstance(turns, list) else []


def count_action_tokens(row: Mapping[str, Any]) -> int | None:
    """Return the action tokens of a trajectory, if it has them."""
    lengths = [as_step(turn.get("ac_len")) for turn in turns_of(row)]
    return sum(length or 0 for length in lengths) if any(length is not None for length in lengths) else None


def grade_of(row: Mapping[str, Any]) -> bool | None:
    """Return the grade that the cookbook's problem environments log at the last turn (``correct``: 0 or 1)."""
    places = [turn.get("metrics") for turn in reversed(turns_of(row))] + [row.get("trajectory_metrics")]
    grades = (place["correct"] for place in places if isinstance(place, Mapping) and "correct" in place)
    grade = as_number(next(grades, None))
    return bool(grade) if grade in (0.0, 1.0) else None


TINKER_METRICS = "metrics"
ROLLOUT_SUMMARIES = "rollout summaries"
STEP_KEYS = ("step", "progress/step", "progress/batch", "training_client/step")
"""Keys of the step, best first."""
TIME = "timestamp"
COOKBOOK_NAMES = frozenset({*STEP_KEYS[1:], "progress/done_frac", "optim/entropy", "optim/kl_sample_train_v1"})
"""Names that only the cookbook's loops (and loops derived from them) log."""
ALL_ENVIRONMENTS = "env/all/"
OWN_ENTROPY = "optim/entropy"
MIXED_GROUPS = "env/all/by_group/frac_mixed"
FOREIGN_KEYS = ("time", "data", "metrics")
"""Keys of other trainers' rows: prime-rl's clock, and the nested tables of verl and verifiers."""


@dataclass(frozen=True)
class TinkerImporter:
    """Reads tinker-cookbook's log folder (also that of loops derived from it).

    Rows of ``metrics.jsonl`` are flat; what an evaluator logs under ``test/`` or ``eval/`` becomes an eval row. The
    share of groups without mixed rewards (1 - ``by_group/frac_mixed``) is added as ``zero_variance_groups``.

    A rollout summary names no problem. In an evaluation the groups are in the order of the data set, so
    ``eval/math/7`` is the same problem at every step. In training ``train/12/7`` (iteration 12, group 7) differs from
    every other group, even if the data set repeats.
    """

    trainer = "tinker"
    """Name in the catalogue."""
    entropy = EntropyKind("sampled", None, "token-mean", "response")
    """``optim/entropy``: minus the mean log-probability of the sampled action tokens, over the whole batch.

    Loops derived from the cookbook log their own numbers (``policy/entropy``), whose estimator is not known.
    """
    switches = MappingProxyType(
        {
            "rollouts": "tinker_cookbook.rl.train.Config(rollout_json_export=True)",
            "entropy": "train with tinker_cookbook.rl.train.main: it logs optim/entropy at every step",
        }
    )
    """What to set in ``tinker_cookbook.rl.train.Config``."""

    def recognises(self, path: Path, start: bytes) -> str | None:  # noqa: ARG002 - the protocol passes it
        """Recognise the two kinds by the keys of the first rows."""
        if leading_keys(start) >= SUMMARY_KEYS:
            return ROLLOUT_SUMMARIES
        rows = first_objects(start)
        return TINKER_METRICS if rows and any(is_cookbook_row(row) for row in rows) else None

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        """Keep all: the cookbook appends to one metrics file and writes each iteration's summaries once."""
        return files

    def read(self, path: Path, kind: str) -> Iterator[Record]:
        """Yield what the file holds, in order."""
        return read_summaries(path) if kind == ROLLOUT_SUMMARIES else read_cookbook_metrics(path)


def is_cookbook_row(row: Mapping[str, Any]) -> bool:
    """Whether a row has names of the cookbook and no keys of other trainers."""
    named = not COOKBOOK_NAMES.isdisjoint(row) or any(name.startswith(ALL_ENVIRONMENTS) for name in row)
    return named and not any(key in row for key in FOREIGN_KEYS)


def read_cookbook_metrics(path: Path) -> Iterator[Record]:
    """Yield the metric rows of a file."""
    reader = MetricReader()
    entropies: set[str] = set()
    for block in read_json_rows(path):
        if isinstance(block, Remark):
            yield block
            continue
        for number, row in block:
            entropies.update(name for name in row if is_policy_entropy(name))
            yield from rows_of_step(row, reader, number)
    yield from reader.remarks(path)
    if entropies and OWN_ENTROPY not in entropies:
        yield LoggedEntropyKind(EntropyKind())
        yield Remark(
            f"the entropy here is {min(entropies)!r}, a number of the user's own loop (the cookbook logs"
            f" {OWN_ENTROPY!r}): how it was estimated and averaged is not recorded, so it can be compared within this"
            " run only.",
            str(path),
            None,
            "Say in the loop's code what it is: minus the log-probability of sampled tokens, or exact; per token, or"
            " per sequence.",
        )


def rows_of_step(row: Mapping[str, Any], reader: MetricReader, number: int) -> list[MetricRow]:
    """Return the metric rows of one logged row."""
    key = next((key for key in STEP_KEYS if as_step(row.get(key)) is not None), None)
    values = reader.numbers({name: value for name, value in row.items() if name not in (key, TIME)}, number)
    if MIXED_GROUPS in values:
        values["zero_variance_groups"] = 1 - values[MIXED_GROUPS]
    return metric_rows(
        order_by_prefix(values, (ALL_ENVIRONMENTS,)),
        as_step(row[key]) if key else None,
        as_number(row[TIME]) if TIME in row else None,
    )


def is_policy_entropy(name: str) -> bool:
    """Whether a name of training (not of an evaluation) is read as the policy's entropy."""
    found = match_name(name)
    return found is not None and found[0] == "entropy" and not is_held_out(name)


IMPORTER = TinkerImporter()
"""The importer in the catalogue."""
