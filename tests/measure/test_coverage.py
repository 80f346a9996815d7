"""pass@k against the published numbers, against exact binomials, and on counts it must refuse."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.coverage import chart_ks, mean_pass_at_k, pass_at_k, share_always_solved, share_never_solved


def exact(n: int, c: int, k: int) -> Fraction:
    return 1 - Fraction(comb(n - c, k), comb(n, k))


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (10, 3, 5, 11 / 12),
        (8, 2, 4, 0.7857142857),
        (16, 1, 8, 0.5),
        (200, 3, 100, 0.8768844221),
        (10_000, 1, 5000, 0.5),
    ],
)
def test_the_numbers_worked_out_by_hand(n: int, c: int, k: int, expected: float) -> None:
    # (10, 3, 5): 1 - C(7,5)/C(10,5) = 1 - 21/252 = 11/12; with c = 1 the one right sample is drawn with chance k/n.
    assert float(pass_at_k(n, c, k)) == pytest.approx(expected, abs=1e-10)


def test_the_biased_plug_in_would_say_something_else() -> None:
    # 1 - 0.7^5 = 0.83193 is what the estimator must not return.
    assert float(pass_at_k(10, 3, 5)) > 0.9


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_all_k_at_once_equal_the_exact_binomials(pair: tuple[int, int]) -> None:
    n, c = pair
    curve = pass_at_k(n, c, np.arange(1, n + 1))
    expected = np.array([float(exact(n, c, k)) for k in range(1, n + 1)])
    np.testing.assert_allclose(curve, expected, rtol=1e-12, atol=0)
    assert np.all(np.diff(curve) >= -1e-15)
    assert curve[0] == pytest.approx(c / n, rel=1e-14)


@pytest.mark.parametrize(
    ("n", "c", "k"), [(10_000, 1, 1), (10_000, 37, 100), (100_000, 2, 50_000), (1_000_000, 3, 10), (10_000, 9_999, 1)]
)
def test_large_counts_stay_exact(n: int, c: int, k: int) -> None:
    assert float(pass_at_k(n, c, k)) == pytest.approx(float(exact(n, c, k)), rel=1e-11)


def test_more_draws_than_wrong_samples_is_certain() -> None:
    np.testing.assert_array_equal(pass_at_k([5, 5, 5], [5, 4, 0], [1, 2, 5]), [[1, 1, 1], [0.8, 1, 1], [0, 0, 0]])


def test_shapes_follow_n_and_c_and_a_single_k_adds_no_axis() -> None:
    n, c = np.full((2, 3), 8), np.array([0, 4, 8])
    assert pass_at_k(n, c, [1, 2]).shape == (2, 3, 2)
    np.testing.assert_allclose(pass_at_k(n, c, 1), [[0, 0.5, 1], [0, 0.5, 1]])


def test_the_mean_gives_every_problem_the_same_weight() -> None:
    # Problem 1: 1 of 2 right; problem 2: 0 of 4; problem 3: 1 of 4. k=1: (1/2 + 0 + 1/4)/3 = 1/4; k=2: (1 + 0 + 1/2)/3
    # = 1/2.
    np.testing.assert_allclose(mean_pass_at_k([2, 4, 4], [1, 0, 1], [1, 2]), [0.25, 0.5])
    assert float(mean_pass_at_k([2, 4, 4], [1, 0, 1], 2)) == pytest.approx(0.5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(4, 12), st.integers(0, 4)), min_size=1, max_size=30))
def test_the_mean_equals_the_mean_of_the_curves(problems: list[tuple[int, int]]) -> None:
    n, c = np.array(problems).T
    np.testing.assert_allclose(mean_pass_at_k(n, c, [1, 3, 4]), pass_at_k(n, c, [1, 3, 4]).mean(axis=0), rtol=1e-12)


def test_many_different_pairs_are_computed_in_parts_without_changing_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    n, c = np.full(50, 64), np.arange(50)
    whole = mean_pass_at_k(n, c, [1, 64]), pass_at_k(n, c, [1, 64])
    monkeypatch.setattr("breadth.measure.coverage._CELLS", 300)
    np.testing.assert_allclose(mean_pass_at_k(n, c, [1, 64]), whole[0], rtol=1e-14)
    np.testing.assert_array_equal(pass_at_k(n, c, [1, 64]), whole[1])


def test_shares_of_problems_without_a_signal() -> None:
    assert share_never_solved([4, 4, 4, 4], [0, 4, 2, 0]) == 0.5
    assert share_always_solved([4, 4, 4, 4], [0, 4, 2, 0]) == 0.25


def test_whole_floats_are_counts() -> None:
    assert float(pass_at_k(10.0, 3.0, 5)) == pytest.approx(11 / 12)


@pytest.mark.parametrize(
    ("n", "c", "k", "says"),
    [
        ([8, 4, 2], [1, 1, 1], [1, 8], "2 of 3 problems have fewer"),
        ([8], [9], [1], "1 of 1 problems"),
        ([8], [-1], [1], "1 of 1 problems"),
        ([0], [0], [1], "1 of 1 problems"),
        ([], [], [1], "empty"),
        ([8], [1], [0], "from 1 up"),
        ([8], [1], [], "from 1 up"),
        ([8], [1], [[1, 2]], "from 1 up"),
        ([8], [float("nan")], [1], "whole numbers"),
        ([8], [1.5], [1], "whole numbers"),
        ([8], ["one"], [1], "whole numbers"),
        ([8, 8, 8], [1, 1], [1], "do not fit"),
    ],
)
def test_counts_it_must_refuse(n: list[int], c: list[int], k: list[int], says: str) -> None:
    for measure in (pass_at_k, mean_pass_at_k):
        with pytest.raises(MeasureError, match=says):
            measure(n, c, k)


def test_the_k_of_a_chart() -> None:
    assert chart_ks(1) == [1]
    assert chart_ks(6) == [1, 2, 4, 6]
    assert chart_ks(64) == [1, 2, 4, 8, 16, 32, 64]
