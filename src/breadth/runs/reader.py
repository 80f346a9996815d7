"""Open a run folder and query it; broken files are set aside with their reason, the rest still opens.

A log may hold several runs, one after the other: they are split where the steps start over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from breadth.base.catalogue import LazyModule
from breadth.base.errors import BrokenFileError, FileError
from breadth.runs.jsonl import read_json_rows
from breadth.runs.names import RENAMED_METRICS, translate
from breadth.runs.paths import display_name, explain_remote_errors, is_remote, locate
from breadth.runs.schema import (
    PROBLEM_COLUMNS,
    REQUIRED_COLUMNS,
    ROLLOUT_COLUMNS,
    ColumnSpec,
    Header,
    MetricPoint,
    Remark,
    column_type,
    read_header,
)
from breadth.runs.writer import METRICS_FILE, PROBLEMS_FILE, ROLLOUT_FILE_NAME, ROLLOUTS_FOLDER

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = LazyModule("pyarrow"), LazyModule("pyarrow.parquet")


MIN_RUN_ROWS = 8
"""Steps that make a run, as many as a trend needs; a shorter one is a false start, which the next run replaces."""


@dataclass
class RestartDetector:
    """Distinguishes another run, which starts from the first step, from a restart, which resumes from a checkpoint."""

    first_step: int | None = None
    """Step the run began with."""
    rows: int = 0
    """Rows of it so far."""

    def starts_new_run(self, step: int, *, back: bool) -> bool:
        """Add the next row and say whether another run starts with it; ``back``: the steps went back before it."""
        over = back and self.first_step is not None and step <= self.first_step
        is_new = over and self.rows >= MIN_RUN_ROWS
        if self.first_step is None or over:
            self.first_step, self.rows = step, 0
        self.rows += 1
        return is_new


def split_concatenated_runs(points: Iterable[MetricPoint]) -> list[tuple[MetricPoint, ...]]:
    """Return the rows of each run, in order; held-out scores go with the run around them.

    Several files are one run.
    """
    found: list[list[MetricPoint]] = [[]]
    starts, attempt, sources = RestartDetector(), 0, set[int]()
    for point in points:
        if point.split == "train":
            sources.add(point.source)
            if starts.starts_new_run(point.step, back=point.attempt > attempt):
                found.append([])
            attempt = max(attempt, point.attempt)
        found[-1].append(point)
    return [tuple(run) for run in found] if len(sources) < 2 else [tuple(point for run in found for point in run)]


@dataclass(frozen=True)
class MetricSeries:
    """One metric over steps, in order of steps, one value a step."""

    name: str
    """Our metric name."""
    steps: npt.NDArray[np.int64] = field(repr=False)
    """Strictly increasing."""
    values: npt.NDArray[np.float64] = field(repr=False)
    """One value a step; may hold NaN or infinities as logged."""
    superseded: int = 0
    """Values of earlier attempts that a later attempt replaced."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def finite(self) -> MetricSeries:
        """The same series without NaN and infinities."""
        keep = np.isfinite(self.values)
        return MetricSeries(self.name, self.steps[keep], self.values[keep], self.superseded)


def collect_series(points: Iterable[MetricPoint], name: str, split: str) -> MetricSeries:
    """Collect one metric; of a step logged more than once, the newest file and attempt win, then the last row."""
    newest: dict[int, tuple[tuple[int, int], float]] = {}
    superseded = 0
    for point in points:
        if point.split != split or name not in point.values:
            continue
        order = (point.source, point.attempt)
        known = newest.get(point.step)
        superseded += known is not None
        if known is None or order >= known[0]:
            newest[point.step] = (order, point.values[name])
    steps = np.array(sorted(newest), dtype=np.int64)
    return MetricSeries(name, steps, np.array([newest[int(step)][1] for step in steps], dtype=np.float64), superseded)


@dataclass(frozen=True)
class Run:
    """A run folder as it was when opened; open it again to see what a live run has added."""

    folder: Path
    """Its path."""
    header: Header
    """What ``run.toml`` says."""
    points: tuple[MetricPoint, ...]
    """Every readable metric row, in file order; of the last run where a log holds several."""
    rollout_files: tuple[Path, ...]
    """Readable rollout files, the newest attempt of each step and rank only."""
    columns: frozenset[str]
    """Columns that at least one rollout file has."""
    broken: tuple[Remark, ...]
    """Files and rows that could not be used, each with what to do."""
    earlier: tuple[tuple[MetricPoint, ...], ...] = ()
    """Metric rows of the runs before this one in the same log."""

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """Open a run folder by its path, or by an address such as ``s3://bucket/run`` (the extra ``remote``)."""
        path = locate(folder)
        with explain_remote_errors(path):
            header = read_header(path)
        header = replace(header, names={RENAMED_METRICS.get(name, name): own for name, own in header.names.items()})
        points, bad_rows = read_points(path / METRICS_FILE)
        if not header.files:
            header, points = translate_points(header, points)
        files, columns, bad_files = find_rollout_files(path / ROLLOUTS_FOLDER)
        *earlier, last = split_concatenated_runs(points)
        return cls(path, header, last, tuple(files), frozenset(columns), tuple(bad_rows + bad_files), tuple(earlier))

    @classmethod
    def from_points(cls, source: Path, header: Header, points: Sequence[MetricPoint]) -> Run:
        """Make a run of metrics that are in memory; ``source`` is the log they were read from."""
        *earlier, last = split_concatenated_runs(points)
        return cls(source, header, last, (), frozenset(), (), tuple(earlier))

    @property
    def name(self) -> str:
        """What people call this run: its name, or the end of its path where that is just ``run``."""
        return display_name(self.folder, self.header.name)

    @property
    def all_runs(self) -> tuple[Run, ...]:
        """Every run of the log by itself, this one last; rollouts are the last one's."""
        others = (
            replace(self, points=points, rollout_files=(), columns=frozenset(), earlier=()) for points in self.earlier
        )
        return *others, self

    def metric_names(self, split: str = "train") -> tuple[str, ...]:
        """Return the metrics logged, in order of first appearance."""
        return self._names.get(split, ())

    @cached_property
    def _names(self) -> dict[str, tuple[str, ...]]:
        """Metrics by split: asked for often, and a long run has many rows."""
        found: dict[str, dict[str, None]] = {}
        for point in self.points:
            found.setdefault(point.split, {}).update(dict.fromkeys(point.values))
        return {split: tuple(names) for split, names in found.items()}

    def series(self, name: str, split: str = "train") -> MetricSeries:
        """Return one metric over steps; empty when it was not logged."""
        if (name, split) not in self._series:
            self._series[name, split] = collect_series(self.points, name, split)
        return self._series[name, split]

    @cached_property
    def _series(self) -> dict[tuple[str, str], MetricSeries]:
        """Series that were asked for: the doctor asks for the same few again and again."""
        return {}

    @property
    def attempts(self) -> int:
        """How often the run was started, as far as its metrics tell."""
        attempts = [point.attempt for point in self.points]
        return 1 + max(attempts, default=0) - min(attempts, default=0)

    @property
    def has_problems(self) -> bool:
        """Whether the problems' texts are there."""
        return (self.folder / PROBLEMS_FILE).is_file()

    def query(self, sql: str, *parameters: Any) -> pa.Table:
        """Run SQL over the views ``rollouts``, ``problems`` and ``metrics``; only the columns named are read from disk.

        Every column of the schema can be named; one that the trainer did not write is null.
        """
        import duckdb

        try:
            return self.database.sql(sql, params=list(parameters)).to_arrow_table()
        except duckdb.CatalogException as error:
            # Its second line is a guess among DuckDB's own tables.
            problem = str(error).partition("\n")[0].removeprefix("Catalog Error: ")
            raise BrokenFileError(
                self.folder, f"cannot answer this query: {problem}", self._describe_views()
            ) from error
        except duckdb.Error as error:
            raise BrokenFileError(
                self.folder, f"cannot answer this query: {error}", "Correct the query, or the file it names."
            ) from error

    @cached_property
    def database(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection with a view for each kind of row that is there; it never reaches for the network."""
        import duckdb

        connection = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
        if is_remote(self.folder):
            connection.register_filesystem(self.folder.fs)  # type: ignore[attr-defined]  # fsspec's paths carry their file system
        if self.rollout_files:
            create_view(connection, "rollouts", self.rollout_files, ROLLOUT_COLUMNS)
        if self.has_problems:
            create_view(connection, "problems", (self.folder / PROBLEMS_FILE,), PROBLEM_COLUMNS)
        connection.register("metrics", self._metric_table())
        return connection

    def _metric_table(self) -> pa.Table:
        rows = [
            (point.step, point.split, point.rank, point.attempt, point.source, point.time, name, value)
            for point in self.points
            for name, value in point.values.items()
        ]
        names = ("step", "split", "rank", "attempt", "source", "time", "name", "value")
        types = (pa.int64(), pa.string(), pa.int32(), pa.int32(), pa.int32(), pa.float64(), pa.string(), pa.float64())
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        return pa.table(
            {name: pa.array(column, kind) for name, column, kind in zip(names, columns, types, strict=True)}
        )

    def _describe_views(self) -> str:
        """Say which views there are, and why one is not."""
        views = {"metrics": True, "rollouts": bool(self.rollout_files), "problems": self.has_problems}
        absent = [name for name, there in views.items() if not there]
        missing = (
            f" It has no {' and no '.join(absent)}: nothing of the kind was written or imported." if absent else ""
        )
        return f"This run has the views {', '.join(name for name in views if name not in absent)}.{missing}"


def read_points(path: Path) -> tuple[list[MetricPoint], list[Remark]]:
    """Read the metric rows of a run, with a remark on each that is not one."""
    points: list[MetricPoint] = []
    remarks: list[Remark] = []
    for rows in read_json_rows(path) if path.exists() else ():
        if isinstance(rows, Remark):
            remarks.append(rows)
            continue
        for number, row in rows:
            try:
                points.append(MetricPoint.from_row(row))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                remarks.append(Remark(f"not a metric row ({error!r}), left out.", str(path), number, "Delete the row."))
    return points, remarks


def translate_points(header: Header, points: list[MetricPoint]) -> tuple[Header, list[MetricPoint]]:
    """Translate the metric names of a run that was written live; an import has done so before."""
    used: dict[str, str] = {}
    renamed = []
    for point in points:
        values, names = translate(point.values)
        used |= names
        renamed.append(replace(point, values=values))
    return replace(header, names={**used, **header.names}), renamed


def find_rollout_files(folder: Path) -> tuple[list[Path], set[str], list[Remark]]:
    """List the readable rollout files of the newest attempts, their columns, and remarks on the others."""
    newest: dict[tuple[str, ...], int] = {}
    candidates: list[tuple[tuple[str, ...], int, Path]] = []
    for path in sorted(folder.glob("*.parquet")):
        found = ROLLOUT_FILE_NAME.fullmatch(path.name)
        key = found.groups()[:3] if found else (path.name,)
        attempt = int(found[4]) if found else 0
        newest[key] = max(attempt, newest.get(key, 0))
        candidates.append((key, attempt, path))
    files: list[Path] = []
    columns: set[str] = set()
    remarks: list[Remark] = []
    for key, attempt, path in candidates:
        if attempt < newest[key]:
            continue
        try:
            columns |= check_rollout_file(path)
            files.append(path)
        except FileError as error:
            remarks.append(Remark.from_error(error))
    return files, columns, remarks


def check_rollout_file(path: Path) -> set[str]:
    """Return a rollout file's columns; raise when it is damaged or not one of ours."""
    try:
        with path.open("rb") as file:
            schema = pq.read_schema(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise BrokenFileError(
            path,
            f"is not readable Parquet ({error}).",
            "Delete the file, or restore it; the other steps are unaffected.",
        ) from error
    for name in REQUIRED_COLUMNS:
        if name not in schema.names:
            raise BrokenFileError(
                path, f"is foreign: it has no column {name!r}.", "Import it with: breadth import FILE --to RUN"
            )
    for stored in schema:
        wanted = column_type(stored.name)
        if wanted is not None and not is_same_type(wanted, stored.type):
            raise BrokenFileError(
                path, f"is foreign: column {stored.name!r} is {stored.type}, not {wanted}.", "Import it again."
            )
    return set(schema.names)


def is_same_type(wanted: pa.DataType, got: pa.DataType) -> bool:
    """Compare types, the name of a list's item aside."""
    if pa.types.is_list(wanted) and pa.types.is_list(got):
        return bool(wanted.value_type == got.value_type)
    return bool(wanted == got)


def create_view(
    connection: duckdb.DuckDBPyConnection, name: str, files: tuple[Path, ...], columns: Sequence[ColumnSpec]
) -> None:
    """Make a view in which every column of the schema can be asked for; what no file has is null."""
    relation = connection.read_parquet([escape_glob(path) for path in files], union_by_name=True)
    absent = [column for column in columns if column.name not in relation.columns]
    nulls = "".join(f', CAST(NULL AS {sql_type(column.type)}) AS "{column.name}"' for column in absent)
    relation.project(f"*{nulls}").create_view(name)


def sql_type(kind: str) -> str:
    """Return DuckDB's name of an Arrow type, given by its name."""
    if kind.startswith("list<"):
        return f"{sql_type(kind[5:-1])}[]"
    return {
        "int64": "BIGINT",
        "int32": "INTEGER",
        "double": "DOUBLE",
        "float": "FLOAT",
        "bool": "BOOLEAN",
        "string": "VARCHAR",
    }[kind]


def escape_glob(path: Path) -> str:
    """Keep DuckDB from reading a folder's own brackets and stars as a pattern."""
    return re.sub(r"[*?\[]", r"[\g<0>]", str(path))
