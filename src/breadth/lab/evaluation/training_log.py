"""How a training run went on its own problems, generation by generation, read from its run folder.

Nothing is sampled for it: the run folder holds every rollout that was trained on.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.lab.task.grammar import END, ReplyTrace, TokenRole, parse
from breadth.lab.task.problems import read_problem
from breadth.measure.intervals import UNBOUNDED, Bounds, Interval, check_level, t_critical
from breadth.measure.validate import FloatArray, as_finite
from breadth.runs.reader import Run

GENERATIONS_AT_END = 5
"""Generations that the first and the last numbers of a series are means of."""

QUERY = """
    SELECT step, "group", reward, truncated, entropy FROM rollouts
    WHERE split = 'train' ORDER BY step, "group", sample
"""
ROUTES_QUERY = """
    SELECT step, "group", reward, truncated, entropy, completion, prompt FROM rollouts JOIN problems USING (problem)
    WHERE split = 'train' ORDER BY step, "group", sample
"""


@dataclass(frozen=True)
class TrainingLog:
    """One number per generation, NaN where there is none; a series that was not read is empty."""

    steps: tuple[int, ...]
    """Optimizer step at which the generation was sampled."""
    reward: tuple[float, ...]
    """Mean reward, which is the share of right replies."""
    entropy: tuple[float, ...]
    """Mean entropy of all tokens in nats, before they were trained on."""
    truncated: tuple[float, ...] = ()
    """Share of replies that were truncated."""
    zero_variance: tuple[float, ...] = ()
    """Share of groups whose replies all got the same reward: they teach nothing."""
    planning: tuple[float, ...] = ()
    """Mean entropy of planning tokens, the forks; known only where a grammar tells them."""
    execution: tuple[float, ...] = ()
    """The same of execution tokens, the mechanical ones."""
    solved: tuple[float, ...] = ()
    """Share of problems with a right reply in their group."""
    distinct: tuple[float, ...] = ()
    """Different answers of a group, on average; known only where a grammar tells them."""

    def endpoints(self, name: str) -> tuple[float, float]:
        """Return the mean of a series over its first and over its last generations."""
        values = getattr(self, name)
        return float(np.mean(values[:GENERATIONS_AT_END])), float(np.mean(values[-GENERATIONS_AT_END:]))

    def select(self, places: Sequence[int]) -> TrainingLog:
        """Return the log of some generations only."""
        series = {field.name: getattr(self, field.name) for field in fields(self)}
        return TrainingLog(
            **{name: tuple(values[at] for at in places) if values else () for name, values in series.items()}
        )

    def to_row(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)


def read_training_log(run: Path, *, grammar: bool = False) -> TrainingLog:
    """Read the training rollouts of a run folder.

    ``grammar``: replies are in the language of Routes, which tells planning tokens, execution tokens and answers.
    """
    generations: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in Run.open(run).query(ROUTES_QUERY if grammar else QUERY).to_pylist():
        generations[row["step"]].append(row)
    if not generations:
        raise MeasureError(
            f"{run} holds no training rollouts.", "Move the arm's folder away and run the experiment again."
        )
    table = [generation_numbers(step, rows, grammar=grammar) for step, rows in sorted(generations.items())]
    return TrainingLog(**{name: tuple(numbers[name] for numbers in table) for name in table[0]})


def generation_numbers(step: int, rows: list[dict[str, Any]], *, grammar: bool) -> dict[str, Any]:
    """Return the numbers of one generation, by the fields of `TrainingLog`."""
    rewards: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        rewards[row["group"]].append(row["reward"] or 0.0)
    numbers = {
        "steps": int(step),
        "reward": _mean([reward for group in rewards.values() for reward in group]),
        "entropy": _mean([value for row in rows for value in row["entropy"] or ()]),
        "truncated": _mean([bool(row["truncated"]) for row in rows]),
        "zero_variance": _mean([len(set(group)) == 1 for group in rewards.values()]),
        "solved": _mean([max(group) > 0 for group in rewards.values()]),
    }
    if not grammar:
        return numbers
    traces = [
        parse(read_problem(row["prompt"]), [*row["completion"].split(), *([] if row["truncated"] else [END])])
        for row in rows
    ]
    answers: dict[str, set[int]] = {group: set() for group in rewards}
    for row, trace in zip(rows, traces, strict=True):
        answers[row["group"]] |= set() if trace.answer is None else {trace.answer}
    return numbers | {
        "entropy": _role_entropy(rows, traces, None),
        "planning": _role_entropy(rows, traces, TokenRole.PLANNING),
        "execution": _role_entropy(rows, traces, TokenRole.EXECUTION),
        "distinct": _mean([len(found) for found in answers.values()]),
    }


def _role_entropy(rows: list[dict[str, Any]], traces: list[ReplyTrace], role: TokenRole | None) -> float:
    """Return the mean entropy of the tokens of a role, or of all."""
    return _mean(
        [
            value
            for row, trace in zip(rows, traces, strict=True)
            for value, own in zip(row["entropy"] or [], trace.roles, strict=False)
            if role is None or own is role
        ]
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def seed_interval(values: npt.ArrayLike, *, bounds: Bounds = UNBOUNDED, level: float = 0.95) -> Interval:
    """Return the mean of one value per seed with Student's t interval, cut at the values the quantity cannot leave.

    One seed says nothing about the spread: the interval is then as wide as the bounds. It misleads where the values of
    a few seeds are far from normal; with three seeds it reaches four standard errors to either side, as it should.
    """
    check_level(level)
    found = as_finite(values, "values")
    mean, count = float(found.mean()), len(found)
    if count == 1:
        return Interval(mean, *bounds, level, "one seed")
    reach = t_critical(count - 1, level) * float(found.std(ddof=1)) / math.sqrt(count)
    return Interval(
        mean, max(bounds[0], mean - reach), min(bounds[1], mean + reach), level, f"Student's t over {count} seeds"
    )


def seed_ranks(intervals: Mapping[str, Interval]) -> dict[str, str]:
    """Return the places each arm may have, the largest value first: arms whose intervals overlap share theirs, e.g.

    ``1-4``.
    """
    placed = {}
    for name, own in intervals.items():
        better = sum(other.low > own.high for other in intervals.values())
        worse = sum(other.high < own.low for other in intervals.values())
        first, last = 1 + better, len(intervals) - worse
        placed[name] = f"{first}" if first == last else f"{first}-{last}"
    return placed


def trailing_mean(values: Sequence[float], width: int) -> FloatArray:
    """Return for each value the mean of the last ``width`` up to it, of fewer at the start."""
    totals = np.cumsum([0.0, *values])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - width)
    return np.asarray((totals[ends] - totals[starts]) / (ends - starts))
