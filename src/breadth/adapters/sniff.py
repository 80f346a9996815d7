"""Look at the start of a file: its first rows, the keys of the first one, or more of a long console log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from breadth.runs.jsonl import HEAD_BYTES, try_parse_json

BOM = b"\xef\xbb\xbf"
MAX_SNIFFED_BYTES = 4 << 20
"""Bytes of a console log searched for its first metrics: start-up output fills megabytes."""
TEXT_BYTES = 4096
"""First bytes that hold no zero in a text: a log that was truncated while written has holes of zeros later."""
TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)("\s*(:)?)?|[{}\[\]]', re.DOTALL)
"""A string (the last one may be cut off), whether a colon follows it, or a bracket."""


def first_objects(start: bytes, limit: int = 8) -> list[dict[str, Any]]:
    """Return the first JSON objects of a file, one per line; other lines are skipped."""
    lines = start.removeprefix(BOM).split(b"\n", limit)[:limit]
    return [row for line in lines if isinstance(row := try_parse_json(line), dict)]


def leading_keys(start: bytes) -> frozenset[str]:
    """Return the top-level keys of a file's first JSON object, even if it is longer than ``start``.

    A rollout of a reasoning model is often longer than the 64 KB that an importer gets.
    """
    text = start.removeprefix(BOM).lstrip().decode("utf-8", errors="replace")
    keys: set[str] = set()
    depth = 0
    for token in TOKEN.finditer(text) if text.startswith("{") else ():
        if token[0] in ("{", "["):
            depth += 1
        elif token[0] in ("}", "]"):
            depth -= 1
        elif token[3] and depth == 1:
            keys.add(token[1])
        if depth == 0:
            break
    return frozenset(keys)


def read_long_head(path: Path, start: bytes) -> bytes:
    """Return more of a console log than its first 64 KB: trainers print their set-up before the first metrics.

    Any other file, or a shorter one, gives ``start`` unchanged.
    """
    if len(start) < HEAD_BYTES or b"\0" in start[:TEXT_BYTES]:
        return start
    try:
        with path.open("rb") as file:
            return file.read(MAX_SNIFFED_BYTES)
    except OSError:
        return start
