"""Drawing a fixed number and counting."""

from __future__ import annotations

import pytest

from breadth.base.errors import SettingsError
from breadth.inference.records import Ask, Candidate, Task
from breadth.inference.strategies.vote import Vote
from breadth.testing.strategies import check_strategy, drive


def said(*keys: str | None) -> list[Candidate]:
    return [Candidate(f"so {key}", key, key) for key in keys]


@pytest.mark.parametrize("n", [1, 8, 33])
def test_contract(n: int) -> None:
    check_strategy(Vote(n))


def test_all_are_drawn_at_once_and_counted() -> None:
    driven = drive(Vote(5), Task("q"), said("4", "5", "4", None, "4"))
    assert driven.requests == (Ask(5),)
    assert driven.answer.votes == {"4": 3, "5": 1}
    assert driven.answer.key == "4"
    # 3 against 1: 1 - I_1/2(4, 2) = 26/32.
    assert driven.answer.confidence == pytest.approx(26 / 32)
    assert driven.answer.unread == 1
    assert driven.answer.stopped == "most"


def test_what_arrived_before_the_budget_died_is_counted() -> None:
    answer = drive(Vote(5), Task("q"), said("5", "4", "4", "5", "5"), budget=3).answer
    assert (answer.key, answer.stopped, len(answer.candidates)) == ("4", "budget", 3)


def test_no_draw_is_refused() -> None:
    with pytest.raises(SettingsError, match="n = 0"):
        Vote(0)
