"""What rests on an artefact is taken back only where a better series excludes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.findings.entropy_collapse import FINDING as COLLAPSE
from breadth.doctor.findings.entropy_explosion import FINDING as EXPLOSION
from breadth.doctor.signs.rests import resting
from breadth.measure.trends import Trend, trend

STEPS = np.arange(100)


def falling_to(left: float, spread: float = 0.02) -> Trend:
    """Return the trend of an entropy that goes to a share of its start."""
    noise = np.random.default_rng(0).normal(0, spread, 100)
    return trend(STEPS, left ** (STEPS / 99) * np.exp(noise))


@pytest.mark.parametrize(
    ("logged", "better", "taken"),
    [
        (0.1, 0.9, ("entropy-collapse",)),
        (0.1, 0.3, ()),  # collapsed all the same
        (0.9, 0.9, ()),  # nothing was said
        (4.0, 1.1, ("entropy-explosion",)),
        (4.0, 3.0, ()),
    ],
)
def test_by_hand(logged: float, better: float, taken: Any) -> None:
    assert resting(falling_to(logged), falling_to(better)) == taken


def test_not_knowing_better_takes_nothing_back() -> None:
    assert resting(falling_to(0.1), None) == ()
    wide = falling_to(0.8, spread=1.5)
    assert resting(falling_to(0.1), wide) == ()


def test_the_marks_are_those_of_the_findings() -> None:
    assert COLLAPSE.shows(falling_to(0.1))
    assert not COLLAPSE.shows(falling_to(0.8))
    assert EXPLOSION.shows(falling_to(3.0))
    assert not EXPLOSION.shows(falling_to(1.2))
