"""Read any JSONL, CSV, JSON or Parquet of rows whose columns are named obviously, or mapped by the user."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from breadth.adapters.generic.console import CONSOLE_KIND, is_console_log, read_console
from breadth.adapters.generic.layout import (
    ARM,
    IDENTIFYING_COLUMNS,
    OUTCOME_COLUMNS,
    ROLLOUT_NAMES,
    Layout,
    chart_names,
    check_mapping,
    choose_layout,
    content_of_mapping,
    describe_unmapped,
    infer_layout,
    is_evaluation,
    is_unmapped_rollouts,
    rollout_layout,
)
from breadth.adapters.generic.tables import (
    MIN_COMPLETION_CHARS,
    NumberedRows,
    flatten_row,
    is_numeric,
    preview_document,
    preview_table,
    read_rows,
)
from breadth.adapters.notebooks import is_notebook
from breadth.adapters.parse_values import (
    MIN_UNIX_TIME,
    MetricReader,
    RowReader,
    arrow_type,
    as_number,
    as_split,
    as_step,
    as_text,
    metric_rows,
)
from breadth.base.errors import UnknownFormatError, nearest_name
from breadth.runs.schema import EntropyKind, MetricRow, Record, Remark, RolloutBatch, Split
from breadth.runs.writer import problem_id


@dataclass(frozen=True)
class GenericImporter:
    """Reads tables of metrics (one row per step) and of rollouts (one row per completion), and console logs.

    Rows with a completion, an answer, a grade or a problem are rollouts, others metrics. Rollouts without a step are
    taken as one evaluation, at step 0. A table that stacks several runs or conditions (models, temperatures), or whose
    rows sum up many samples, is refused: neither is a run. `split_stacked_runs` reads the runs of a stacked table one
    by one. Budgets of thinking stay in one run: their curve is what a sweep is about.

    ``GenericImporter({"step": "iteration", "reward": "score"})`` reads a file with names of its own.
    """

    mapping: Mapping[str, str] = field(default_factory=dict)
    """Our name -> the file's column. What it does not name is found by obvious names."""
    only: tuple[tuple[str, str], ...] = ()
    """Columns, each with its value in the rows to read: one run of a table that stacks several."""

    trainer = "generic"
    """Name in the catalogue: the file does not say which trainer wrote it."""
    entropy = EntropyKind()
    """Unknown: a column called entropy does not say how it was estimated."""
    switches = MappingProxyType(
        {
            "rollouts": (
                "write one JSON object per completion: step, prompt, completion, reward (and answer, correct, tokens"
                " where known)"
            ),
            "entropy": "add a column 'entropy': the mean entropy of the sampled tokens' distributions, in nats",
            "reward": "add a column 'reward': the mean reward of the step's rollouts",
            "correct": "add a column 'correct', or name yours: --map correct=COLUMN",
            "truncated": "add a column 'truncated_ratio': the share of completions cut at the length cap",
        }
    )
    """What to write into the file."""

    def __post_init__(self) -> None:
        check_mapping(self.mapping)

    def recognises(self, path: Path, start: bytes) -> str | None:
        """Look at the columns; with a mapping, the file must have a column it names, or one spelled much like it.

        Completions whose columns have names of their own are refused with the mapping to give.
        """
        if is_notebook(path):  # its cells are no rows
            return CONSOLE_KIND if not self.mapping and is_console_log(path, start) else None
        seen = preview_table(path, start)
        layout = infer_layout(seen.columns) if seen else None
        if not layout and (inside := preview_document(path, start)) is not None:
            seen, layout = inside, infer_layout(inside.columns)
        is_asked = seen is not None and not layout and not self.mapping and b"\n" in start.strip()
        if seen and is_asked and is_unmapped_rollouts(seen.columns, seen.long_texts):
            raise no_mapping_error(path, seen.columns)
        if not layout and not self.mapping and is_console_log(path, start):
            return CONSOLE_KIND
        if seen is None:
            return None
        if layout and (layout.content == "rollouts" or not self.mapping):
            return f"{seen.format} {self._describe_content(layout.content, seen.columns)}"
        meant = (
            layout or not seen.columns or any(nearest_name(theirs, seen.columns) for theirs in self.mapping.values())
        )
        content = self._describe_content(content_of_mapping(self.mapping), seen.columns)
        return f"{seen.format} {content}" if meant else None

    def _describe_content(self, content: str, columns: Collection[str]) -> str:
        """Return what one file holds; samples without a step are an evaluation, which is a run of its own."""
        return (
            "evaluation" if content == "rollouts" and is_evaluation(rollout_layout(columns, self.mapping)) else content
        )

    def current(self, files: Sequence[Path]) -> Sequence[Path]:
        """Keep all: how these files belong together is not known."""
        return files

    def read(self, path: Path, kind: str) -> Iterator[Record]:
        """Yield the rows under our names; the first batch decides what the columns are."""
        if kind == CONSOLE_KIND:
            yield from read_console(path)
            return
        form, _, content = kind.partition(" ")
        table: MetricTable | RolloutTable | None = None
        for found in read_rows(path, form):
            if isinstance(found, Remark):
                yield found
            elif batch := self._own_rows(found):
                if content == "metrics":
                    batch = [(number, flatten_row(row)) for number, row in batch]
                table = table or self._open_table(batch, path, content)
                yield from table.records(batch)
                batch.clear()
            del found  # a row may take half a gigabyte, and the next as much
        yield from table.remarks() if table else ()

    def split_stacked_runs(self, path: Path, kind: str) -> dict[str, GenericImporter]:
        """Return an importer for each run of a table that stacks several, by name; empty for any other table."""
        if kind == CONSOLE_KIND:
            return {}
        form, _, content = kind.partition(" ")
        batches = (() if isinstance(batch, Remark) else batch for batch in read_rows(path, form))
        run_columns = () if content == "evaluation" else RUN_COLUMNS
        arm_columns = () if content == "metrics" else self._arm_columns(content)
        runs = find_stacked_runs(batches, run_columns, arm_columns)
        return {describe_run(run): replace(self, only=run) for run in runs}

    def _own_rows(self, batch: NumberedRows) -> NumberedRows:
        if not self.only:
            return batch
        return [
            (number, row)
            for number, row in batch
            if all(name in row and as_text(row[name]) == value for name, value in self.only)
        ]

    def _open_table(self, batch: NumberedRows, path: Path, content: str) -> MetricTable | RolloutTable:
        columns = dict.fromkeys(name for _, row in batch for name in row)
        layout = choose_layout(columns, self.mapping, content)
        if content == "metrics":
            return MetricTable(layout, columns, path)
        return RolloutTable(layout, batch, path, arms=() if self.only else self._arm_columns(content))

    def _arm_columns(self, content: str) -> tuple[str, ...]:
        """Return the columns whose values are conditions; the data set of a training run is none."""
        named = EVALUATION_ARM_COLUMNS if content == "evaluation" else ARM_COLUMNS
        theirs = {name.casefold() for ours, name in self.mapping.items() if ours != ARM}
        mapped = (self.mapping[ARM].casefold(),) if ARM in self.mapping else ()
        return (*mapped, *(name for name in named if name not in theirs and name not in mapped))


IMPORTER = GenericImporter()
"""The importer in the catalogue."""


BUDGET_NAMES = frozenset(ROLLOUT_NAMES["budget"])
"""Columns that hold budgets of thinking, where they hold numbers."""
RUN_COLUMNS = ("run", "run_id", "run_name", "run_file", "experiment", "exp_name")
"""Columns that identify runs."""
MODEL_COLUMNS = ("model", "model_name", "model_alias")
"""Columns that identify policies."""
ARM_COLUMNS = (ARM, "condition", "variant", "policy", *MODEL_COLUMNS)
"""Columns whose values are conditions: samples of two are never one policy's."""
EVALUATION_ARM_COLUMNS = (
    *ARM_COLUMNS,
    *("temperature", "dataset", "data_source", "benchmark", "decile", "effort", "reasoning_effort", "strategy"),
    *ROLLOUT_NAMES["budget"],
)
"""The same in an evaluation; a training run may have several data sets. Budgets that are numbers are no conditions."""
SUMMARY_COLUMNS = ("num_votes", "n_votes", "voting_method", "num_samples", "n_samples", "num_correct", "n_correct")
"""Columns that only a summary of many samples has."""
MAX_SHOWN_VALUES = 3
MAX_STACKED_RUNS = 50
"""Runs of one table that are read."""


class DistinctValues:
    """Collects the distinct values of the columns that identify runs or models."""

    def __init__(self, columns: Iterable[str], wanted: Collection[str], path: Path) -> None:
        self.columns = [name for name in columns if name.casefold() in wanted]
        """The file's columns of this kind."""
        self._path, self._wanted = path, wanted
        self._seen: dict[str, set[str]] = {name: set() for name in self.columns}

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the values of a batch of rows."""
        for row in rows:
            for name in self.columns:
                if len(self._seen[name]) <= MAX_SHOWN_VALUES and is_condition(name, row.get(name), self._wanted):
                    self._seen[name].add(as_text(row[name])[:80])

    @property
    def condition_column(self) -> str:
        """The column that holds several values; empty if none does."""
        return next((name for name, values in self._seen.items() if len(values) > 1), "")

    @property
    def is_numeric(self) -> bool:
        """Whether the column that holds several values holds numbers."""
        return all(as_number(value) is not None for value in self._seen.get(self.condition_column, ()))

    @property
    def description(self) -> str:
        """The column that holds several values, with some of them; empty if none does."""
        name = self.condition_column
        return f"{name!r}: {', '.join(sorted(self._seen[name])[:MAX_SHOWN_VALUES])}, ..." if name else ""

    def refuse_several(self) -> None:
        """Raise if the rows belong to more than one run."""
        if self.description:
            raise several_runs_error(self._path, self.description)


StackedRun = tuple[tuple[str, str], ...]
"""A run of a table: columns, each with its value."""


def find_stacked_runs(
    batches: Iterable[Iterable[tuple[int, Mapping[str, Any]]]], run_columns: Collection[str], arms: Collection[str]
) -> list[StackedRun]:
    """Return the runs and conditions of a table; none if it holds one, or too many.

    A run is a combination of values; a column that says the same as those before it, in other words, is left out.
    """
    seen: dict[StackedRun, None] = {}
    for _, row in chain.from_iterable(batches):
        if len(seen) <= MAX_STACKED_RUNS**2:
            wanted = (name for name in row if is_condition(name, row[name], (*run_columns, *arms)))
            seen[tuple((name, as_text(row[name])) for name in wanted)] = None
        del row  # it may take half a gigabyte, and the next as much
    values: dict[str, set[str]] = {}
    for name, value in (pair for run in seen for pair in run):
        values.setdefault(name, set()).add(value)
    varied = [name for name, seen_values in values.items() if len(seen_values) > 1]
    found: dict[StackedRun, None] = {}
    kept: list[str] = []
    for name in varied:
        finer = dict.fromkeys(tuple(pair for pair in run if pair[0] in (*kept, name)) for run in seen)
        if len(finer) > len(found):
            found, kept = finer, [*kept, name]
    return [run for run in found if run] if 1 < len(found) <= MAX_STACKED_RUNS else []


def is_condition(name: str, value: Any, wanted: Collection[str]) -> bool:
    """Say whether a cell says which run or condition its row is of; a budget that is a number does not."""
    folded = name.casefold()
    return value is not None and folded in wanted and not (folded in BUDGET_NAMES and as_number(value) is not None)


def describe_run(run: StackedRun) -> str:
    """Return the name of a run of a table: its id, and each condition with its column."""
    return ", ".join(value if name.casefold() in RUN_COLUMNS else f"{name}={value}" for name, value in run)


def several_runs_error(path: Path, found: str) -> UnknownFormatError:
    """Return the error for a table that stacks runs."""
    return UnknownFormatError(
        path,
        f"holds rows of several runs ({found}); read as one, each would look like a restart of the previous one.",
        f"Write one file per run and import them one by one; `breadth doctor` reads up to {MAX_STACKED_RUNS} runs of a"
        " table separately.",
    )


def several_conditions_error(path: Path, several: DistinctValues) -> UnknownFormatError:
    """Return the error for a table that stacks conditions, with the mappings that say what else the column may be."""
    column = shlex.quote(several.condition_column)
    budget = f" If it is the budget of thinking: --map budget={column}." if several.is_numeric else ""
    return UnknownFormatError(
        path,
        f"holds samples under several conditions ({several.description}); pooled, they would be those of a policy that"
        " nobody ran.",
        f"breadth's commands read up to {MAX_STACKED_RUNS} conditions of a table separately; write more of them to one"
        f" file each.{budget} If the column only describes the problems: --map origin={column}",
    )


def refuse_summaries(columns: Iterable[str], path: Path) -> None:
    """Raise if each row sums up many samples."""
    name = next((name for name in columns if name.casefold() in SUMMARY_COLUMNS), None)
    if name:
        raise UnknownFormatError(
            path, f"has one row for many samples (column {name!r}), not one for each.", "Import the single samples."
        )


MAX_ROWS_PER_STEP = 2
"""Rows with the same metric at one step that a log may have: two processes may write into it."""
MAX_WRITERS = 16
"""Rows with the same metric at one step that the processes of one machine may have written."""


def refuse_unmapped_rollouts(rows: NumberedRows, step: str, aside: Collection[str | None], path: Path) -> None:
    """Raise for rows that are completions, not metrics: their numbers would be shown as those of training steps.

    Many rows at one step give them away, with a long text, an answer, a grade or a problem; or a text and a problem.
    """
    columns: dict[str, bool] = {}
    for _, row in rows[:8]:
        columns |= {name: columns.get(name, False) or is_numeric(value) for name, value in row.items()}
    texts = [
        value
        for _, row in rows[:8]
        for name, value in row.items()
        if isinstance(value, str) and name not in aside and not is_numeric(value)
    ]
    found = set(rollout_layout(columns, {}).columns.values())
    has_text = max(map(len, texts), default=0) >= MIN_COMPLETION_CHARS
    has_problem = bool(found & IDENTIFYING_COLUMNS)
    crowd = rows_per_step(rows, step, aside)
    is_rollout = has_text or has_problem or bool(found & OUTCOME_COLUMNS)
    if (has_text and has_problem) or (is_rollout and crowd > MAX_ROWS_PER_STEP):
        raise no_mapping_error(path, columns)
    if crowd > MAX_WRITERS:
        raise UnknownFormatError(
            path,
            f"holds {crowd:.0f} rows for each step, where a log has one.",
            f"If a row is a completion, say which column is what: {describe_unmapped(columns)[1]}. If not, keep one row"
            " of each step.",
        )


def no_mapping_error(path: Path, columns: Mapping[str, bool]) -> UnknownFormatError:
    """Return the error for completions whose columns have names of their own, with the mapping to copy."""
    problem, options = describe_unmapped(columns)
    return UnknownFormatError(path, problem, f"Say which column is what: {options}")


def rows_per_step(rows: NumberedRows, step: str, aside: Collection[str | None]) -> float:
    """Return how many rows a step has on average, counted for the column that is filled most often."""
    steps = {as_text(row[step]) for _, row in rows if row.get(step) is not None}
    if len(rows) <= MAX_ROWS_PER_STEP * len(steps) or not steps:
        return 1.0
    filled = Counter(name for _, row in rows for name, value in row.items() if value is not None and name not in aside)
    return max(filled.values(), default=0) / len(steps)


PROCESS_CLOCKS = ("train/step", "rollout/step", "eval/step")
"""Steps that slime's processes log separately: a row has the one of its own process."""


class MetricTable:
    """Reads the batches of one table and counts its problems."""

    def __init__(self, layout: Layout, columns: Collection[str], path: Path) -> None:
        self._path = path
        self._step, self._time, self._split = (layout.their_name(name) for name in ("step", "time", "split"))
        self._runs = DistinctValues(
            (name for name in columns if name not in layout.columns), {*RUN_COLUMNS, *MODEL_COLUMNS}, path
        )
        clocks = [name for name in PROCESS_CLOCKS if name in columns] if self._step in PROCESS_CLOCKS else []
        self._clocks = clocks or ([self._step] if self._step else [])
        self._counts_epochs = (self._step or "").casefold() == "epoch"
        self._aside = {self._step, self._split, *self._runs.columns, *clocks}
        self._names = self._chart_metrics(columns) or dict(layout.columns)
        self._taken = set(self._names.values())
        self._reader = MetricReader()
        self._without_step = self._first_without_step = 0

    def records(self, rows: NumberedRows) -> Iterator[Record]:
        """Yield the metric rows of a batch."""
        self._runs.add(row for _, row in rows)
        self._runs.refuse_several()
        if self._step and rows:
            refuse_unmapped_rollouts(rows, self._step, {*self._aside, self._time}, self._path)
        for number, row in rows:
            step = self._step_of(row)
            if self._step and step is None and not self._counts_epochs:
                self._without_step += 1
                self._first_without_step = self._first_without_step or number
            else:
                yield from self._metric_rows(row, number, step)

    def _step_of(self, row: Mapping[str, Any]) -> int | None:
        """Return the step that a row names; None without one, and for a part of an epoch."""
        return next((step for name in self._clocks if (step := as_step(row.get(name))) is not None), None)

    def remarks(self) -> list[Remark]:
        """Return the problems of the table, once it is read."""
        remarks = self._reader.remarks(self._path)
        if self._without_step:
            problem = f"{self._without_step} rows have no step under {self._step!r}; left out."
            remarks.append(
                Remark(problem, str(self._path), self._first_without_step, "Map another column: step=COLUMN.")
            )
        return remarks

    def _chart_metrics(self, columns: Collection[str]) -> dict[str, str]:
        """Return the metric names of an exported chart; empty for any other table."""
        chart = chart_names(name for name in columns if name not in self._aside)
        runs = sorted({run for run, _ in chart.values()})
        if len(runs) > 1:
            raise several_runs_error(self._path, f"{', '.join(runs[:3])}, ...")
        self._aside |= {name for name in columns if chart and name not in chart}
        return {name: metric for name, (_, metric) in chart.items()}

    def _metric_rows(self, row: Mapping[str, Any], number: int, step: int | None) -> list[MetricRow]:
        time = unix_time(row.get(self._time)) if self._time else None
        aside = self._aside if time is None else {*self._aside, self._time}
        figures = {
            self._metric_name(name): value for name, value in row.items() if value is not None and name not in aside
        }
        values = self._reader.numbers(figures, number)
        if self._split and as_split(row.get(self._split) or "train") == "eval":
            return [MetricRow(values, step, time, "eval")] if values else []
        return metric_rows(values, step, time)

    def _metric_name(self, column: str) -> str:
        """Return a column's metric; a name that another column is mapped to becomes ``raw/...``."""
        return self._names.get(column) or (f"raw/{column}" if column in self._taken else column)


def unix_time(value: Any) -> float | None:
    """Return a time in Unix seconds: from seconds, a date or its ISO text; None if it is not one."""
    seconds = as_number(value)
    if isinstance(value, str) and seconds is None:
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        seconds = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return seconds if seconds is not None and MIN_UNIX_TIME < seconds < MIN_UNIX_TIME * 1000 else None


ADDED_COLUMNS = {"breadth/step": "step", "breadth/problem": "problem"}
"""Keys added to rows whose file has no such column; no file has columns of these names."""
UNKNOWN_PROBLEM = "unknown"
"""Problem of rows that do not name one."""
BOOLEAN_WORDS = {"true": True, "yes": True, "false": False, "no": False}


class RolloutTable:
    """Reads the batches of one table and counts its problems."""

    def __init__(self, layout: Layout, batch: NumberedRows, path: Path, arms: Collection[str] = ()) -> None:
        columns = dict.fromkeys(name for _, row in batch for name in row)
        refuse_summaries((name for name in columns if name not in layout.columns), path)
        self._path, self._layout = path, layout
        self._step, self._split, self._problem, self._prompt = (
            layout.their_name(name) for name in ("step", "split", "problem", "prompt")
        )
        self._columns = {
            theirs: ours
            for theirs, ours in layout.columns.items()
            if theirs != self._split and ours != ARM and fits_column(theirs, ours, batch)
        }
        self._exact = [theirs for theirs, ours in self._columns.items() if not pa.types.is_floating(arrow_type(ours))]
        self._truths = [theirs for theirs, ours in self._columns.items() if pa.types.is_boolean(arrow_type(ours))]
        self._runs = DistinctValues(columns, RUN_COLUMNS if self._step else (), path)
        self._arms = DistinctValues(columns, arms, path)
        self._without_step = self._without_problem = 0

    def records(self, rows: NumberedRows) -> Iterator[Record]:
        """Yield the rollouts of a batch, training and evaluation separately."""
        for several in (self._runs, self._arms):
            several.add(row for _, row in rows)
        self._runs.refuse_several()
        if self._arms.condition_column:
            raise several_conditions_error(self._path, self._arms)
        parts: dict[Split, NumberedRows] = {}
        for number, row in rows:
            parts.setdefault(self._split_of(row), []).append((number, self._prepare(row)))
        reader = RowReader({**self._columns, **ADDED_COLUMNS}, frozenset({self._split} if self._split else ()))
        for split, part in parts.items():
            table, remarks = reader.table([row for _, row in part], self._path, [number for number, _ in part])
            yield from remarks
            yield RolloutBatch(table, split)

    def remarks(self) -> list[Remark]:
        """Return the assumptions and problems of the table, once it is read."""
        remarks = [self._layout.guess] if self._layout.guess else []
        if not self._step:
            remarks.append("rows carry no step; they were read as one evaluation, at step 0.")
        if self._without_step:
            remarks.append(f"{self._without_step} rows have no step under {self._step!r}; they were put at step 0.")
        if self._without_problem:
            remarks.append(
                f"{self._without_problem} rows do not say which problem they are about; they share the problem"
                f" '{UNKNOWN_PROBLEM}'."
            )
        return [Remark(problem, str(self._path)) for problem in remarks]

    def _split_of(self, row: Mapping[str, Any]) -> Split:
        if self._split and row.get(self._split) is not None:
            return as_split(row[self._split])
        return "train" if self._step else "eval"

    def _prepare(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with step and problem filled in; NaN for missing and truth as text are converted."""
        ready = {name: value for name, value in row.items() if value is not None}
        for name in self._exact:
            if type(ready.get(name)) is float and math.isnan(ready[name]):
                del ready[name]
        for name in self._truths:
            if isinstance(ready.get(name), str):
                ready[name] = BOOLEAN_WORDS.get(ready[name].strip().casefold(), ready[name])
        step = as_step(row.get(self._step)) if self._step else 0
        self._without_step += step is None
        ready[self._step or "breadth/step"] = step or 0
        if self._problem is None or ready.get(self._problem) is None:  # a column may be called ""
            prompt = ready.get(self._prompt) if self._prompt else None
            self._without_problem += prompt is None
            ready[self._problem or "breadth/problem"] = (
                UNKNOWN_PROBLEM if prompt is None else problem_id(as_text(prompt))
            )
        return ready


def fits_column(theirs: str, ours: str, batch: NumberedRows) -> bool:
    """Whether a column can be one of ours: a per-token one must hold lists (a mean goes to ``extra``)."""
    first = next((row[theirs] for _, row in batch if row.get(theirs) is not None), None)
    if ours == "budget":
        return first is None or as_number(first) is not None
    return not pa.types.is_list(arrow_type(ours)) or first is None or isinstance(first, list)
