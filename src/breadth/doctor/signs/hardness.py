"""How many groups have no right answer: counted in graded rollouts, else bounded by a score of two values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from breadth.measure.intervals import Interval, mean_interval, quotient, resample
from breadth.runs.outcomes import Outcomes


@dataclass(frozen=True)
class Hardness:
    """Groups without a right answer."""

    share: Interval
    """Share of the groups of the second half."""
    start: Interval | None
    """The same of the first half; None where it was not counted."""
    chance: float
    """Share of the rollouts that are right in the second half."""
    group: float
    """Rollouts of a group."""
    groups: int
    """Groups it was counted in; 0 where it is a bound."""
    rise: Interval | None = None
    """By how much more of the rollouts are right in the second half than in the first; None where it was not counted.
    """

    def missing(self, share: float) -> float:
        """Return by how much more of the rollouts would have to be right for no more than a share of the groups to be all wrong.

        Were problems alike, (1 - p)^G of the groups would be: so p must reach 1 - share^(1/G).
        """
        return max(1 - float(share ** (1 / self.group)) - self.chance, 0.0)


def counted(graded: Outcomes | None) -> Hardness | None:
    """Count in the first and the second half of the steps; None where no group of two or more is graded."""
    if graded is None or not (graded.drawn > 1).any():
        return None
    several = graded.drawn > 1
    groups = Outcomes(graded.steps[several], graded.problems[several], graded.drawn[several], graded.right[several])
    steps = np.unique(groups.steps)
    half = len(steps) // 2
    early, late = groups.at(steps[:half]), groups.at(steps[half:])
    several_steps = len(steps) > 1
    return Hardness(
        _all_wrong(late),
        _all_wrong(early) if several_steps else None,
        float(late.right.sum() / late.drawn.sum()),
        float(np.median(late.drawn)),
        len(late),
        _rise(early, late) if several_steps else None,
    )


def bounded(score: Interval, levels: tuple[float, ...], group: int) -> Hardness:
    """Bound by the mean of a reward of two values: at least (1 - p)^G, and more where problems differ (Jensen)."""
    low, width = min(levels), max(levels) - min(levels)
    value, high, low_end = (min(max((end - low) / width, 0.0), 1.0) for end in (score.value, score.high, score.low))
    share = Interval(
        (1 - value) ** group,
        (1 - high) ** group,
        (1 - low_end) ** group,
        score.level,
        "(1 - score)^G of the score's interval",
    )
    return Hardness(share, None, value, float(group), 0)


def _all_wrong(groups: Outcomes) -> Interval:
    """Average the groups of a problem first: they are not independent."""
    _, place = np.unique(groups.problems.astype(str), return_inverse=True)
    return mean_interval(np.bincount(place, groups.right == 0) / np.bincount(place), bounds=(0.0, 1.0))


def _rise(early: Outcomes, late: Outcomes) -> Interval:
    """Compare shares of right rollouts, whole problems resampled: counts say more than medians of a few small shares."""
    zeros = np.zeros(len(early)), np.zeros(len(late))
    columns = {
        "right 0": np.concatenate([early.right, zeros[1]]),
        "drawn 0": np.concatenate([early.drawn, zeros[1]]),
        "right 1": np.concatenate([zeros[0], late.right]),
        "drawn 1": np.concatenate([zeros[0], late.drawn]),
    }
    found = resample(columns, np.concatenate([early.problems, late.problems]).astype(str))
    return found.interval(
        lambda of: quotient(of["right 1"], of["drawn 1"]) - quotient(of["right 0"], of["drawn 0"]),
        "drawn 1",
        (-1.0, 1.0),
    )
