"""The certificate: its wealth in closed form, a fair game, and the promise kept on the hardest questions."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from scipy.special import betainc, betaln

from breadth.base.errors import SettingsError
from breadth.inference.stopping.certificate import (
    Certificate,
    answers_before_leader,
    answers_before_leader_along,
    pair_evidence,
)
from breadth.inference.stored_votes import Paths
from breadth.inference.voting import VoteState


def test_the_wealth_against_numeric_integration() -> None:
    share = np.linspace(0.5, 1, 400_001)
    for first, second in [(0, 0), (1, 0), (1, 1), (7, 2), (20, 20)]:
        integral = np.trapezoid(share**first * (1 - share) ** second, share)
        assert pair_evidence(first, second) == pytest.approx(2.0 ** (first + second + 1) * integral, rel=1e-9)


def test_the_wealth_by_hand() -> None:
    # (1, 0): 4 times the integral of q over (1/2, 1) = 4 * 3/8; (1, 1): 8 * (1/6 - 1/12).
    assert pair_evidence(1, 0) == 1.5
    assert pair_evidence(1, 1) == pytest.approx(2 / 3)


def test_it_is_the_mixture_test_of_consol_with_a_uniform_prior() -> None:
    for first, second in [(5, 0), (9, 4), (30, 22)]:
        a, b = first + 1, second + 1
        mixture = betaln(a, b) + log(1 - betainc(a, b, 0.5)) - log(1 - betainc(1, 1, 0.5)) + (first + second) * log(2)
        assert log(pair_evidence(first, second)) == pytest.approx(mixture, rel=1e-9)


def test_a_vote_for_either_of_two_equal_answers_is_a_fair_bet() -> None:
    for first in range(12):
        for second in range(12):
            assert (pair_evidence(first + 1, second) + pair_evidence(first, second + 1)) / 2 == pytest.approx(
                pair_evidence(first, second), rel=1e-12
            )


def test_unanimity_stops_at_the_ninth_vote() -> None:
    # 3 / 0.05 = 60; E(8, 0) = 511/9 = 56.8, E(9, 0) = 1023/10 = 102.3.
    assert pair_evidence(8, 0) == pytest.approx(511 / 9)
    assert [Certificate().is_decided(VoteState((votes,), (0,) * votes)) for votes in (8, 9)] == [False, True]


def test_an_answer_that_came_second_pays_twice() -> None:
    # 1 to 12: E(12, 1) = 16369/(14 * 13) = 89.9; enough for the first to appear (60), too little for the second (120).
    counts = (12, 1)
    assert pair_evidence(12, 1) == pytest.approx(16369 / 182)
    assert Certificate().is_decided(VoteState(counts, (0,) * 12 + (1,)))
    assert not Certificate().is_decided(VoteState(counts, (1,) + (0,) * 12))


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.35, 0.33, 0.32), (0.12,) + (0.11,) * 8])
def test_the_chance_of_a_false_certificate_stays_below_the_risk(shares: tuple[float, ...]) -> None:
    rng = np.random.default_rng(3)
    votes = rng.choice(len(shares), size=(3000, 150), p=shares).astype(np.int32)
    along = Certificate(0.1).is_decided_along(Paths(votes))
    stopped, first = along.any(axis=1), along.argmax(axis=1)
    winners = [np.bincount(votes[row, : first[row] + 1]).argmax() for row in np.flatnonzero(stopped)]
    false = np.count_nonzero(np.array(winners) != 0) / len(votes)
    assert false <= 0.1


def test_places_in_order_of_appearance() -> None:
    assert answers_before_leader((3, 1, 1)) == 1
    assert answers_before_leader((2, 2, 0, 1)) == 0
    # Where two lead any of them will do: neither is certified.
    places = answers_before_leader_along(Paths(np.array([[3, -1, 1, 1, 0, 0, 0]], dtype=np.int32)))[0].tolist()
    assert [places[draw] for draw in (0, 1, 3, 4, 6)] == [0, 0, 1, 1, 2]


def test_a_thousand_votes_for_one_answer_do_not_overflow() -> None:
    assert pair_evidence(3000, 0) == float("inf")


@pytest.mark.parametrize("risk", [0.0, 1.0])
def test_certainty_is_refused(risk: float) -> None:
    with pytest.raises(SettingsError, match="risk"):
        Certificate(risk)


def test_thousands_of_answers_and_votes_are_no_overflow() -> None:
    late = (*range(1200), *[1200] * 1300)
    assert not Certificate().is_decided(
        VoteState((1300, *[1] * 1200), late)
    )  # its price is 2^1200, beyond what a float holds
    assert Certificate().is_decided(VoteState((1300, 1), (*[0] * 1300, 1)))
    assert not Certificate().is_decided(VoteState((5000, 4990), (*[0] * 5000, *[1] * 4990)))


def test_the_threshold_itself_certifies() -> None:
    # E(3, 0) = 15/4: times 0.8 that is the 3 an answer needs that came first. One that came second needs 6.
    assert Certificate(0.8).is_certified(3, 0, 0)
    assert not Certificate(0.79).is_certified(3, 0, 0)
    assert not Certificate(0.8).is_certified(3, 0, 1)
    # E(4, 0) = 31/5: 6.2 times 0.97 is 6.01, enough for the second to appear; the third needs 12.
    assert Certificate(0.97).is_certified(4, 0, 1)
    assert not Certificate(0.96).is_certified(4, 0, 1)
    assert not Certificate(0.97).is_certified(4, 0, 2)
    assert pair_evidence(0, 0) == 1.0


def test_recorded_votes_are_certified_as_single_ones_are() -> None:
    classes = np.array([[0, 0, 0, -1, 1], [1, 0, 0, 0, 0], [-1, -1, 0, 0, 0]], dtype=np.int32)
    assert Certificate(0.8).is_decided_along(Paths(classes)).tolist() == [
        [False, False, True, True, False],  # 3 to 1: E = 26/20
        [False, False, False, False, False],
        [False, False, False, False, True],
    ]
    assert answers_before_leader_along(Paths(classes)).tolist() == [[0] * 5, [0, 1, 1, 1, 1], [0] * 5]


def test_the_usual_level_is_the_default() -> None:
    assert Certificate().risk == 0.05
