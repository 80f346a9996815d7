"""What each file is that a user points the doctor at: a run, a trainer's file, a configuration, data, a policy, a server's portrait."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from breadth.base.errors import BreadthError, FileError, NotARunError, UnknownFormatError, WriteError
from breadth.doctor.dialects import DIALECTS, Dialect
from breadth.doctor.knobs import Knobs
from breadth.doctor.training_data import is_data, read_data
from breadth.runs.importer import Importer, Recognised, recognise
from breadth.runs.jsonl import head
from breadth.runs.paths import display_name
from breadth.runs.schema import HEADER, Remark

if TYPE_CHECKING:
    from breadth.inference.policy import Policy

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
    dialect: Dialect
    """Whose it is."""
    knobs: Knobs
    """What it says."""


@dataclass
class Sources:
    """Everything that was pointed at, sorted."""

    folders: list[Path] = field(default_factory=list)
    """Run folders."""
    files: list[Recognised] = field(default_factory=list)
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
        self.unused.append(Remark.of(error))


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
    if (path / HEADER).is_file():
        sources.folders.append(path)
        sources.used.append(f"{display_name(path)}: run folder")
        return
    for count, inside in enumerate(sorted(path.iterdir())):
        if count > MOST_FILES:
            raise UnknownFormatError(path, f"holds more than {MOST_FILES:,} files.", "Point at the folder of one run.")
        if not inside.name.startswith("."):
            yield from _files(inside, sources, above | {real})


def _sort(file: Path, importers: Sequence[Importer], sources: Sources) -> None:
    start = head(file)
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

        sources.policy = Policy.named(str(file))
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
