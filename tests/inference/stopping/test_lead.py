"""A lead of so many votes, and why three of them are what ConSol's constants amount to."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from scipy.special import betainc, betaln

from breadth.base.errors import SettingsError
from breadth.inference.stopping.lead import Lead
from breadth.inference.stopping.sprt import Sprt
from breadth.inference.stored_votes import Paths
from breadth.inference.voting import VoteState


def test_the_leader_must_be_so_far_ahead_of_the_second_whatever_the_rest() -> None:
    assert not Lead().is_decided(VoteState((2,), (0, 0)))
    assert Lead().is_decided(VoteState((3,), (0, 0, 0)))
    assert not Lead().is_decided(VoteState((9, 7, 7), (0,) * 23))
    assert Lead().is_decided(VoteState((9, 6, 6), (0,) * 21))


def test_the_constants_of_consol_need_a_lead_of_three_at_every_count() -> None:
    consol = Sprt(0.5001, 0.05, 1 - 0.05 - 0.000024)
    for second in range(100):
        for ahead in range(5):
            standing = VoteState(
                (second + ahead, second) if second else (ahead,) if ahead else (), (0,) * (2 * second + ahead)
            )
            assert consol.is_decided(standing) == Lead(3).is_decided(standing)
    # A = 4.80e-4 and a vote is worth 2.0e-4; its other side fires at a tie of 632 votes each.
    assert log((1 - consol.beta) / consol.alpha) == pytest.approx(4.80e-4, rel=2e-3)
    assert not consol.is_decided(VoteState((631, 631), (0,) * 1262))


def test_the_mixture_form_of_consol_needs_a_lead_of_three_as_well() -> None:
    def ratio(first: int, second: int) -> float:
        a, b = first + 1e6, second + 1e6
        tail = log(1 - betainc(a, b, 0.5)) - log(1 - betainc(1e6, 1e6, 0.5))
        return float(betaln(a, b) - betaln(1e6, 1e6) + tail + (first + second) * log(2))

    needed = log((0.05 + 0.00006) / 0.05)
    for second in (0, 1, 5, 20):
        assert ratio(second + 2, second) < needed <= ratio(second + 3, second)


def test_a_lead_of_no_votes_is_refused() -> None:
    with pytest.raises(SettingsError, match="votes"):
        Lead(0)


def test_recorded_votes_stop_at_exactly_the_lead() -> None:
    classes = np.array([[0, 0, 1, 0, 0, 1], [-1, 1, 1, 0, 2, 1]], dtype=np.int32)
    assert Lead(2).is_decided_along(Paths(classes)).tolist() == [
        [False, True, False, True, True, True],
        [False, False, True, False, False, True],
    ]
    assert Lead(1).is_decided_along(Paths(classes))[1].tolist() == [False, True, True, True, True, True]


def test_one_vote_is_a_lead_and_three_are_the_default() -> None:
    assert Lead(1).is_decided(VoteState((1,), (0,)))
    assert not Lead(1).is_decided(VoteState())
    assert not Lead(1).is_decided(VoteState((1, 1), (0, 1)))
    assert Lead().votes == 3
