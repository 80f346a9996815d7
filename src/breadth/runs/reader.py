"""Open a run folder and query it; broken files are set aside with their reason, the rest still opens.

A log may hold several runs, one after the other: they are split where the steps start over.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from breadth.base.catalogue import LazyModule
from breadth.base.errors import BrokenFileError, FileError, SettingsError, redact_address
from breadth.base.system import temporary_name
from breadth.runs.jsonl import MAX_ROW_REMARKS, read_json_rows, require_regular_file
from breadth.runs.names import RENAMED_METRICS, translate
from breadth.runs.parquet import BATCH_BYTES, READ_BYTES, measure_groups, parquet_errors
from breadth.runs.paths import display_name, explain_remote_errors, is_listed, is_remote, locate
from breadth.runs.schema import (
    PROBLEM_COLUMNS,
    REQUIRED_COLUMNS,
    REWARD_PREFIX,
    ROLLOUT_COLUMNS,
    Header,
    MetricNames,
    MetricPoint,
    Remark,
    column_type,
    problem_schema,
    read_header,
)
from breadth.runs.writer import METRICS_FILE, PROBLEMS_FILE, ROLLOUT_FILE_NAME, ROLLOUTS_FOLDER

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = LazyModule("pyarrow"), LazyModule("pyarrow.parquet")


MEMORY_LIMIT = "384MiB"
"""Memory of DuckDB, which holds its work and a narrow copy of many files."""
MAX_SCRATCH = "8GiB"
"""Disk that DuckDB may use for work that does not fit."""
MAX_RESULT_BYTES = 512 << 20
"""Bytes of a query's result; as Python objects it takes up to five times as much."""
RESULT_BATCH_ROWS = 1024
"""Rows of a result that are fetched at a time."""
NARROWER_QUERY = "Ask for fewer columns or steps at a time."
MAX_POINTS_BYTES = 600 << 20
"""Bytes of metrics that are held in memory: a hundred thousand rows of sixty."""
MIN_FILES_HELD = 64
"""Files from which on opening them again for each query takes longer than reading their narrow columns once."""
MAX_ROWS_HELD = 4_000_000
"""Rollouts whose narrow columns are kept, about 100 bytes each."""
FILES_PER_READ = 512
"""Files that are read together: DuckDB keeps some 25 KB for each until it is done."""
MAX_COLUMNS = 1000
"""Columns of a file of a run; nobody has so many rewards, and queries take seconds for each thousand."""
MAX_VIEW_PARTS = 8
"""Different sets of columns that are read each by itself."""
WIDE_COLUMNS = frozenset(
    column.name
    for column in ROLLOUT_COLUMNS
    if column.type.startswith("list<") or column.name in ("completion", "extra")
)
"""Columns of long texts and lists."""
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
    """Readable rollout files, of each step and rank the newest attempt that has it whole."""
    columns: frozenset[str]
    """Columns that at least one rollout file has."""
    broken: tuple[Remark, ...]
    """Files and rows that could not be used, each with what to do."""
    earlier: tuple[tuple[MetricPoint, ...], ...] = ()
    """Metric rows of the runs before this one in the same log."""
    tables: tuple[TableFile, ...] = ()
    """What is known of the Parquet files: those of rollouts, and that of the problems."""
    source: Path | None = None
    """The user's file, where the folder is a temporary one that it was imported into."""

    @property
    def place(self) -> Path:
        """What errors name: the folder, or the file that was imported."""
        return self.source or self.folder

    def __repr__(self) -> str:
        place = redact_address(str(self.place))
        steps, metrics = len({point.step for point in self.points}), len(self.metric_names())
        return f"<Run {place!r}: steps {steps:,}, metrics {metrics:,}, rollout files {len(self.rollout_files):,}>"

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
        candidates, stopped = newest_attempts(path / ROLLOUTS_FOLDER, points)
        files, bad_files = check_files(candidates, check_rollout_file)
        problems, bad_problems = check_files([path / PROBLEMS_FILE], check_problem_file)
        *earlier, last = split_concatenated_runs(points)
        return cls(
            path,
            header,
            last,
            tuple(file.path for file in files),
            frozenset(name for file in files for name in file.columns),
            (*bad_rows, *stopped, *bad_files, *bad_problems),
            tuple(earlier),
            (*files, *problems),
        )

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
        return any(table.path.name == PROBLEMS_FILE for table in self.tables)

    def query(self, sql: str, *parameters: Any, steps: tuple[int, int] | None = None) -> pa.Table:
        """Run SQL over the views ``rollouts``, ``problems`` and ``metrics``; only the columns named are read from disk.

        Every column of the schema can be named; one that the trainer did not write is null. A query whose own condition
        selects the rollouts of some steps may name the first and last in ``steps``, so that other files stay closed.
        """
        batches = list(self.query_batches(sql, *parameters, steps=steps))
        return pa.Table.from_batches(batches)

    def query_batches(
        self, sql: str, *parameters: Any, steps: tuple[int, int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield what `query` returns batch by batch, at least one: of millions of rows, no second copy is needed."""
        import duckdb

        try:
            yield from self._fetch(sql, parameters, steps)
        except duckdb.CatalogException as error:
            # Its second line is a guess among DuckDB's own tables.
            problem = str(error).partition("\n")[0].removeprefix("Catalog Error: ")
            raise BrokenFileError(self.place, f"cannot answer this query: {problem}", self._describe_views()) from error
        except duckdb.OutOfMemoryException as error:
            raise BrokenFileError(
                self.place, f"needs more than {MEMORY_LIMIT} of memory for this query.", NARROWER_QUERY
            ) from error
        except duckdb.Error as error:
            raise BrokenFileError(
                self.place, f"cannot answer this query: {error}", "Correct the query, or the file it names."
            ) from error
        except (OSError, pa.ArrowException) as error:
            raise BrokenFileError(
                self.place, f"has a damaged file: {error}", "Delete the file, or restore it; the other steps stay."
            ) from error

    def _fetch(self, sql: str, parameters: Sequence[Any], steps: tuple[int, int] | None) -> Iterator[pa.RecordBatch]:
        """Yield a result batch by batch, as long as it stays small enough for memory."""
        database = self._database_with_metrics if may_need_metrics(sql) else self.database
        database.execute(f"SET search_path = '{self._select_files(sql, steps)}'")
        longest = max((table.longest for table in self.tables), default=0)
        rows = int(min(RESULT_BATCH_ROWS, max(1, BATCH_BYTES / max(longest, 1))))
        result = database.sql(sql, params=list(parameters))
        if result is None:  # nothing but spaces and comments
            raise SettingsError("The query is empty.", "Write SQL, such as SELECT * FROM metrics LIMIT 5.")
        reader = result.to_arrow_reader(rows)
        size = 0
        yield pa.RecordBatch.from_pylist([], reader.schema)
        for batch in reader:
            yield batch
            size += batch.nbytes
            if size > MAX_RESULT_BYTES:
                raise BrokenFileError(
                    self.place, f"answers this query with more than {MAX_RESULT_BYTES >> 20} MB.", NARROWER_QUERY
                )

    @cached_property
    def database(self) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection with a view for each kind of row that is there; it never reaches for the network."""
        import duckdb

        scratch = temporary_name(Path(tempfile.gettempdir(), "breadth-query"))
        connection = duckdb.connect(
            config={
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "memory_limit": MEMORY_LIMIT,
                "temp_directory": str(scratch),
                "max_temp_directory_size": MAX_SCRATCH,
            }
        )
        if is_remote(self.folder):
            connection.register_filesystem(self.folder.fs)  # type: ignore[attr-defined]  # fsspec's paths carry their file system
        if self.rollout_files:
            create_view(connection, "rollouts", self._rollout_tables, self._rollout_types)
        if self.has_problems:
            types = {column.name: sql_type(column.type) for column in PROBLEM_COLUMNS}
            create_problems_view(connection, self.tables[-1:], types)
        connection.execute("CREATE SCHEMA narrow")
        return connection

    @cached_property
    def _database_with_metrics(self) -> duckdb.DuckDBPyConnection:
        """The connection, with the view of metrics: it takes memory, and most queries are about rollouts."""
        return self.database.register("metrics", self._metric_table())

    @property
    def _rollout_tables(self) -> list[TableFile]:
        known = set(self.rollout_files)
        return [table for table in self.tables if table.path in known]

    @property
    def _rollout_types(self) -> dict[str, str]:
        """Columns of the view of rollouts, each with DuckDB's type."""
        types = {column.name: sql_type(column.type) for column in ROLLOUT_COLUMNS}
        return types | dict.fromkeys(sorted(name for name in self.columns if name.startswith(REWARD_PREFIX)), "DOUBLE")

    @cached_property
    def _has_narrow_table(self) -> bool:
        """Whether the columns without long texts and lists were read into memory: many files take long to open again.

        They are read once, some files at a time; where they do not fit, every query reads its files.
        """
        import duckdb

        tables = self._rollout_tables
        if len(tables) < MIN_FILES_HELD or sum(table.rows for table in tables) > MAX_ROWS_HELD:
            return False
        types = {name: kind for name, kind in self._rollout_types.items() if name not in WIDE_COLUMNS}
        columns = ", ".join(f"{quote_name(name)} {kind}" for name, kind in types.items())
        self.database.execute("SET threads = 1")  # several would wait for each other at every file
        try:
            self.database.execute(f"CREATE TABLE narrow.rollouts ({columns})")
            for first in range(0, len(tables), FILES_PER_READ):
                create_view(self.database, "some_files", tables[first : first + FILES_PER_READ], types)
                self.database.execute("INSERT INTO narrow.rollouts SELECT * FROM some_files")
        except duckdb.Error:
            return False
        finally:
            self.database.execute("RESET threads")
        return True

    def _select_files(self, sql: str, steps: tuple[int, int] | None) -> str:
        """Prepare the files that a query reads; return the schemas in which it looks for its tables, in order."""
        if not self._has_narrow_table:
            return "main"
        if is_narrow(sql):
            return "narrow,main"
        if steps is None:
            return "main"
        tables = [table for table in self._rollout_tables if table.first <= steps[1] and steps[0] <= table.last]
        self.database.execute("CREATE SCHEMA IF NOT EXISTS selected")
        self.database.execute("SET search_path = 'selected'")
        create_view(self.database, "rollouts", tables or self._rollout_tables[:1], self._rollout_types)
        return "selected,main"

    def _metric_table(self) -> pa.Table:
        types = {
            "step": pa.int64(),
            "split": pa.string(),
            "rank": pa.int32(),
            "attempt": pa.int32(),
            "source": pa.int32(),
            "time": pa.float64(),
        }
        columns = {name: pa.array([getattr(point, name) for point in self.points], types[name]) for name in types}
        points = pa.table(columns | {"split": columns["split"].dictionary_encode()})  # texts once, not for each value
        sizes = np.array([len(point.values) for point in self.points], dtype=np.int64)
        table = points.take(pa.array(np.repeat(np.arange(len(sizes)), sizes)))
        values = np.fromiter(
            (value for point in self.points for value in point.values.values()), np.float64, sizes.sum()
        )
        known = {name: place for place, name in enumerate(dict.fromkeys(chain.from_iterable(self._names.values())))}
        places = np.fromiter((known[name] for point in self.points for name in point.values), np.int32, sizes.sum())
        names = pa.DictionaryArray.from_arrays(pa.array(places), pa.array(list(known), pa.string()))
        return table.append_column("name", names).append_column("value", pa.array(values))

    def _describe_views(self) -> str:
        """Say which views there are, and why one is not."""
        views = {"metrics": True, "rollouts": bool(self.rollout_files), "problems": self.has_problems}
        absent = [name for name, there in views.items() if not there]
        missing = (
            f" It has no {' and no '.join(absent)}: nothing of the kind was written or imported." if absent else ""
        )
        return f"This run has the views {', '.join(name for name in views if name not in absent)}.{missing}"


def read_points(path: Path) -> tuple[list[MetricPoint], list[Remark]]:
    """Read the metric rows of a run, with a remark on each that is not one, and on those beyond what fits memory."""
    points: list[MetricPoint] = []
    remarks: list[Remark] = []
    bad = size = 0
    names = MetricNames()
    blocks = read_json_rows(path) if is_listed(path) else ()
    for found in chain.from_iterable(map(parse_points, blocks)):  # which keeps no block while the next is read
        if isinstance(found, Remark):
            remarks.append(found)
            continue
        number, point = found
        if isinstance(point, Exception):
            bad += 1
            if bad <= MAX_ROW_REMARKS:
                remarks.append(Remark(f"not a metric row ({point!r}), left out.", str(path), number, "Delete the row."))
            continue
        points.append(replace(point, values=names.keep_known(point.values)))
        size += points[-1].size
        if size > MAX_POINTS_BYTES:
            problem = f"more metrics than fit into {MAX_POINTS_BYTES >> 20} MB; the rows behind it were left out."
            remarks.append(Remark(problem, str(path), number, "Log fewer metrics, or less often."))
            break
    if bad > MAX_ROW_REMARKS:
        remarks.append(Remark(f"{bad - MAX_ROW_REMARKS:,} more rows are no metric rows; left out.", str(path)))
    return points, remarks + names.remarks(str(path))


def parse_points(
    rows: Sequence[tuple[int, dict[str, Any]]] | Remark,
) -> Iterator[tuple[int, MetricPoint | Exception] | Remark]:
    """Yield the metric rows of a block, numbered; what is wrong with one that is none; and the block's remark."""
    if isinstance(rows, Remark):
        yield rows
        return
    for number, row in rows:
        try:
            yield number, MetricPoint.from_row(row)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            yield number, error.with_traceback(None)  # its frames hold the row


def translate_points(header: Header, points: list[MetricPoint]) -> tuple[Header, list[MetricPoint]]:
    """Translate the metric names of a run that was written live, in place; an import has done so before."""
    used: dict[str, str] = {}
    for place, point in enumerate(points):
        values, names = translate(point.values)
        used |= names
        points[place] = replace(point, values=values)
    return replace(header, names={**used, **header.names}), points


def newest_attempts(folder: Path, points: Iterable[MetricPoint]) -> tuple[list[Path], list[Remark]]:
    """List the rollout files that count: those of each step's newest whole attempt; with remarks on attempts cut short.

    An attempt has a step whole when it went on to a later one, or has as many files of it as the attempt before. Where
    it logged metrics of the next step it may still be writing this one's rollouts.
    """
    found = RolloutFiles.find(folder)
    last_step = dict(found.last_step)
    for point in points:
        place = (point.rank, point.attempt)
        last_step[place] = max(point.step - 1, last_step.get(place, point.step - 1))
    files, remarks = found.others, found.remarks
    left_behind: dict[int, int] = {}
    for (_, step), by_rank in found.steps.items():
        chosen: dict[int, int] = {}
        for rank, attempts in by_rank.items():
            for attempt, paths in sorted(attempts.items()):
                if rank not in chosen or len(paths) >= len(attempts[chosen[rank]]) or last_step[rank, attempt] > step:
                    chosen[rank] = attempt
                else:
                    problem = (
                        "its attempt was stopped inside this step, or is still in it; the rows of the one before count."
                    )
                    remarks.append(Remark(problem, str(paths[0])))
        starts = {(attempt, found.first_step[rank, attempt]) for rank, attempt in chosen.items()}
        for rank, attempt in chosen.items():
            if found.is_left_behind(rank, starts):
                left_behind[rank] = min(step, left_behind.get(rank, step))
            else:
                files += by_rank[rank][attempt]
    if left_behind:
        ranks = f"{len(left_behind)} ranks took no part in the newest attempt"
        problem = f"{ranks}; of steps that it has, from {min(left_behind.values()):,} on, their rows do not count."
        remarks.append(Remark(problem, str(folder)))
    return files, remarks


@dataclass(frozen=True)
class RolloutFiles:
    """The files in a folder of rollouts, by their names."""

    steps: dict[tuple[str, int], dict[int, dict[int, list[Path]]]] = field(default_factory=dict)
    """Files by split and step, rank, and attempt."""
    others: list[Path] = field(default_factory=list)
    """Files with other names."""
    remarks: list[Remark] = field(default_factory=list)
    """Files with names that nothing can be done with."""
    first_step: dict[tuple[int, int], int] = field(default_factory=dict)
    """First step of a rank's attempt."""
    last_step: dict[tuple[int, int], int] = field(default_factory=dict)
    """Its last step."""

    @classmethod
    def find(cls, folder: Path) -> RolloutFiles:
        """List the Parquet files of a folder."""
        files = cls()
        for path in sorted(folder.glob("*.parquet")):
            found = ROLLOUT_FILE_NAME.fullmatch(path.name)
            if found is not None:
                step, rank, attempt = map(int, found.groups()[1:4])
                by_rank = files.steps.setdefault((found[1], step), {})
                by_rank.setdefault(rank, {}).setdefault(attempt, []).append(path)
                place = (rank, attempt)
                files.first_step[place] = min(step, files.first_step.get(place, step))
                files.last_step[place] = max(step, files.last_step.get(place, step))
            elif path.name.isprintable():
                files.others.append(path)
            else:
                name = str(path).encode("utf-8", "backslashreplace").decode()
                files.remarks.append(Remark("its name is no text, left out.", name, None, "Rename or delete it."))
        return files

    @cached_property
    def newest(self) -> dict[int, int]:
        """The newest attempt of each rank."""
        return dict(sorted(self.first_step))

    def is_left_behind(self, rank: int, starts: Iterable[tuple[int, int]]) -> bool:
        """Say whether a rank took no part in the attempt that a step is read from: a run may go on with fewer ranks.

        ``starts``: the attempts that the step is read from, each with the step it began at.
        Had it taken part, its newest attempt would begin where that of the others begins. (Attempts are counted rank by
        rank: a lower number alone says nothing.)
        """
        own = self.newest[rank]
        return any(attempt > own and begun > self.first_step[rank, own] for attempt, begun in starts)


@dataclass(frozen=True)
class TableFile:
    """A readable Parquet file of a run."""

    path: Path
    """The file."""
    columns: frozenset[str]
    """Its columns."""
    rows: int
    """Its rows."""
    longest: float
    """Bytes of its longest text at most, where a few bytes on disk stand for it."""
    first: int = -(1 << 63)
    """Its first step, where the file says."""
    last: int = (1 << 63) - 1
    """Its last step, where the file says."""


def check_files(paths: Iterable[Path], check: Callable[[Path], TableFile]) -> tuple[list[TableFile], list[Remark]]:
    """Return the readable ones of the files that exist, and remarks on the others."""
    files: list[TableFile] = []
    remarks: list[Remark] = []
    for path in paths:
        try:
            if is_listed(path):
                files.append(check(path))
        except FileError as error:
            remarks.append(Remark.from_error(error))
    return files, remarks


def check_rollout_file(path: Path) -> TableFile:
    """Return what is known of a rollout file; raise when it is damaged or not one of ours."""
    return check_table_file(path, REQUIRED_COLUMNS, column_type, "step")


def check_problem_file(path: Path) -> TableFile:
    """Return what is known of the file of problems; raise when it is damaged or not one of ours."""
    schema = problem_schema()
    return check_table_file(path, ("problem",), lambda name: schema.field(name).type if name in schema.names else None)


def check_table_file(
    path: Path, required: Sequence[str], type_of: Callable[[str], pa.DataType | None], step: str | None = None
) -> TableFile:
    """Return what is known of a Parquet file; raise when it is damaged, foreign or unfolds to too much."""
    require_regular_file(path)
    with parquet_errors(path, "Delete the file, or restore it; the other steps are unaffected."):
        with path.open("rb") as file:
            table = pq.ParquetFile(file, pre_buffer=False, buffer_size=READ_BYTES)
            metadata = table.metadata
            if metadata.num_columns > MAX_COLUMNS:
                problem = f"has {metadata.num_columns:,} columns, which no run writes."
                raise BrokenFileError(path, problem, "Import it again with fewer rewards.")
            sizes = measure_groups(path, file, table, lists=False)  # DuckDB's memory is limited
            schema = metadata.schema.to_arrow_schema()
        steps = step_range(metadata, step)
        names = frozenset(schema.names)
    for name in required:
        if name not in names:
            raise BrokenFileError(
                path, f"is foreign: it has no column {name!r}.", "Import it with: breadth import FILE --to RUN"
            )
    for stored in schema:
        wanted = type_of(stored.name)
        if wanted is not None and not is_same_type(wanted, stored.type):
            raise BrokenFileError(
                path, f"is foreign: column {stored.name!r} is {stored.type}, not {wanted}.", "Import it again."
            )
    return TableFile(path, names, metadata.num_rows, max((size.longest for size in sizes), default=0), *steps)


def step_range(metadata: pq.FileMetaData, step: str | None) -> tuple[int, ...]:
    """Return the first and last step of a file by its footer; nothing where the footer does not say."""
    found: list[int] = []
    for place in range(metadata.num_row_groups if step else 0):
        group = metadata.row_group(place)
        columns = map(group.column, range(group.num_columns))
        column = next((column for column in columns if column.path_in_schema == step), None)
        statistics = column.statistics if column is not None else None
        if statistics is None or not statistics.has_min_max or statistics.null_count:
            return ()
        found += (statistics.min, statistics.max)
    return (min(found), max(found)) if found else ()


def is_same_type(wanted: pa.DataType, got: pa.DataType) -> bool:
    """Compare types, the name of a list's item aside."""
    if pa.types.is_list(wanted) and pa.types.is_list(got):
        return bool(wanted.value_type == got.value_type)
    return bool(wanted == got)


def create_view(
    connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[TableFile], types: Mapping[str, str]
) -> None:
    """Make a view in which every column of ``types`` can be asked for; what no file has is null.

    Files with the same columns are read together: DuckDB then opens each once, and not a second time to compare them.
    """
    alike: dict[frozenset[str], list[str]] = {}
    for file in files:
        alike.setdefault(file.columns.intersection(types), []).append(escape_glob(file.path))
    is_mixed = len(alike) > MAX_VIEW_PARTS
    if is_mixed:
        every = [path for paths in alike.values() for path in paths]
        alike = {frozenset(name for names in alike for name in names): every}
    parts = []
    for names, paths in alike.items():
        read = (
            quote_name(name) if name in names else f"CAST(NULL AS {kind}) AS {quote_name(name)}"
            for name, kind in types.items()
        )
        parts.append(connection.read_parquet(paths, union_by_name=is_mixed).project(", ".join(read)))
    reduce(lambda left, right: left.union(right), parts).create_view(name, replace=True)


def create_problems_view(
    connection: duckdb.DuckDBPyConnection, files: Sequence[TableFile], types: Mapping[str, str]
) -> None:
    """Make the view of problems; of one that is there more than once, one row: joined, it would double its rollouts."""
    import duckdb

    create_view(connection, "problems", files, types)
    with suppress(duckdb.Error):  # ids that cannot be read: a query that reads them says so
        repeated = connection.execute("SELECT count(problem) > count(DISTINCT problem) FROM problems").fetchall()
        if repeated == [(True,)]:
            create_view(connection, "stored_problems", files, types)
            connection.execute("CREATE OR REPLACE VIEW problems AS SELECT DISTINCT ON (problem) * FROM stored_problems")


def quote_name(name: str) -> str:
    """Return a column's name as SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def is_narrow(sql: str) -> bool:
    """Say whether a query names no column of long texts or lists; where that is not clear, it may."""
    words = set(re.findall(r"\w+", sql.lower()))
    return words.isdisjoint(WIDE_COLUMNS) and "*" not in re.sub(r"count\(\s*\*\s*\)", "", sql, flags=re.IGNORECASE)


def may_need_metrics(sql: str) -> bool:
    """Say whether a query names the metrics, or names no view that we know."""
    words = set(re.findall(r"\w+", sql.lower()))
    return "metrics" in words or words.isdisjoint({"rollouts", "problems"})


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
