"""Read what verl's trainers leave on disk: console logs, the file logger, and rollout dumps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from breadth.adapters.parse_values import (
    MetricReader,
    RowReader,
    as_step,
    as_text,
    fill_missing_steps,
    reward_columns,
    strip_colour,
)
from breadth.runs.importer import BOM, first_objects, read_long_head
from breadth.runs.jsonl import read_json_blocks, read_json_rows, read_text_rows
from breadth.runs.schema import EntropyKind, MetricRow, Record, Remark, RolloutBatch, Split

PRINTED_STEP = re.compile(r"(?:^|[\s\])}])step:(\d{1,15}) - (?=[^\s:]+:)")
METRIC_SEPARATOR = " - "
AFTER_VALUE = re.compile(r"\s.*", re.DOTALL)
HELD_OUT_METRICS = ("val-", "val/")
"""Prefixes of validation metrics."""


def read_verl_console(path: Path) -> Iterator[Record]:
    """Yield the metrics of a console log, between any other output."""
    reader = MetricReader()
    for line in read_text_rows(path):
        if isinstance(line, Remark):
            yield line
            continue
        number, text = line
        found = parse_console_line(text)
        if found:
            step, row = found
            yield from split_metrics(step, reader.numbers(row, number))
    yield from reader.remarks(path)


def read_file_log(path: Path) -> Iterator[Record]:
    """Yield the metrics of the ``file`` logger: one ``{"step": n, "data": {...}}`` per line."""
    reader = MetricReader()
    odd = first_odd = 0
    for rows in read_json_rows(path):
        if isinstance(rows, Remark):
            yield rows
            continue
        for number, row in rows:
            data = row.get("data")
            if isinstance(data, dict):
                yield from split_metrics(as_step(row.get("step")), reader.numbers(data, number))
            else:
                odd += 1
                first_odd = first_odd or number
    if odd:
        yield Remark(f"{odd} rows have no table 'data'; left out.", str(path), first_odd)
    yield from reader.remarks(path)


def parse_console_line(line: str) -> tuple[int, dict[str, str]] | None:
    """Return the step and the printed values of a console line, or None if it has no metrics."""
    if "step:" not in line:
        return None
    text = strip_colour(line)
    found = PRINTED_STEP.search(text)
    if not found:
        return None
    row = {}
    for part in text[found.end() :].split(METRIC_SEPARATOR):
        name, colon, value = part.rpartition(":")
        if colon:
            row[name.strip()] = AFTER_VALUE.sub("", value.strip())
    return int(found[1]), row


def split_metrics(step: int | None, values: Mapping[str, Any]) -> Iterator[MetricRow]:
    """Yield a row's training metrics and, separately, the validation metrics of the same step."""
    held_out = {name: value for name, value in values.items() if name.startswith(HELD_OUT_METRICS)}
    trained = {name: value for name, value in values.items() if name not in held_out}
    if trained:
        yield MetricRow(trained, step)
    if held_out:
        yield MetricRow(held_out, step, split="eval")


VERL_COLUMNS = {
    "input": "prompt",
    "output": "completion",
    "gts": "reference",
    "score": "reward",
    "step": "step",
    "pred": "answer",
    "data_source": "origin",
}
"""verl's keys -> our columns; ``acc`` becomes ``correct`` if it is 0 or 1."""
REWARD_COMPONENT = re.compile(r".*(?:reward|score)(?:s|_\w+)?", re.IGNORECASE)
"""Numeric reward extras with these names are components of the reward."""
HELD_OUT_FOLDERS = frozenset({"val", "valid", "validation", "eval"})
"""Words in the name of a folder with validation dumps."""
RIGHT_OR_WRONG = (0, 1, None)
INVALID_ANSWER = "[INVALID]"
"""What verl's mathematics rewards write for an answer they cannot read."""
GRADED_KEY = "acc, where 0 or 1"
MAX_KEY_LENGTH = 200


def dump_split(path: Path) -> Split:
    """Return the split of a dump by the name of its folder or its parent (``val``, ``validation_data``, ``run1-val``).

    verl writes ``trainer.rollout_data_dir`` and ``trainer.validation_data_dir`` in the same form, so only the folder's
    name differs. In the parent's name the word must come first: ``my-val`` around ``rollouts`` is just a name.
    """
    own, around = path.parent.name, path.parent.parent.name
    words = {part.lower() for part in re.split(r"[-_.]", own)} | {re.split(r"[-_.]", around)[0].lower()}
    return "train" if words.isdisjoint(HELD_OUT_FOLDERS) else "eval"


def read_rollouts(path: Path) -> Iterator[Record]:
    """Yield a dump in batches of about 1 MB of text."""
    split = dump_split(path)
    named = as_step(path.stem)
    for block in read_json_blocks(path):
        if isinstance(block, Remark):
            yield block
        else:
            yield from read_rollout_block(*block, path, split, named)


def read_rollout_block(
    numbers: Sequence[int], rows: Sequence[dict[str, Any]], path: Path, split: Split, named: int | None
) -> Iterator[Record]:
    """Yield one block of a dump, with remarks on its problems."""
    whole = [number for number, row in zip(numbers, rows, strict=True) if "output" in row and "input" in row]
    if len(whole) < len(rows):
        odd = sorted({*numbers} - {*whole})
        yield Remark(f"{len(odd)} rows have no 'input' or no 'output'; left out.", str(path), odd[0])
        numbers, rows = whole, [row for row in rows if "output" in row and "input" in row]
    if not rows:
        return
    keys = set().union(*rows)
    _normalise_values(rows, keys)
    table, remarks = row_reader(rows, keys).table(rows, path, numbers)
    yield from remarks
    table, unnumbered = fill_missing_steps(table, named or 0)
    if unnumbered:
        step = "0" if named is None else f"{named}, from the file's name"
        yield Remark(f"{unnumbered} rows carry no step; taken as step {step}.", str(path), numbers[0])
    if "uid" in keys:
        table, further = add_groups(table, rows)
        if further:
            yield Remark(
                f"{further} rows are further outputs of one rollout (their uid does not end in _0); each is kept as a"
                " row.",
                str(path),
            )
    yield RolloutBatch(table, split)


def _normalise_values(rows: Sequence[dict[str, Any]], keys: set[str]) -> None:
    """Normalise values: the number of a score that is a dict, no placeholder answers, an accuracy of 0 or 1."""
    for row in rows:
        score = row.get("score")
        if type(score) is dict:
            row["score_table"], row["score"] = score, score.get("score")
            keys.add("score_table")
    if "pred" in keys:
        for row in rows:
            if row.get("pred") == INVALID_ANSWER:
                row["pred"] = None
    if "acc" in keys and not all(row.get("acc") in RIGHT_OR_WRONG for row in rows):
        keys.add(GRADED_KEY)
        for row in rows:
            row[GRADED_KEY] = row.get("acc") if row.get("acc") in RIGHT_OR_WRONG else None


def row_reader(rows: Sequence[Mapping[str, Any]], keys: set[str]) -> RowReader:
    """Return a reader with the meaning of each key in this block."""
    columns = dict(VERL_COLUMNS)
    repeated = {"uid"}
    columns[GRADED_KEY if GRADED_KEY in keys else "acc"] = "correct"
    if "reward" in keys and _is_numeric(rows, "reward") and all(row.get("reward") == row.get("score") for row in rows):
        repeated.add("reward")
    extras = sorted(keys - columns.keys() - repeated - {"score_table"})
    columns |= reward_columns(
        [key for key in extras if REWARD_COMPONENT.fullmatch(key[-MAX_KEY_LENGTH:]) and _is_numeric(rows, key)]
    )
    return RowReader(columns, frozenset(repeated))


def _is_numeric(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return all(isinstance(value, int | float | None) for value in (row.get(key) for row in rows))


def add_groups(table: pa.Table, rows: Sequence[Mapping[str, Any]]) -> tuple[pa.Table, int]:
    """Add groups and samples from uids ``sample_rollout_output``; count rows that are further outputs of a rollout."""
    parts = [as_text(row.get("uid") or "").rsplit("_", 2) for row in rows]
    whole = [len(part) == 3 and part[1].isdecimal() and len(part[1]) < 10 for part in parts]
    groups = [part[0] if fits else "_".join(part) or None for part, fits in zip(parts, whole, strict=True)]
    places = [
        int(part[1]) if fits else place
        for part, fits, place in zip(parts, whole, table.column("sample").to_pylist(), strict=True)
    ]
    further = sum(fits and part[2] != "0" for part, fits in zip(parts, whole, strict=True))
    table = table.set_column(table.schema.get_field_index("sample"), "sample", pa.array(places, pa.int32()))
    return table.append_column("group", pa.array(groups, pa.string())), further


VERL_READERS: Mapping[str, Callable[[Path], Iterator[Record]]] = {
    "console log": read_verl_console,
    "file log": read_file_log,
    "rollouts": read_rollouts,
    "validation rollouts": read_rollouts,
}
"""Kind of file -> what reads it."""

PRINTED_ROW = re.compile(rb"(?m:^|[\s\])}m])step:\d{1,15} - [^\s:]+:")
LOG_START = re.compile(rb'\{\s*"step"\s*:\s*\d+\s*,\s*"data"\s*:\s*\{')
DUMP_START = re.compile(rb'\{\s*"input"\s*:\s*["\[]')
DUMP_KEYS = frozenset({"input", "output", "score"})
DUMP_NAME = re.compile(r"\d+\.jsonl")

VERL_SWITCHES = {
    "rollouts": (
        "trainer.rollout_data_dir=DIR, and for held-out problems trainer.validation_data_dir=DIR/validation (verl 0.4"
        " or later)"
    ),
    "entropy": "actor_rollout_ref.actor.calculate_entropy=true",
    "kl_reference": (
        "actor_rollout_ref.actor.use_kl_loss=true with actor_rollout_ref.actor.kl_loss_coef=0: measured, not penalized"
    ),
    "mismatch": "actor_rollout_ref.rollout.calculate_log_probs=true",
    "correct": (
        "return {'score': reward, 'acc': right} from reward.custom_reward_function; "
        "kept in trainer.validation_data_dir (the legacy trainer keeps it in trainer.rollout_data_dir too)"
    ),
    "answer": (
        "return {'score': reward, 'pred': answer} from reward.custom_reward_function; "
        "kept in trainer.validation_data_dir (the legacy trainer keeps it in trainer.rollout_data_dir too)"
    ),
}


@dataclass(frozen=True)
class VerlImporter:
    """Reads verl's console logs, the JSONL of its ``file`` logger, and its rollout and validation dumps."""

    trainer = "verl"
    """Name in the catalogue."""
    entropy = EntropyKind("exact", None, "loss-mode", "response")
    """Over the whole vocabulary, made one number by the loss's own mode: nats per sequence under a summing loss."""
    switches = MappingProxyType(VERL_SWITCHES)
    """What to set in verl to log more."""

    def recognises(self, path: Path, start: bytes) -> str | None:
        """Return a file's kind by its first bytes."""
        text = start.removeprefix(BOM).lstrip()
        if text.startswith(b"{"):
            return _json_kind(path, text)
        return "console log" if PRINTED_ROW.search(read_long_head(path, start)) else None

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        """Keep all: no file of verl repeats another."""
        return files

    def read(self, path: Path, kind: str) -> Iterator[Record]:
        """Yield what the file holds, in order."""
        return VERL_READERS[kind](path)


def _json_kind(path: Path, text: bytes) -> str | None:
    if LOG_START.match(text):
        return "file log"
    if is_dump(path, text):
        return "validation rollouts" if dump_split(path) == "eval" else "rollouts"
    return None


def is_dump(path: Path, text: bytes) -> bool:
    """Whether the first row has the keys of a dump; of a longer row, its first key and the file's name decide."""
    rows = first_objects(text, limit=4)
    if rows:
        return rows[0].keys() >= DUMP_KEYS and not rows[0].keys().isdisjoint(("step", "gts"))
    return bool(DUMP_START.match(text) and DUMP_NAME.fullmatch(path.name))


IMPORTER = VerlImporter()
"""The importer of the catalogue."""
