"""Entropy that goes with length is a sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence import Evidence
from breadth.doctor.signs.per_length import per_length

T = np.linspace(0, 1, 100)


def test_a_sum_has_the_exponent_one(make: Any, around: Any) -> None:
    length = 200 * 0.3**T * np.exp(around(0 * T, 0.1))
    found = per_length(make(entropy=0.4 * length * np.exp(around(0 * T, 0.02, 1)), length=length))
    assert found is not None
    assert found.proportional
    assert found.exponent.value == pytest.approx(1, abs=0.05)
    assert found.trend.verdict == "flat"
    assert found.trend.start.value == pytest.approx(0.4, rel=0.03)


def test_an_exact_power_is_read_off(make: Any, around: Any) -> None:
    length = 200 * np.exp(around(0 * T, 0.1))
    found = per_length(make(entropy=length**0.4, length=length))
    assert found is not None
    assert found.exponent.value == pytest.approx(0.4, abs=1e-9)
    assert not found.proportional


def test_a_common_trend_alone_is_no_proportion(make: Any, around: Any) -> None:
    found = per_length(
        make(entropy=0.1**T * np.exp(around(0 * T, 0.05)), length=500 * 0.1**T * np.exp(around(0 * T, 0.05, 1)))
    )
    assert found is not None
    assert abs(found.exponent.value) < 0.35
    assert not found.proportional


def test_nothing_to_compare_is_none(make: Any) -> None:
    assert per_length(make(entropy=T)) is None
    assert per_length(make(entropy=T + 1, length=np.full(100, 50.0))) is None
    assert per_length(make(entropy=T[:7] + 1, length=T[:7] + 1)) is None
    assert per_length(make(entropy=0 * T, length=T + 1)) is None
    assert per_length(Evidence("nothing")) is None
