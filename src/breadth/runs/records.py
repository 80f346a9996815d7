"""What an importer or a live hook hands over: metric rows, batches of rollouts, problems, settings, remarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from breadth.base.errors import FileError
from breadth.runs.schema import EntropyKind, Split


@dataclass(frozen=True)
class MetricRow:
    """Numbers logged at one step, under the trainer's own names."""

    values: Mapping[str, float]
    """Trainer's name -> number."""
    step: int | None = None
    """Step the trainer printed; None when the log prints none, then rows are numbered in order."""
    time: float | None = None
    """Unix seconds, where the trainer logs them."""
    split: Split = "train"
    """train, or eval for held-out scores."""


@dataclass(frozen=True)
class RolloutBatch:
    """A table of rollouts with columns of the schema; ``prompt``, ``reference`` and ``origin`` may stand in it too.

    Where ``problem`` is absent it is derived from the prompt, where ``answer`` is absent it is read from the completion.
    """

    table: pa.Table
    """Columns named as in :data:`breadth.runs.schema.ROLLOUT_COLUMNS`."""
    split: Split = "train"
    """train or eval."""


@dataclass(frozen=True)
class SeenSettings:
    """Settings found beside the data (a trainer's configuration)."""

    table: Mapping[str, Any]
    """As found, nested."""


@dataclass(frozen=True)
class SeenEntropy:
    """Which entropy a file logs, where it is not the one its trainer usually logs."""

    kind: EntropyKind
    """Takes the place of the importer's own."""


@dataclass(frozen=True)
class Remark:
    """Something about the input a reader of the run should know: skipped rows, repaired values, guesses made."""

    problem: str
    """What was found and what was done about it."""
    file: str = ""
    """File it is about."""
    row: int | None = None
    """1-based row, where one is to blame."""
    remedy: str = ""
    """What the user can do, where there is something to do."""

    @classmethod
    def of(cls, error: FileError) -> Remark:
        """Turn an error about one file into a remark on the rest of the run."""
        return cls(error.problem.partition(": ")[2], str(error.path), error.row, error.remedy)


Record: TypeAlias = MetricRow | RolloutBatch | SeenSettings | SeenEntropy | Remark
"""Anything an importer may yield."""
