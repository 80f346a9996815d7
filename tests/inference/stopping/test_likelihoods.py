"""Likelihoods of stored votes, by hand and against counting every assignment."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from breadth.inference.stopping.likelihoods import CONCENTRATIONS, novelty_likelihoods, shape_likelihoods


def test_by_hand_two_shapes() -> None:
    # Votes 3 to 1. Shape (.8, .2): .8^3 .2 + .2^3 .8 = .1024 + .0064 = .1088; shape (.5, .5): two ways of 1/16 = .125.
    found = shape_likelihoods([(3, 1)], np.array([[0.8, 0.2], [0.5, 0.5]]))[0]
    assert found[0] / found[1] == pytest.approx(0.1088 / 0.125)


def test_equal_shares_count_every_way_to_use_them() -> None:
    # 5 to 1 to 1 on (.7, .1, .1, .1): 3 * 2 ordered ways for the two single votes. The swap of the first two adds .1^5 .7 for each.
    shares = np.array([[0.7, 0.1, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1]])
    found = shape_likelihoods([(5, 1, 1)], shares)[0]
    first = 6 * (0.7**5 * 0.1 * 0.1 + 0.1**5 * 0.7 * 0.1)
    second = 0.4**5 * 0.3 * 0.2 + 0.3**5 * 0.4 * 0.2
    assert found[0] / found[1] == pytest.approx(first / second)


def test_a_clear_race_is_scored_as_the_sum_over_all_assignments() -> None:
    shares, votes = (0.85, 0.1, 0.05), (30, 4, 0)
    everything = sum(np.prod([share**count for share, count in zip(order, votes, strict=True)]) for order in permutations(shares))
    flat = sum(np.prod([share**count for share, count in zip(order, votes, strict=True)]) for order in permutations((0.6, 0.25, 0.15)))
    found = shape_likelihoods([votes], np.array([shares, (0.6, 0.25, 0.15)]))[0]
    # What is left out is the runner-up on the third share: (1/2)^4 of the whole, (3/5)^4 for the flat shape.
    assert found[0] / found[1] == pytest.approx(everything / flat, rel=0.1)


def test_more_answers_than_a_shape_has_are_unlikely_not_impossible() -> None:
    found = shape_likelihoods([(2, 1, 1, 1)], np.array([[1.0, 0.0], [0.5, 0.5]]))
    assert np.all(found > 0)


def test_the_restaurant_process_by_hand() -> None:
    # Two votes: equal with chance 1 / (c + 1), different with c / (c + 1).
    found = novelty_likelihoods([(2,), (1, 1)])
    grid = np.array(CONCENTRATIONS)
    np.testing.assert_allclose(found[0] / found[0, 0], (1 / (grid + 1)) / (1 / (grid[0] + 1)))
    np.testing.assert_allclose(found[1] / found[1, -1], (grid / (grid + 1)) / (grid[-1] / (grid[-1] + 1)))
