"""Look at the start of a file: its first rows, the keys of the first one, or more of a long console log."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import orjson

from breadth.runs.jsonl import HEAD_BYTES

BOM = b"\xef\xbb\xbf"
MAX_SNIFFED_BYTES = 4 << 20
"""How far into a console log its first metrics are looked for: start-up noise fills megabytes."""
TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)("\s*(:)?)?|[{}\[\]]', re.DOTALL)
"""A string (the last one may be cut off), whether a colon follows it, or a bracket."""


def first_objects(start: bytes, limit: int = 8) -> list[dict[str, Any]]:
    """Return the first JSON objects at the start of a file, one a line; lines that are none are passed over."""
    lines = start.removeprefix(BOM).split(b"\n", limit)[:limit]
    return [row for line in lines if isinstance(row := parse_json(line), dict)]


def parse_json(text: bytes) -> Any:
    """Parse JSON, with the NaN and Infinity that Python writes; None when it is not JSON."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(text.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return None


def leading_keys(start: bytes) -> frozenset[str]:
    """Return the top-level keys of a file's first JSON object, also when it is longer than what is seen of it.

    A rollout of a reasoning model easily has more than the 64 KB an importer is shown.
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

    Only for a file whose start is text and fills the 64 KB; anything else comes back as it is.
    """
    if len(start) < HEAD_BYTES or b"\0" in start:
        return start
    try:
        with path.open("rb") as file:
            return file.read(MAX_SNIFFED_BYTES)
    except OSError:
        return start
