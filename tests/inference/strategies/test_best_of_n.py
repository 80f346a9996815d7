"""Letting a judge choose: by answer or by completion, and what happens when the judge fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from breadth.base.errors import SettingsError
from breadth.inference.records import Ask, Candidate, Judge, Task
from breadth.inference.strategies.best_of_n import BestOfN
from breadth.testing.strategies import check_strategy, drive

DRAWN = [Candidate(text, text[0], text[0]) for text in ("a1", "b1", "a2", "a3")] + [Candidate("?")]
SCORES = {"a1": 0.4, "b1": 0.9, "a2": 0.5, "a3": 0.3, "?": 1.0}


def by(scores: dict[str, float | None]) -> Callable[[Candidate], Candidate]:
    return lambda candidate: replace(candidate, score=scores.get(candidate.text), feedback="read")


@pytest.mark.parametrize("weighted", [True, False])
def test_contract(weighted: bool) -> None:
    check_strategy(BestOfN(6, weighted), judge=lambda candidate: replace(candidate, score=len(candidate.text) / 100))
    check_strategy(BestOfN(6, weighted))


def test_the_best_completion_and_the_best_answer_differ() -> None:
    single = drive(BestOfN(5, weighted=False), Task("q"), DRAWN, judge=by({**SCORES})).answer
    assert (single.text, single.key) == ("b1", "b")
    summed = drive(BestOfN(5), Task("q"), DRAWN, judge=by({**SCORES})).answer
    assert summed.votes == pytest.approx({"a": 1.2, "b": 0.9})
    assert summed.text == "a2"  # the best of its answer speaks for it


def test_only_readable_completions_are_judged_and_all_are_kept() -> None:
    driven = drive(BestOfN(5, judge="model"), Task("q"), DRAWN, judge=by({**SCORES}))
    assert driven.requests[0] == Ask(5)
    judged = driven.requests[1]
    assert isinstance(judged, Judge)
    assert ([candidate.text for candidate in judged.candidates], judged.by) == (["a1", "b1", "a2", "a3"], "model")
    assert [candidate.text for candidate in driven.answer.candidates] == ["a1", "b1", "a2", "a3", "?"]
    assert [candidate.score for candidate in driven.answer.candidates] == [0.4, 0.9, 0.5, 0.3, None]


def test_when_nothing_can_be_read_the_judge_still_chooses() -> None:
    drawn = [Candidate("poem"), Candidate("better poem")]
    answer = drive(BestOfN(2), Task("q"), drawn, judge=by({"poem": 0.1, "better poem": 0.2})).answer
    assert (answer.text, answer.key) == ("better poem", None)


def test_a_judge_that_fails_on_all_leaves_the_plain_vote() -> None:
    answer = drive(BestOfN(5, weighted=False), Task("q"), DRAWN).answer
    assert (answer.key, answer.votes, answer.stopped) == ("a", {"a": 3, "b": 1}, "most")
    assert "plain vote" in answer.notes[0]


def test_a_judge_that_fails_on_some_is_told_about() -> None:
    answer = drive(BestOfN(5), Task("q"), DRAWN, judge=by({"b1": 0.9, "a1": 0.1})).answer
    assert answer.key == "b"
    assert "2 of 4" in answer.notes[0]


def test_solved_or_not_counts_as_one_or_nothing() -> None:
    answer = drive(
        BestOfN(5), Task("q"), DRAWN, judge=lambda candidate: replace(candidate, solved=candidate.key == "b")
    ).answer
    assert (answer.key, answer.votes) == ("b", {"b": 1, "a": 0})


def test_logits_are_not_summed() -> None:
    scores = {"a1": -2.0, "a2": -1.0, "a3": -2.0, "b1": -4.0}
    answer = drive(BestOfN(5), Task("q"), DRAWN, judge=by({**scores})).answer
    assert answer.text == "a2"
    assert "below 0" in answer.notes[0]


def test_nothing_came() -> None:
    driven = drive(BestOfN(3), Task("q"), [])
    assert driven.requests == (Ask(3),)
    assert (driven.answer.chosen, driven.answer.stopped) == (None, "budget")


def test_it_needs_a_judge_and_good_settings() -> None:
    assert BestOfN.needs == {"judge"}
    with pytest.raises(SettingsError, match="n = 0"):
        BestOfN(0)
    with pytest.raises(SettingsError, match="judge"):
        BestOfN(judge="")
