"""Steps that stand twice: two levels are two writers, two draws of the same noise are not, nor is a restart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from breadth.doctor.signs.doubles import two_levels
from breadth.runs.reader import Run
from breadth.runs.schema import Header, MetricPoint
from breadth.runs.writer import RunWriter


def log(folder: Path, pairs: np.ndarray, attempts: bool = True) -> Run:
    writer = RunWriter(folder / "run", Header(name="made"))
    writer.points(
        MetricPoint(step, {"entropy": float(value)}, attempt=(step - 1 + place) if attempts else place)
        for step, pair in enumerate(pairs, 1)
        for place, value in enumerate(pair)
    )
    return Run.open(folder / "run")


def test_two_levels_in_any_order(tmp_path: Path) -> None:
    dice = np.random.default_rng(0)
    pairs = np.array([0.5, 0.1]) * np.exp(dice.normal(0, 0.1, (60, 2)))
    swapped = np.where(dice.random((60, 1)) < 0.5, pairs, pairs[:, ::-1])
    found = two_levels(log(tmp_path, swapped), "entropy")
    assert found is not None
    assert found.steps == 60
    assert found.low == pytest.approx(0.1, rel=0.05)
    assert found.high == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.5])
def test_the_same_noise_twice_is_not_two_levels(tmp_path: Path, noise: float) -> None:
    pairs = 0.5 * np.exp(np.random.default_rng(1).normal(0, noise, (400, 2)))
    assert two_levels(log(tmp_path, pairs), "entropy") is None


def test_a_restart_over_the_same_steps_is_not(tmp_path: Path) -> None:
    assert two_levels(log(tmp_path, np.tile([0.5, 0.1], (60, 1)), attempts=False), "entropy") is None
