"""Runs that stand one behind the other in one log, told apart where the steps begin anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from breadth.runs.schema import MetricPoint

MIN_RUN_ROWS = 8
"""Steps that make a run, as many as a direction is read from: what was given up sooner is a false start, which the next
one replaces.
"""


@dataclass
class RestartDetector:
    """Tells another run from a restart: that one goes on from a checkpoint, the other begins where everything began."""

    first_step: int | None = None
    """Step the run began with."""
    rows: int = 0
    """Rows of it so far."""

    def starts_new_run(self, step: int, *, back: bool) -> bool:
        """Take the next row and say whether another run begins with it; ``back``: the steps went back before it."""
        over = back and self.first_step is not None and step <= self.first_step
        anew = over and self.rows >= MIN_RUN_ROWS
        if self.first_step is None or over:
            self.first_step, self.rows = step, 0
        self.rows += 1
        return anew


def split_concatenated_runs(points: Iterable[MetricPoint]) -> list[tuple[MetricPoint, ...]]:
    """Return the rows of each run, in order; held-out scores go with the run they stand in.

    Several files are one run.
    """
    found: list[list[MetricPoint]] = [[]]
    starts, attempt, sources = RestartDetector(), 0, set[int]()
    for point in points:
        if point.split == "train":
            sources.add(point.source)
            if starts.starts_new_run(point.step, back=point.attempt > attempt):
                found.append([])
            attempt = max(attempt, point.attempt)
        found[-1].append(point)
    return [tuple(one) for one in found] if len(sources) < 2 else [tuple(point for one in found for point in one)]
