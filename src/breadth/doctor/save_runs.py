"""Import what the paths hold into run folders, one per run: all of them or none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from breadth.base.errors import UnknownFormatError, WriteError
from breadth.base.system import refuse_address, remove_stale_files, temporary_name, write_error
from breadth.doctor.collect import classify_files, import_runs, no_runs_error
from breadth.runs.grouping import folder_name, make_unique
from breadth.runs.importer import Importer, RecognisedFile, all_importers
from breadth.runs.importing import ImportResult, drop_contained_files, import_recognised, summarise_skipped
from breadth.runs.reader import Run
from breadth.runs.schema import Remark, read_header, write_header
from breadth.runs.writer import METRICS_FILE, RunWriter


@dataclass(frozen=True)
class SavedRuns:
    """The run folders that an import made."""

    runs: tuple[ImportResult, ...]
    """One per run: the target itself for a single run, folders in it for several."""
    unused: tuple[Remark, ...]
    """Files that were not read, each with the reason."""


def save_runs(
    paths: Sequence[Path],
    target: Path,
    *,
    importers: Sequence[Importer] | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> SavedRuns:
    """Import files and folders: one run becomes the folder ``target``, several become one folder each inside it.

    Which files make a run is decided as for the doctor. On any failure nothing is left behind.
    """
    for place in (*paths, target):
        refuse_address(place, "an import reads and writes files of this machine")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise WriteError(
            target, "exists already.", "Choose another name, or delete it first; an import never overwrites."
        )
    sources = classify_files(paths, importers or all_importers(), only_runs=True)
    if sources.folders:
        raise UnknownFormatError(
            sources.folders[0],
            "is a run folder already.",
            "Look at it with: breadth show RUN. Import only other files.",
        )
    skipped = summarise_skipped(sources.refused)
    with fill_folder(target) as workshop:

        def import_group(name: str, group: Sequence[RecognisedFile]) -> ImportResult:
            (wanted,) = make_unique([folder_name(name)], taken=[folder.name for folder in workshop.iterdir()])
            files = drop_contained_files(group)
            return import_recognised(files, workshop / wanted, remarks=skipped, progress=on_progress)

        imported = [result for _, result in import_runs(sources, import_group)]
        made = [part for result in imported for part in split_run_folder(result)]
        if not made:
            raise no_runs_error(paths, sources, "nothing to import")
        if len(made) == 1:
            write_header(replace(read_header(made[0].folder), name=target.name), made[0].folder)
    folders = [target] if len(made) == 1 else [target / result.folder.name for result in made]
    runs = tuple(replace(result, folder=folder) for result, folder in zip(made, folders, strict=True))
    return SavedRuns(runs, tuple(summarise_skipped(sources.refused)))


@contextmanager
def fill_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes ``target`` at the end, or whose only run does; after an error it is gone."""
    missing = [parent for parent in target.parents if not parent.exists()]
    remove_stale_files(target.parent)
    workshop = temporary_name(target)
    try:
        workshop.mkdir(parents=True)
        yield workshop
        if target.exists():
            target.rmdir()
        runs = list(workshop.iterdir())
        (runs[0] if len(runs) == 1 else workshop).replace(target)
    except OSError as error:
        raise write_error(target, error) from error
    finally:
        shutil.rmtree(workshop, ignore_errors=True)
        with suppress(OSError):  # the first that is not empty ends it: there the run is
            for parent in missing:
                parent.rmdir()


def split_run_folder(result: ImportResult) -> list[ImportResult]:
    """Return the runs of an imported log, each in a folder of its own; rollouts stay with the last."""
    run = Run.open(result.folder)
    if len(run.all_runs) == 1:
        return [result]
    count = len(run.all_runs)
    made = []
    for number, part in enumerate(run.all_runs, 1):
        name = f"{result.folder.name}-{number}-of-{count}"
        folder = result.folder.with_name(name)
        header = replace(run.header, name=name)
        if number == count:
            result.folder.rename(folder)
            (folder / METRICS_FILE).unlink()
            write_header(header, folder)
        RunWriter(folder, header, flush=False).points(part.points)
        rollouts, problems = (result.rollouts, result.problems) if number == count else (0, 0)
        made.append(ImportResult(folder, len(part.points), rollouts, problems, result.remarks))
    return made
