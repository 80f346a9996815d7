"""A vote in which some count for more."""

from __future__ import annotations

import pytest

from breadth.inference.records import Candidate, Task
from breadth.inference.voting import Poll
from breadth.inference.weighing import WeightedPoll


def votes_of(*pairs: tuple[str | None, float], task: Task | None = None) -> WeightedPoll:
    votes = WeightedPoll(Poll(task or Task("q")))
    for key, weight in pairs:
        votes.add(Candidate("", key, key), weight)
    return votes


def test_weights_decide_and_counts_give_the_confidence() -> None:
    answer = votes_of(("a", 10.0), ("b", 4.0), ("b", 4.0), (None, 99.0)).answer()
    assert answer.key == "a"
    assert answer.votes == {"a": 10, "b": 8}
    # One vote against two: 1 - I_1/2(2, 3) = 5/16.
    assert answer.confidence == pytest.approx(5 / 16)
    assert "each counted once" in answer.basis


def test_share_and_shortfall_by_hand() -> None:
    votes = votes_of(("a", 6.0), ("a", 6.0), ("b", 6.0))
    assert votes.share == pytest.approx(2 / 3)
    # (12 + 6m) / (18 + 6m) >= 0.95 at m = 17: 114 / 120.
    assert votes.shortfall(0.95, 40) == 17
    assert votes.shortfall(0.95, 8) == 8
    assert votes.shortfall(0.75, 40) == 1
    assert votes.shortfall(1.0, 40) == 40


def test_nothing_to_weigh() -> None:
    votes = votes_of((None, 3.0))
    assert votes.share == 0
    assert votes.shortfall(0.95, 8) == 1
    assert votes.answer().key is None
    assert votes.answer().confidence is None


def test_without_any_weight_votes_count_alike() -> None:
    answer = votes_of(("a", 0.0), ("b", 0.0), ("b", 0.0)).answer()
    assert answer.key == "b"
    assert "No vote had any weight" in answer.notes[0]
