"""Cohen's d on numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.measure.effects import cohens_d


def test_by_hand() -> None:
    # Means 4 and 2; squared deviations (4 + 0 + 4) and (1 + 0 + 1); pooled variance 10 / 4; d = 2 / sqrt(2.5).
    d = cohens_d([2, 4, 6], [1, 2, 3])
    assert d.value == pytest.approx(2 / math.sqrt(2.5))
    # Variance 6/9 + (4 / 2.5) / 12 = 0.8, so 1.959964 sqrt(0.8) to each side.
    assert d.high - d.value == pytest.approx(1.959964 * math.sqrt(0.8), abs=1e-6)
    assert d.value - d.low == pytest.approx(d.high - d.value)


def test_sign_scale_and_shift() -> None:
    left, right = np.array([1.0, 2.0, 4.0, 7.0]), np.array([0.0, 1.0, 5.0])
    d = cohens_d(left, right).value
    assert cohens_d(right, left).value == pytest.approx(-d)
    assert cohens_d(10 * left + 3, 10 * right + 3).value == pytest.approx(d)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    held = [0.8 in cohens_d(rng.normal(0.8, 1, 30), rng.normal(0, 1, 40)) for _ in range(1000)]
    assert 0.93 < np.mean(held) < 0.975


def test_without_spread_there_is_no_scale() -> None:
    assert cohens_d([2, 2], [2, 2]).value == 0
    assert cohens_d([3, 3], [2, 2]).value == math.inf
    assert cohens_d([1, 1], [2, 2]).value == -math.inf
    assert math.isnan(cohens_d([3, 3], [2, 2]).low)


def test_one_value_is_refused() -> None:
    with pytest.raises(MeasureError, match="1 and 2 values"):
        cohens_d([1], [1, 2])
    with pytest.raises(MeasureError, match="NaN"):
        cohens_d([1, math.nan], [1, 2])
