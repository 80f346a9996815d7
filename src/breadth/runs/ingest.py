"""Make a run folder out of foreign files: choose importers, translate names, write everything or nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from breadth.base.atomic import write_error
from breadth.base.errors import BreadthError, FileError, UnknownFormatError, WriteError
from breadth.runs.header import HEADER, Header, storable
from breadth.runs.importer import Importer, Recognised, all_importers, recognise
from breadth.runs.names import translate
from breadth.runs.problems import ProblemSink
from breadth.runs.records import MetricRow, Record, Remark, RolloutBatch, SeenEntropy, SeenSettings
from breadth.runs.schema import PROBLEM_SCHEMA, EntropyKind, Split
from breadth.runs.writer import PROBLEMS, RunWriter

MOST_REMARKS = 200
"""Remarks kept; more say nothing new, so only their number is."""

Progress = Callable[[str], None]
"""Called with a sentence on how far the import is."""


@dataclass(frozen=True)
class Imported:
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
    paths: Sequence[Path], target: Path, *, importers: Sequence[Importer] | None = None, progress: Progress = lambda _: None
) -> Imported:
    """Import files and folders into a new run folder; on any failure nothing is left behind."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise WriteError(target, "exists already.", "Choose another name, or delete it first; an import never overwrites.")
    found, remarks = find(paths, importers or all_importers())
    workshop = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        result = _Ingest(workshop, found, remarks, progress).run(target.name)
        if target.exists():
            target.rmdir()
        workshop.replace(target)
    except OSError as error:
        raise write_error(target, error) from error
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return replace(result, folder=target)


def find(paths: Sequence[Path], importers: Sequence[Importer]) -> tuple[list[Recognised], list[Remark]]:
    """List the files to read with who reads each; inside a folder, files nobody knows are passed over with a remark."""
    found: list[Recognised] = []
    remarks: list[Remark] = []
    for path in paths:
        inside = _files(path)
        for file in inside:
            try:
                found.append(recognise(file, importers))
            except FileError as error:
                if file == path:
                    raise
                remarks.append(Remark.of(error))
    if not found:
        where = paths[0] if paths else Path()
        raise UnknownFormatError(where, _nothing_found(where, remarks), "Point at the trainer's output folder or at one of its log files.")
    return _current(found), remarks


def _nothing_found(where: Path, remarks: Sequence[Remark]) -> str:
    if not remarks:
        return "is an empty folder." if where.is_dir() else "holds nothing to import."
    return f"holds {len(remarks)} files and none that we can read; the first: {Path(remarks[0].file).name} {remarks[0].problem}"


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    if (path / HEADER).is_file():
        raise UnknownFormatError(path, "is a run folder already.", "Look at it with: breadth show RUN")
    inside = sorted(file for file in path.rglob("*") if file.is_file())
    return [file for file in inside if not any(part.startswith(".") for part in file.relative_to(path).parts)]


def _current(found: Sequence[Recognised]) -> list[Recognised]:
    kept: set[Path] = set()
    for importer in {id(one.importer): one.importer for one in found}.values():
        kept.update(importer.current([one.path for one in found if one.importer is importer]))
    return [one for one in found if one.path in kept]


class _Ingest:
    """One import under way."""

    def __init__(self, folder: Path, found: Sequence[Recognised], remarks: Sequence[Remark], progress: Progress) -> None:
        self.found, self.remarks, self.progress = found, list(remarks), progress
        self.writer = RunWriter(folder, flush=False)  # the source is still there if the power goes
        self.problems = ProblemSink(folder / PROBLEMS)
        self.names: dict[str, str] = {}
        self.config: dict[str, object] = {}
        self.metric_rows = self.rollouts = 0
        self.entropy: EntropyKind | None = None
        self.token_entropy = False
        self.levels: set[float] = set()
        self.renamed: set[str] = set()
        self.pool = ThreadPoolExecutor(1)
        self.pending: list[Future[Path]] = []

    def run(self, name: str) -> Imported:
        failures: list[BreadthError] = []
        with self.pool:
            for source, one in enumerate(self.found):
                self.progress(f"file {source + 1} of {len(self.found)}: {one.path.name} ({one.importer.trainer} {one.kind})")
                try:
                    self._take_all(one.importer.read(one.path, one.kind), source, one.path)
                except FileError as error:
                    failures.append(error)
                    self.remarks.append(Remark.of(error))
            self._settle(0)
        self.problems.close()
        if not self.metric_rows and not self.rollouts:
            raise failures[0] if failures else self._nothing()
        self.writer.describe(self._header(name))
        return Imported(self.writer.folder, self.metric_rows, self.rollouts, len(self.problems), tuple(self.remarks))

    def _take_all(self, records: Iterable[Record], source: int, path: Path) -> None:
        steps = {"train": _Steps(), "eval": _Steps()}
        for record in records:
            if isinstance(record, MetricRow):
                self._take_metrics(record, source, steps[record.split], path)
            elif isinstance(record, RolloutBatch):
                self._take_rollouts(record)
            elif isinstance(record, SeenSettings):
                self.config.update(storable(record.table))
            elif isinstance(record, SeenEntropy):
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
                self.remarks.append(Remark(f"{ours} is {self.names[ours]} in some rows and {theirs} in others.", str(path)))
        step, attempt = steps.place(row, values.keys())
        self.writer.metrics(step, values, split=row.split, time=row.time, attempt=attempt, source=source)
        self.metric_rows += 1

    def _take_rollouts(self, batch: RolloutBatch) -> None:
        table = batch.table
        if not len(table):
            return
        self.problems.add(table)
        table = table.drop_columns([name for name in PROBLEM_SCHEMA.names if name != "problem" and name in table.column_names])
        self._note_levels(table)
        self.token_entropy |= "entropy" in table.column_names
        self._settle(2)
        self.pending.append(self.pool.submit(self._write, table, batch.split))
        self.rollouts += len(table)
        self.progress(f"{self.rollouts:,} rollouts")

    def _write(self, table: pa.Table, split: Split) -> Path:
        return self.writer.rollouts(table, int(pc.min(table.column("step")).as_py() or 0), split=split, attempt=0)

    def _settle(self, most: int) -> None:
        """Wait until at most so many files are still being written; the first failure stops the import."""
        while len(self.pending) > most:
            self.pending.pop(0).result()

    def _note_levels(self, table: pa.Table) -> None:
        if "reward" in table.column_names and len(self.levels) < 3:
            self.levels.update(value for value in pc.unique(table.column("reward")).to_pylist()[:3] if value is not None)

    def _header(self, name: str) -> Header:
        trainers = {one.importer.trainer: one.importer for one in self.found}
        trainer = next((known for known in trainers if known not in ("generic", "tensorboard")), next(iter(trainers)))
        kind = _with_temperature(self.entropy or trainers[trainer].entropy, self.config)
        logged = ["entropy"] if "entropy" in self.names or self.token_entropy else []
        return Header(
            name=name,
            trainer=trainer,
            files=tuple(str(one.path) for one in self.found),
            names=self.names,
            entropies=dict.fromkeys(logged, kind),
            reward_levels=tuple(sorted(self.levels)) if len(self.levels) == 2 else (),
            config=self.config,
            remarks=tuple(self.remarks[:MOST_REMARKS]),
            remarks_left_out=max(0, len(self.remarks) - MOST_REMARKS),
        )

    def _nothing(self) -> BreadthError:
        first = self.remarks[0] if self.remarks else Remark("it has no rows.")
        where = self.found[0].path
        return UnknownFormatError(where, f"holds no rows that can be used: {first.problem}", first.remedy or "Choose another file.")


class _Steps:
    """Numbers the rows of one log: the step it prints (or the row's place), and which restart it belongs to."""

    def __init__(self) -> None:
        self.last, self.attempt, self.time = -1, 0, float("-inf")
        self.names: set[str] = set()
        self.unnumbered = self.restarts = self.clock = 0

    def place(self, row: MetricRow, names: Iterable[str]) -> tuple[int, int]:
        fresh = set(names) - {"epoch"}
        step = row.step
        if step is None:
            self.unnumbered += 1
            step = self.last + 1 if self.last >= 0 else 1
        if step < self.last or (step == self.last and fresh & self.names):
            self.attempt += 1
            self.restarts += 1
        self.names = fresh if step != self.last else self.names | fresh
        self.last = step
        if row.time is not None:
            self.clock += row.time < self.time
            self.time = row.time
        return step, self.attempt

    def remarks(self, file: str) -> list[Remark]:
        said = []
        if self.unnumbered:
            said.append(Remark(f"{self.unnumbered} rows carry no step; they were numbered in order, from 1.", file))
        if self.restarts:
            said.append(Remark(f"the step went back {self.restarts} times (a restart); the newest attempt of each step counts.", file))
        if self.clock:
            said.append(Remark(f"the clock went backwards {self.clock} times; rows keep the order of the file.", file))
        return said


def _with_temperature(kind: EntropyKind, config: dict[str, object]) -> EntropyKind:
    temperature = config.get("temperature")
    return replace(kind, temperature=float(temperature)) if isinstance(temperature, int | float) else kind
