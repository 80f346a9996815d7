"""The numbers by which a run shows what is wrong with it, read from its run folder, and the signs that are looked for among them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from breadth.base.checks import require
from breadth.runs.reader import Run

ENDS = 5
"""Generations at either end of a run that are taken together."""
QUERY = """
    SELECT step, "group", reward, truncated, list_sum(entropy) AS entropy, -list_sum(logprobs) AS surprise, len(entropy) AS counted
    FROM rollouts WHERE split = 'train' ORDER BY step
"""
NUMBERS = (
    "passed_start",
    "passed_end",
    "entropy_start",
    "entropy_ratio",
    "logged_ratio",
    "truncated",
    "flat",
    "surprise",
)
"""Mean reward of the first and of the last generations; entropy of the first, and of the last over it, by the tokens; the same ratio as
logged; share of replies cut; share of groups whose rewards are all equal; mean -log p of the tokens drawn, over their
mean entropy."""


@dataclass(frozen=True)
class Sign:
    """A number that must lie in a range."""

    number: str
    """Which."""
    least: float | None = None
    """Smallest value that shows it."""
    most: float | None = None
    """Largest."""

    def __post_init__(self) -> None:
        require(self, "number", self.number in NUMBERS, f"one of {', '.join(NUMBERS)}")

    def shows(self, numbers: Mapping[str, float | None]) -> bool:
        """Say whether a run shows it."""
        value = numbers[self.number]
        low, high = -math.inf if self.least is None else self.least, math.inf if self.most is None else self.most
        return value is not None and low <= value <= high

    def words(self, numbers: Mapping[str, float | None]) -> str:
        """Say what was found and what is wanted."""
        value = numbers[self.number]
        wanted = [
            *([] if self.least is None else [f"{self.least:g} or more"]),
            *([] if self.most is None else [f"{self.most:g} or less"]),
        ]
        found = "not there" if value is None else f"{value:.3g}"
        return f"no: {self.number} is {found}, wanted {' and '.join(wanted)}"


def numbers_of(run: Path) -> dict[str, float | None]:
    """Read the numbers of a run; None where it has no such thing."""
    there = Run.open(run)
    steps: dict[int, list[Mapping[str, float]]] = defaultdict(list)
    for row in there.query(QUERY).to_pylist():
        steps[row["step"]].append(row)
    generations = [rows for _, rows in sorted(steps.items())]
    every = [row for rows in generations for row in rows]
    first, last = ([row for rows in part for row in rows] for part in (generations[:ENDS], generations[-ENDS:]))
    logged = there.series("entropy")
    return {
        "passed_start": _mean(row["reward"] for row in first),
        "passed_end": _mean(row["reward"] for row in last),
        "entropy_start": _per_token(first, "entropy"),
        "entropy_ratio": _ratio(_per_token(last, "entropy"), _per_token(first, "entropy")),
        "logged_ratio": _ratio(_mean(logged.values[-ENDS:]), _mean(logged.values[:ENDS])),
        "truncated": _mean(row["truncated"] for row in every),
        "flat": _mean(float(len({row["reward"] for row in rows}) == 1) for rows in _groups(every)),
        "surprise": _ratio(_per_token(every, "surprise"), _per_token(every, "entropy")),
    }


def _groups(rows: Iterable[Mapping[str, float]]) -> list[list[Mapping[str, float]]]:
    found: dict[float, list[Mapping[str, float]]] = defaultdict(list)
    for row in rows:
        found[row["group"]].append(row)
    return list(found.values())


def _mean(values: Iterable[float | None]) -> float | None:
    found = [float(value) for value in values if value is not None]
    return float(np.mean(found)) if found else None


def _per_token(rows: Iterable[Mapping[str, float]], name: str) -> float | None:
    found = [(row[name], row["counted"]) for row in rows if row[name] is not None]
    count = sum(counted for _, counted in found)
    return sum(total for total, _ in found) / count if count else None


def _ratio(top: float | None, bottom: float | None) -> float | None:
    return top / bottom if top is not None and bottom else None
