"""A sample of the training data: told from rollouts by its columns, and read as the texts whose format a policy learns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from breadth.base.errors import BrokenFileError
from breadth.runs.jsonl import json_rows
from breadth.runs.schema import Remark

MOST = 2_000
"""Rows that are read: enough to tell a share to two points."""
LARGEST = 200_000_000
"""Bytes of a JSON document at most; JSON lines and Parquet may be of any size."""
ASKS = ("prompt", "question", "problem", "instruction", "query", "input")
SOLVES = ("solution", "response", "completion", "output", "answer", "target", "text", "messages", "ground_truth")
ROLLED = frozenset({"reward", "score", "step", "advantage", "rewards", "logprobs", "epoch", "log_history"})
"""Columns that rollouts and logs have and training data does not."""


def is_data(path: Path, start: bytes) -> bool:
    """Say whether a file holds problems to train on, by its columns."""
    names = _columns(path, start)
    return bool(names) and not names & ROLLED and any(name in names for name in ASKS)


def read_data(path: Path) -> tuple[str, ...]:
    """Return the texts of the first rows: the worked solution where there is one of some length, else what is asked."""
    return tuple(text for row in islice(_rows(path), MOST) if (text := _text(row)))


def _columns(path: Path, start: bytes) -> frozenset[str]:
    if start.startswith(b"PAR1"):
        try:
            return frozenset(pq.read_schema(path).names)
        except (pa.ArrowInvalid, OSError):
            return frozenset()
    if path.suffix not in (".jsonl", ".json", ".ndjson"):
        return frozenset()
    text = start.lstrip(b"[ \t\r\n")
    try:
        first = orjson.loads(text.split(b"\n", 1)[0].rstrip(b", \r"))
    except orjson.JSONDecodeError:
        return frozenset()
    return frozenset(first) if isinstance(first, dict) else frozenset()


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"PAR1":
        with pq.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=MOST):
                yield from batch.to_pylist()
    elif start.lstrip()[:1] == b"[":
        yield from _document(path)
    else:
        for found in json_rows(path):
            if not isinstance(found, Remark):
                yield from (row for _, row in found)


def _document(path: Path) -> Sequence[Mapping[str, Any]]:
    if path.stat().st_size > LARGEST:
        raise BrokenFileError(
            path, f"is one JSON document of more than {LARGEST / 1e6:.0f} MB.", "Give it as JSON lines: one row a line."
        )
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise BrokenFileError(path, f"is not JSON ({error}).", "Give it as JSON lines: one row a line.") from error
    return [row for row in found if isinstance(row, dict)]


def _text(row: Mapping[str, Any]) -> str:
    texts = [_said(row.get(name)) for name in SOLVES]
    longest = max(texts, key=len, default="")
    asked = next((said for name in ASKS if (said := _said(row.get(name)))), "")
    return longest if len(longest.split()) > 3 else asked  # a bare answer has no format to learn


def _said(value: Any) -> str:
    """Return a text, or the last message of a conversation."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        return _said(value[-1].get("content"))
    return ""
