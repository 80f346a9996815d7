"""Votes as arrays: the five largest counts against sorting them anew after every draw."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from breadth.inference.stopping.paths import KEPT, Paths, looked_up

TABLES = arrays(np.int32, st.tuples(st.integers(1, 4), st.integers(1, 25)), elements=st.integers(-1, 8))


@settings(max_examples=60, deadline=None)
@given(TABLES)
def test_counts_carried_along_are_those_of_counting_anew(classes: np.ndarray) -> None:
    paths = Paths(classes)
    for row, draw in np.ndindex(classes.shape):
        votes = [label for label in classes[row, : draw + 1].tolist() if label >= 0]
        largest = sorted(Counter(votes).values(), reverse=True)[:KEPT]
        assert paths.ranked[row, draw].tolist() == largest + [0] * (KEPT - len(largest))
        assert paths.total[row, draw] == len(votes)
        assert paths.rest[row, draw] == len(votes) - sum(largest[:2])
        label = classes[row, draw]
        assert paths.earlier[row, draw] == (0 if label < 0 else classes[row, :draw].tolist().count(label))


def test_six_answers_one_vote_each_then_the_sixth_leads() -> None:
    # The sixth answer is not among the five counts kept until it ties them; then it overtakes all of them.
    ranked = Paths(np.array([[0, 1, 2, 3, 4, 5, 5, 5]], dtype=np.int32)).ranked[0]
    assert ranked[5].tolist() == [1, 1, 1, 1, 1]
    assert ranked[6].tolist() == [2, 1, 1, 1, 1]
    assert ranked[7].tolist() == [3, 1, 1, 1, 1]


def test_a_looked_up_function_is_called_once_for_each_combination() -> None:
    calls: list[tuple[int, int]] = []

    def worth(first: int, second: int) -> int:
        calls.append((first, second))
        return 10 * first + second

    first, second = np.array([[3, 1, 3], [0, 1, 3]], dtype=np.int32), np.array([[2, 0, 2], [0, 0, 1]], dtype=np.int32)
    np.testing.assert_array_equal(looked_up(worth, first, second), [[32, 10, 32], [0, 10, 31]])
    assert sorted(calls) == [(0, 0), (1, 0), (3, 1), (3, 2)]


def test_looking_up_many_large_numbers_sorts_instead_of_filling_a_table() -> None:
    columns = [np.array([0, 900, 900, 17], dtype=np.int32), np.array([5000, 3, 3, 0], dtype=np.int32)]
    np.testing.assert_array_equal(looked_up(lambda a, b: a - b, *columns), [-5000, 897, 897, 17])


def test_no_paths_at_all_give_nothing() -> None:
    empty = Paths(np.zeros((0, 3), dtype=np.int32))
    assert looked_up(lambda a: a, empty.leader).shape == (0, 3)
