"""Paired comparison: p-values counted by hand, and a test that keeps its promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.paired import paired_difference, sign_flipped_sums


def test_five_wins_of_five_by_hand() -> None:
    # Of 32 sign patterns two reach |sum| = 5.
    result = paired_difference([1, 1, 1, 1, 1], [0, 0, 0, 0, 0])
    assert result.p_value == 2 / 32
    assert (result.wins, result.losses, result.ties) == (5, 0, 0)
    assert result.difference.value == 1.0
    # Five equal differences show no spread: no claim about its size.
    assert result.difference.low == -math.inf


def test_ties_do_not_count_in_the_test_but_do_in_the_mean() -> None:
    # Three wins, two ties: 2 of 8 patterns; mean 3/5.
    result = paired_difference([1, 1, 1, 0, 0], [0, 0, 0, 0, 0])
    assert result.p_value == 0.25
    assert result.difference.value == pytest.approx(0.6)


def test_unequal_differences_by_hand() -> None:
    # Differences 3, 1, -1: sum 3. Sums of all patterns: +-5, +-3 (twice), +-1; |sum| >= 3 in 6 of 8.
    assert paired_difference([3, 1, 0], [0, 0, 1]).p_value == 6 / 8


def test_identical_arms_differ_by_nothing() -> None:
    result = paired_difference([0.2, 0.4], [0.2, 0.4])
    assert result.p_value == 1.0
    assert 0.0 in result.difference


def test_many_problems_agree_with_the_exact_sign_test() -> None:
    # 25 wins and 5 losses of 30: 2 * (142506 + 27405 + 4060 + 435 + 30 + 1) / 2^30 = 0.000325.
    first = np.array([1.0] * 25 + [0.0] * 5)
    result = paired_difference(first, 1 - first)
    assert 0.0001 <= result.p_value <= 0.001
    assert result.difference.low > 0


def test_pairing_sees_what_separate_intervals_hide() -> None:
    rng = np.random.default_rng(0)
    difficulty = rng.random(60)
    result = paired_difference(difficulty + 0.03 + rng.normal(0, 0.02, 60), difficulty)
    assert result.p_value < 0.001
    assert result.difference.high - result.difference.low < 0.02


def test_false_alarms_stay_at_five_percent() -> None:
    rng = np.random.default_rng(1)
    alarms = [paired_difference(rng.exponential(size=12), rng.exponential(size=12), replicates=40).p_value <= 0.05 for _ in range(300)]
    assert np.mean(alarms) <= 0.08


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=10))
@settings(max_examples=40, deadline=None)
def test_swapping_the_arms_only_turns_the_sign(pairs: list[tuple[int, int]]) -> None:
    first, second = ([pair[side] / 8 for pair in pairs] for side in (0, 1))
    forward, backward = (paired_difference(a, b, replicates=50) for a, b in ((first, second), (second, first)))
    assert forward.p_value == backward.p_value
    assert forward.difference.value == pytest.approx(-backward.difference.value)
    assert (forward.wins, forward.losses) == (backward.losses, backward.wins)


def test_flips_turn_whole_rows() -> None:
    sums, exact = sign_flipped_sums(np.array([[1.0, 2.0], [10.0, 20.0]]), 0)
    assert exact
    assert sorted(map(tuple, sums.tolist())) == [(-11.0, -22.0), (-9.0, -18.0), (9.0, 18.0), (11.0, 22.0)]


def test_bad_input_is_refused() -> None:
    with pytest.raises(MeasureError, match="first has 2, second has 3"):
        paired_difference([1, 2], [1, 2, 3])
    with pytest.raises(MeasureError, match="1 of 2 values of second"):
        paired_difference([1, 2], [1, math.nan])
