"""Batch exploration: what is told, what is marked, what wins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from breadth.base.errors import SettingsError
from breadth.inference.records import Ask, Candidate, Task, text_of
from breadth.inference.strategies.batch_exploration import BatchExploration
from breadth.inference.strategies.best_of_n import BestOfN
from breadth.inference.strategies.vote import Vote
from breadth.testing.strategies import check_strategy, drive

TASK = Task(({"role": "user", "content": "6 * 7?"},), seed=3)
KEYS = ("1", "2", "2", "3", "1", "2", None, "1")


def varied(ask: Ask, number: int) -> Candidate:
    key = KEYS[number % len(KEYS)]
    return Candidate(f"reply {number}", key, key, tokens=5)


def scored(candidate: Candidate) -> Candidate:
    return replace(candidate, score=0.1 * (int(candidate.text.split()[1]) % 7))


def told(ask: object) -> str:
    assert isinstance(ask, Ask)
    return text_of(ask.prompt[-1]["content"]) if isinstance(ask.prompt, tuple) else ""


def test_later_rounds_are_told_the_answers_so_far_most_frequent_first() -> None:
    result = drive(BatchExploration(rounds=3, listed=2), TASK, varied)
    assert result.requests[0] == Ask(4)
    assert "these answers: 2; 1." in told(result.requests[1])
    assert told(result.requests[1]).startswith("6 * 7?\n\n")
    assert "confirm one of them" in told(result.requests[1])
    assert [candidate.independent for candidate in result.answer.candidates] == [True] * 4 + [False] * 8


def test_no_confidence_is_taken_from_candidates_that_knew_others() -> None:
    answer = drive(BatchExploration(), TASK, varied).answer
    assert answer.confidence is None
    assert "no confidence is given" in answer.notes[-1]
    assert answer.figures == {"answers": 3, "draws": 16}


def test_listing_nothing_is_a_vote() -> None:
    explored = drive(BatchExploration(listed=0), TASK, varied).answer
    vote = drive(Vote(16), TASK, varied).answer
    assert (explored.key, explored.votes, explored.confidence, explored.notes) == (
        vote.key,
        vote.votes,
        vote.confidence,
        vote.notes,
    )
    assert explored.independent


def test_listing_nothing_without_a_penalty_is_best_of_n() -> None:
    explored = drive(BatchExploration(listed=0, penalty=0, judge="j"), TASK, varied, judge=scored).answer
    best = drive(BestOfN(16, weighted=False), TASK, varied, judge=scored).answer
    assert explored.chosen is not None
    assert best.chosen is not None
    assert explored.chosen.text == best.chosen.text


def test_the_penalty_prefers_rare_answers() -> None:
    # Four candidates: three say 1 with 0.8, one says 2 with 0.6. u(1) = .8 - .5 * 2/4 = .55 < u(2) = .6; at a penalty
    # of .3: .65 > .6.
    replies = [Candidate(key, key, key, score=0.8 if key == "1" else 0.6) for key in "1112"]
    assert drive(BatchExploration(rounds=1, judge="j"), TASK, replies).answer.key == "2"
    assert drive(BatchExploration(rounds=1, judge="j", penalty=0.3), TASK, replies).answer.key == "1"


def test_a_judge_that_is_content_ends_it() -> None:
    answer = drive(
        BatchExploration(judge="j"), TASK, varied, judge=lambda c: replace(c, solved=c.text == "reply 5")
    ).answer
    assert (answer.stopped, len(answer.candidates)) == ("solved", 8)
    assert answer.text == "reply 5"


def test_a_judge_that_fails_leaves_it_to_the_vote() -> None:
    answer = drive(BatchExploration(judge="j"), TASK, varied).answer
    assert answer.key in answer.votes
    assert "No judge scored" in answer.notes[0]


def test_with_nothing_readable_there_is_nothing_to_tell() -> None:
    result = drive(BatchExploration(rounds=2), TASK, lambda *_: Candidate("hm"))
    assert result.requests == (Ask(4), Ask(4))


def test_a_long_answer_is_told_in_part() -> None:
    result = drive(BatchExploration(rounds=2), TASK, lambda *_: Candidate("x", "y" * 5000, "y"))
    assert told(result.requests[1]).count("y") < 300


@pytest.mark.parametrize(
    "strategy", [BatchExploration(), BatchExploration(judge="j"), BatchExploration(batch=1, rounds=3, listed=0)]
)
def test_the_contract(strategy: BatchExploration) -> None:
    check_strategy(strategy)
    check_strategy(strategy, judge=lambda candidate: replace(candidate, score=float(candidate.key == "41")))


@pytest.mark.parametrize(
    "bad", [{"batch": 0}, {"rounds": 0}, {"listed": -1}, {"penalty": -1.0}, {"listing": "Others said things."}]
)
def test_bad_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(bad))):
        BatchExploration(**bad)  # type: ignore[arg-type]  # wrong on purpose
