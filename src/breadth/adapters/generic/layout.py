"""Choose the meaning of the columns of a foreign table: by the user's mapping, then by obvious names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from breadth.adapters.parse_values import strip_held_out_prefix
from breadth.base.errors import SettingsError, suggestion
from breadth.runs.names import METRIC_NAMES, match_name
from breadth.runs.schema import PROBLEM_COLUMN_NAMES, REWARD_PREFIX, ROLLOUT_COLUMN_NAMES

Content = Literal["metrics", "rollouts"]
STEP_NAMES = (
    "step",
    "global_step",
    "train/global_step",
    "trainer/global_step",
    "training/global_step",
    "training_global_step",
    "system/global_step",
    "system/step",
    "training_step",
    "train_step",
    "train/step",
    "rollout/step",
    "trainer/step",
    "optim/step",
    "progress/step",
    "global_step/max_steps",
    "_step",
    "iteration",
    "iter",
)
"""Names of the step, best first: Weights & Biases' ``_step`` counts log calls, so the trainer's own comes before it."""
COARSE_STEP_NAMES = (
    *("update", "update_step", "num_updates", "rollout_id", "batch_index", "batch_idx", "batch", "round", "cycle"),
    *("episode", "epoch"),
)
MIN_STEPLESS_METRICS = 3
"""Metrics of training from which on a table of numbers alone is a log without its steps: the rows are in order."""
METRIC_STEP_NAMES = (*STEP_NAMES, *COARSE_STEP_NAMES)
"""Names of the step in a table of metrics: the coarse ones where nothing finer is there."""
TIME_NAMES = ("_timestamp", "timestamp", "wall_time", "time")
ROLLOUT_NAMES: Mapping[str, tuple[str, ...]] = {
    "problem": ("question_id", "problem_id", "prompt_id", "example_id", "task_id", "qid"),
    "prompt": ("prompt", "question", "problem", "query", "input"),
    "completion": ("completion", "response", "generation", "output", "model_output", "generated_text"),
    "answer": ("predicted_answer", "extracted_answer", "parsed_answer", "model_answer", "prediction", "pred", "answer"),
    "reference": ("reference", "reference_answer", "ground_truth", "gold_answer", "expected_answer", "gold", "target"),
    "correct": ("correct", "is_correct", "passed", "success"),
    "reward": ("reward", "score"),
    "advantage": ("advantage",),
    "tokens": (
        "n_tokens",
        "num_tokens",
        "completion_tokens",
        "response_tokens",
        "token_count",
        "completion_length",
        "response_length",
    ),
    "truncated": ("truncated", "is_truncated"),
    "sample": ("sample_index", "sample_idx", "sample_id", "sample", "completion_id"),
    "group": ("group", "group_id", "uid"),
    "budget": (
        "budget",
        "thinking_budget",
        "token_budget",
        "reasoning_budget",
        "budget_tokens",
        "max_thinking_tokens",
        "max_tokens",
        "max_new_tokens",
        "max_completion_tokens",
    ),
    "origin": ("data_source", "dataset", "env_name", "origin"),
    **{name: (name,) for name in ("split", "token_ids", "logprobs", "old_logprobs", "entropy", "advantages", "mask")},
}
"""Our column -> names that obviously mean it, best first."""
OUTCOME_COLUMNS = frozenset({"completion", "answer", "correct"})
"""At least one of these makes a row a rollout."""
IDENTIFYING_COLUMNS = frozenset({"problem", "prompt"})
"""One of these says what the rollout is about."""
ID_NAMES = frozenset({"id", "idx", "index", "uid", "uuid", "item", "item_id", "row_id"})
"""Names of a column that may say what a row is about, or only number the rows."""
TEXT_NAMES = frozenset(
    {*ROLLOUT_NAMES["completion"], "text", "content", "reply", "solution", "generated", "transcript"}
)
"""Names of a column that holds what a model wrote, however short it is."""
ARM = "arm"
"""Name of a column whose values are conditions: the rows of each are a run of their own."""
MAPPABLE_NAMES = frozenset({*ROLLOUT_COLUMN_NAMES, *PROBLEM_COLUMN_NAMES, *METRIC_NAMES, "time", ARM} - {"extra"})
"""Names a mapping may give."""
CHART_COLUMN = re.compile(r"(.+) - (.+?)(__MIN|__MAX)?")
"""Columns of a chart exported from Weights & Biases: run, metric, and the ends of its band."""


@dataclass(frozen=True)
class Layout:
    """What a table holds and which column is what."""

    content: Content
    """One row per step, or one row per completion."""
    columns: Mapping[str, str]
    """Their column -> ours, for those that have one."""
    guess: str = ""
    """A choice between two meanings that the user should know of."""

    def their_name(self, ours: str) -> str | None:
        """Return the file's name of one of our columns."""
        return next((theirs for theirs, name in self.columns.items() if name == ours), None)


def check_mapping(mapping: Mapping[str, str]) -> None:
    """Refuse a mapping with a left side that is not one of our names."""
    for ours in mapping:
        if ours not in MAPPABLE_NAMES and not ours.startswith(REWARD_PREFIX):
            raise SettingsError(
                f"A mapping gives '{ours}', which is no column or metric of ours.",
                suggestion(ours, MAPPABLE_NAMES, "names"),
            )


def is_evaluation(layout: Layout) -> bool:
    """Say whether rows are samples without a step of training: one evaluation."""
    return layout.content == "rollouts" and layout.their_name("step") is None


def content_of_mapping(mapping: Mapping[str, str]) -> Content:
    """Return what a mapping describes: a grade, a text or a problem makes it rollouts."""
    return "rollouts" if not (OUTCOME_COLUMNS | IDENTIFYING_COLUMNS).isdisjoint(mapping) else "metrics"


def choose_layout(columns: Collection[str], mapping: Mapping[str, str], content: str) -> Layout:
    """Return what each column is; a mapping to a column that the file does not have is an error."""
    for ours, theirs in mapping.items():
        if theirs not in columns:
            problem = f"The mapping says {ours}={theirs}, but the file has no column '{theirs}'."
            raise SettingsError(problem, suggestion(theirs, columns, "columns of the file"))
    layout = metric_layout(columns, mapping) if content == "metrics" else rollout_layout(columns, mapping)
    if layout.content == "rollouts" and IDENTIFYING_COLUMNS.isdisjoint(layout.columns.values()):
        raise SettingsError(
            "These rows are rollouts, but nothing says which problem each is about.",
            "Add problem=COLUMN (an id) or prompt=COLUMN (the text).",
        )
    return layout


def infer_layout(columns: Mapping[str, bool]) -> Layout | None:
    """Return the layout of a table by its columns' names alone (column -> whether it holds numbers), or None."""
    rollouts = rollout_layout(columns, {})
    found = set(rollouts.columns.values())
    if found & IDENTIFYING_COLUMNS and found & OUTCOME_COLUMNS:
        return rollouts
    metrics = metric_layout(columns, {})
    numbers = [
        name for name, numeric in columns.items() if numeric and metrics.columns.get(name) not in ("step", "time")
    ]
    step = metrics.their_name("step")
    if step is None:
        known = {match[0] for name in numbers if is_training_metric(name) and (match := match_name(name))}
        return metrics if len(known) >= MIN_STEPLESS_METRICS and all(columns.values()) else None
    if not numbers:
        return None
    is_enough = step.casefold() not in COARSE_STEP_NAMES or any(map(is_training_metric, numbers))
    return metrics if is_enough else None


def is_training_metric(name: str) -> bool:
    """Whether a column means a metric of ours that only training logs."""
    found = match_name(strip_held_out_prefix(name) or name)
    return found is not None and found[0] not in ("epoch", "length", "seconds_per_step", "tokens_seen")


def is_unmapped_rollouts(columns: Mapping[str, bool], long_texts: Collection[str]) -> bool:
    """Say whether rows without a step are completions whose columns have names of their own, and no log.

    They have a text and something that says what it is about, and fewer metrics of training than a log.
    """
    if metric_layout(columns, {}).their_name("step") is not None:
        return False
    found = rollout_layout(columns, {}).columns
    has_id = not ID_NAMES.isdisjoint(map(str.casefold, columns)) or not {"problem", "sample", "group"}.isdisjoint(
        found.values()
    )
    texts = {name for name, numeric in columns.items() if not numeric and name.casefold() in TEXT_NAMES}
    metrics = {match[0] for name in columns if is_training_metric(name) and (match := match_name(name))}
    return has_id and bool(texts | set(long_texts)) and len(metrics) < MIN_STEPLESS_METRICS


def describe_unmapped(columns: Mapping[str, bool]) -> tuple[str, str]:
    """Return the problem of rollouts that lack a column's name we know, and the options of the mapping to copy.

    ``columns``: column -> whether it holds numbers.
    """
    found = {ours: theirs for theirs, ours in rollout_layout(columns, {}).columns.items()}
    texts = [name for name, numeric in columns.items() if not numeric and name not in found.values()]
    numbers = [
        name
        for name, numeric in columns.items()
        if numeric and name not in found.values() and name.casefold() not in ID_NAMES
    ]
    unknown = []
    if IDENTIFYING_COLUMNS.isdisjoint(found):
        unknown.append("problem")
        found["problem"] = "COLUMN"
    if {"reward", "correct"}.isdisjoint(found):
        found["reward"] = numbers.pop() if len(numbers) == 1 else "COLUMN"
    if "completion" not in found:
        unknown.append("completion")
        if candidates := texts or numbers:  # rollouts may do without: a grade is enough
            found["completion"] = candidates[0] if len(candidates) == 1 else "COLUMN"
    pairs = [f"--map {ours}={shlex.quote(theirs)}" for ours, theirs in found.items()]
    return (
        f"holds one row per completion, not per step, and its columns ({', '.join(columns)}) do not say which is the"
        f" {' and which the '.join(unknown)}.",
        " ".join(pairs),
    )


def chart_names(columns: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return column -> (run, metric) if every column is one of an exported chart; the ends of bands are dropped."""
    found = {name: CHART_COLUMN.fullmatch(name) for name in columns}
    if not found or not all(found.values()):
        return {}
    return {name: (match[1], match[2]) for name, match in found.items() if match and not match[3]}


def metric_layout(columns: Iterable[str], mapping: Mapping[str, str]) -> Layout:
    """Return the layout of a table of metrics."""
    found = {theirs: ours for ours, theirs in mapping.items()}
    for ours, names in (("step", METRIC_STEP_NAMES), ("time", TIME_NAMES), ("split", ("split",))):
        match_column(found, ours, names, columns)
    return Layout("metrics", found)


def rollout_layout(columns: Iterable[str], mapping: Mapping[str, str]) -> Layout:
    """Return the layout of a table of rollouts."""
    found = {theirs: ours for ours, theirs in mapping.items()}
    for ours, names in (("step", STEP_NAMES), *ROLLOUT_NAMES.items()):
        match_column(found, ours, names, columns)
    if (
        "completion" in found.values()
        and found.get("answer") == "answer"
        and "answer" not in mapping
        and "reference" not in found.values()
    ):
        # Next to a completion, data sets keep the right answer under this name.
        found["answer"] = "reference"
        return Layout(
            "rollouts",
            found,
            "column 'answer' was taken for the reference; if it is the model's own answer, map answer=answer.",
        )
    return Layout("rollouts", found)


def match_column(found: dict[str, str], ours: str, names: Iterable[str], columns: Iterable[str]) -> None:
    """Find the best-named column for one of ours, unless the mapping has one."""
    folded = {column.casefold(): column for column in columns if column not in found}
    best = next((folded[name] for name in names if name in folded), None)
    if best is not None and ours not in found.values():
        found[best] = ours
