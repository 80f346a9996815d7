"""Collect what the doctor looks at: files and folders in any mix become one piece of evidence per run.

Each file is classified first: a run folder, a trainer's file, a configuration, training data, an inference policy or
a probed server. Then the files of one run are put together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from breadth.base.errors import BreadthError, BrokenFileError, FileError, NotARunError, UnknownFormatError, WriteError
from breadth.base.settings import parse_toml
from breadth.doctor.evidence.record import Evidence
from breadth.doctor.trainer_config import DIALECTS, ConfigDialect, TrainerConfig, dialect_of, merge_configs
from breadth.runs.grouping import group_by_run, is_log, make_unique
from breadth.runs.importer import IMPORTERS, Importer, RecognisedFile, all_importers, recognise
from breadth.runs.importing import drop_contained_files, import_recognised, read_logs
from breadth.runs.jsonl import MAX_ROW_BYTES, parse_json, read_error, read_head, read_json_rows
from breadth.runs.parquet import read_parquet_rows, try_read_schema
from breadth.runs.paths import (
    display_name,
    is_folder,
    is_regular_file,
    is_remote,
    is_system_folder,
    refuse_too_many_files,
    refuse_whole_disk,
)
from breadth.runs.reader import Run
from breadth.runs.schema import HEADER_FILE, Remark

if TYPE_CHECKING:
    from breadth.inference.policy import Policy


T = TypeVar("T")
OnImport = Callable[[str], None]
"""Receives a line of progress while files are imported."""


@dataclass(frozen=True)
class CollectedEvidence:
    """What there is to diagnose, and what became of every file."""

    cases: tuple[Evidence, ...] = ()
    """One per run; or a configuration, policy or server alone."""
    used: tuple[str, ...] = ()
    """Files and folders that were read, each with what it is."""
    unused: tuple[Remark, ...] = ()
    """Files that were not read, each with the reason."""


def collect_evidence(
    paths: Sequence[Path],
    work_folder: Path,
    *,
    importers: Sequence[Importer] | None = None,
    on_progress: OnImport = lambda _: None,
) -> CollectedEvidence:
    """Read everything the user points at; other tools' files are imported into folders under ``work_folder``."""
    runs, sources = collect_runs(paths, work_folder, importers=importers, on_progress=on_progress)
    cases = build_cases(runs, sources)
    if not cases:
        raise no_runs_error(paths, sources, "nothing that the doctor can read")
    return CollectedEvidence(tuple(cases), tuple(sources.used), tuple(sources.remarks))


def no_runs_error(paths: Sequence[Path], sources: ClassifiedFiles, what: str) -> UnknownFormatError:
    """Return the error of paths that hold nothing a verb can use."""
    first = sources.remarks[0] if sources.remarks else None
    why = f"; the first file: {Path(first.file).name} {first.problem}" if first else "."
    return UnknownFormatError(
        paths[0] if paths else Path(),
        f"holds {what}{why}",
        "Point at a trainer's output folder, a log file, a run folder or a configuration.",
    )


def collect_runs(
    paths: Sequence[Path],
    work_folder: Path,
    *,
    importers: Sequence[Importer] | None = None,
    on_progress: OnImport = lambda _: None,
    only_runs: bool = False,
) -> tuple[list[tuple[str, Run]], ClassifiedFiles]:
    """Read every run that the paths hold, each with a name of its own, and say what became of every file.

    This is the one way in which all verbs read runs. ``only_runs`` reads files that the user named as runs, even where
    they could be training data.
    """
    sources = classify_files(paths, importers or all_importers(), only_runs=only_runs or importers is not None)
    folders = (work_folder / f"imported-{number}" for number in count())

    def read_group(_: str, group: Sequence[RecognisedFile]) -> Run:
        run = read_logs(group, on_progress) if all(map(is_log, group)) else None
        if run is None:
            files = drop_contained_files(group)
            run = Run.open(import_recognised(files, next(folders), progress=on_progress).folder)
            run = replace(run, source=files[0].path)
        return run

    opened = [Run.open(folder) for folder in sources.folders]
    called = [display_name(run.folder, run.header.name) for run in opened]
    names = [
        name if called.count(name) == 1 else display_name(run.folder) for name, run in zip(called, opened, strict=True)
    ]
    runs = list(zip(names, opened, strict=True))
    runs += list(import_runs(sources, read_group))
    parts = [part for name, run in runs for part in split_log_runs(name, run, sources)]
    names = make_unique([name for name, _ in parts])
    named = [
        recognise_trainer(replace(run, header=replace(run.header, name=name)))
        for name, (_, run) in zip(names, parts, strict=True)
    ]
    return list(zip(names, named, strict=True)), sources


OWN_METRICS = {
    "trl": ("completions/clipped_ratio", "frac_reward_zero_std", "clip_ratio/region_mean"),
    "verl": ("actor/pg_clipfrac", "response_length/clip_ratio"),
}
"""Trainer -> metrics that only it logs, and the tools that build on it: a table of them comes from a tracker."""


def recognise_trainer(run: Run) -> Run:
    """Name the trainer of a run whose file does not say, by its metrics; entropies are then of its kind."""
    if run.header.trainer not in ("generic", "tensorboard"):
        return run
    logged = [f"/{name}" for name in (*run.header.names.values(), *run.metric_names())]
    for trainer, metrics in OWN_METRICS.items():
        if any(name.endswith(f"/{metric}") for name in logged for metric in metrics):
            kind = IMPORTERS.load(trainer).entropy
            entropies = dict.fromkeys(run.header.entropies, kind)
            return replace(run, header=replace(run.header, trainer=trainer, entropies=entropies))
    return run


def import_runs(
    sources: ClassifiedFiles, import_group: Callable[[str, Sequence[RecognisedFile]], T]
) -> Iterator[tuple[str, T]]:
    """Import the files of every run with ``import_group``; the runs of a table that stacks several one by one."""
    for name, group in group_by_run(sources.files):
        try:
            yield name, import_group(name, group)
        except FileError as error:
            stacked = importers_of_stack(group) if isinstance(error, UnknownFormatError) else {}
            if not stacked:
                sources.refuse(error)
                continue
            for run, importer in stacked.items():
                part = f"{name}, {run}"
                try:
                    yield part, import_group(part, [replace(group[0], importer=importer)])
                except UnknownFormatError as empty:
                    sources.refuse(empty)
            sources.used.append(f"{name}: {len(stacked)} runs in one table, read separately")
        sources.used += [f"{file.path.name}: {file.importer.trainer} {file.kind}" for file in group]


def importers_of_stack(group: Sequence[RecognisedFile]) -> Mapping[str, Importer]:
    """Return the importer of each run in a table that stacks several, by run name; empty for other files."""
    split = getattr(group[0].importer, "split_stacked_runs", None) if len(group) == 1 else None
    return {} if split is None else split(group[0].path, group[0].kind)


def split_log_runs(name: str, run: Run, sources: ClassifiedFiles) -> list[tuple[str, Run]]:
    """Return the runs of one log separately; several are noted in ``used``."""
    runs = run.all_runs
    if len(runs) == 1:
        return [(name, run)]
    sources.used.append(f"{name}: {len(runs)} runs in sequence, split where the step number restarts")
    names = [f"{name}, run {number} of {len(runs)}" for number in range(1, len(runs) + 1)]
    return [(part, replace(run, header=replace(run.header, name=part))) for part, run in zip(names, runs, strict=True)]


def build_cases(runs: Sequence[tuple[str, Run]], sources: ClassifiedFiles) -> list[Evidence]:
    """Give every run its configuration; a configuration without a run is a case of its own."""
    cases, claimed = [], set[Path]()
    for name, run in runs:
        own = dialect_of(run.header.trainer)
        settings = TrainerConfig() if own is None or not run.header.config else own.translate(run.header.config)
        case = Evidence(name, run, settings, own, sources.data, sources.server, sources.policy)
        for config in matching_configs(run, sources.configs):
            case = replace(case, config=merge_configs(config.config, case.config), dialect=config.dialect)
            claimed.add(config.path)
        cases.append(case)
    alone = [config for config in sources.configs if config.path not in claimed]
    cases += [Evidence(config.path.name, None, config.config, config.dialect, sources.data) for config in alone]
    if not cases and (sources.data or sources.policy is not None or sources.server is not None):
        cases = [Evidence("the given files", data=sources.data, server=sources.server, policy=sources.policy)]
    return cases


def matching_configs(run: Run, configs: Sequence[ConfigFile]) -> list[ConfigFile]:
    """Return the configuration of the run's trainer that is in its folder, or is the only one."""
    fitting = [file for file in configs if run.header.trainer in (file.dialect.trainer, "generic", "tensorboard", "")]
    if len(fitting) < 2:
        return fitting
    folders = {Path(file).parent for file in run.header.files} | {run.folder.parent}
    return [file for file in fitting if file.path.parent in folders][:1]


CONFIG_SUFFIXES = frozenset({".py", ".yaml", ".yml", ".sh", ".bash", ".txt", ".json", ".ipynb"})
"""Suffixes of files that may be a trainer's configuration."""
MAX_TOML_BYTES = 1 << 20
"""Largest policy or probe file; they have a few hundred bytes, so anything longer is something else."""
MAX_FILES_PER_FOLDER = 20_000
"""Files looked at per folder; a larger folder was hardly meant."""


@dataclass(frozen=True)
class ConfigFile:
    """A configuration file that was read."""

    path: Path
    """Where it is."""
    dialect: ConfigDialect
    """The dialect it is written in."""
    config: TrainerConfig
    """Its settings by our names."""


@dataclass
class ClassifiedFiles:
    """Every file the user pointed at, by what it is."""

    folders: list[Path] = field(default_factory=list)
    """Run folders."""
    files: list[RecognisedFile] = field(default_factory=list)
    """Files that an importer reads."""
    configs: list[ConfigFile] = field(default_factory=list)
    """Configurations of trainers."""
    data: tuple[str, ...] = ()
    """Texts of the training data."""
    policy: Policy | None = None
    """The inference policy in use."""
    server: Mapping[str, Any] | None = None
    """What probing a server found."""
    named: frozenset[Path] = frozenset()
    """Paths the user named; the others were found in folders."""
    used: list[str] = field(default_factory=list)
    """Files that were read, each with what it is."""
    refused: list[FileError] = field(default_factory=list)
    """Files that were not read, each with the reason."""

    @property
    def remarks(self) -> list[Remark]:
        """Files that were not read, each with the reason, for a report."""
        return [Remark.from_error(error) for error in self.refused]

    def take_config(self, config: ConfigFile) -> None:
        """Record a trainer's configuration."""
        self.configs.append(config)
        self.used.append(f"{config.path.name}: configuration of {config.dialect.trainer}")

    def refuse(self, error: FileError) -> None:
        """Record a file that cannot be read; raises for a file the user named and for a disk that cannot be written."""
        if error.path in self.named or isinstance(error, WriteError):
            raise error
        self.refused.append(error)

    def refuse_guesses(self, first: int) -> None:
        """Pass over what was found with run folders and only looks like a log: notes and results are kept there too."""
        guess = IMPORTERS.load("generic")
        found, self.files[first:] = self.files[first:], []
        for file in found:
            if file.importer is guess and file.path not in self.named:
                problem = "was found with run folders, and is no trainer's log."
                self.refuse(UnknownFormatError(file.path, problem, "Name the file itself to have it read."))
            else:
                self.files.append(file)


def classify_files(paths: Sequence[Path], importers: Sequence[Importer], *, only_runs: bool = False) -> ClassifiedFiles:
    """Classify files and folders; an unreadable file is an error if the user named it, else a remark.

    ``only_runs``: a file that the user named is no training data, whatever its columns.
    """
    sources = ClassifiedFiles(named=frozenset(paths))
    for path in paths:
        if is_remote(path):
            sources.folders.append(path)
            sources.used.append(f"{display_name(path)}: run folder")
            continue
        if not os.path.lexists(path):
            raise NotARunError(path, "does not exist.", "Check the spelling.")
        refuse_whole_disk(path)
        folders, files = len(sources.folders), len(sources.files)
        for number, file in enumerate(walk_files(path, sources, frozenset(real_path(path).parents))):
            refuse_too_many_files(path, number)
            try:
                classify_file(file, importers, sources, may_be_data=not only_runs or file not in sources.named)
            except FileError as error:
                sources.refuse(error)
        if len(sources.folders) > folders:
            sources.refuse_guesses(files)
    return sources


def real_path(path: Path) -> Path:
    """Return a path without links; unlike Path's own, this ends on links that point at one another."""
    return Path(os.path.realpath(path))


def walk_files(path: Path, sources: ClassifiedFiles, above: frozenset[Path]) -> Iterator[Path]:
    """Yield the files under a path; run folders are recorded as a whole.

    Links to a parent folder or to one of the system's are not followed.
    """
    if not is_folder(path):
        yield path
        return
    if (real := real_path(path)) in above or is_system_folder(real):
        return
    if is_regular_file(path / HEADER_FILE):
        sources.folders.append(path)
        sources.used.append(f"{display_name(path)}: run folder")
        return
    try:
        content = sorted(path.iterdir())
    except OSError as error:
        sources.refuse(read_error(path, error))
        return
    for number, inside in enumerate(content):
        if number > MAX_FILES_PER_FOLDER:
            raise UnknownFormatError(
                path, f"holds more than {MAX_FILES_PER_FOLDER:,} files.", "Point at the folder of one run."
            )
        if not inside.name.startswith("."):
            yield from walk_files(inside, sources, above | {real})


def classify_file(
    file: Path, importers: Sequence[Importer], sources: ClassifiedFiles, *, may_be_data: bool = True
) -> None:
    """Find out what one file is; trainers' files must be recognised by an importer."""
    start = read_head(file)
    if file.suffix == ".ipynb":
        classify_notebook(file, start, importers, sources)
        return
    if file.suffix == ".toml" and file.stat().st_size <= MAX_TOML_BYTES and classify_toml(file, sources):
        return
    config = read_config(file, start)
    if config is not None:
        sources.take_config(config)
    elif may_be_data and is_training_data(file, start):
        sources.data += read_training_data(file)
        sources.used.append(f"{file.name}: training data")
    else:
        sources.files.append(recognise(file, importers))


def classify_notebook(file: Path, start: bytes, importers: Sequence[Importer], sources: ClassifiedFiles) -> None:
    """Take the settings of a notebook, and the log that training has printed below its cells; it may have both."""
    errors: list[FileError] = []
    log = config = None
    try:
        log = recognise(file, importers)
        sources.files.append(log)
    except FileError as error:
        errors.append(error)
    try:
        config = read_config(file, start)
    except FileError as error:
        errors.append(error)
    if config is not None:
        sources.take_config(config)
    elif log is None:
        raise errors[-1]
    else:
        sources.refused += errors  # its settings; the log was read


def classify_toml(file: Path, sources: ClassifiedFiles) -> bool:
    """Take an inference policy or a probed server; False for any other TOML."""
    try:
        table = parse_toml(file.read_text(encoding="utf-8", errors="replace"))
    except ValueError:  # no TOML, or a number of thousands of digits in it
        return False
    except RecursionError as error:
        raise BrokenFileError(
            file, "is TOML nested too deeply to be read.", "Write fewer tables or lists inside one another."
        ) from error
    if "strategy" in table:
        from breadth.inference.policy import Policy

        sources.policy = Policy.parse(str(file))
        sources.used.append(f"{file.name}: inference policy")
        return True
    if {"url", "dialect", "top_logprobs"} <= table.keys():
        sources.server = table
        sources.used.append(f"{file.name}: probed server")
        return True
    return False


def read_config(file: Path, start: bytes) -> ConfigFile | None:
    """Read a trainer's configuration; None for any other file."""
    if file.suffix not in CONFIG_SUFFIXES or b'"log_history"' in start:  # the latter is the state of a trainer
        return None
    for _, dialect in DIALECTS:
        if dialect.recognises(file, start):
            try:
                return ConfigFile(file, dialect, dialect.translate(dialect.read(file)))
            except FileError:
                raise
            except BreadthError as error:
                raise UnknownFormatError(file, error.problem, error.remedy) from error
    return None


MAX_DATA_ROWS = 2_000
"""Rows read: enough to estimate a share to within two points."""
PROMPT_COLUMNS = ("prompt", "question", "problem", "instruction", "query", "input")
"""Columns that hold what is asked."""
SOLUTION_COLUMNS = (
    "solution",
    "response",
    "completion",
    "output",
    "answer",
    "target",
    "text",
    "messages",
    "ground_truth",
)
"""Columns that hold a solution or an answer."""
NOT_DATA_COLUMNS = frozenset(
    {
        *("reward", "score", "step", "advantage", "rewards", "logprobs", "epoch", "log_history"),
        *("correct", "is_correct", "passed", "sample_index", "sample_idx", "predicted_answer", "model_answer"),
        *("budget", "thinking_budget", "max_tokens"),
    }
)
"""Columns that rollouts and logs have and training data does not."""


def is_training_data(path: Path, start: bytes) -> bool:
    """Say by its columns whether a file holds training data."""
    names = column_names(path, start)
    return bool(names) and not names & NOT_DATA_COLUMNS and any(name in names for name in PROMPT_COLUMNS)


def read_training_data(path: Path) -> tuple[str, ...]:
    """Return the texts of the first rows: the worked solution, or the question where there is none."""
    return tuple(text for row in islice(read_data_rows(path), MAX_DATA_ROWS) if (text := row_text(row)))


def column_names(path: Path, start: bytes) -> frozenset[str]:
    """Return the columns of a Parquet, JSON or JSON-lines file; empty for any other."""
    if start.startswith(b"PAR1"):
        schema = try_read_schema(path)
        return frozenset() if schema is None else frozenset(schema.names)
    if path.suffix not in (".jsonl", ".json", ".ndjson"):
        return frozenset()
    text = start.lstrip(b"[ \t\r\n")
    try:
        first = orjson.loads(text.split(b"\n", 1)[0].rstrip(b", \r"))
    except orjson.JSONDecodeError:
        return frozenset()
    return frozenset(first) if isinstance(first, dict) else frozenset()


def read_data_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a Parquet, JSON or JSON-lines file."""
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"PAR1":
        for rows in read_parquet_rows(path):
            yield from rows
    elif start.lstrip()[:1] == b"[":
        yield from read_json_document(path)
    else:
        for batch in read_json_rows(path):
            if not isinstance(batch, Remark):
                yield from (row for _, row in batch)


def read_json_document(path: Path) -> Sequence[Mapping[str, Any]]:
    """Return the rows of one JSON array."""
    if path.stat().st_size > MAX_ROW_BYTES:
        raise BrokenFileError(
            path,
            f"is one JSON document of more than {MAX_ROW_BYTES / 1e6:.0f} MB.",
            "Give it as JSON lines: one row per line.",
        )
    try:
        rows = parse_json(path.read_bytes())
    except ValueError as error:
        raise BrokenFileError(path, f"is not JSON ({error}).", "Give it as JSON lines: one row per line.") from error
    return [row for row in rows if isinstance(row, dict)]


def row_text(row: Mapping[str, Any]) -> str:
    """Return the longest solution, or the question where no solution has more than three words."""
    texts = [message_text(row.get(name)) for name in SOLUTION_COLUMNS]
    longest = max(texts, key=len, default="")
    prompt = next((text for name in PROMPT_COLUMNS if (text := message_text(row.get(name)))), "")
    return longest if len(longest.split()) > 3 else prompt  # a bare answer has no format to learn


def message_text(value: Any) -> str:
    """Return a text, or the last message of a conversation."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        return message_text(value[-1].get("content"))
    return ""
