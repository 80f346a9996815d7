"""Divide a large import among the machine's cores: each process imports some files, then their folders are joined."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from breadth.base import settings
from breadth.base.errors import BreadthError
from breadth.base.system import available_cores
from breadth.runs.importer import IMPORTERS, Importer, RecognisedFile
from breadth.runs.importing import ImportSummary, Progress, Share, import_share
from breadth.runs.parquet import read_parquet_batches
from breadth.runs.writer import (
    METRICS_FILE,
    PROBLEMS_FILE,
    ROLLOUT_FILE_NAME,
    ROLLOUTS_FOLDER,
    ProblemWriter,
    free_paths,
)

MIN_PARALLEL_BYTES = 64 << 20
"""Bytes below which one process is about done when a second one has started (half a second to a second)."""
HEAD_START_BYTES = 48 << 20
"""Bytes this process has read, roughly, by the time another one is up and reading."""
MAX_PROCESSES = 4
"""Processes at most; more were never tried."""
JOB_FILE, SUMMARY_FILE = "job.toml", "summary.toml"


@dataclass(frozen=True)
class ImportJobFile:
    """A file for another process to import."""

    source: int
    """Its place in the whole import."""
    path: str
    """Its path."""
    importer: str
    """The importer that reads it, by catalogue name."""
    kind: str
    """What kind of file it is."""


@dataclass(frozen=True)
class ImportJob:
    """A share of an import for another process."""

    files: tuple[ImportJobFile, ...]
    """The files."""


def import_parallel(found: Sequence[RecognisedFile], folder: Path, progress: Progress) -> ImportSummary:
    """Read all files into the folder, with as many processes as pay; the result does not depend on how many."""
    shares = divide_files(list(enumerate(found)))
    parts = [folder / f".part{number}" for number in range(1, len(shares))]
    workers = [start_worker(share, part) for share, part in zip(shares[1:], parts, strict=True)]
    try:
        summary = import_share(shares[0], folder, progress)
        for worker, part, share in zip(workers, parts, shares[1:], strict=True):
            progress(f"{summary.rollouts:,} rollouts here; waiting for another process")
            summary += _join_worker(worker, share, part, folder, progress)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    merge_problems([folder / PROBLEMS_FILE, *(part / PROBLEMS_FILE for part in parts)], folder / PROBLEMS_FILE)
    return summary


def size_or_zero(path: Path) -> int:
    """Return a file's size; 0 where it cannot be asked: reading the file will say why."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def divide_files(files: Share) -> list[list[tuple[int, RecognisedFile]]]:
    """Divide files into shares of about equal size; into one when more would not pay or an importer is not listed."""
    sizes = {place: size_or_zero(file.path) for place, file in files}
    known = all(map(is_in_catalogue, {id(file.importer): file.importer for _, file in files}.values()))
    count = (
        min(MAX_PROCESSES, available_cores(), len(files)) if known and sum(sizes.values()) >= MIN_PARALLEL_BYTES else 1
    )
    shares: list[list[tuple[int, RecognisedFile]]] = [[] for _ in range(count)]
    loads = [0] + [HEAD_START_BYTES] * (count - 1)
    for place, file in sorted(files, key=lambda entry: -sizes[entry[0]]):
        least = loads.index(min(loads))
        shares[least].append((place, file))
        loads[least] += sizes[place]
    return [sorted(share, key=lambda entry: entry[0]) for share in shares if share]


def is_in_catalogue(importer: Importer) -> bool:
    """Say whether another process finds this importer by name."""
    return importer.trainer in IMPORTERS.names() and IMPORTERS.load(importer.trainer) == importer


def start_worker(share: Share, part: Path) -> subprocess.Popen[bytes]:
    """Start a process that imports a share into the folder ``part``."""
    part.mkdir(parents=True)
    files = tuple(
        ImportJobFile(place, str(file.path.absolute()), file.importer.trainer, file.kind) for place, file in share
    )
    settings.dump(ImportJob(files), part / JOB_FILE)
    return subprocess.Popen([sys.executable, "-m", "breadth.runs.parallel_import", str(part)], stdin=subprocess.PIPE)  # noqa: S603 - our own module


def _join_worker(
    worker: subprocess.Popen[bytes], share: Share, part: Path, folder: Path, progress: Progress
) -> ImportSummary:
    """Wait for a process and join its folder to ours; do its share here where it failed, to raise its error here."""
    if worker.wait() == 0:
        summary = settings.load(ImportSummary, part / SUMMARY_FILE)
    else:
        shutil.rmtree(part)
        summary = import_share(share, part, progress)
    for path in sorted((part / ROLLOUTS_FOLDER).glob("*.parquet")):
        stem = path.name.rpartition("-p")[0] if ROLLOUT_FILE_NAME.fullmatch(path.name) else path.stem
        path.replace(next(free_paths(folder / ROLLOUTS_FOLDER, stem)))
    if (part / METRICS_FILE).exists():
        with (folder / METRICS_FILE).open("ab") as file:
            file.write((part / METRICS_FILE).read_bytes())
    return summary


def merge_problems(parts: Sequence[Path], target: Path) -> None:
    """Merge problem files into one, each problem once."""
    there = [path for path in parts if path.exists()]
    if there in ([], [target]):
        return
    merged = target.with_name(f".{target.name}.merged")
    sink = ProblemWriter(merged)
    for path in there:
        for batch in read_parquet_batches(path):
            sink.add(pa.table(batch))
    sink.close()
    merged.replace(target)


def do_share(part: Path) -> None:
    """Do the share described in a folder; exit when the parent process is gone."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    job = settings.load(ImportJob, part / JOB_FILE)
    share = [
        (file.source, RecognisedFile(Path(file.path), IMPORTERS.load(file.importer), file.kind)) for file in job.files
    ]
    settings.dump(import_share(share, part, lambda _: None), part / SUMMARY_FILE)


def _exit_with_parent() -> None:
    os.read(sys.stdin.fileno(), 1)  # nothing is ever written: this returns when the parent's end closes
    os._exit(1)


if __name__ == "__main__":
    try:
        do_share(Path(sys.argv[1]))
    except (BreadthError, OSError):
        sys.exit(1)  # the parent does the share again and meets the error itself
