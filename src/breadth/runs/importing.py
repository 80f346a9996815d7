"""Import a trainer's files into a new run folder: choose importers, translate metric names, write all or nothing."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breadth.base import errors
from breadth.base.catalogue import LazyModule
from breadth.base.errors import (
    FileError,
    UnknownFormatError,
    UnsafeFileError,
    WriteError,
    redact_address,
    redact_settings,
)
from breadth.base.system import refuse_address, remove_stale_files, temporary_name, write_error
from breadth.runs.importer import Importer, RecognisedFile, all_importers, recognise
from breadth.runs.names import translate
from breadth.runs.paths import is_folder, is_regular_file, walk_folder
from breadth.runs.reader import MAX_POINTS_BYTES, RestartDetector, Run
from breadth.runs.schema import (
    HEADER_FILE,
    PROBLEM_COLUMN_NAMES,
    EntropyKind,
    Header,
    LoggedConfig,
    LoggedEntropyKind,
    MetricNames,
    MetricPoint,
    MetricRow,
    Record,
    Remark,
    RolloutBatch,
    Split,
    to_toml_value,
    write_header,
)
from breadth.runs.writer import PROBLEMS_FILE, ProblemWriter, RunWriter

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
else:
    pa, pq = LazyModule("pyarrow"), LazyModule("pyarrow.parquet")

Progress = Callable[[str], None]
"""Called with a sentence on how far the import is."""
Share = Sequence[tuple[int, RecognisedFile]]
"""Files to take, each with its place in the whole import."""
ROWS_PER_FILE = 16_384
"""Rollouts that become one file; a file of the source is never joined with the next."""
BYTES_PER_FILE = 64 << 20
"""Bytes of rollouts that become one file, where that is fewer rows: several files wait in memory to be written; and of
metrics that are written at once.
"""


@dataclass(frozen=True)
class ImportFailure:
    """A file that could not be read to its end, in a form that crosses processes."""

    kind: str
    """Class of the error."""
    remark: Remark
    """Its message."""

    @classmethod
    def from_error(cls, error: FileError) -> ImportFailure:
        """Keep an error."""
        return cls(type(error).__name__, Remark.from_error(error))

    @property
    def error(self) -> FileError:
        """The error again."""
        kind: type[FileError] = getattr(errors, self.kind, errors.BrokenFileError)
        return kind(self.remark.file, self.remark.problem, self.remark.remedy, row=self.remark.row)


@dataclass(frozen=True)
class ImportSummary:
    """What was read from some files, beyond the rows that are already in the folder."""

    metric_rows: int = 0
    """Rows of metrics written."""
    rollouts: int = 0
    """Rollouts written."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Our metric name -> the trainer's."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Settings seen."""
    entropy: EntropyKind | None = None
    """Which entropy it is, where a file says so."""
    token_entropy: bool = False
    """Whether rollouts carry entropy for each token."""
    levels: tuple[float, ...] = ()
    """Up to three distinct rewards: three or more mean that the reward grades nothing."""
    remarks: tuple[Remark, ...] = ()
    """What was odd."""
    failures: tuple[ImportFailure, ...] = ()
    """Files that could not be read to their end."""

    def __add__(self, other: ImportSummary) -> ImportSummary:
        renamed = [
            Remark(f"{ours} is {self.names[ours]} in some rows and {theirs} in others.")
            for ours, theirs in other.names.items()
            if self.names.get(ours, theirs) != theirs
        ]
        return ImportSummary(
            self.metric_rows + other.metric_rows,
            self.rollouts + other.rollouts,
            {**other.names, **self.names},
            {**self.config, **other.config},
            other.entropy or self.entropy,
            self.token_entropy or other.token_entropy,
            tuple(sorted({*self.levels, *other.levels}))[:3],
            (*self.remarks, *other.remarks, *renamed),
            (*self.failures, *other.failures),
        )


def import_share(share: Share, folder: Path, progress: Progress) -> ImportSummary:
    """Read every file of the share into the folder."""
    return _FolderIntake(folder, progress).run(share)


class _LogIntake:
    """Logs on their way into memory; rollouts are refused, because they may be larger than memory."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.remarks: list[Remark] = []
        self.failures: list[ImportFailure] = []
        self.names: dict[str, str] = {}
        self.config: dict[str, object] = {}
        self.metric_rows = self.rollouts = 0
        self.entropy: EntropyKind | None = None
        self.token_entropy = False
        self.levels: set[float] = set()
        self.renamed: set[str] = set()
        self.points: list[MetricPoint] = []
        self.points_size = 0
        self.metric_names = MetricNames()

    def run(self, share: Share) -> ImportSummary:
        for source, file in share:
            self.progress(f"{file.path.name} ({file.importer.trainer} {file.kind})")
            try:
                self._take_all(file.importer.read(file.path, file.kind), source, file.path)
            except FileError as error:
                self.failures.append(ImportFailure.from_error(error))
            self.end_file()
        self.remarks += self.metric_names.remarks("")
        return ImportSummary(
            self.metric_rows,
            self.rollouts,
            self.names,
            self.config,
            self.entropy,
            self.token_entropy,
            tuple(sorted(self.levels))[:3],
            tuple(self.remarks),
            tuple(self.failures),
        )

    def _take_all(self, records: Iterable[Record], source: int, path: Path) -> None:
        steps = {"train": _Steps(), "eval": _Steps()}
        for record in records:
            if isinstance(record, MetricRow):
                self._take_metrics(record, source, steps[record.split], path)
            elif isinstance(record, RolloutBatch):
                self.take_rollouts(record)
            elif isinstance(record, LoggedConfig):
                self.config.update(redact_settings(to_toml_value(record.table)))
            elif isinstance(record, LoggedEntropyKind):
                self.entropy = record.kind
            else:
                self.remarks.append(record)
        for counter in steps.values():
            self.remarks += counter.remarks(str(path))

    def _take_metrics(self, row: MetricRow, source: int, steps: _Steps, path: Path) -> None:
        values, used = translate(row.values)
        for ours, theirs in used.items():
            if self.names.setdefault(ours, theirs) != theirs and ours not in self.renamed:
                self.renamed.add(ours)
                self.remarks.append(
                    Remark(f"{ours} is {self.names[ours]} in some rows and {theirs} in others.", str(path))
                )
        step, attempt = steps.place(row, values.keys())
        numbers = self.metric_names.keep_known({name: float(value) for name, value in values.items()})
        self.take_point(MetricPoint(step, numbers, row.split, 0, attempt, source, row.time))
        self.metric_rows += 1

    def take_point(self, point: MetricPoint) -> None:
        self.points.append(point)
        self.points_size += point.size
        if self.points_size > MAX_POINTS_BYTES:
            raise _NeedsFolder(len(self.points))

    def take_rollouts(self, batch: RolloutBatch) -> None:
        raise _NeedsFolder(len(batch.table))

    def end_file(self) -> None:
        """Finish what belongs to the file just read."""


class _NeedsFolder(Exception):  # noqa: N818 - a signal between the two below, no error
    """A log that was to be read into memory holds rollouts, or more metrics than fit."""


class _FolderIntake(_LogIntake):
    """A share on its way into a run folder."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        super().__init__(progress)
        self.writer = RunWriter(folder, flush=False)  # the source is still there if the power goes
        self.problems = ProblemWriter(folder / PROBLEMS_FILE)
        self.waiting: dict[Split, list[pa.Table]] = {"train": [], "eval": []}
        self.pool = ThreadPoolExecutor(1)
        self.pending: list[Future[Path]] = []

    def run(self, share: Share) -> ImportSummary:
        with self.pool:
            summary = super().run(share)
            self._settle(0)
        self.problems.close()
        return summary

    def take_point(self, point: MetricPoint) -> None:
        self.points.append(point)
        self.points_size += point.size
        if self.points_size >= BYTES_PER_FILE:
            self._store_points()

    def take_rollouts(self, batch: RolloutBatch) -> None:
        waiting = self.waiting[batch.split]
        waiting.append(batch.table)
        if sum(map(len, waiting)) >= ROWS_PER_FILE or sum(table.nbytes for table in waiting) >= BYTES_PER_FILE:
            self._store(batch.split)

    def end_file(self) -> None:
        for split in self.waiting:
            self._store(split)
        self._store_points()

    def _store_points(self) -> None:
        """Write the rows of metrics that wait: one at a time would open the file again for each."""
        if self.points:
            self.writer.points(self.points)
            self.points.clear()
            self.points_size = 0

    def _store(self, split: Split) -> None:
        """Hand the batches that wait to the writing thread, as one file."""
        tables = [table for table in self.waiting[split] if len(table)]
        self.waiting[split] = []
        if not tables:
            return
        table = pa.concat_tables(tables, promote_options="default")
        self.problems.add(table)
        table = table.drop_columns(
            [name for name in PROBLEM_COLUMN_NAMES if name != "problem" and name in table.column_names]
        )
        if "reward" in table.column_names and len(self.levels) < 3:
            levels = table.column("reward").unique().to_pylist()
            self.levels.update([level for level in levels if level is not None and math.isfinite(level)][:3])
        self.token_entropy |= "entropy" in table.column_names
        self._settle(2)
        self.pending.append(self.pool.submit(self._write, table, split))
        self.rollouts += len(table)
        self.progress(f"{self.rollouts:,} rollouts")

    def _write(self, table: pa.Table, split: Split) -> Path:
        import pyarrow.compute as pc  # slow to load, and most logs hold no rollouts

        return self.writer.rollouts(table, int(pc.min(table.column("step")).as_py() or 0), split=split, attempt=0)

    def _settle(self, most: int) -> None:
        """Wait until at most so many files are still being written; the first failure stops the import."""
        while len(self.pending) > most:
            self.pending.pop(0).result()


class _Steps:
    """Numbers the rows of one log: the step it prints (or the row's place), and which restart it belongs to."""

    def __init__(self) -> None:
        self.last, self.attempt, self.time = -1, 0, float("-inf")
        self.names: set[str] = set()
        self.starts = RestartDetector()
        self.unnumbered = self.restarts = self.others = self.clock = 0

    def place(self, row: MetricRow, names: Iterable[str]) -> tuple[int, int]:
        fresh = set(names) - {"epoch"}
        step = row.step
        if step is None:
            self.unnumbered += 1
            step = self.last + 1 if self.last >= 0 else 1
        back = step < self.last or (step == self.last and bool(fresh & self.names))
        is_new_run = self.starts.starts_new_run(step, back=back)
        self.attempt += back
        self.others += is_new_run
        self.restarts += back and not is_new_run
        self.names = fresh if step != self.last else self.names | fresh
        self.last = step
        if row.time is not None:
            self.clock += row.time < self.time
            self.time = row.time
        return step, self.attempt

    def remarks(self, file: str) -> list[Remark]:
        remarks = []
        if self.unnumbered:
            remarks.append(Remark(f"{self.unnumbered} rows carry no step; they were numbered in order, from 1.", file))
        if self.others:
            remarks.append(
                Remark(
                    f"the steps start over {self.others} times: {self.others + 1} runs in one log; the last one"
                    " counts.",
                    file,
                )
            )
        if self.restarts:
            remarks.append(
                Remark(
                    f"the step went back {self.restarts} times (a restart); the newest attempt of each step counts.",
                    file,
                )
            )
        if self.clock:
            remarks.append(
                Remark(f"the clock went backwards {self.clock} times; rows keep the order of the file.", file)
            )
        return remarks


MAX_REMARKS = 200
"""Remarks kept; of further ones only their number is."""


@dataclass(frozen=True)
class ImportResult:
    """What an import brought in."""

    folder: Path
    """The run folder made."""
    metric_rows: int
    """Rows of metrics."""
    rollouts: int
    """Rollouts."""
    problems: int
    """Distinct problems."""
    remarks: tuple[Remark, ...]
    """What was odd about the input."""


def import_files(
    paths: Sequence[Path],
    target: Path,
    *,
    importers: Sequence[Importer] | None = None,
    progress: Progress = lambda _: None,
) -> ImportResult:
    """Import the files of one run into a new run folder; on any failure nothing is left behind.

    Files of several runs are refused: pooled, they would be a run that nobody made.
    """
    from breadth.runs.grouping import group_by_run  # it imports this module

    for place in (*paths, target):
        refuse_address(place, "an import reads and writes files of this machine")

    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise WriteError(
            target, "exists already.", "Choose another name, or delete it first; an import never overwrites."
        )
    found, remarks = find_files(paths, importers or all_importers())
    names = [name for name, _ in group_by_run(found)]
    if len(names) > 1:
        raise UnknownFormatError(
            paths[0],
            f"holds {len(names)} runs: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}.",
            "Import them one by one, or each into a folder of its own with: breadth import PATH... --to FOLDER",
        )
    return import_recognised(found, target, remarks=remarks, progress=progress)


def import_recognised(
    found: Sequence[RecognisedFile],
    target: Path,
    *,
    remarks: Sequence[Remark] = (),
    progress: Progress = lambda _: None,
) -> ImportResult:
    """Import files whose importers are known into a new run folder; on any failure nothing is left behind."""
    remove_stale_files(target.parent)
    workshop = temporary_name(target)
    try:
        result = _import(workshop, found, remarks, progress, target.name)
        if target.exists():
            target.rmdir()
        workshop.replace(target)
    except OSError as error:
        raise write_error(target, error) from error
    except WriteError as error:
        raise WriteError(target, error.problem.removeprefix(f"{error.path}: "), error.remedy) from error
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return replace(result, folder=target)


def _import(
    folder: Path, found: Sequence[RecognisedFile], remarks: Sequence[Remark], progress: Progress, name: str
) -> ImportResult:
    from breadth.runs.parallel_import import import_parallel  # it imports this module for its own share

    summary = import_parallel(found, folder, progress)
    every = usable_remarks(found, summary, remarks)
    write_header(make_header(name, found, summary, every), folder)
    problems = pq.read_metadata(folder / PROBLEMS_FILE).num_rows if (folder / PROBLEMS_FILE).exists() else 0
    for part in folder.glob(".part*"):
        shutil.rmtree(part)
    return ImportResult(folder, summary.metric_rows, summary.rollouts, problems, tuple(every))


def read_logs(found: Sequence[RecognisedFile], progress: Progress = lambda _: None) -> Run | None:
    """Read the logs of one run into memory and write nothing; None where they need a folder, as rollouts do."""
    intake = _LogIntake(progress)
    try:
        summary = intake.run(list(enumerate(found)))
    except _NeedsFolder:
        return None
    header = make_header(found[0].path.stem, found, summary, usable_remarks(found, summary, ()))
    return Run.from_points(found[0].path, header, intake.points)


def usable_remarks(found: Sequence[RecognisedFile], summary: ImportSummary, remarks: Sequence[Remark]) -> list[Remark]:
    """Return all remarks by file; raise where the import brought in no row."""
    failed = [failure.remark for failure in summary.failures]
    every = sorted([*remarks, *summary.remarks, *failed], key=lambda remark: remark.file)
    if not summary.metric_rows and not summary.rollouts:
        raise summary.failures[0].error if summary.failures else no_usable_rows(found, every)
    return every


def find_files(paths: Sequence[Path], importers: Sequence[Importer]) -> tuple[list[RecognisedFile], list[Remark]]:
    """List the files to read, each with its importer; inside a folder, unknown files are passed over with a remark."""
    found: list[RecognisedFile] = []
    passed_over: list[FileError] = []
    for path in paths:
        for file in list_files(path):
            try:
                found.append(recognise(file, importers))
            except FileError as error:
                if file == path:
                    raise
                passed_over.append(error)
    remarks = [Remark.from_error(error) for error in passed_over]
    if not found:
        where = paths[0] if paths else Path()
        raise UnknownFormatError(
            where,
            describe_nothing_found(where, remarks),
            "Point at the trainer's output folder or at one of its log files.",
        )
    return drop_contained_files(found), summarise_skipped(passed_over)


def summarise_skipped(errors: Sequence[FileError]) -> list[Remark]:
    """Make one remark of all files of one kind that were passed over: a checkpoint folder has hundreds."""
    remarks = []
    for kind, words in (
        (UnsafeFileError, "pickles, which are never opened"),
        (UnknownFormatError, "of no kind we know"),
    ):
        names = [error.path.name for error in errors if isinstance(error, kind)]
        if names:
            shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            remarks.append(Remark(f"{len(names)} files were passed over as {words}: {shown}."))
    return remarks + [
        Remark.from_error(error) for error in errors if not isinstance(error, UnsafeFileError | UnknownFormatError)
    ]


def describe_nothing_found(where: Path, remarks: Sequence[Remark]) -> str:
    """Say why a place holds nothing to import."""
    if not remarks:
        return "is an empty folder." if where.is_dir() else "holds nothing to import."
    return (
        f"holds {len(remarks)} files and none that we can read; the first: {Path(remarks[0].file).name}"
        f" {remarks[0].problem}"
    )


def list_files(path: Path) -> list[Path]:
    """List the files of a path: itself, or all inside a folder but hidden ones."""
    if not is_folder(path):
        return [path]
    if is_regular_file(path / HEADER_FILE):
        raise UnknownFormatError(path, "is a run folder already.", "Look at it with: breadth show RUN")
    return walk_folder(path)


def drop_contained_files(found: Sequence[RecognisedFile]) -> list[RecognisedFile]:
    """Drop files that others of the list already contain, as older checkpoints' copies of one log are."""
    kept: set[Path] = set()
    for importer in {id(file.importer): file.importer for file in found}.values():
        kept.update(importer.current([file.path for file in found if file.importer is importer]))
    return [file for file in found if file.path in kept]


def make_header(
    name: str, found: Sequence[RecognisedFile], summary: ImportSummary, remarks: Sequence[Remark]
) -> Header:
    """Return the header of an imported run."""
    trainers = {file.importer.trainer: file.importer for file in found}
    trainer = next((known for known in trainers if known not in ("generic", "tensorboard")), next(iter(trainers)))
    kind, temperature = summary.entropy or trainers[trainer].entropy, summary.config.get("temperature")
    if isinstance(temperature, int | float):
        kind = replace(kind, temperature=float(temperature))
    logged = ["entropy"] if "entropy" in summary.names or summary.token_entropy else []
    return Header(
        name=name,
        trainer=trainer,
        files=tuple(redact_address(str(file.path)) for file in found),
        names=summary.names,
        entropies=dict.fromkeys(logged, kind),
        reward_levels=summary.levels if len(summary.levels) == 2 else (),
        config=summary.config,
        remarks=tuple(remarks[:MAX_REMARKS]),
        remarks_left_out=max(0, len(remarks) - MAX_REMARKS),
    )


def no_usable_rows(found: Sequence[RecognisedFile], remarks: Sequence[Remark]) -> FileError:
    """Return the error of files that hold no usable rows."""
    first = remarks[0] if remarks else Remark("it has no rows.")
    return UnknownFormatError(
        found[0].path, f"holds no rows that can be used: {first.problem}", first.remedy or "Choose another file."
    )
