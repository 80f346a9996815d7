"""How a course went on the problems it trained on, step by step, read from its run folder: nothing needs to be drawn for it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from breadth.lab.task.grammar import END, Role, Trace, parse
from breadth.lab.task.problems import read_problem
from breadth.runs.reader import Run

QUERY = """
    SELECT step, "group", completion, reward, truncated, entropy, prompt FROM rollouts JOIN problems USING (problem)
    WHERE split = 'train' ORDER BY step, "group", sample
"""


@dataclass(frozen=True)
class TrainCurve:
    """One value a generation."""

    steps: list[int] = field(default_factory=list)
    """Optimizer step at which the generation was drawn."""
    passed: list[float] = field(default_factory=list)
    """pass@1: the share of its replies that are right."""
    covered: list[float] = field(default_factory=list)
    """Share of its problems with a right reply among those of the group."""
    distinct: list[float] = field(default_factory=list)
    """Different answers of a group, on average."""
    entropy: list[float | None] = field(default_factory=list)
    """Mean entropy of all tokens, in nats; None where there are none."""
    planning: list[float | None] = field(default_factory=list)
    """The same of the tokens that choose."""
    execution: list[float | None] = field(default_factory=list)
    """The same of the tokens that state a value."""

    def to_row(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)


def train_curve(run: Path) -> TrainCurve:
    """Read the rollouts of a course."""
    generations: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in Run.open(run).query(QUERY).to_pylist():
        generations[row["step"]].append(row)
    curve = TrainCurve()
    for step, rows in sorted(generations.items()):
        _add(curve, step, rows)
    return curve


def _add(curve: TrainCurve, step: int, rows: list[dict[str, Any]]) -> None:
    traces = [_trace(row) for row in rows]
    right: dict[str, list[float]] = defaultdict(list)
    answers: dict[str, set[int]] = defaultdict(set)
    for row, trace in zip(rows, traces, strict=True):
        right[row["group"]].append(row["reward"] or 0.0)
        answers[row["group"]] |= set() if trace.answer is None else {trace.answer}
    curve.steps.append(step)
    curve.passed.append(float(np.mean([one for group in right.values() for one in group])))
    curve.covered.append(float(np.mean([max(group) > 0 for group in right.values()])))
    curve.distinct.append(float(np.mean([len(answers[group]) for group in right])))
    curve.entropy.append(_entropy(rows, traces, None))
    curve.planning.append(_entropy(rows, traces, Role.PLANNING))
    curve.execution.append(_entropy(rows, traces, Role.EXECUTION))


def _trace(row: dict[str, Any]) -> Trace:
    return parse(read_problem(row["prompt"]), [*row["completion"].split(), *([] if row["truncated"] else [END])])


def _entropy(rows: list[dict[str, Any]], traces: list[Trace], role: Role | None) -> float | None:
    values = [
        value
        for row, trace in zip(rows, traces, strict=True)
        for value, one in zip(row["entropy"] or [], trace.roles, strict=False)
        if role is None or one is role
    ]
    return float(np.mean(values)) if values else None
