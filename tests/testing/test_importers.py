"""Tests of the importers' contract: a good importer passes, each fault is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest

from breadth.base.errors import BrokenFileError
from breadth.runs.importer import IMPORTERS
from breadth.runs.schema import EntropyKind, LoggedConfig, MetricRow, Record, Remark, RolloutBatch
from breadth.testing.importers import FOREIGN_HEADS, check_importer, check_records

GOOD_TABLE = pa.table({"step": pa.array([1], pa.int64()), "problem": ["p"], "prompt": ["1+1?"], "reward/form": [0.5]})


@dataclass(frozen=True)
class Letters:
    """Reads files that begin with ``letters`` and hold one number a line."""

    trainer = "letters"
    """Name in the catalogue."""
    entropy = EntropyKind()
    """Not logged."""
    switches = MappingProxyType({"reward": "letters --reward"})
    """What to set."""

    def recognises(self, path: Path, start: bytes) -> str | None:
        """Look at the first word."""
        return "letters" if start.startswith(b"letters") and path.suffix == ".txt" else None

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        """Keep all."""
        return files

    def read(self, path: Path, kind: str) -> Iterator[Record]:
        """Yield a row a line."""
        lines = path.read_text().splitlines()
        if not lines or lines[0] != "letters":
            raise BrokenFileError(path, "has lost its first line.", "Restore it.")
        for step, line in enumerate(lines[1:]):
            yield MetricRow({"reward": float(line or "nan")}, step)
        yield RolloutBatch(GOOD_TABLE)
        yield LoggedConfig({"a": None})


@pytest.fixture
def samples(tmp_path: Path) -> list[Path]:
    path = tmp_path / "a.txt"
    path.write_text("letters\n12\n345\n")
    return [path]


def test_a_good_importer_passes(samples: list[Path]) -> None:
    check_importer(Letters(), samples)


def raises(self: Letters, path: Path, kind: str) -> Iterator[Record]:
    yield MetricRow({"reward": float(path.read_text().splitlines()[1])}, 1)


def read_with(*records: Any) -> Callable[..., Iterator[Record]]:
    return lambda *_: iter(records)


def differing() -> Callable[..., Iterator[Record]]:
    counted = iter(range(10**6))
    return lambda *_: iter([MetricRow({"reward": float(next(counted))}, 1)])


@dataclass(frozen=True)
class Silent(Letters):
    """Has switches that nobody explains."""

    switches = MappingProxyType({"reward": "letters --loud"})


class Inherited(Letters):
    """Has its descriptions from another class."""


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "claims others": ({"recognises": lambda *_: "letters"}, "it claims trainer_state.json of trl"),
    "claims nothing": ({"recognises": lambda *_: None}, "a.txt is not recognised"),
    "other errors": ({"read": raises}, "IndexError"),
    "reads differently": ({"read": differing()}, "reads differently"),
    "no rows": ({"read": read_with(Remark("nothing."))}, "none of the samples gave a row"),
    "no record": ({"read": read_with("row")}, "is no record"),
    "empty remark": ({"read": read_with(Remark(""))}, "is no record"),
    "integer metric": ({"read": read_with(MetricRow({"reward": 1}, 1))}, "need a name and a float"),
    "negative step": ({"read": read_with(MetricRow({"reward": 1.0}, -1))}, "step is -1"),
    "bad split": ({"read": read_with(MetricRow({"reward": 1.0}, 1, split="test"))}, "split is 'test'"),  # type: ignore[arg-type]  # on purpose
    "bad time": ({"read": read_with(MetricRow({"reward": 1.0}, 1, time=3))}, "time is 3"),
    "no problem": ({"read": read_with(RolloutBatch(GOOD_TABLE.drop_columns(["problem"])))}, "no column 'problem'"),
    "null step": (
        {"read": read_with(RolloutBatch(pa.table({"step": pa.array([None], pa.int64()), "problem": ["p"]})))},
        "has nulls",
    ),
    "foreign column": (
        {"read": read_with(RolloutBatch(GOOD_TABLE.append_column("colour", [["red"]])))},
        "has no column 'colour'",
    ),
    "wrong type": (
        {"read": read_with(RolloutBatch(GOOD_TABLE.append_column("reward", [[1]])))},
        "is int64, not double",
    ),
    "odd switch": (
        {"switches": property(lambda _: {"colour": "x"}, doc="What to set.")},
        "is no metric or column of ours",
    ),
    "empty switch": ({"switches": property(lambda _: {"reward": " "}, doc="What to set.")}, "says nothing"),
    "none to switch": ({"switches": property(lambda _: {}, doc="What to set.")}, "switches name what to set"),
    "no entropy": ({"entropy": property(lambda _: None, doc="None.")}, "entropy is an EntropyKind"),
    "invents files": ({"current": lambda _, files: [*files, Path("other")]}, "may only leave files out"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found(samples: list[Path], fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, message = FAULTS[fault]
    for name, change in changes.items():
        monkeypatch.setattr(Letters, name, change)
    with pytest.raises(AssertionError) as caught:
        check_importer(Letters(), samples)
    assert message in str(caught.value)


def test_what_is_explained_is_found_where_it_stands(samples: list[Path]) -> None:
    check_importer(Inherited(), samples)
    with pytest.raises(AssertionError, match="switches has a docstring"):
        check_importer(Silent(), samples)


def test_samples_are_needed() -> None:
    with pytest.raises(AssertionError, match="at least one sample"):
        check_importer(Letters(), [])


def test_an_importer_asked_last_may_claim_others_rows_but_not_nobodys(
    samples: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {start for trainer, _, start in FOREIGN_HEADS if trainer}
    monkeypatch.setattr(
        Letters, "recognises", lambda _, __, start: "rows" if start in known or start.startswith(b"letters") else None
    )
    check_importer(Letters(), samples, last_resort=True)
    with pytest.raises(AssertionError, match="it claims"):
        check_importer(Letters(), samples)


def test_names_that_cannot_be_stored_are_found() -> None:
    with pytest.raises(UnicodeEncodeError):
        check_records([MetricRow({"a\ud800": 1.0}, 1)])


def test_the_foreign_heads_are_of_known_trainers() -> None:
    assert {trainer for trainer, _, _ in FOREIGN_HEADS} == {*IMPORTERS.entries, ""}
