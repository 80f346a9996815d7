"""Outcomes of rollouts, group by group: how many were sampled, how many were correct, what they answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from breadth.runs.reader import Run

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_SQL = 'step, "group", problem'
"""SQL for the columns that make a group: of one problem, as two ranks may give their groups the same numbers."""


@dataclass(frozen=True)
class Outcomes:
    """Groups of rollouts (one problem at one step), as parallel arrays."""

    steps: npt.NDArray[np.int64]
    """Step of each group."""
    problems: npt.NDArray[np.object_]
    """Problem of each group."""
    graded: npt.NDArray[np.int64]
    """Rollouts in the group whose outcome is known."""
    correct: npt.NDArray[np.int64]
    """How many of them are right."""

    def __len__(self) -> int:
        return len(self.steps)

    def select_steps(self, steps: npt.NDArray[np.int64]) -> Outcomes:
        """Keep the groups of these steps."""
        keep = np.isin(self.steps, steps)
        return Outcomes(self.steps[keep], self.problems[keep], self.graded[keep], self.correct[keep])


def correctness_sql(run: Run) -> str | None:
    """Return the SQL that says whether a rollout is right, or None when the run cannot tell.

    A grade is used where the trainer wrote one; otherwise a reward with exactly two values, the higher of which means
    right. A shaped reward (three or more values) says nothing certain about correctness, so it is not guessed at; nor
    is a reward that is no number or infinite.
    """
    levels = run.header.reward_levels or reward_levels(run)
    if len(levels) == 2:
        return f"coalesce(correct, CASE WHEN isfinite(reward) THEN reward = {float(max(levels))!r} END)"
    return "correct" if "correct" in run.columns else None


def count_outcomes(run: Run, split: str = "train") -> Outcomes | None:
    """Count drawn and right rollouts of every group; None when the run cannot tell right from wrong."""
    right = correctness_sql(run) if run.rollout_files else None
    if right is None:
        return None
    table = run.query(
        f"""SELECT step, coalesce(any_value(problem), '') AS problem, count({right}) AS graded,
                   count(*) FILTER (WHERE {right}) AS right_
            FROM rollouts WHERE split = ? GROUP BY {GROUP_SQL} HAVING count({right}) > 0 ORDER BY step""",  # noqa: S608 - column names are ours
        split,
    )
    numbers = [table.column(name).to_numpy().astype(np.int64) for name in ("step", "graded", "right_")]
    return Outcomes(numbers[0], table.column("problem").to_numpy(zero_copy_only=False), numbers[1], numbers[2])


def reward_levels(run: Run) -> tuple[float, ...]:
    """Return the distinct rewards when there are exactly two; the header of a run written live does not list them."""
    if "reward" not in run.columns or run.header.files:
        return ()
    found = run.query("SELECT DISTINCT reward FROM rollouts WHERE isfinite(reward) LIMIT 3")["reward"].to_pylist()
    return tuple(found) if len(found) == 2 else ()


@dataclass(frozen=True)
class Samples:
    """Rollouts of some steps, one entry a rollout, without their texts."""

    steps: npt.NDArray[np.int64]
    """Step of each rollout."""
    groups: npt.NDArray[np.int64]
    """Number of its group (one problem at one step)."""
    problems: npt.NDArray[np.int64]
    """Number of its problem."""
    answers: tuple[str | None, ...]
    """Its stated answer; None when none could be read."""
    correct: npt.NDArray[np.float64]
    """1 right, 0 wrong, NaN not known."""
    truncated: npt.NDArray[np.bool_]
    """Whether it was cut at the length cap; False where the trainer does not say."""
    names: tuple[str, ...]
    """Problem ids, by problem number."""

    def __len__(self) -> int:
        return len(self.steps)


def rollout_steps(run: Run, split: str = "train") -> npt.NDArray[np.int64]:
    """Return the steps that have rollouts, in order."""
    if not run.rollout_files:
        return np.empty(0, dtype=np.int64)
    sql = "SELECT DISTINCT step FROM rollouts WHERE split = ? AND step IS NOT NULL ORDER BY step"
    return np.asarray(run.query(sql, split)["step"].to_numpy())


def sample_budgets(run: Run, split: str = "eval") -> tuple[int | None, ...]:
    """Return the budgets of thinking that rollouts were sampled under, smallest first; none where there is one."""
    if "budget" not in run.columns:
        return ()
    sql = "SELECT DISTINCT budget FROM rollouts WHERE split = ? ORDER BY budget NULLS FIRST"
    found = tuple(run.query(sql, split)["budget"].to_pylist())
    return found if len(found) > 1 else ()


def budget_name(budget: int | None) -> str:
    """Return what samples under a budget are called."""
    return "no budget" if budget is None else f"budget {budget:,}"


ANY_BUDGET = -1
"""Selects the rollouts of all budgets."""


def budget_condition(budget: int | None) -> str:
    """Return the SQL that selects the rollouts of a budget, behind other conditions."""
    if budget == ANY_BUDGET:
        return ""
    return "AND budget IS NULL" if budget is None else f"AND budget = {int(budget)}"


def read_samples(run: Run, first: int, last: int, split: str = "train", budget: int | None = ANY_BUDGET) -> Samples:
    """Read answers and outcomes of the rollouts of steps ``first`` to ``last``, of all budgets or of one."""
    right = correctness_sql(run) or "NULL"
    batches = run.query_batches(
        f"""SELECT step, dense_rank() OVER (ORDER BY {GROUP_SQL}) - 1 AS group_number,
                   coalesce(problem, '') AS problem, answer,
                   CAST({right} AS DOUBLE) AS right_, coalesce(truncated, false) AS truncated
            FROM rollouts WHERE split = ? AND step BETWEEN ? AND ? {budget_condition(budget)}
            ORDER BY group_number""",  # noqa: S608 - column names are ours
        split,
        first,
        last,
    )
    names: dict[str, int] = {}
    answers: dict[str | None, int] = {}
    steps, groups, problems, places, correct, truncated = (
        np.concatenate(parts)
        for parts in zip(*(list(_batch_columns(batch, names, answers)) for batch in batches), strict=True)
    )
    sorted_names, order = np.unique(np.array(list(names), dtype=object), return_inverse=True)
    texts = np.array(list(answers), dtype=object)
    return Samples(
        steps, groups, order[problems], tuple(texts[places]), correct, truncated, tuple(sorted_names.tolist())
    )


def _batch_columns(batch: pa.RecordBatch, names: dict[str, int], answers: dict[str | None, int]) -> Iterator[Any]:
    """Yield the columns of `read_samples` as arrays of their own, which keep nothing of the batch."""
    steps, groups, problems, stated, correct, truncated = batch.columns
    yield steps.to_numpy().copy()
    yield groups.to_numpy().copy()
    yield number_texts(problems, names)
    yield number_texts(stated, answers)
    yield correct.to_numpy(zero_copy_only=False).copy()
    yield truncated.to_numpy(zero_copy_only=False)


def number_texts(column: pa.Array, known: dict[Any, int]) -> npt.NDArray[np.int32]:
    """Return the number of each row's text; ``known`` gets the new ones: a text that many rows have is there once."""
    encoded = column.dictionary_encode(null_encoding="encode")
    numbers = [known.setdefault(text, len(known)) for text in encoded.dictionary.to_pylist()]
    found: npt.NDArray[np.int32] = np.asarray(numbers, np.int32)[encoded.indices.to_numpy()]
    return found


MAX_TEXT_CHARACTERS = 1_000_000
"""Characters of a completion that instruments look at: the longest of models have half as many."""


def sample_texts(
    run: Run, first: int, last: int, max_texts: int, split: str = "train", budget: int | None = ANY_BUDGET
) -> list[str]:
    """Return at most ``max_texts`` completions of these steps, the same ones every time, spread over problems."""
    if not run.rollout_files:
        return []
    table = run.query(
        f"""SELECT left(completion, {MAX_TEXT_CHARACTERS}) AS completion FROM rollouts
            WHERE split = ? AND step BETWEEN ? AND ? AND completion IS NOT NULL
            {budget_condition(budget)} ORDER BY hash(problem, step, sample) LIMIT ?""",  # noqa: S608 - numbers of ours
        split,
        first,
        last,
        max_texts,
        steps=(first, last),
    )
    found: list[str] = table.column("completion").to_pylist()
    return found
