"""Read prime-rl's token exports: per-token columns of what the trainer trained on, without text or reward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from breadth.adapters.printed import as_step
from breadth.adapters.rows import RowReader, as_text
from breadth.runs.lines import json_rows
from breadth.runs.problems import problem_id
from breadth.runs.records import Record, Remark, RolloutBatch

Row = dict[str, Any]
PER_TOKEN = {
    "token_ids": "token_ids",
    "loss_mask": "mask",
    "advantages": "advantages",
    "inference_logprobs": "old_logprobs",
    "trainer_logprobs": "logprobs",
    "entropy": "entropy",
}
"""Their list -> our column. The export's other lists follow from these."""
COLUMNS = {name: name for name in (*PER_TOKEN.values(), "step", "problem", "origin", "tokens", "advantage")}
KEPT = ("rank", "micro_step", "micro_sequence_idx", "export_sequence_idx")


def read_token_export(path: Path) -> Iterator[Record]:
    """Yield the sequences of one rank and step; prompts are cut off, their tokens name the problem."""
    bad = 0
    for block in json_rows(path):
        if isinstance(block, Remark):
            yield block
            continue
        rows = [row for _, record in block if (row := _row(record))]
        bad += len(block) - len(rows)
        if rows:
            table, remarks = RowReader(COLUMNS).table(rows, path, block[0][0])
            yield from remarks
            yield RolloutBatch(table)
    if bad:
        yield Remark(f"{bad} rows hold no trained token, or lists of unequal length; left out.", str(path))


def _row(record: Mapping[str, Any]) -> Row | None:
    columns = {ours: record[theirs] for theirs, ours in PER_TOKEN.items() if isinstance(record.get(theirs), list)}
    if len({len(values) for values in columns.values()}) != 1 or True not in columns.get("mask", ()) or "token_ids" not in columns:
        return None
    start = columns["mask"].index(True)
    prompt = as_text(columns["token_ids"][:start])
    env = as_text(record.get("env_name") or "") or None
    return {
        **{name: record[name] for name in KEPT if name in record},
        **{name: values[start:] for name, values in columns.items()},
        "step": as_step(record.get("step")) or 0,
        "problem": f"{env}/{problem_id(prompt)}" if env else problem_id(prompt),
        "origin": env,
        "tokens": sum(flag is True for flag in columns["mask"]),
        "advantage": _common(columns.get("advantages"), columns["mask"]),
    }


def _common(advantages: list[Any] | None, mask: list[Any]) -> Any:
    """Return the advantage of the whole rollout where every trained token has the same one."""
    trained = [value for value, counts in zip(advantages or (), mask, strict=False) if counts is True]
    return trained[0] if trained and all(value == trained[0] for value in trained) else None
