"""Find out what belongs together: files and folders in any mix become one piece of evidence a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from breadth.base.errors import FileError, UnknownFormatError
from breadth.doctor.dialects import dialect_of
from breadth.doctor.evidence import Evidence
from breadth.doctor.knobs import Knobs, merged
from breadth.doctor.sources import Config, Sources, sort_sources
from breadth.runs.importer import Importer, Recognised, all_importers
from breadth.runs.importing import current, import_files
from breadth.runs.paths import display_name
from breadth.runs.reader import Run
from breadth.runs.schema import Remark

LOGS = frozenset({"trainer state", "log history", "console log", "file log", "metrics"})
"""Kinds of file that each tell of a whole run: two of them are two runs. Tables of metrics are such too, in whatever
form.
"""
EVERY_RUNS = frozenset({"trainer_state", "metrics", "train", "log", "output", "run"})
"""What files are called in every run: the folder's name tells more."""
Said = Callable[[str], None]


@dataclass(frozen=True)
class Gathered:
    """What there is to judge, and what became of every file."""

    cases: tuple[Evidence, ...] = ()
    """One a run, or a configuration, policy or server alone."""
    used: tuple[str, ...] = ()
    """Files and folders that were read, each with what it is."""
    unused: tuple[Remark, ...] = ()
    """Files that were not, each with the reason."""


def gather(
    paths: Sequence[Path], workshop: Path, *, importers: Sequence[Importer] | None = None, said: Said = lambda _: None
) -> Gathered:
    """Read everything that a user points at; foreign files are imported into folders under ``workshop``."""
    known = importers or all_importers()
    sources = sort_sources(paths, known)
    opened = [Run.open(folder) for folder in sources.folders]
    runs = [(display_name(run.folder, run.header.name), run) for run in opened]
    runs += list(_imported(sources, workshop, known, said))
    cases = _cases([one for name, run in runs for one in _apart(name, run, sources)], sources)
    if not cases:
        first = sources.unused[0] if sources.unused else None
        raise UnknownFormatError(
            paths[0] if paths else Path(),
            "holds nothing that the doctor can read"
            + (f"; the first file: {Path(first.file).name} {first.problem}" if first else "."),
            "Point at a trainer's output folder, a log file, a run folder or a configuration.",
        )
    return Gathered(tuple(cases), tuple(sources.used), tuple(sources.unused))


def _imported(sources: Sources, workshop: Path, importers: Sequence[Importer], said: Said) -> Iterator[tuple[str, Run]]:
    """Import every run, under folders of their own; the runs of a table that stacks several one by one."""
    places = (workshop / f"imported-{number}" for number in count())

    def taken(group: Sequence[Recognised], known: Sequence[Importer]) -> Run:
        return Run.open(import_files([one.path for one in group], next(places), importers=known, progress=said).folder)

    for name, group in _groups(sources.files):
        try:
            yield name, taken(group, importers)
        except FileError as error:
            stacked = _stacked(group) if isinstance(error, UnknownFormatError) else {}
            if not stacked:
                sources.refuse(error)
                continue
            for run, one in stacked.items():
                try:
                    yield f"{name}, {run}", taken(group, [one])
                except UnknownFormatError as empty:
                    sources.refuse(empty)
            sources.used.append(f"{name}: {len(stacked)} runs in one table, read apart")
        sources.used += [f"{one.path.name}: {one.importer.trainer} {one.kind}" for one in group]


def _stacked(group: Sequence[Recognised]) -> Mapping[str, Importer]:
    """Return who reads each run of a table that stacks several, by name; empty where it does not."""
    apart = getattr(group[0].importer, "apart", None) if len(group) == 1 else None
    return {} if apart is None else apart(group[0].path, group[0].kind)


def _apart(name: str, run: Run, sources: Sources) -> list[tuple[str, Run]]:
    """Return the runs of one log, each by itself, and say so where there are several."""
    runs = run.apart
    if len(runs) == 1:
        return [(name, run)]
    sources.used.append(f"{name}: {len(runs)} runs one behind the other, told apart where the steps begin anew")
    return [(f"{name}, run {number} of {len(runs)}", one) for number, one in enumerate(runs, 1)]


def _groups(files: Sequence[Recognised]) -> list[tuple[str, list[Recognised]]]:
    """Put files of one run together: every log is a run; other files go to the only log there is, or to the nearest one above them."""
    logs = current([one for one in files if _is_log(one)])
    groups: dict[Path, list[Recognised]] = {one.path: [one] for one in logs}
    alone: dict[Path, list[Recognised]] = defaultdict(list)
    for one in files:
        if not _is_log(one):
            place = _nearest(one.path, [log.path for log in logs])
            (alone[one.path.parent] if place is None else groups[place]).append(one)
    named = [(_called(path), group) for path, group in groups.items()]
    return named + [
        (_called(group[0].path if len(group) == 1 else folder / "run"), group) for folder, group in alone.items()
    ]


def _is_log(one: Recognised) -> bool:
    return one.kind in LOGS or one.kind.endswith(" metrics")


def _nearest(path: Path, logs: Sequence[Path]) -> Path | None:
    if len(logs) == 1:
        return logs[0]
    for folder in path.parents:
        here = [log for log in logs if folder in log.parents]
        if here:
            return here[0] if len(here) == 1 else None
    return None


def _called(path: Path) -> str:
    """Return what people call the run a log belongs to: the folder's name for a file that every run has."""
    named = path.absolute().parent if path.stem in EVERY_RUNS else path
    return named.stem or "run"


def _cases(runs: Sequence[tuple[str, Run]], sources: Sources) -> list[Evidence]:
    """Give every run what belongs to it; what belongs to none stands alone."""
    cases, claimed = [], set[Path]()
    for name, run in runs:
        own = dialect_of(run.header.trainer)
        knobs = Knobs() if own is None or not run.header.config else own.knobs(run.header.config)
        case = Evidence(name, run, knobs, own, sources.data, sources.server, sources.policy)
        for config in _belonging(run, sources.configs):
            case = replace(case, knobs=merged(config.knobs, case.knobs), dialect=config.dialect)
            claimed.add(config.path)
        cases.append(case)
    alone = [config for config in sources.configs if config.path not in claimed]
    cases += [Evidence(config.path.name, None, config.knobs, config.dialect, sources.data) for config in alone]
    if not cases and (sources.data or sources.policy is not None or sources.server is not None):
        cases = [Evidence("what was given", data=sources.data, server=sources.server, policy=sources.policy)]
    return cases


def _belonging(run: Run, configs: Sequence[Config]) -> list[Config]:
    """Return the configuration of the run's trainer that lies with it, or is the only one."""
    fitting = [one for one in configs if run.header.trainer in (one.dialect.trainer, "generic", "tensorboard", "")]
    if len(fitting) < 2:
        return fitting
    folders = {Path(file).parent for file in run.header.files} | {run.folder.parent}
    return [one for one in fitting if one.path.parent in folders][:1]
