"""Results as JSON files: any of our frozen records, written atomically as strict JSON and read back unchanged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from breadth.base import settings
from breadth.base.errors import SettingsError
from breadth.base.system import atomic_file

T = TypeVar("T")
NON_FINITE_TEXT = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Numbers that strict JSON cannot hold -> the text that replaces them; no result has such a text of its own."""


def record_to_json(record: Any) -> str:
    """Return a record as strict JSON."""
    return json.dumps(to_row(record), indent=1, allow_nan=False) + "\n"


def record_from_json(cls: type[T], text: str) -> T:
    """Read a record back."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"This is not JSON: {error}.", "Delete the file; it will be made again.") from error
    if not isinstance(table, dict):
        raise SettingsError("This is no record: its JSON is not an object.", "Delete the file; it will be made again.")
    return from_row(cls, table)


def to_row(record: Any) -> dict[str, Any]:
    """Return a record as JSON can hold it, for use in a larger document."""
    return {key: _encode_non_finite(part) for key, part in settings.to_table(record).items()}


def from_row(cls: type[T], row: Mapping[str, Any]) -> T:
    """Read a record from a larger document."""
    return settings.from_table(cls, {key: _decode_non_finite(part) for key, part in row.items()})


def write_record(record: Any, path: Path) -> None:
    """Write a record to a file atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(record_to_json(record), encoding="utf-8")


def read_record(cls: type[T], path: Path) -> T:
    """Read a record from a file."""
    return settings.parse_file(
        lambda text: record_from_json(cls, text),
        path,
        "Delete it, and run the same command again: it will be made again.",
    )


def load_or_make(cls: type[T], path: Path, make: Callable[[], T]) -> T:
    """Return the record of a file; if there is none, make and write it first."""
    if not path.exists():
        write_record(make(), path)
    return read_record(cls, path)


def _encode_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _encode_non_finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_encode_non_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return next(
            word for word, number in NON_FINITE_TEXT.items() if number == value or number != number != value != value
        )
    return value


def _decode_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _decode_non_finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_decode_non_finite(part) for part in value]
    return NON_FINITE_TEXT.get(value, value) if isinstance(value, str) else value
