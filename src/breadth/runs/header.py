"""``run.toml``: what a run is, where it comes from, the configuration seen, what was odd about the input."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from breadth.base import settings
from breadth.base.errors import BrokenFileError, NotARunError
from breadth.runs.records import Remark
from breadth.runs.schema import SCHEMA_VERSION, EntropyKind

HEADER = "run.toml"


@dataclass(frozen=True)
class Header:
    """Everything about a run that is not a row."""

    schema: int = SCHEMA_VERSION
    """Version of the layout."""
    name: str = ""
    """What people call the run."""
    created: str = ""
    """When the folder was made, ISO 8601 in UTC."""
    trainer: str = ""
    """Who trained: trl, verl, ...; empty when unknown."""
    files: tuple[str, ...] = ()
    """Files it was imported from; metric rows refer to them by position."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Our metric name -> the trainer's."""
    entropies: Mapping[str, EntropyKind] = field(default_factory=dict)
    """Metric name (or rollouts column) -> which entropy it is."""
    reward_levels: tuple[float, ...] = ()
    """The distinct rewards, when the whole run has exactly two: then the higher one means right."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The trainer's configuration, as far as it was seen."""
    remarks: tuple[Remark, ...] = ()
    """What was odd about the input."""
    remarks_left_out: int = 0
    """How many remarks were too many to keep."""


def read_header(folder: Path) -> Header:
    """Read ``run.toml`` of a run folder."""
    path = folder / HEADER
    if not path.is_file():
        raise NotARunError(
            folder,
            f"is not a run folder (it has no {HEADER}).",
            "Point at a run folder, or make one from logs with: breadth import PATH --to RUN",
        )
    header = settings.load(Header, path)
    if header.schema > SCHEMA_VERSION:
        raise BrokenFileError(
            path, f"was written by a newer breadth (layout {header.schema}, this one reads {SCHEMA_VERSION}).", "Upgrade breadth."
        )
    return header


def write_header(header: Header, folder: Path) -> None:
    """Write ``run.toml`` whole or not at all; a header without a date gets today's."""
    created = header.created or datetime.now(UTC).isoformat(timespec="seconds")
    settings.dump(replace(header, created=created), folder / HEADER)


def storable(value: Any) -> Any:
    """Return a foreign configuration value in a form TOML can hold: tables, lists, text and numbers, nothing lost but nulls."""
    if isinstance(value, Mapping):
        return {str(key): storable(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return ["null" if item is None else storable(item) for item in value]
    if isinstance(value, bool | str) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if isinstance(value, float) and not math.isnan(value):
        return value
    return str(value)
