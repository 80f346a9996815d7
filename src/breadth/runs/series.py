"""One metric over the steps of a run, with restarts resolved: the newest attempt of each step counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt


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

    @classmethod
    def of(cls, row: dict[str, Any]) -> MetricPoint:
        """Read a stored row; raises ValueError, KeyError or TypeError when it is not one."""
        values = {str(name): float("nan") if value is None else float(value) for name, value in row["values"].items()}
        places = {key: int(row[key]) for key in ("rank", "attempt", "source") if key in row}
        time = row.get("time")
        return cls(int(row["step"]), values, str(row.get("split", "train")), time=None if time is None else float(time), **places)


@dataclass(frozen=True)
class Series:
    """One metric over steps, in order of steps, one value a step."""

    name: str
    """Our metric name."""
    steps: npt.NDArray[np.int64] = field(repr=False)
    """Strictly increasing."""
    values: npt.NDArray[np.float64] = field(repr=False)
    """One value a step; may hold NaN or infinities as logged."""
    superseded: int = 0
    """Values of earlier attempts that a later attempt replaced."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def finite(self) -> Series:
        """The same series without NaN and infinities."""
        keep = np.isfinite(self.values)
        return Series(self.name, self.steps[keep], self.values[keep], self.superseded)


def gather(points: Iterable[MetricPoint], name: str, split: str) -> Series:
    """Collect one metric; where a step was logged more than once, the newest file and attempt win, then the last row."""
    newest: dict[int, tuple[tuple[int, int], float]] = {}
    superseded = 0
    for point in points:
        if point.split != split or name not in point.values:
            continue
        order = (point.source, point.attempt)
        known = newest.get(point.step)
        superseded += known is not None
        if known is None or order >= known[0]:
            newest[point.step] = (order, point.values[name])
    steps = np.array(sorted(newest), dtype=np.int64)
    return Series(name, steps, np.array([newest[int(step)][1] for step in steps], dtype=np.float64), superseded)
