"""A level stretch after a rise, by numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.signs.plateau import Plateau, plateau
from breadth.runs.reader import Series

STEPS = np.arange(1, 101)
NOISE = np.random.default_rng(0).normal(0, 1, 100)


def found(values: Any) -> Plateau | None:
    """Look for a plateau of three quarters or half."""
    return plateau(Series("reward", STEPS, np.asarray(values, dtype=np.float64)), (0.75, 0.5), clear=3.0, still=0.2)


def test_by_hand() -> None:
    level = found(np.where(STEPS <= 20, 0.1, 0.6))
    assert level is not None
    assert (level.step, level.share) == (26, 0.75)
    assert level.rise == pytest.approx(0.5)
    assert level.excluded == pytest.approx(0.1)
    assert level.change.value == 0
    half = found(np.where(STEPS <= 40, 0.1, 0.6))
    assert half is not None
    assert (half.step, half.share) == (51, 0.5)
    assert found(np.where(STEPS <= 60, 0.1, 0.6)) is None


def test_a_rise_within_the_noise_is_none() -> None:
    assert found(np.where(STEPS <= 20, 0.55, 0.6) + 0.03 * NOISE) is None
    assert found(0.6 + 0.03 * NOISE) is None


def test_a_stretch_that_rises_or_falls_is_none() -> None:
    rise = np.where(STEPS <= 20, 0.1, 0.6)
    assert found(rise + np.maximum(STEPS - 25, 0) / 75 * 0.3 + 0.01 * NOISE) is None
    assert found(rise - np.maximum(STEPS - 25, 0) / 75 * 0.3 + 0.01 * NOISE) is None


def test_too_few_points_are_none() -> None:
    assert plateau(Series("reward", STEPS[:9], np.arange(9.0)), (0.75, 0.5), clear=3.0, still=0.2) is None
