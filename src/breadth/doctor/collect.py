"""Find out what belongs together: files and folders in any mix become one piece of evidence a run."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from breadth.base.errors import BreadthError, BrokenFileError, FileError, NotARunError, UnknownFormatError, WriteError
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.trainer_config import DIALECTS, ConfigDialect, TrainerConfig, dialect_of, merge_configs
from breadth.runs.importer import Importer, RecognisedFile, all_importers, recognise
from breadth.runs.importing import drop_contained_files, import_files
from breadth.runs.jsonl import read_head, read_json_rows
from breadth.runs.paths import display_name
from breadth.runs.reader import Run
from breadth.runs.schema import HEADER_FILE, Remark

if TYPE_CHECKING:
    from breadth.inference.policy import Policy


LOGS = frozenset({"trainer state", "log history", "console log", "file log", "metrics"})
"""Kinds of file that each tell of a whole run: two of them are two runs. Tables of metrics are such too, in whatever
form.
"""
EVERY_RUNS = frozenset({"trainer_state", "metrics", "train", "log", "output", "run"})
"""What files are called in every run: the folder's name tells more."""
Said = Callable[[str], None]


@dataclass(frozen=True)
class CollectedEvidence:
    """What there is to judge, and what became of every file."""

    cases: tuple[Evidence, ...] = ()
    """One a run, or a configuration, policy or server alone."""
    used: tuple[str, ...] = ()
    """Files and folders that were read, each with what it is."""
    unused: tuple[Remark, ...] = ()
    """Files that were not, each with the reason."""


def collect_evidence(
    paths: Sequence[Path],
    work_folder: Path,
    *,
    importers: Sequence[Importer] | None = None,
    on_progress: Said = lambda _: None,
) -> CollectedEvidence:
    """Read everything that a user points at; foreign files are imported into folders under ``workshop``."""
    known = importers or all_importers()
    sources = sort_sources(paths, known)
    opened = [Run.open(folder) for folder in sources.folders]
    runs = [(display_name(run.folder, run.header.name), run) for run in opened]
    runs += list(_imported(sources, work_folder, known, on_progress))
    cases = _cases([one for name, run in runs for one in _apart(name, run, sources)], sources)
    if not cases:
        first = sources.unused[0] if sources.unused else None
        raise UnknownFormatError(
            paths[0] if paths else Path(),
            "holds nothing that the doctor can read"
            + (f"; the first file: {Path(first.file).name} {first.problem}" if first else "."),
            "Point at a trainer's output folder, a log file, a run folder or a configuration.",
        )
    return CollectedEvidence(tuple(cases), tuple(sources.used), tuple(sources.unused))


def _imported(
    sources: Sources, work_folder: Path, importers: Sequence[Importer], said: Said
) -> Iterator[tuple[str, Run]]:
    """Import every run, under folders of their own; the runs of a table that stacks several one by one."""
    places = (work_folder / f"imported-{number}" for number in count())

    def taken(group: Sequence[RecognisedFile], known: Sequence[Importer]) -> Run:
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


def _stacked(group: Sequence[RecognisedFile]) -> Mapping[str, Importer]:
    """Return who reads each run of a table that stacks several, by name; empty where it does not."""
    apart = getattr(group[0].importer, "apart", None) if len(group) == 1 else None
    return {} if apart is None else apart(group[0].path, group[0].kind)


def _apart(name: str, run: Run, sources: Sources) -> list[tuple[str, Run]]:
    """Return the runs of one log, each by itself, and say so where there are several."""
    runs = run.all_runs
    if len(runs) == 1:
        return [(name, run)]
    sources.used.append(f"{name}: {len(runs)} runs one behind the other, told apart where the steps begin anew")
    return [(f"{name}, run {number} of {len(runs)}", one) for number, one in enumerate(runs, 1)]


def _groups(files: Sequence[RecognisedFile]) -> list[tuple[str, list[RecognisedFile]]]:
    """Put files of one run together: every log is a run; other files go to the only log there is, or to the nearest one above them."""
    logs = drop_contained_files([one for one in files if _is_log(one)])
    groups: dict[Path, list[RecognisedFile]] = {one.path: [one] for one in logs}
    alone: dict[Path, list[RecognisedFile]] = defaultdict(list)
    for one in files:
        if not _is_log(one):
            place = _nearest(one.path, [log.path for log in logs])
            (alone[one.path.parent] if place is None else groups[place]).append(one)
    named = [(_called(path), group) for path, group in groups.items()]
    return named + [
        (_called(group[0].path if len(group) == 1 else folder / "run"), group) for folder, group in alone.items()
    ]


def _is_log(one: RecognisedFile) -> bool:
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
        knobs = TrainerConfig() if own is None or not run.header.config else own.translate(run.header.config)
        case = Evidence(name, run, knobs, own, sources.data, sources.server, sources.policy)
        for config in _belonging(run, sources.configs):
            case = replace(case, knobs=merge_configs(config.knobs, case.config), dialect=config.dialect)
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


CONFIGS = frozenset({".py", ".yaml", ".yml", ".sh", ".bash", ".txt", ".json", ".ipynb"})
"""How files end that may be a trainer's configuration."""
LONGEST_TOML = 1 << 20
"""Bytes of a policy or of a server's portrait: they have some hundreds, and anything longer is something else."""
MOST_FILES = 20_000
"""Files of a folder that are looked at: a folder with more is not one that somebody means."""


@dataclass(frozen=True)
class Config:
    """A configuration file that was read."""

    path: Path
    """Where it lies."""
    dialect: ConfigDialect
    """Whose it is."""
    knobs: TrainerConfig
    """What it says."""


@dataclass
class Sources:
    """Everything that was pointed at, sorted."""

    folders: list[Path] = field(default_factory=list)
    """Run folders."""
    files: list[RecognisedFile] = field(default_factory=list)
    """Files that an importer reads."""
    configs: list[Config] = field(default_factory=list)
    """Configurations of trainers."""
    data: tuple[str, ...] = ()
    """Texts of the training data."""
    policy: Policy | None = None
    """The inference policy in use."""
    server: Mapping[str, Any] | None = None
    """What probing a server found."""
    named: frozenset[Path] = frozenset()
    """What a user has named; the rest was found in folders."""
    used: list[str] = field(default_factory=list)
    """What was read, each file with what it is."""
    unused: list[Remark] = field(default_factory=list)
    """What was not, each file with the reason."""

    def refuse(self, error: FileError) -> None:
        """Note a file that cannot be read; one that was named is an error, and so is a disk that refuses."""
        if error.path in self.named or isinstance(error, WriteError):
            raise error
        self.unused.append(Remark.from_error(error))


def sort_sources(paths: Sequence[Path], importers: Sequence[Importer]) -> Sources:
    """Sort files and folders; one that was named and cannot be read is an error, one that was found in a folder a remark."""
    sources = Sources(named=frozenset(paths))
    for path in paths:
        if not path.exists():
            raise NotARunError(path, "is not there.", "Check the spelling.")
        for file in _files(path, sources, frozenset(path.resolve().parents)):
            try:
                _sort(file, importers, sources)
            except FileError as error:
                sources.refuse(error)
    return sources


def _files(path: Path, sources: Sources, above: frozenset[Path]) -> Iterator[Path]:
    """Yield the files of a path that are not inside a run folder; such folders are kept as they are.

    No link is followed upwards.
    """
    if not path.is_dir():
        yield path
        return
    if (real := path.resolve()) in above:
        return
    if (path / HEADER_FILE).is_file():
        sources.folders.append(path)
        sources.used.append(f"{display_name(path)}: run folder")
        return
    for count, inside in enumerate(sorted(path.iterdir())):
        if count > MOST_FILES:
            raise UnknownFormatError(path, f"holds more than {MOST_FILES:,} files.", "Point at the folder of one run.")
        if not inside.name.startswith("."):
            yield from _files(inside, sources, above | {real})


def _sort(file: Path, importers: Sequence[Importer], sources: Sources) -> None:
    start = read_head(file)
    if file.suffix == ".toml" and file.stat().st_size <= LONGEST_TOML and _toml(file, sources):
        return
    config = _config(file, start)
    if config is not None:
        sources.configs.append(config)
        sources.used.append(f"{file.name}: configuration of {config.dialect.trainer}")
    elif is_data(file, start):
        sources.data += read_data(file)
        sources.used.append(f"{file.name}: training data")
    else:
        sources.files.append(recognise(file, importers))


def _toml(file: Path, sources: Sources) -> bool:
    """Take a policy, or what a probe found."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8", errors="replace"))
    except tomllib.TOMLDecodeError:
        return False
    if "strategy" in table:
        from breadth.inference.policy import Policy

        sources.policy = Policy.parse(str(file))
        sources.used.append(f"{file.name}: inference policy")
        return True
    if {"url", "dialect", "top_logprobs"} <= table.keys():
        sources.server = table
        sources.used.append(f"{file.name}: what a server can do")
        return True
    return False


def _config(file: Path, start: bytes) -> Config | None:
    if file.suffix not in CONFIGS:
        return None
    for _, dialect in DIALECTS:
        if dialect.recognises(file, start):
            try:
                return Config(file, dialect, dialect.knobs(dialect.read(file)))
            except FileError:
                raise
            except BreadthError as error:
                raise UnknownFormatError(file, error.problem, error.remedy) from error
    return None


MOST = 2_000
"""Rows that are read: enough to tell a share to two points."""
LARGEST = 200_000_000
"""Bytes of a JSON document at most; JSON lines and Parquet may be of any size."""
ASKS = ("prompt", "question", "problem", "instruction", "query", "input")
SOLVES = ("solution", "response", "completion", "output", "answer", "target", "text", "messages", "ground_truth")
ROLLED = frozenset({"reward", "score", "step", "advantage", "rewards", "logprobs", "epoch", "log_history"})
"""Columns that rollouts and logs have and training data does not."""


def is_data(path: Path, start: bytes) -> bool:
    """Say whether a file holds problems to train on, by its columns."""
    names = _columns(path, start)
    return bool(names) and not names & ROLLED and any(name in names for name in ASKS)


def read_data(path: Path) -> tuple[str, ...]:
    """Return the texts of the first rows: the worked solution where there is one of some length, else what is asked."""
    return tuple(text for row in islice(_rows(path), MOST) if (text := _text(row)))


def _columns(path: Path, start: bytes) -> frozenset[str]:
    if start.startswith(b"PAR1"):
        try:
            return frozenset(pq.read_schema(path).names)
        except (pa.ArrowInvalid, OSError):
            return frozenset()
    if path.suffix not in (".jsonl", ".json", ".ndjson"):
        return frozenset()
    text = start.lstrip(b"[ \t\r\n")
    try:
        first = orjson.loads(text.split(b"\n", 1)[0].rstrip(b", \r"))
    except orjson.JSONDecodeError:
        return frozenset()
    return frozenset(first) if isinstance(first, dict) else frozenset()


def _rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"PAR1":
        with pq.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=MOST):
                yield from batch.to_pylist()
    elif start.lstrip()[:1] == b"[":
        yield from _document(path)
    else:
        for found in read_json_rows(path):
            if not isinstance(found, Remark):
                yield from (row for _, row in found)


def _document(path: Path) -> Sequence[Mapping[str, Any]]:
    if path.stat().st_size > LARGEST:
        raise BrokenFileError(
            path, f"is one JSON document of more than {LARGEST / 1e6:.0f} MB.", "Give it as JSON lines: one row a line."
        )
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise BrokenFileError(path, f"is not JSON ({error}).", "Give it as JSON lines: one row a line.") from error
    return [row for row in found if isinstance(row, dict)]


def _text(row: Mapping[str, Any]) -> str:
    texts = [_said(row.get(name)) for name in SOLVES]
    longest = max(texts, key=len, default="")
    asked = next((said for name in ASKS if (said := _said(row.get(name)))), "")
    return longest if len(longest.split()) > 3 else asked  # a bare answer has no format to learn


def _said(value: Any) -> str:
    """Return a text, or the last message of a conversation."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        return _said(value[-1].get("content"))
    return ""
