"""Adaptive vote: stops when decided, never has more in flight than could decide, keeps to its limit."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from breadth.base.errors import SettingsError
from breadth.inference.records import Ask, Candidate, Task
from breadth.inference.stopping.posterior import BetaLead
from breadth.inference.stopping.rule import Lead, Never, StopRule
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.testing.strategies import DriveResult, check_strategy, drive

TASK = Task("q")


def voted(votes: str, strategy: AdaptiveVote) -> DriveResult:
    return drive(strategy, TASK, [Candidate(vote, vote, None if vote == "-" else vote, tokens=1) for vote in votes])


@pytest.mark.parametrize(
    "strategy", [AdaptiveVote(), AdaptiveVote(5, 1), AdaptiveVote(7, 3, Never()), AdaptiveVote(1, 8)]
)
def test_the_contract_holds(strategy: AdaptiveVote) -> None:
    check_strategy(strategy)


@pytest.mark.parametrize(
    ("votes", "threshold", "seen"),
    [
        ("AAAAAAAA", 0.95, 4),  # P(4, 0) = 0.96875
        ("BAAAAAAAA", 0.95, 7),  # P(6, 1) = 0.9648, P(5, 1) = 0.9375
        ("AAAAAAAA", 0.9, 3),  # P(3, 0) = 0.9375
        ("A-A-A-A-", 0.95, 7),  # what cannot be read is a draw, not a vote
    ],
)
def test_it_stops_as_soon_as_the_vote_is_decided(votes: str, threshold: float, seen: int) -> None:
    driven = voted(votes * 3, AdaptiveVote(width=1, stop=BetaLead(threshold)))
    assert len(driven.answer.candidates) == seen
    assert driven.answer.key == "A"
    assert driven.answer.stopped == "agreed"


def test_the_first_draws_are_those_that_unanimity_needs() -> None:
    driven = voted("AAAAAAAA", AdaptiveVote(width=8))
    assert driven.requests[0] == Ask(4, wait=1)
    assert all(request == Ask(0, wait=1) for request in driven.requests[1:])
    assert len(driven.drawn) == 4


def test_a_dissenting_vote_calls_for_more() -> None:
    driven = voted("AABAAAA" * 3, AdaptiveVote(width=8))
    # After A, A, B the vote can be decided at (6, 1) at the earliest: four more than the two As, of which one is in
    # flight.
    assert driven.requests[3] == Ask(3, wait=1)


def test_the_width_is_never_passed() -> None:
    flying = 0
    for request in voted("ABCDEFGHIJ" * 4, AdaptiveVote(most=20, width=3)).requests:
        assert isinstance(request, Ask)
        flying += request.n
        assert flying <= 3
        flying -= 1


def test_it_draws_at_most_what_it_may() -> None:
    driven = voted("AB" * 30, AdaptiveVote(most=10, width=4))
    assert len(driven.drawn) == 10
    assert driven.answer.stopped == "most"
    assert driven.answer.tied == ("A", "B")


def test_confidence_is_a_posterior_and_not_a_share() -> None:
    assert voted("A", AdaptiveVote(most=1)).answer.confidence == pytest.approx(0.75)
    assert voted("AA", AdaptiveVote(most=2)).answer.confidence == pytest.approx(0.875)
    assert voted("--", AdaptiveVote(most=2)).answer.confidence is None
    assert voted("AAA", AdaptiveVote(most=3, stop=Never())).answer.basis == "leader against runner-up, uniform prior"


def test_it_gives_up_where_there_is_nothing_to_vote_on() -> None:
    poem = voted("-" * 40, AdaptiveVote())
    assert (len(poem.answer.candidates), poem.answer.stopped) == (8, "unread")
    assert poem.answer.chosen is not None, "the text is an answer all the same"
    assert len(voted("-" * 7 + "A" * 9, AdaptiveVote(width=1)).answer.candidates) == 11
    assert len(voted("-" * 40, AdaptiveVote(width=1, unread=3)).answer.candidates) == 3


def test_a_rule_may_toss_the_coin_of_the_task() -> None:
    @dataclass(frozen=True)
    class Fickle(Never):
        def randomize(self, coin: float) -> StopRule:
            return Lead(1) if coin < 0.5 else self

    replies = [Candidate("A", "A", "A")] * 9
    seen = {
        len(drive(AdaptiveVote(9, 1, Fickle()), Task("q", f"task {number}"), replies).answer.candidates)
        for number in range(20)
    }
    assert seen == {1, 9}


@pytest.mark.parametrize(("most", "width", "unread"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_bad_settings_are_refused(most: int, width: int, unread: int) -> None:
    with pytest.raises(SettingsError):
        AdaptiveVote(most, width, BetaLead(), unread)
