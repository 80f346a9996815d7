"""Records as JSON files: strict, whole, and the same when read back."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from breadth.base.errors import BrokenFileError, SettingsError
from breadth.lab import records
from breadth.measure.intervals import Interval


@dataclass(frozen=True)
class Found:
    name: str
    value: Interval
    rows: tuple[tuple[float, ...], ...]
    maybe: int | None = None


FOUND = Found("a", Interval(0.5, -math.inf, math.inf, 0.95, "no spread"), ((1.0, 0.25), (0.0,)))


def test_there_and_back(tmp_path: Path) -> None:
    records.write_record(FOUND, tmp_path / "found.json")
    assert records.read_record(Found, tmp_path / "found.json") == FOUND


def test_the_file_is_strict_json() -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    table = json.loads(records.record_to_json(FOUND), parse_constant=refuse)
    assert table["value"]["low"] == "-Infinity"
    assert math.isnan(
        records.record_from_json(Found, records.record_to_json(Found("a", Interval(math.nan, 0, 1), ()))).value.value
    )


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"name": "a"}', '{"name": 3, "value": {}, "rows": []}'])
def test_what_is_no_record_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        records.record_from_json(Found, text)
    (tmp_path / "found.json").write_text(text)
    with pytest.raises(BrokenFileError, match=r"found\.json"):
        records.read_record(Found, tmp_path / "found.json")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BrokenFileError, match="cannot be read"):
        records.read_record(Found, tmp_path / "none.json")


def test_a_row_stands_in_a_larger_document() -> None:
    row = records.to_row(FOUND)
    assert json.loads(json.dumps({"found": row}, allow_nan=False))["found"] == row
    assert records.from_row(Found, row) == FOUND


def test_what_is_kept_is_made_once(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> Found:
        made.append(1)
        return FOUND

    assert [records.load_or_make(Found, tmp_path / "found.json", make) for _ in range(2)] == [FOUND, FOUND]
    assert made == [1]
