"""Choosing by a judge, or by vote where it says nothing."""

from __future__ import annotations

from breadth.inference.judging import judged, selected, worth
from breadth.inference.records import Candidate, Judge, Task
from breadth.inference.voting import Poll


def poll(*scored: tuple[str, float | None]) -> Poll:
    made = Poll(Task("q"))
    made.add(Candidate(key, key, key, score=score) for key, score in scored)
    return made


def test_the_best_single_score_or_the_best_sum() -> None:
    made = poll(("4", 0.5), ("4", 0.5), ("5", 0.9))
    assert selected(made, by="x").key == "5"
    assert selected(made, by="x", weighted=True).key == "4"
    assert selected(made).key == "4"


def test_a_judge_that_says_nothing_leaves_it_to_the_vote() -> None:
    answer = selected(poll(("4", None), ("4", None), ("5", None)), by="strict")
    assert answer.key == "4"
    assert answer.notes == ("The judge 'strict' scored nothing: the plain vote decided.",)
    assert selected(poll(), by="strict").notes == ()


def test_solved_is_a_score_where_there_is_no_other() -> None:
    assert worth(Candidate("", solved=True)) == 1
    assert worth(Candidate("", solved=False)) == 0
    assert worth(Candidate("", solved=True, score=0.25)) == 0.25
    assert worth(Candidate("")) is None


def test_nobody_is_asked_without_a_judge_or_a_candidate() -> None:
    assert list(judged([Candidate("a")], "")) == []
    assert list(judged([], "x")) == []
    assert list(judged([Candidate("a")], "x")) == [Judge((Candidate("a"),), "x")]
