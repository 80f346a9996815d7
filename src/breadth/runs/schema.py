"""The schema of a run folder: columns, the records an importer yields, metric rows, and the header ``run.toml``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from breadth.base import settings
from breadth.base.catalogue import LazyModule
from breadth.base.errors import BrokenFileError, FileError, NotARunError, redact_address, redact_text
from breadth.runs.names import RENAMED_METRICS

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LazyModule("pyarrow")

SCHEMA_VERSION = 1
"""Raised when a reader of the old layout would misread the new one."""

Split = Literal["train", "eval"]
"""Which problems a row is about: the ones trained on, or held-out ones."""


@dataclass(frozen=True)
class ColumnSpec:
    """One column of a rollouts or problems file."""

    name: str
    """Name on disk and in SQL."""
    type: str
    """Arrow's name of the type it is stored as."""
    meaning: str
    """What a row holds there."""

    @property
    def arrow_type(self) -> pa.DataType:
        """The type it is stored as."""
        item = self.type.removeprefix("list<").removesuffix(">")
        return pa.type_for_alias(item) if item == self.type else pa.list_(pa.type_for_alias(item))


ROLLOUT_COLUMNS = (
    ColumnSpec("step", "int64", "Optimiser step the rollout was drawn for."),
    ColumnSpec("split", "string", "train or eval."),
    ColumnSpec("problem", "string", "Id of the problem; its text is in problems.parquet."),
    ColumnSpec(
        "group",
        "string",
        "Rollouts scored together; empty where the trainer does not say, then the problem is the group.",
    ),
    ColumnSpec("sample", "int32", "Place of the rollout inside its file or group."),
    ColumnSpec("completion", "string", "Text the policy wrote."),
    ColumnSpec("answer", "string", "Final answer as stated in the text or by the trainer; null when none can be read."),
    ColumnSpec("reward", "double", "Total reward as the trainer saw it."),
    ColumnSpec(
        "correct", "bool", "Whether the answer is right; null where neither a grade nor a two-valued reward says."
    ),
    ColumnSpec("advantage", "double", "Advantage of the whole rollout."),
    ColumnSpec("tokens", "int32", "Tokens in the completion."),
    ColumnSpec("truncated", "bool", "Whether the completion was cut at the length cap."),
    ColumnSpec(
        "budget", "int64", "Thinking tokens, or the cap on tokens, it was sampled under; null where none was set."
    ),
    ColumnSpec("token_ids", "list<int32>", "Token ids of the completion."),
    ColumnSpec("logprobs", "list<float>", "Log-probability of each sampled token under the current policy."),
    ColumnSpec("old_logprobs", "list<float>", "The same under the policy that sampled."),
    ColumnSpec("entropy", "list<float>", "Entropy of the policy at each token, in nats."),
    ColumnSpec("advantages", "list<float>", "Advantage of each token."),
    ColumnSpec("mask", "list<bool>", "True where the token counts."),
    ColumnSpec("extra", "string", "What else the trainer wrote, as JSON."),
)
"""Columns of ``rollouts/*.parquet``; all but step and problem may be absent. Reward components are ``reward/<name>``.
"""

PROBLEM_COLUMNS = (
    ColumnSpec("problem", "string", "Id of the problem."),
    ColumnSpec("prompt", "string", "Prompt as the policy saw it."),
    ColumnSpec("reference", "string", "Reference answer, where the trainer has one."),
    ColumnSpec("origin", "string", "Data set or environment the problem comes from."),
)
"""Columns of ``problems.parquet``."""

REQUIRED_COLUMNS = ("step", "problem")
REWARD_PREFIX = "reward/"
ROLLOUT_COLUMN_NAMES = tuple(column.name for column in ROLLOUT_COLUMNS)
PROBLEM_COLUMN_NAMES = tuple(column.name for column in PROBLEM_COLUMNS)


@cache
def problem_schema() -> pa.Schema:
    """Return the Arrow schema of ``problems.parquet``."""
    return pa.schema([(column.name, column.arrow_type) for column in PROBLEM_COLUMNS])


@cache
def rollout_types() -> dict[str, pa.DataType]:
    """Return the Arrow type of every column of ``rollouts/*.parquet`` by its name."""
    return {column.name: column.arrow_type for column in ROLLOUT_COLUMNS}


def column_type(name: str) -> pa.DataType | None:
    """Return the type a rollouts column must have, or None when the schema has no such column."""
    if name.startswith(REWARD_PREFIX):
        return pa.float64()
    return rollout_types().get(name)


@dataclass(frozen=True)
class EntropyKind:
    """Which of the numbers called "entropy" a series is: only series of one kind may be compared.

    Trainers log at least four: exact over the vocabulary (TRL, prime-rl), the same summed with the loss's own mode
    (verl), minus the log-probability of the sampled token (tinker), importance-weighted (NeMo-RL); servers a fifth,
    over the top-k tokens.
    """

    estimator: Literal["exact", "sampled", "weighted", "top-k", "unknown"] = "unknown"
    """exact = full vocabulary; sampled = -log p of the drawn token; weighted = importance-weighted; top-k =
    renormalised top k.
    """
    temperature: float | None = None
    """Temperature the logits were divided by first; None when the log does not say."""
    aggregation: Literal["token-mean", "sequence-mean", "sequence-sum", "loss-mode", "unknown"] = "unknown"
    """How tokens became one number; loss-mode = whatever the loss uses, so nats per sequence under a summing loss."""
    token_set: Literal["response", "all", "forking", "unknown"] = "unknown"
    """Which tokens were counted."""
    top_k: int | None = None
    """How many tokens a top-k estimator sees."""

    def is_comparable(self, other: EntropyKind) -> bool:
        """Say whether two series measure the same quantity; an unknown part is comparable only within its own run."""
        return self == other and "unknown" not in (self.estimator, self.aggregation, self.token_set)


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
    """A table of rollouts with columns of the schema; it may have ``prompt``, ``reference`` and ``origin`` too.

    Where ``problem`` is absent it is derived from the prompt, where ``answer`` is absent it is read from the
    completion.
    """

    table: pa.Table
    """Columns named as in :data:`breadth.runs.schema.ROLLOUT_COLUMNS`."""
    split: Split = "train"
    """train or eval."""


@dataclass(frozen=True)
class LoggedConfig:
    """A trainer's configuration found next to its data."""

    table: Mapping[str, Any]
    """As found, nested."""


@dataclass(frozen=True)
class LoggedEntropyKind:
    """Which entropy a file logs, where it is not the one its trainer usually logs."""

    kind: EntropyKind
    """Replaces the importer's own."""


@dataclass(frozen=True)
class Remark:
    """Something about the input a reader of the run should know: skipped rows, repaired values, guesses made."""

    problem: str
    """What was found and what was done about it."""
    file: str = ""
    """File it is about."""
    row: int | None = None
    """1-based row, where one is at fault."""
    remedy: str = ""
    """What the user can do, where there is something to do."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "problem", redact_text(self.problem))
        object.__setattr__(self, "file", redact_address(self.file))

    @classmethod
    def from_error(cls, error: FileError) -> Remark:
        """Turn an error about one file into a remark on the rest of the run."""
        return cls(error.problem.partition(": ")[2], str(error.path), error.row, error.remedy)


Record: TypeAlias = MetricRow | RolloutBatch | LoggedConfig | LoggedEntropyKind | Remark
"""Anything an importer may yield."""


@dataclass(frozen=True)
class MetricPoint:
    """One row of ``metrics.jsonl``."""

    step: int
    """Optimiser step."""
    values: dict[str, float]
    """Our metric name -> number."""
    split: str = "train"
    """train or eval."""
    rank: int = 0
    """Process that wrote it."""
    attempt: int = 0
    """Restart it belongs to: 0 for the first start."""
    source: int = 0
    """Place in the header's list of files."""
    time: float | None = None
    """Unix seconds."""

    @property
    def size(self) -> int:
        """Bytes it takes in memory, about, with those of the series made from it."""
        return 770 + 90 * len(self.values)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> MetricPoint:
        """Read a stored row; raises ValueError, KeyError, TypeError or OverflowError when it is not one."""
        values = {
            as_unicode(RENAMED_METRICS.get(name, name)): float("nan") if value is None else float(value)
            for name, value in row["values"].items()
        }
        places = {key: as_integer(row[key], 32) for key in ("rank", "attempt", "source") if key in row}
        time = row.get("time")
        return cls(
            as_integer(row["step"], 64),
            values,
            as_unicode(str(row.get("split", "train"))),
            time=None if time is None else float(time),
            **places,
        )


MAX_METRICS = 10_000
"""Metrics of a run; where there are more, steps or questions are written into names."""


class MetricNames:
    """The metrics of a run, up to a limit: each is a series that instruments go through."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        """Those that are kept: the one text of each name, which parsers make again for every row."""
        self.dropped = 0
        """Values of further ones."""

    def keep_known(self, values: dict[str, float]) -> dict[str, float]:
        """Return a row's values without those of metrics over the limit."""
        known = self.known
        if values.keys() <= known.keys():
            return dict(zip(map(known.__getitem__, values), values.values(), strict=True))
        for name in values:
            if name not in known and len(known) < MAX_METRICS:
                known[name] = redact_text(name)
        kept = {known[name]: value for name, value in values.items() if name in known}
        self.dropped += len(values) - len(kept)
        return kept

    def remarks(self, file: str) -> list[Remark]:
        """Return what was left out."""
        problem = f"more than {MAX_METRICS:,} different metrics; {self.dropped:,} values of further ones were left out."
        return [Remark(problem, file, None, "Log steps and questions as values, not in names.")] if self.dropped else []


def as_integer(value: Any, bits: int) -> int:
    """Return a number as an integer of so many bits, which columns on disk have; raises where it does not fit."""
    number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{str(value)[:24]} does not fit into {bits} bits")
    return number


def as_unicode(text: str) -> str:
    """Return a text that can be written out; raises UnicodeEncodeError on half of a surrogate pair."""
    text.encode("utf-8")
    return text


HEADER_FILE = "run.toml"


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
    """The trainer: trl, verl, ...; empty when unknown."""
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

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, self.reward_levels)):
            object.__setattr__(self, "reward_levels", ())


def read_header(folder: Path) -> Header:
    """Read ``run.toml`` of a run folder."""
    path = folder / HEADER_FILE
    if not path.is_file():
        raise NotARunError(
            folder,
            f"is not a run folder (it has no {HEADER_FILE}).",
            "Point at a run folder, or make one from logs with: breadth import PATH --to RUN",
        )
    header = settings.load(Header, path)
    if header.schema > SCHEMA_VERSION:
        raise BrokenFileError(
            path,
            f"was written by a newer breadth (layout {header.schema}, this one reads {SCHEMA_VERSION}).",
            "Upgrade breadth.",
        )
    return header


def write_header(header: Header, folder: Path) -> None:
    """Write ``run.toml`` whole or not at all; a header without a date gets today's."""
    created = header.created or datetime.now(UTC).isoformat(timespec="seconds")
    settings.dump(replace(header, created=created), folder / HEADER_FILE)


def to_toml_value(value: Any) -> Any:
    """Return a foreign configuration value in a form TOML can hold; only nulls are lost."""
    if isinstance(value, Mapping):
        return {str(key): to_toml_value(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return ["null" if item is None else to_toml_value(item) for item in value]
    if isinstance(value, bool | str) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if isinstance(value, float) and not math.isnan(value):
        return value
    return str(value)
