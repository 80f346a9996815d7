"""Noise as training curves have it, for every test of trends and changes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from breadth.measure.validate import FloatArray

Sluggish = Callable[[int, float, np.random.Generator], FloatArray]


@pytest.fixture(scope="session")
def sluggish() -> Sluggish:
    """Make first-order autoregressive noise of variance 1, from its length, its correlation and a generator."""

    def noise(n: int, rho: float, rng: np.random.Generator) -> FloatArray:
        news = rng.standard_normal(n)
        values = np.empty(n)
        values[0] = news[0]
        for place in range(1, n):
            values[place] = rho * values[place - 1] + math.sqrt(1 - rho**2) * news[place]
        return values

    return noise
