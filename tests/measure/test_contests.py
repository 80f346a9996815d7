"""The counting behind votes against plain rational arithmetic that tracks ties one by one."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.measure import contests
from breadth.measure.contests import Standing, drawn_winning_chances, independent_winning_chances


def rational_chances(standing: Standing) -> list[Fraction]:
    """Whole-number polynomials in x with one row per number of ties: slow, exact, no integral."""
    own, rivals, silent = standing
    total = own + sum(rivals) + silent
    chances = [Fraction(0)] * (total + 1)
    for level in range(1, own + 1):
        table = [[comb(silent, j) for j in range(total + 1)]]
        for rival in rivals:
            table = times_rival(table, rival, level, total)
        for ties, row in enumerate(table):
            for votes in range(total + 1 - level):
                chances[votes + level] += Fraction(comb(own, level) * row[votes], (ties + 1) * comb(total, votes + level))
    return chances[1:]


def times_rival(table: list[list[int]], rival: int, level: int, total: int) -> list[list[int]]:
    result = [[0] * (total + 1) for _ in range(len(table) + 1)]
    for ties, row in enumerate(table):
        for votes, ways in enumerate(row):
            for more in range(min(rival, level, total - votes) + 1 if ways else 0):
                result[ties + (more == level)][votes + more] += ways * comb(rival, more)
    return result


STANDINGS: list[Standing] = [
    (6, (6, 5, 5, 5, 5, 5, 3, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1), 0),
    (12, (14, 9, 5, 4, 4, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), 0),
    (20, (19, 1, 1, 1), 22),
    (1, (63,), 0),
    (1, (), 63),
    (64, (), 0),
]


@pytest.mark.parametrize("standing", STANDINGS, ids=str)
def test_sixty_four_samples_agree_with_rational_arithmetic_to_a_trillionth(standing: Standing) -> None:
    computed = drawn_winning_chances([standing], np.arange(1, 65))[0]
    for value, expected in zip(computed.tolist(), rational_chances(standing), strict=True):
        assert abs(Fraction(value) - expected) <= Fraction(1, 10**12) * expected


def test_a_batch_gives_what_each_standing_gives_alone() -> None:
    draws = np.array([1, 2, 7, 33, 64])
    together = drawn_winning_chances(STANDINGS, draws)
    alone = [drawn_winning_chances([standing], draws)[0] for standing in STANDINGS]
    np.testing.assert_allclose(together, alone, rtol=1e-13)


def test_the_size_of_a_batch_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.array([1, 2, 7, 33, 64])
    expected = drawn_winning_chances(STANDINGS, draws)
    monkeypatch.setattr(contests, "_BATCH_CELLS", 1)
    np.testing.assert_allclose(drawn_winning_chances(STANDINGS, draws), expected, rtol=1e-13)


@pytest.mark.parametrize(("classes", "each"), [(64, 1), (200, 1), (20, 10), (10, 100)])
def test_equal_classes_share_every_win(classes: int, each: int) -> None:
    # By symmetry each of L equal classes wins 1/L of the draws, whatever k: this leans on every tie being shared.
    chances = drawn_winning_chances([(each, (each,) * (classes - 1), 0)], np.arange(1, classes * each + 1))
    np.testing.assert_allclose(chances * classes, 1.0, rtol=1e-12)


def test_many_samples_with_few_draws_stay_within_range() -> None:
    # 10,000 samples in 10 equal classes, k up to 64: C(10000, 64) is about 1e167.
    np.testing.assert_allclose(drawn_winning_chances([(1000, (1000,) * 9, 0)], np.arange(1, 65)) * 10, 1.0, rtol=1e-12)


def test_numbers_of_draws_beyond_floating_point_are_refused() -> None:
    for total, most in ((1100, 550), (5000, 5000), (10_000, 200)):
        with pytest.raises(MeasureError, match="floating point"):
            drawn_winning_chances([(total // 2, (total - total // 2,), 0)], np.array([most]))


def test_no_standings_give_no_rows() -> None:
    assert drawn_winning_chances([], np.array([1, 2])).shape == (0, 2)


def test_chances_of_independent_draws_sum_to_the_chance_that_anybody_votes() -> None:
    # Somebody votes unless all k draws are silent, which has chance 0.2^k.
    draws = np.array([1, 2, 3, 10, 150])
    shares = np.array([0.5, 0.2, 0.1])
    chances = sum(independent_winning_chances(shares, own, draws) for own in range(3))
    np.testing.assert_allclose(chances, 1 - 0.2**draws, rtol=1e-12)


def test_seven_hundred_independent_draws_stay_within_range() -> None:
    # A lone class wins unless all draws are silent.
    np.testing.assert_allclose(independent_winning_chances(np.array([0.01]), 0, np.array([1, 700])), [0.01, 1 - 0.99**700], rtol=1e-11)


def test_independent_draws_of_one_and_two_votes_by_hand() -> None:
    # k=2, shares (.5, .3), silence .2: the first wins with 2 votes (.25), with 1 vote and a silent one (2*.5*.2 = .2),
    # and half of the ties (2*.5*.3/2 = .15): .6.
    np.testing.assert_allclose(independent_winning_chances(np.array([0.5, 0.3]), 0, np.array([1, 2])), [0.5, 0.6], rtol=1e-14)
