"""Wald's test between the first two: what a vote is worth, both ends, and error rates where its theorem holds."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest

from breadth.base.errors import SettingsError
from breadth.inference.stopping.sprt import Sprt
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
