"""Read verl's rollout and validation dumps: ``{step}.jsonl``, one object a rollout. The path built for millions of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from breadth.adapters.printed import as_step
from breadth.adapters.rows import RowReader, as_text, reward_columns, with_steps
from breadth.runs.lines import json_blocks
from breadth.runs.records import Record, Remark, RolloutBatch
from breadth.runs.schema import Split

COLUMNS = {
    "input": "prompt",
    "output": "completion",
    "gts": "reference",
    "score": "reward",
    "step": "step",
    "pred": "answer",
    "data_source": "origin",
}
"""verl's keys -> our columns; ``acc`` joins them as ``correct``, where it is 0 or 1."""
COMPONENT = re.compile(r".*(?:reward|score)(?:s|_\w+)?", re.IGNORECASE)
"""Reward extras by these names are components of the reward, where they are numbers."""
HELD_OUT = frozenset({"val", "valid", "validation", "eval"})
"""Words in the name of a folder with dumps of validation problems."""
RIGHT_OR_WRONG = (0, 1, None)
NO_ANSWER = "[INVALID]"
"""What verl's mathematics rewards put in the place of an answer they cannot read."""
GRADED = "acc, where 0 or 1"
LONGEST_KEY = 200


def split_of(path: Path) -> Split:
    """Say whether a dump is of validation: its folder, or the one around it, is called so (``val``, ``validation_data``, ``run1-val``).

    verl writes ``trainer.rollout_data_dir`` and ``trainer.validation_data_dir`` in the same form, so only the folder's name tells.
    Before the word, only the folder itself may have another one: ``my-val`` around ``rollouts`` is just a name.
    """
    own, around = path.parent.name, path.parent.parent.name
    words = {part.lower() for part in re.split(r"[-_.]", own)} | {re.split(r"[-_.]", around)[0].lower()}
    return "train" if words.isdisjoint(HELD_OUT) else "eval"


def read_rollouts(path: Path) -> Iterator[Record]:
    """Yield a dump in batches of about 1 MB of text."""
    split = split_of(path)
    named = as_step(path.stem)
    for block in json_blocks(path):
        if isinstance(block, Remark):
            yield block
        else:
            yield from _batch(*block, path, split, named)


def _batch(numbers: Sequence[int], rows: Sequence[dict[str, Any]], path: Path, split: Split, named: int | None) -> Iterator[Record]:
    whole = [number for number, row in zip(numbers, rows, strict=True) if "output" in row and "input" in row]
    if len(whole) < len(rows):
        odd = sorted({*numbers} - {*whole})
        yield Remark(f"{len(odd)} rows have no 'input' or no 'output'; left out.", str(path), odd[0])
        numbers, rows = whole, [row for row in rows if "output" in row and "input" in row]
    if not rows:
        return
    keys = set().union(*rows)
    _tidy(rows, keys)
    table, remarks = _reader(rows, keys).table(rows, path, numbers)
    yield from remarks
    table, unnumbered = with_steps(table, named or 0)
    if unnumbered:
        said = "0" if named is None else f"{named}, from the file's name"
        yield Remark(f"{unnumbered} rows carry no step; taken as step {said}.", str(path), numbers[0])
    if "uid" in keys:
        table, further = _with_groups(table, rows)
        if further:
            yield Remark(
                f"{further} rows are further outputs of one rollout (their uid does not end in _0); each is kept as a row.", str(path)
            )
    yield RolloutBatch(table, split)


def _tidy(rows: Sequence[dict[str, Any]], keys: set[str]) -> None:
    """Make values plain: the number of a score that is a whole dict, no place-holder for an answer, right or wrong of an accuracy."""
    for row in rows:
        score = row.get("score")
        if type(score) is dict:
            row["score_table"], row["score"] = score, score.get("score")
            keys.add("score_table")
    if "pred" in keys:
        for row in rows:
            if row.get("pred") == NO_ANSWER:
                row["pred"] = None
    if "acc" in keys and not all(row.get("acc") in RIGHT_OR_WRONG for row in rows):
        keys.add(GRADED)
        for row in rows:
            row[GRADED] = row.get("acc") if row.get("acc") in RIGHT_OR_WRONG else None


def _reader(rows: Sequence[Mapping[str, Any]], keys: set[str]) -> RowReader:
    """Choose what each key means in this block."""
    columns = dict(COLUMNS)
    repeated = {"uid"}
    columns[GRADED if GRADED in keys else "acc"] = "correct"
    if "reward" in keys and _is_number(rows, "reward") and all(row.get("reward") == row.get("score") for row in rows):
        repeated.add("reward")
    extras = sorted(keys - columns.keys() - repeated - {"score_table"})
    columns |= reward_columns([key for key in extras if COMPONENT.fullmatch(key[-LONGEST_KEY:]) and _is_number(rows, key)])
    return RowReader(columns, frozenset(repeated))


def _is_number(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return all(isinstance(value, int | float | None) for value in (row.get(key) for row in rows))


def _with_groups(table: pa.Table, rows: Sequence[Mapping[str, Any]]) -> tuple[pa.Table, int]:
    """Take groups and places from uids ``sample_rollout_output``; count rows that are further outputs of one rollout."""
    parts = [as_text(row.get("uid") or "").rsplit("_", 2) for row in rows]
    whole = [len(part) == 3 and part[1].isdecimal() and len(part[1]) < 10 for part in parts]
    groups = [part[0] if fits else "_".join(part) or None for part, fits in zip(parts, whole, strict=True)]
    places = [int(part[1]) if fits else place for part, fits, place in zip(parts, whole, table.column("sample").to_pylist(), strict=True)]
    further = sum(fits and part[2] != "0" for part, fits in zip(parts, whole, strict=True))
    table = table.set_column(table.schema.get_field_index("sample"), "sample", pa.array(places, pa.int32()))
    return table.append_column("group", pa.array(groups, pa.string())), further
