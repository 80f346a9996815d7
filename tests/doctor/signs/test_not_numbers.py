"""Stretches of NaN: where they begin, whether they pass, and that one alone is none."""

from __future__ import annotations

from typing import Any

import numpy as np

from breadth.doctor.signs.not_numbers import Stretch, stretches

NUMBERS = np.linspace(1, 2, 60)


def with_nan(first: int, behind: int, value: float = np.nan) -> np.ndarray:
    return np.where((np.arange(60) >= first) & (np.arange(60) < behind), value, NUMBERS)


def test_a_stretch_that_passes_and_one_that_does_not(make: Any) -> None:
    case = make(
        entropy=with_nan(20, 30), reward=with_nan(50, 60, np.inf), loss=with_nan(3, 4), grad_norm=with_nan(10, 17)
    )
    assert stretches(case) == [Stretch("reward", 51, 60, 10, True), Stretch("entropy", 21, 30, 10, False)]


def test_a_few_at_the_end_do_not_hide_a_longer_stretch(make: Any) -> None:
    odd = with_nan(20, 40)
    odd[-2:] = np.nan
    assert stretches(make(entropy=odd)) == [Stretch("entropy", 21, 40, 20, False)]


def test_of_what_never_was_a_number_nothing_is_told(make: Any) -> None:
    never = np.full(60, np.nan)
    assert stretches(make(entropy=never, grad_norm=never)) == []
