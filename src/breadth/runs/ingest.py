"""Make a run folder out of foreign files: choose importers, translate names, write everything or nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

from breadth.base.atomic import write_error
from breadth.base.errors import FileError, UnknownFormatError, UnsafeFileError, WriteError
from breadth.runs.crew import take_together
from breadth.runs.header import HEADER, Header, write_header
from breadth.runs.importer import Importer, Recognised, all_importers, recognise
from breadth.runs.intake import Progress, Summary
from breadth.runs.records import Remark
from breadth.runs.schema import EntropyKind
from breadth.runs.writer import PROBLEMS

MOST_REMARKS = 200
"""Remarks kept; more say nothing new, so only their number is."""


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
        result = _import(workshop, found, remarks, progress, target.name)
        if target.exists():
            target.rmdir()
        workshop.replace(target)
    except OSError as error:
        raise write_error(target, error) from error
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
    return replace(result, folder=target)


def _import(folder: Path, found: Sequence[Recognised], remarks: Sequence[Remark], progress: Progress, name: str) -> Imported:
    summary = take_together(found, folder, progress)
    failed = [failure.remark for failure in summary.failures]
    said = sorted([*remarks, *summary.remarks, *failed], key=lambda remark: remark.file)
    if not summary.metric_rows and not summary.rollouts:
        raise summary.failures[0].error if summary.failures else _nothing_used(found, said)
    write_header(_header(name, found, summary, said), folder)
    problems = pq.read_metadata(folder / PROBLEMS).num_rows if (folder / PROBLEMS).exists() else 0
    for part in folder.glob(".part*"):
        shutil.rmtree(part)
    return Imported(folder, summary.metric_rows, summary.rollouts, problems, tuple(said))


def find(paths: Sequence[Path], importers: Sequence[Importer]) -> tuple[list[Recognised], list[Remark]]:
    """List the files to read with who reads each; inside a folder, files nobody knows are passed over with a remark."""
    found: list[Recognised] = []
    passed_over: list[FileError] = []
    for path in paths:
        for file in _files(path):
            try:
                found.append(recognise(file, importers))
            except FileError as error:
                if file == path:
                    raise
                passed_over.append(error)
    remarks = [Remark.of(error) for error in passed_over]
    if not found:
        where = paths[0] if paths else Path()
        raise UnknownFormatError(where, _nothing_found(where, remarks), "Point at the trainer's output folder or at one of its log files.")
    return current(found), _summed_up(passed_over)


def _summed_up(errors: Sequence[FileError]) -> list[Remark]:
    """Make one remark of all files of one kind that were passed over: a checkpoint folder has hundreds."""
    said = []
    for kind, words in ((UnsafeFileError, "pickles, which are never opened"), (UnknownFormatError, "of no kind we know")):
        names = [error.path.name for error in errors if isinstance(error, kind)]
        if names:
            shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            said.append(Remark(f"{len(names)} files were passed over as {words}: {shown}."))
    return said + [Remark.of(error) for error in errors if not isinstance(error, UnsafeFileError | UnknownFormatError)]


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


def current(found: Sequence[Recognised]) -> list[Recognised]:
    """Drop files that others of the list already contain, as older checkpoints' copies of one log are."""
    kept: set[Path] = set()
    for importer in {id(one.importer): one.importer for one in found}.values():
        kept.update(importer.current([one.path for one in found if one.importer is importer]))
    return [one for one in found if one.path in kept]


def _header(name: str, found: Sequence[Recognised], summary: Summary, remarks: Sequence[Remark]) -> Header:
    trainers = {one.importer.trainer: one.importer for one in found}
    trainer = next((known for known in trainers if known not in ("generic", "tensorboard")), next(iter(trainers)))
    kind = _with_temperature(summary.entropy or trainers[trainer].entropy, summary.config)
    logged = ["entropy"] if "entropy" in summary.names or summary.token_entropy else []
    return Header(
        name=name,
        trainer=trainer,
        files=tuple(str(one.path) for one in found),
        names=summary.names,
        entropies=dict.fromkeys(logged, kind),
        reward_levels=summary.levels if len(summary.levels) == 2 else (),
        config=summary.config,
        remarks=tuple(remarks[:MOST_REMARKS]),
        remarks_left_out=max(0, len(remarks) - MOST_REMARKS),
    )


def _nothing_used(found: Sequence[Recognised], remarks: Sequence[Remark]) -> FileError:
    first = remarks[0] if remarks else Remark("it has no rows.")
    return UnknownFormatError(found[0].path, f"holds no rows that can be used: {first.problem}", first.remedy or "Choose another file.")


def _with_temperature(kind: EntropyKind, config: Mapping[str, object]) -> EntropyKind:
    temperature = config.get("temperature")
    return replace(kind, temperature=float(temperature)) if isinstance(temperature, int | float) else kind
