"""Where a log was put together, and what jumps there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breadth.doctor.signs.seams import holes, joined, jump_at_seam, jumps_near, seams
from breadth.runs.reader import Run, Series
from breadth.runs.schema import Header, MetricPoint


def run(rows: list[tuple[int, float, int, int]]) -> Run:
    """Return a run of (step, entropy, attempt, source)."""
    points = tuple(
        MetricPoint(step, {"entropy": value}, attempt=attempt, source=source) for step, value, attempt, source in rows
    )
    return Run(Path("nowhere"), Header(), points, (), frozenset(), ())


def noise(size: int, seed: int = 0) -> Any:
    """Return factors near one."""
    return np.exp(np.random.default_rng(seed).normal(0, 0.02, size))


def test_restarts_and_other_files_are_seams() -> None:
    rows = (
        [(step, 1.0, 0, 0) for step in range(1, 31)]
        + [(step, 1.0, 1, 0) for step in range(21, 41)]
        + [(step, 1.0, 0, 1) for step in range(41, 61)]
    )
    assert seams(run(rows), "entropy") == (21, 41)
    assert seams(run(rows), "reward") == ()


def test_rows_that_are_printed_twice_are_no_restarts() -> None:
    rows = [(step, 1.0, 2 * step + copy, 0) for step in range(1, 61) for copy in (0, 1)]
    assert seams(run(rows), "entropy") == ()


def test_missing_steps_are_counted_against_the_usual_distance() -> None:
    steps = np.array([10, 20, 30, 40, 60, 70, 120, 130])
    assert holes(Series("entropy", steps, np.ones(8))) == {120: 40}  # 40 to 60 is one missing point


def test_a_jump_is_measured_beyond_the_trend_and_taken_out() -> None:
    steps = np.arange(1, 101)
    smooth = 2 * 0.3 ** (steps / 100) * noise(100)
    values = smooth * np.where(steps > 60, 5, 1)
    made = run([(int(step), float(value), int(step > 60), 0) for step, value in zip(steps, values, strict=True)])
    found = jump_at_seam(made, Series("entropy", steps, values))
    assert found is not None
    assert found.step == 61
    assert found.times.value == pytest.approx(5, rel=0.06)
    assert 5 in found.times
    assert found.first_is_untrained
    assert joined(Series("entropy", steps, values), found) == pytest.approx(smooth, rel=0.06)


def test_steps_of_both_starts_are_compared() -> None:
    rows = [(step, float(value), 0, 0) for step, value in zip(range(1, 71), noise(70), strict=True)]
    rows += [(step, 3 * float(value), 1, 0) for step, value in zip(range(61, 121), noise(60, 1), strict=True)]
    made = run(rows)
    found = jump_at_seam(made, made.series("entropy"))
    assert found is not None
    assert found.twice == 10
    assert found.apart == pytest.approx(3, rel=0.05)


def test_nothing_jumps_where_nothing_was_put_together() -> None:
    values = np.where(np.arange(100) < 60, 1.0, 0.2) * noise(100)
    made = run([(step + 1, float(value), 0, 0) for step, value in enumerate(values)])
    assert jump_at_seam(made, made.series("entropy")) is None
    assert jumps_near(made.series("entropy"), 62)
    assert not jumps_near(made.series("entropy"), 30)
    assert not jumps_near(Series("reward", np.arange(4), np.arange(4.0)), 2)


def test_zeros_do_not_reach_the_logarithm() -> None:
    values = np.where(np.arange(100) % 10 == 3, 0.0, np.where(np.arange(100) < 60, 1.0, 0.2) * noise(100))
    made = run([(step + 1, float(value), int(step >= 60), 0) for step, value in enumerate(values)])
    found = jump_at_seam(made, made.series("entropy"))
    assert found is not None
    assert found.times.value == pytest.approx(0.2, rel=0.06)
