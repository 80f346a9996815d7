"""How many different answers the policy gives, on problems it solves and on those it does not, at the start and now."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from breadth.doctor.windows import Window
from breadth.measure.diversity import DiversityMeans, by_solved
from breadth.report.cells import Cell, Missing
from breadth.report.sections import Column, Section, Table


def answers(windows: Sequence[Window]) -> Sequence[Section]:
    """Return one table: distinct and effective answers per group for each window, split by solved and unsolved."""
    readable = [window for window in windows if (window.classes >= 0).any()]
    rows = [row for window in readable for row in _rows(window)]
    if not rows:
        return []
    columns = [
        Column("rollouts of"),
        Column("groups"),
        Column("number"),
        Column("distinct answers"),
        Column("effective answers"),
        Column("answers read", "%"),
    ]
    note = (
        "Per group, at equal sample sizes. Effective answers = exp(entropy), Miller-Madow; intervals from resampling"
        " problems."
    )
    return [Table("Different answers", columns, rows, note=note)]


def _rows(window: Window) -> list[list[Cell]]:
    right = np.where(np.isnan(window.samples.right), 0.0, window.samples.right).astype(bool)
    split = by_solved(window.samples.groups, window.classes, right, problems=window.samples.problems)
    kinds = {"solved": split.solved, "unsolved": split.unsolved} if window.graded else {"all": split.every}
    return [_row(window.name, kind, means) for kind, means in kinds.items()]


def _row(window: str, kind: str, means: DiversityMeans) -> list[Cell]:
    if not means.groups:
        none = Missing(f"no {kind} group in these steps")
        return [window, kind, 0, none, none, none]
    return [window, kind, means.groups, means.distinct, means.effective, means.parse_rate]
