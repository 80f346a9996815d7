"""Find out what belongs together: files and folders in any mix become one piece of evidence a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from breadth.base.errors import UnknownFormatError, UnsafeFileError
from breadth.bridge.doctor.dialects import dialect_of
from breadth.bridge.doctor.evidence import Evidence
from breadth.bridge.doctor.knobs import Knobs, merged
from breadth.bridge.doctor.sources import Config, Sources, sort_sources
from breadth.runs.importer import Importer, Recognised, all_importers
from breadth.runs.ingest import current, import_files
from breadth.runs.places import spoken_name
from breadth.runs.reader import Run
from breadth.runs.records import Remark

LOGS = frozenset({"trainer state", "log history", "console log", "file log", "metrics"})
"""Kinds of file that each tell of a whole run: two of them are two runs."""
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


def gather(paths: Sequence[Path], workshop: Path, *, importers: Sequence[Importer] | None = None, said: Said = lambda _: None) -> Gathered:
    """Read everything that a user points at; foreign files are imported into folders under ``workshop``."""
    known = importers or all_importers()
    sources = sort_sources(paths, known)
    runs = [Run.open(folder) for folder in sources.folders]
    runs += list(_imported(sources, workshop, known, said))
    cases = _cases(runs, sources)
    if not cases:
        first = sources.unused[0] if sources.unused else None
        raise UnknownFormatError(
            paths[0] if paths else Path(),
            "holds nothing that the doctor can read" + (f"; the first file: {Path(first.file).name} {first.problem}" if first else "."),
            "Point at a trainer's output folder, a log file, a run folder or a configuration.",
        )
    return Gathered(tuple(cases), tuple(sources.used), tuple(sources.unused))


def _imported(sources: Sources, workshop: Path, importers: Sequence[Importer], said: Said) -> Iterator[Run]:
    for number, (name, group) in enumerate(_groups(sources.files)):
        target = workshop / str(number) / name
        target.parent.mkdir(parents=True)
        try:
            import_files([one.path for one in group], target, importers=importers, progress=said)
        except (UnknownFormatError, UnsafeFileError) as error:
            sources.unused.append(Remark.of(error))
            continue
        sources.used += [f"{one.path.name}: {one.importer.trainer} {one.kind}" for one in group]
        yield Run.open(target)


def _groups(files: Sequence[Recognised]) -> list[tuple[str, list[Recognised]]]:
    """Put files of one run together: every log is a run; other files go to the only log there is, or to the nearest one above them."""
    logs = current([one for one in files if one.kind in LOGS])
    groups: dict[Path, list[Recognised]] = {one.path: [one] for one in logs}
    alone: dict[Path, list[Recognised]] = defaultdict(list)
    for one in files:
        if one.kind not in LOGS:
            place = _nearest(one.path, [log.path for log in logs])
            (alone[one.path.parent] if place is None else groups[place]).append(one)
    named = [(_called(path), group) for path, group in groups.items()]
    return named + [(folder.name or "run", group) for folder, group in alone.items()]


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
    named = path.parent if path.stem in ("trainer_state", "metrics", "train", "log", "output") else path
    return named.stem or "run"


def _cases(runs: Sequence[Run], sources: Sources) -> list[Evidence]:
    """Give every run what belongs to it; what belongs to none stands alone."""
    cases, claimed = [], set[Path]()
    for run in runs:
        own = dialect_of(run.header.trainer)
        knobs = Knobs() if own is None or not run.header.config else own.knobs(run.header.config)
        case = Evidence(spoken_name(run.folder, run.header.name), run, knobs, own, sources.data, sources.server, sources.policy)
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
