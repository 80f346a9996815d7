"""How the training of an arm went, generation by generation, read from its run folder."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from breadth.base.errors import MeasureError
from breadth.runs.reader import Run

QUERY = """SELECT step, "group", reward, truncated, entropy FROM rollouts WHERE split = 'train' ORDER BY step, sample"""
WINDOW = 5
"""Generations that the first and the last numbers are means of."""


@dataclass(frozen=True)
class Went:
    """One number a generation."""

    steps: tuple[int, ...]
    """Optimizer step at which it was drawn."""
    reward: tuple[float, ...]
    """Share of right replies."""
    entropy: tuple[float, ...]
    """Mean entropy of its tokens in nats, before they were trained on."""
    cut: tuple[float, ...]
    """Share of replies that were cut."""
    flat: tuple[float, ...]
    """Share of groups whose replies all got the same reward: they teach nothing."""

    def ends(self, name: str) -> tuple[float, float]:
        """Return the mean of a series over its first and over its last generations."""
        values = getattr(self, name)
        return float(np.mean(values[:WINDOW])), float(np.mean(values[-WINDOW:]))


def went(run: Path) -> Went:
    """Read the rollouts of a training."""
    generations: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in Run.open(run).query(QUERY).to_pylist():
        generations[row["step"]].append(row)
    if not generations:
        raise MeasureError(
            f"{run} holds no rollouts of a training.", "Move the arm's folder away and run the experiment again."
        )
    kept = [rows for _, rows in sorted(generations.items())]
    return Went(
        tuple(sorted(generations)),
        tuple(_mean([row["reward"] or 0.0 for row in rows]) for rows in kept),
        tuple(_mean([one for row in rows for one in row["entropy"] or ()]) for rows in kept),
        tuple(_mean([bool(row["truncated"]) for row in rows]) for rows in kept),
        tuple(_flat(rows) for rows in kept),
    )


def _mean(values: list[float] | list[bool]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _flat(rows: list[dict[str, Any]]) -> float:
    groups: dict[str, set[float]] = defaultdict(set)
    for row in rows:
        groups[row["group"]].add(row["reward"] or 0.0)
    return _mean([len(rewards) == 1 for rewards in groups.values()])
