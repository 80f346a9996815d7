"""Asking once."""

from __future__ import annotations

from breadth.inference.records import Ask, Candidate, Task
from breadth.inference.strategies.single import Single
from breadth.testing.strategies import check_strategy, drive


def test_contract() -> None:
    check_strategy(Single())


def test_the_one_draw_is_the_answer_and_supports_no_confidence() -> None:
    driven = drive(Single(), Task("q"), [Candidate("so 4", "4", "4", tokens=3), Candidate("so 5", "5", "5")])
    assert driven.requests == (Ask(1),)
    assert (driven.answer.key, driven.answer.confidence, driven.answer.stopped) == ("4", None, "most")
    assert driven.answer.votes == {"4": 1}
    assert driven.total_tokens == 3


def test_an_unread_draw_is_shown_but_is_no_vote() -> None:
    answer = drive(Single(), Task("q"), [Candidate("who knows")]).answer
    assert (answer.text, answer.key, answer.votes) == ("who knows", None, {})


def test_nothing_came() -> None:
    answer = drive(Single(), Task("q"), []).answer
    assert (answer.chosen, answer.stopped) == (None, "budget")
