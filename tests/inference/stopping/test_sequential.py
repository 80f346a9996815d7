"""Wald's test between the first two answers, and the certificate: both ends, and the error rates they promise."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
from scipy.special import betainc, betaln

from breadth.base.errors import SettingsError
from breadth.inference.stopping.sequential import (
    Certificate,
    Sprt,
    answers_before_leader,
    answers_before_leader_along,
    pair_evidence,
)
from breadth.inference.stored_votes import Paths
from breadth.inference.voting import VoteState


def test_what_a_vote_is_worth() -> None:
    assert Sprt().log_ratio(1, 0) == pytest.approx(0.405, abs=5e-4)
    assert Sprt().log_ratio(0, 1) == pytest.approx(-0.693, abs=5e-4)
    assert log((1 - 0.05) / 0.05) == pytest.approx(2.944, abs=5e-4)


def test_unanimity_stops_at_the_eighth_vote_and_a_tie_at_eleven_all() -> None:
    # 2.944 / 0.405 = 7.26, so 8; a tied pair is worth -0.288 and 2.944 / 0.288 = 10.2, so 11.
    assert [Sprt().is_decided(VoteState((votes,), (0,) * votes)) for votes in (7, 8)] == [False, True]
    assert [Sprt().is_decided(VoteState((votes, votes), (0, 1) * votes)) for votes in (10, 11)] == [False, True]
    assert not Sprt(give_up=False).is_decided(VoteState((200, 200), (0, 1) * 200))


@pytest.mark.parametrize(("share", "bound"), [(0.5, 0.05), (0.75, 0.95)])
def test_the_error_rates_hold_when_the_leader_is_not_chosen_by_looking(share: float, bound: float) -> None:
    # One answer fixed beforehand: walk its log ratio until it leaves the test; Wald's rates hold up to the overshoot.
    rng, test = np.random.default_rng(1), Sprt()
    votes = rng.random((4000, 400)) < share
    ratio = np.cumsum(np.where(votes, test.log_ratio(1, 0), test.log_ratio(0, 1)), axis=1)
    out = (ratio >= log(19)) | (ratio <= -log(19))
    accepted = np.mean(np.take_along_axis(ratio, out.argmax(axis=1)[:, None], axis=1) > 0)
    assert accepted <= bound + 0.01 if share == 0.5 else accepted >= bound - 0.01


def test_choosing_the_leader_by_looking_breaks_the_rates() -> None:
    votes = (np.random.default_rng(2).random((4000, 60)) < 0.5).astype(np.int32)
    along = Sprt(give_up=True).is_decided_along(Paths(votes))
    first = along.argmax(axis=1)
    paths = Paths(votes)
    rows = np.arange(len(first))
    accepted = along.any(axis=1) & (paths.leader[rows, first] > paths.runner_up[rows, first] + 3)
    assert accepted.mean() > 0.07, "either answer may be the leader: about twice the nominal 5 %"


@pytest.mark.parametrize(
    ("field", "value"), [("share", 0.5), ("share", 1.0), ("alpha", 0.0), ("beta", 1.0), ("beta", 0.95)]
)
def test_settings_that_make_no_test_are_refused(field: str, value: float) -> None:
    with pytest.raises(SettingsError, match=field):
        replace(Sprt(), **{field: value})  # type: ignore[arg-type]


def test_both_ends_of_the_test_are_reached_by_equality() -> None:
    # A vote for the leader is worth ln 1.5 and accepts at ln(0.75 / 0.5); one against is ln 0.5, and so is the end.
    test = Sprt(0.75, 0.5, 0.25)
    assert test.has_ended(1, 0)
    assert test.has_ended(0, 1)
    assert not test.has_ended(0, 0)
    lasting = replace(test, give_up=False)
    assert lasting.has_ended(1, 0)
    assert not lasting.has_ended(0, 1)


def test_recorded_votes_end_the_test_as_single_ones_do() -> None:
    classes = np.array([[-1, 0, 1, 1], [0, 0, -1, 1]], dtype=np.int32)
    # ln 0.75 after one all is between the ends, ln 1.125 after 2 to 1 too.
    assert Sprt(0.75, 0.5, 0.25).is_decided_along(Paths(classes)).tolist() == [
        [False, True, False, False],
        [True, True, True, False],
    ]
    assert not Sprt(0.75, 0.5, 0.25).is_decided(VoteState())


def test_the_defaults_are_the_documented_ones() -> None:
    assert (Sprt().share, Sprt().alpha, Sprt().beta, Sprt().give_up) == (0.75, 0.05, 0.05, True)


@pytest.mark.parametrize(
    ("field", "value"),
    [("share", 1.01), ("alpha", 1.0), ("alpha", 1.5), ("alpha", -0.1), ("beta", 0.0), ("beta", 1.0), ("beta", 1.5)],
)
def test_what_is_no_probability_is_refused_by_its_own_name(field: str, value: float) -> None:
    with pytest.raises(SettingsError, match=rf"got {field} = .* (probability|share) between"):
        replace(Sprt(), **{field: value})  # type: ignore[arg-type]


def test_the_tightest_test_ends_with_the_first_vote_and_not_before() -> None:
    # ln((1 - beta) / alpha) is one float above 0 on either side.
    for alpha, beta in ((0.5, 0.5 - 2**-53), (0.5 - 2**-53, 0.5), (2**-60, 1 - 2**-53), (1 - 2**-53, 2**-60)):
        assert not Sprt(0.75, alpha, beta).has_ended(0, 0)


def test_a_single_vote_may_end_the_test() -> None:
    assert Sprt(0.75, 0.5, 0.25).is_decided(VoteState((1,), (0,)))


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
