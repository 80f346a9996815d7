"""Noise as training curves have it, for every test of trends and changes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

Sluggish = Callable[[int, float, np.random.Generator], npt.NDArray[np.float64]]


@pytest.fixture(scope="session")
def sluggish() -> Sluggish:
    """Make first-order autoregressive noise of variance 1, from its length, its correlation and a generator."""

    def noise(n: int, rho: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        news = rng.standard_normal(n)
        values = np.empty(n)
        values[0] = news[0]
        for place in range(1, n):
            values[place] = rho * values[place - 1] + math.sqrt(1 - rho**2) * news[place]
        return values

    return noise
