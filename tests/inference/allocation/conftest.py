"""Tasks that a draw solves with a known chance, drawn for as an allocator says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from breadth.inference.allocation.allocator import Allocator, Progress

Simulation = Callable[[Allocator, Sequence[float], int, int], tuple[int, int]]


@pytest.fixture
def simulate() -> Simulation:
    """Give a function (allocator, chance of each task, budget, seed) -> (tasks solved, draws made)."""
    return _simulated


def _simulated(allocator: Allocator, chances: Sequence[float], budget: int, seed: int) -> tuple[int, int]:
    rng = np.random.default_rng(seed)
    chance_of = {f"task {number}": chance for number, chance in enumerate(chances)}
    progress = dict.fromkeys(chance_of, Progress())
    allocation = allocator(list(chance_of))
    left = budget
    grants = next(allocation, ())
    while grants and left > 0:
        for grant in grants:
            made, before = min(grant.draws, left), progress[grant.task]
            left -= made
            draws, solved = before.draws + made, before.solved + int(rng.binomial(made, chance_of[grant.task]))
            progress[grant.task] = Progress(draws, graded=draws, solved=solved)
        try:
            grants = allocation.send(progress)
        except StopIteration:
            break
    return sum(task.solved > 0 for task in progress.values()), budget - left
