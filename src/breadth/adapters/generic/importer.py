"""Read any JSONL, CSV, JSON or Parquet of rows whose columns are named obviously, or mapped by the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from breadth.adapters.generic.layout import check_mapping, layout_of, mapped_content, obvious_layout
from breadth.adapters.generic.records import MetricTable, RolloutTable, stacked
from breadth.adapters.generic.tables import Rows, glimpse, rows_of
from breadth.adapters.rows import as_text
from breadth.base.spelling import nearest
from breadth.runs.schema import EntropyKind, Record, Remark


@dataclass(frozen=True)
class GenericImporter:
    """Reads tables of metrics (one row a step) and of rollouts (one row a completion).

    Rows with a completion, an answer, a grade or a problem are rollouts, others metrics. Rollouts without a step are
    taken as one evaluation, at step 0. A table that stacks several runs, or whose rows sum up many samples, is refused:
    neither is a run. `apart` reads the runs of a stacked one by one.

    ``GenericImporter({"step": "iteration", "reward": "score"})`` reads a file with names of its own.
    """

    mapping: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the file's column. What it does not name is found by obvious names."""
    only: tuple[str, str] | None = None
    """A column, and the value it has in the rows that are read: one run of a table that stacks several."""

    trainer = "generic"
    """Name in the catalogue: the file does not say which trainer wrote it."""
    entropy = EntropyKind()
    """Unknown: a column called entropy does not say how it was estimated."""
    switches = MappingProxyType(
        {
            "rollouts": (
                "write one JSON object per completion: step, prompt, completion, reward (and answer, correct, tokens where"
                " known)"
            ),
            "entropy": "add a column 'entropy': the mean entropy of the sampled tokens' distributions, in nats",
            "reward": "add a column 'reward': the mean reward of the step's rollouts",
            "truncated": "add a column 'truncated_ratio': the share of completions cut at the length cap",
        }
    )
    """What to write into the file."""

    def __post_init__(self) -> None:
        check_mapping(self.mapping)

    def recognises(self, path: Path, start: bytes) -> str | None:
        """Look at the columns; with a mapping, a file is meant that has one of the columns it names, or one spelt much like it."""
        seen = glimpse(path, start)
        if seen is None:
            return None
        layout = obvious_layout(seen.columns)
        if layout and (layout.content == "rollouts" or not self.mapping):
            return f"{seen.form} {layout.content}"
        meant = layout or not seen.columns or any(nearest(theirs, seen.columns) for theirs in self.mapping.values())
        return f"{seen.form} {mapped_content(self.mapping)}" if meant else None

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        """Keep all: nothing is known about how these files belong together."""
        return files

    def read(self, path: Path, kind: str) -> Iterator[Record]:
        """Yield the rows under our names; the first batch of rows decides what the columns are."""
        form, _, content = kind.partition(" ")
        table: MetricTable | RolloutTable | None = None
        for found in rows_of(path, form):
            if isinstance(found, Remark):
                yield found
            elif batch := self._own(found):
                table = table or self._table(batch, path, content)
                yield from table.records(batch)
        yield from table.remarks() if table else ()

    def apart(self, path: Path, kind: str) -> dict[str, GenericImporter]:
        """Return who reads each run of a table that stacks several, by the run's name; empty for any other table."""
        column, names = stacked(
            batch for batch in rows_of(path, kind.partition(" ")[0]) if not isinstance(batch, Remark)
        )
        return {name: replace(self, only=(column, name)) for name in names}

    def _own(self, batch: Rows) -> Rows:
        if self.only is None:
            return batch
        column, name = self.only
        return [(number, row) for number, row in batch if column in row and as_text(row[column]) == name]

    def _table(self, batch: Rows, path: Path, content: str) -> MetricTable | RolloutTable:
        columns = dict.fromkeys(name for _, row in batch for name in row)
        layout = layout_of(columns, self.mapping, content)
        return RolloutTable(layout, batch, path) if content == "rollouts" else MetricTable(layout, columns, path)


IMPORTER = GenericImporter()
"""The importer in the catalogue."""
