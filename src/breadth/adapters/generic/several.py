"""Notice tables that are no run: several runs stacked, or rows that sum up many samples."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from breadth.adapters.rows import as_text
from breadth.base.errors import UnknownFormatError

RUNS = ("run", "run_id", "run_name", "run_file", "experiment", "exp_name")
"""Columns that tell runs apart."""
MODELS = ("model", "model_name", "model_alias")
"""Columns that tell policies apart."""
SUMMARIES = ("num_votes", "n_votes", "voting_method", "num_samples", "n_samples", "num_correct", "n_correct")
"""Columns that only a summary of many samples has."""
SHOWN = 3
MOST = 50
"""Runs of a table that are read one by one."""


class Several:
    """Collects the different values of the columns that tell runs apart."""

    def __init__(self, columns: Iterable[str], wanted: Collection[str], path: Path) -> None:
        self.columns = [name for name in columns if name.casefold() in wanted]
        """The file's columns of this kind."""
        self._path = path
        self._seen: dict[str, set[str]] = {name: set() for name in self.columns}

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take the values of a batch of rows."""
        for row in rows:
            for name in self.columns:
                if row.get(name) is not None and len(self._seen[name]) <= SHOWN:
                    self._seen[name].add(as_text(row[name])[:80])

    @property
    def found(self) -> str:
        """Say which column holds several values, and some of them; empty when none does."""
        name = next((name for name, values in self._seen.items() if len(values) > 1), None)
        return f"{name!r}: {', '.join(sorted(self._seen[name])[:SHOWN])}, ..." if name else ""

    def refuse_several(self) -> None:
        """Raise when the rows belong to more than one run."""
        if self.found:
            raise several_runs(self._path, self.found)


def stacked(batches: Iterable[Iterable[tuple[int, Mapping[str, Any]]]]) -> tuple[str, list[str]]:
    """Return the column by which a table's runs can be told apart and their names, in order; no names where it holds one, or too many."""
    seen: dict[str, dict[str, None]] = {}
    for batch in batches:
        for _, row in batch:
            for name in row:
                if name.casefold() in RUNS and row[name] is not None and len(seen.setdefault(name, {})) <= MOST:
                    seen[name][as_text(row[name])] = None
    column = next((name for name, values in seen.items() if 1 < len(values) <= MOST), "")
    return column, list(seen.get(column, ()))


def several_runs(path: Path, found: str) -> UnknownFormatError:
    """Return the refusal of a table that stacks runs."""
    return UnknownFormatError(
        path,
        f"holds rows of several runs ({found}); read as one, each would look like a restart of the one before.",
        f"Write one file per run and import them one by one; `breadth doctor` reads up to {MOST} runs of a table apart.",
    )


def refuse_summaries(columns: Iterable[str], path: Path) -> None:
    """Raise when each row sums up many samples."""
    name = next((name for name in columns if name.casefold() in SUMMARIES), None)
    if name:
        raise UnknownFormatError(path, f"has one row for many samples (column {name!r}), not one for each.", "Import the single samples.")
