"""Write a run folder: a kill at any instant loses at most the step being written, and ranks may write at once."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import orjson

from breadth.base.catalogue import LazyModule
from breadth.base.errors import MeasureError
from breadth.base.system import (
    atomic_file,
    refuse_address,
    remove_stale_files,
    sync_to_disk,
    write_error,
    write_new_file,
)
from breadth.runs.jsonl import require_regular_file
from breadth.runs.parquet import read_parquet_batches
from breadth.runs.schema import (
    HEADER_FILE,
    REQUIRED_COLUMNS,
    Header,
    MetricPoint,
    Split,
    column_type,
    problem_schema,
    write_header,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = LazyModule("pyarrow"), LazyModule("pyarrow.parquet")

METRICS_FILE = "metrics.jsonl"
PROBLEMS_FILE = "problems.parquet"
ROLLOUTS_FOLDER = "rollouts"
COMPRESSION = "lz4"
"""1.7 times as large on disk as zstd (level 1), and 1.6 times as fast to write: training waits for the writer."""
PAGE_BYTES = 256 << 10
"""Bytes of a Parquet page: one that fits the processor's cache is written a fifth faster than the usual megabyte."""
SYNC_SECONDS = 5.0
"""How often rows of metrics are put on the disk at most: each time takes as long as a small training step."""
ROLLOUT_FILE_NAME = re.compile(r"(train|eval)-(\d{8,})-r(\d+)-a(\d+)-p(\d+)\.parquet")


class RunWriter:
    """Appends what happens to a run folder; one writer for each rank.

    Metrics are single appended lines under a file lock; rollouts are one Parquet file a step, written under a temporary
    name and renamed. A writer that opens an existing folder (a resumed run) starts a new attempt: nothing is
    overwritten, and readers take the newest attempt that has a step whole.
    """

    def __init__(self, folder: Path, header: Header | None = None, *, rank: int = 0, flush: bool = True) -> None:
        refuse_address(folder, "runs are written to a folder of this machine")
        self.folder = Path(folder)
        """The run folder."""
        self.rank = rank
        """Which process of a distributed run this is."""
        self.flush = flush
        """Whether rollouts are on the disk, safe from a power cut, before a step counts as written."""
        rollouts = self.folder / ROLLOUTS_FOLDER
        missing = [place for place in (rollouts, *rollouts.parents) if not place.exists()]
        try:
            rollouts.mkdir(parents=True, exist_ok=True)
            for place in missing if flush else ():  # without its name on the disk, a power cut takes the whole folder
                sync_to_disk(place.parent)
        except OSError as error:
            raise write_error(self.folder, error) from error
        if not (self.folder / HEADER_FILE).exists():
            write_header(header or Header(name=self.folder.name), self.folder)
        for place in (self.folder, self.folder / ROLLOUTS_FOLDER):
            remove_stale_files(place)
        self._synced = -math.inf
        self.attempt = self._last_attempt() + 1
        """How often this rank has opened the folder before."""

    def metrics(
        self,
        step: int,
        values: Mapping[str, float],
        *,
        split: Split = "train",
        time: float | None = None,
        attempt: int | None = None,
        source: int = 0,
    ) -> None:
        """Append one row of numbers."""
        self.points(
            [
                MetricPoint(
                    step, dict(values), split, self.rank, self.attempt if attempt is None else attempt, source, time
                )
            ]
        )

    def points(self, points: Iterable[MetricPoint]) -> None:
        """Append rows of numbers as they are, all at once."""
        self._append(b"".join(map(metric_line, points)))

    def rollouts(
        self, rows: pa.Table | Mapping[str, Any], step: int, *, split: Split = "train", attempt: int | None = None
    ) -> Path:
        """Write rollouts of one step as one file; returns its path."""
        table = conform(rows if isinstance(rows, pa.Table) else pa.table(dict(rows)), step, split)
        stem = f"{split}-{step:08d}-r{self.rank}-a{self.attempt if attempt is None else attempt}"
        names = free_paths(self.folder / ROLLOUTS_FOLDER, stem)
        path = write_new_file(names, lambda temporary: write_parquet(table, temporary), flush=self.flush)
        if self.flush:
            self._sync_metrics()
        return path

    def problems(self, rows: pa.Table | Mapping[str, Any]) -> None:
        """Add problems that are not there yet; safe while other ranks add theirs."""
        new = rows if isinstance(rows, pa.Table) else pa.table(dict(rows))
        path = self.folder / PROBLEMS_FILE
        try:
            with (self.folder / ".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                known = [pa.table(batch) for batch in read_parquet_batches(path)] if path.exists() else []
                write_table(distinct_problems([*known, new]), path)
        except OSError as error:
            raise write_error(path, error) from error

    def _append(self, lines: bytes) -> None:
        path = self.folder / METRICS_FILE
        try:
            with path.open("ab+", buffering=0) as file:
                with suppress(OSError):  # some network file systems have no locks; O_APPEND keeps short lines whole
                    fcntl.flock(file, fcntl.LOCK_EX)
                size = file.seek(0, os.SEEK_END)
                if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                    lines = b"\n" + lines  # an earlier writer was killed inside its line: do not glue ours to it
                write_or_truncate(file, lines, size)
            if self.flush and time.monotonic() - self._synced > SYNC_SECONDS:
                self._sync_metrics()
        except OSError as error:
            raise write_error(path, error) from error

    def _sync_metrics(self) -> None:
        """Put the rows logged so far on the disk."""
        path = self.folder / METRICS_FILE
        self._synced = time.monotonic()
        if path.exists():
            sync_to_disk(path)
            sync_to_disk(self.folder)

    def _last_attempt(self) -> int:
        last = -1
        for path in (self.folder / ROLLOUTS_FOLDER).iterdir():
            found = ROLLOUT_FILE_NAME.fullmatch(path.name)
            if found and int(found[3]) == self.rank:
                last = max(last, int(found[4]))
        path = self.folder / METRICS_FILE
        if path.exists():
            require_regular_file(path)
            mine = re.compile(rb'"rank":%d,"attempt":(\d+)' % self.rank)
            with path.open("rb") as file:
                last = max([last, *(int(row[1]) for line in file if (row := mine.search(line)))])
        return last


def free_paths(folder: Path, stem: str) -> Iterator[Path]:
    """Yield the names ``<stem>-p<number>.parquet`` that are not taken, in order."""
    for part in count():
        if not (path := folder / f"{stem}-p{part}.parquet").exists():
            yield path


def conform(table: pa.Table, step: int, split: Split) -> pa.Table:
    """Give a table the schema's types; name the column and what to do where it cannot be."""
    if "step" not in table.column_names:
        table = table.append_column("step", pa.array([step] * len(table), pa.int64()))
    if "split" not in table.column_names:
        table = table.append_column("split", pa.array([split] * len(table), pa.string()))
    missing = [name for name in REQUIRED_COLUMNS if name not in table.column_names]
    if missing:
        raise MeasureError(f"Rollouts without the column {missing[0]!r} (got {table.column_names}).", "Add it.")
    for place, name in enumerate(table.column_names):
        table = table.set_column(place, name, cast_column(table.column(name), name))
    return table


def distinct_problems(tables: list[pa.Table]) -> pa.Table:
    """Stack problem tables, the first row of each problem kept."""
    stacked = pa.concat_tables([problem_columns(table) for table in tables])
    first: dict[str, int] = {}
    for place, problem in enumerate(stacked.column("problem").to_pylist()):
        first.setdefault(problem, place)
    return stacked.take(list(first.values()))


def write_table(table: pa.Table, path: Path, *, flush: bool = True) -> None:
    """Write Parquet whole or not at all, over what was there."""
    with atomic_file(path, flush=flush) as temporary:
        write_parquet(table, temporary)


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a Parquet file; long text, which never repeats, gets no dictionary and no statistics."""
    coded = [
        name for name in ("split", "problem", "group", "answer", "origin", "reference") if name in table.column_names
    ]
    pq.write_table(
        table,
        path,
        compression=COMPRESSION,
        use_dictionary=coded,
        write_statistics=["step"],
        data_page_size=PAGE_BYTES,
    )


def problem_columns(table: pa.Table) -> pa.Table:
    """Return the problem columns of a table, nulls where it has none."""
    columns = [
        (
            table.column(field.name).cast(field.type)
            if field.name in table.column_names
            else pa.nulls(len(table), field.type)
        )
        for field in problem_schema()
    ]
    return pa.table(columns, schema=problem_schema())


def cast_column(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Cast a column to the type the schema gives it."""
    wanted = column_type(name)
    if wanted is None:
        raise MeasureError(
            f"Rollouts have no column {name!r}.",
            "Put it into 'extra' as JSON, or name it reward/<name> if it is a reward.",
        )
    try:
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise MeasureError(
            f"Column {name!r} holds {column.type}, need {wanted}: {error}", "Convert it before writing."
        ) from error


def metric_line(point: MetricPoint) -> bytes:
    """Return a metric row as a line of JSON."""
    row = {
        "step": point.step,
        "split": point.split,
        "rank": point.rank,
        "attempt": point.attempt,
        "source": point.source,
        "time": point.time,
        "values": {name: to_json_number(value) for name, value in point.values.items()},
    }
    return orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)


def write_or_truncate(file: IO[bytes], lines: bytes, size: int) -> None:
    """Write lines or leave the file as long as it was: a full disk may take only part of them."""
    if file.write(lines) != len(lines):
        file.truncate(size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def to_json_number(value: Any) -> Any:
    """Return a number as JSON holds it; NaN and infinities as text."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


def problem_id(prompt: str) -> str:
    """Return a stable id of a prompt: 12 characters (72 bits of BLAKE2b), which DuckDB compares in place."""
    return urlsafe_b64encode(blake2b(prompt.encode("utf-8", errors="surrogatepass"), digest_size=9).digest()).decode(
        "ascii"
    )


class ProblemWriter:
    """Streams problems into one Parquet file, each once; memory grows with ids only, not with text."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """Where the file goes."""
        self._seen: set[str] = set()
        self._writer: pq.ParquetWriter | None = None

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, table: pa.Table) -> None:
        """Add the problems of a batch that are new."""
        import pyarrow.compute as pc  # slow to load, and most logs hold no rollouts

        problems = table.column("problem")
        fresh = [problem for problem in problems.unique().to_pylist() if problem not in self._seen]
        if not fresh:
            return
        self._seen.update(fresh)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self.path, problem_schema(), compression=COMPRESSION)
        first = pc.index_in(pa.array(fresh, pa.string()), value_set=problems)
        self._writer.write_table(problem_columns(table).take(first))

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()
