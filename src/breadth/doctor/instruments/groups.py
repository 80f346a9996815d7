"""A picture of the newest groups: one row a problem, one mark a rollout, those that still teach something first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from breadth.doctor.windows import Window
from breadth.report.sections import Group, Groups, Outcome, Section


def groups(windows: Sequence[Window]) -> Sequence[Section]:
    """Draw the groups of the last step that has rollouts."""
    if not windows or np.isnan(windows[-1].samples.right).all():
        return []
    window = windows[-1]
    last = int(window.samples.steps.max())
    rows = np.flatnonzero(window.samples.steps == last)
    numbers = list(dict.fromkeys(window.samples.groups[rows].tolist()))
    pictures = [_group(window, rows[window.samples.groups[rows] == number]) for number in numbers]
    pictures.sort(key=lambda picture: (_one_sided(picture), picture.name))
    return [
        Groups(
            f"Groups of step {last}",
            pictures,
            note="Each row is a problem, each mark a rollout; the most mixed groups first.",
        )
    ]


def _one_sided(picture: Group) -> float:
    """Return how far a group is from half right, half wrong."""
    return abs(picture.outcomes.count(Outcome.CORRECT) / len(picture.outcomes) - 0.5)


def _group(window: Window, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Group:
    name = window.samples.names[int(window.samples.problems[rows[0]])]
    outcomes = sorted((_outcome(window, int(row)) for row in rows), key=list(Outcome).index)
    return Group(name, outcomes)


def _outcome(window: Window, row: int) -> Outcome:
    if window.samples.right[row] == 1:
        return Outcome.CORRECT
    if window.samples.truncated[row]:
        return Outcome.TRUNCATED
    return Outcome.WRONG if window.classes[row] >= 0 else Outcome.UNPARSABLE
