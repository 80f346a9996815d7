"""Options: votes scored exactly from the same samples, costs that add up, cheapest first."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from breadth.inference.strategies.single import Single
from breadth.inference.strategies.vote import Vote
from breadth.tuning.evidence import Evidence
from breadth.tuning.options import measured_options, plain_votes

Made = Callable[..., Evidence]


def test_votes_are_scored_over_all_ways_to_draw(made: Made) -> None:
    # Four right, three of one wrong answer, one of another: the numbers of the specification for k = 1, 2, 3, 5, 8.
    evidence = made([[0, 0, 0, 0, 1, 1, 1, 2]], widths=(1, 2, 3, 5, 8))
    votes = plain_votes(evidence)
    assert [option.score for option in votes] == pytest.approx([0.5, 0.5, 0.57143, 0.66071, 1.0], abs=1e-5)
    assert [option.cost for option in votes] == [10, 20, 30, 50, 80]
    assert [option.strategy for option in votes] == [Single(), Vote(2), Vote(3), Vote(5), Vote(8)]


def test_an_answer_that_cannot_be_read_is_no_vote_and_a_cost(made: Made) -> None:
    evidence = made([[0, -1]], widths=(1, 2))
    one, two = plain_votes(evidence)
    assert (one.score, two.score) == (0.5, 1.0)
    assert (one.cost, two.cost) == (10, 20)


def test_options_are_sorted_by_cost_and_carry_their_strategies(made: Made) -> None:
    evidence = made([[0, 1], [0, 0]], {8: [[1], [0]], 64: [[0], [0]]}, widths=(1, 2))
    options = measured_options(evidence)
    assert [(option.name, option.cost) for option in options] == [
        ("one plain draw", 10),
        ("think 8", 12),
        ("vote of 2", 20),
        ("think 64", 68),
    ]
    assert options[1].strategy == evidence.serial[0].arm.strategy
    np.testing.assert_array_equal(options[1].scores, [0, 1])
    np.testing.assert_array_equal(options[0].scores, [0.5, 1])


def test_one_plain_draw_is_always_there(made: Made) -> None:
    assert [option.width for option in plain_votes(made([[0, 0, 0]], widths=(3,)))] == [1, 3]


def test_a_vote_takes_as_long_as_the_slowest_of_its_draws(made: Made) -> None:
    evidence = made([[0, 0, 0, 0]], widths=(1, 2, 4), seconds=[[1.0, 3.0, 2.0, 2.0]], money=0.5)
    # Groups of two: 3 and 2 seconds.
    assert [option.seconds for option in plain_votes(evidence)] == [2.0, 2.5, 3.0]
    assert [option.money for option in plain_votes(evidence)] == [0.5, 1.0, 2.0]
