"""The same problems by one long thought and by vote: exact budgets, no token more, the same answers each time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from breadth.base.errors import ServerError, SettingsError
from breadth.lab import records
from breadth.lab.evaluation.extended_vs_parallel import ExtendedVsParallel, FinalAnswers, answer_extended_and_parallel
from breadth.lab.reasoner import Reasoner
from breadth.lab.task.problems import read_problem

PROBLEMS = [read_problem("( 3 + 4 ) * ( 5 + 6 ) ="), read_problem("( 1 + 1 ) * ( 1 + 2 ) =")]


@pytest.fixture(scope="module")
def both(memorised: Reasoner) -> ExtendedVsParallel:
    return answer_extended_and_parallel(memorised, PROBLEMS, thinking=60, repeats=3, seed=1)


def test_replies_by_hand() -> None:
    replies = FinalAnswers(
        (("0", "0", "4", ""), ("6", "6", "6", "6")),
        ((True, True, False, False), (True, True, True, True)),
        ((10, 10, 10, 10), (20, 20, 20, 20)),
        ((20, 20, 20, 20), (20, 20, 20, 20)),
    )
    assert replies.accuracies().tolist() == [0.5, 1.0]
    # (1/2, 1/4, 1/4), no answer being one of its own: 1.5 ln 2, and Miller-Madow adds (3 - 1) / (2 * 4). One answer: 0.
    assert replies.entropies() == pytest.approx([1.5 * math.log(2) + 0.25, 0.0])
    assert replies.unreadable == 1 / 8


def test_the_long_thought_is_exactly_so_long(both: ExtendedVsParallel) -> None:
    # Sixty tokens of thinking and two of answer, where the answer is one; at most the eight kept for it where it is
    # not.
    tokens = np.array(both.extended.tokens)
    assert tokens.shape == (2, 3)
    assert tokens.min() >= 61
    assert tokens.max() <= 68
    assert both.extended.allowed == both.extended.tokens


def test_the_vote_never_writes_more(both: ExtendedVsParallel) -> None:
    assert both.parallel.allowed == both.extended.tokens
    assert (np.array(both.parallel.tokens) <= np.array(both.extended.tokens)).all()
    # A trace of the problem it knows takes about twenty tokens: three of them fit, and they are used.
    assert min(both.parallel.tokens[0]) > 30


def test_what_it_knows_is_right_by_vote(both: ExtendedVsParallel) -> None:
    assert both.parallel.accuracies()[0] >= 2 / 3
    for way in (both.extended, both.parallel):
        assert [[answer == "0" for answer in way.answers[0]], [answer == "6" for answer in way.answers[1]]] == [
            list(row) for row in way.right
        ]


def test_the_same_seed_gives_the_same_answers(memorised: Reasoner, both: ExtendedVsParallel) -> None:
    assert answer_extended_and_parallel(memorised, PROBLEMS, thinking=60, repeats=3, seed=1) == both
    assert answer_extended_and_parallel(memorised, PROBLEMS, thinking=60, repeats=3, seed=2) != both


def test_json_and_back(both: ExtendedVsParallel) -> None:
    assert records.record_from_json(ExtendedVsParallel, records.record_to_json(both)) == both


def test_a_budget_beyond_the_context_is_an_error_not_a_wrong_answer(memorised: Reasoner) -> None:
    with pytest.raises((ServerError, SettingsError)):
        answer_extended_and_parallel(memorised, PROBLEMS, thinking=600, repeats=1)  # its context holds 256 tokens


@pytest.mark.parametrize("wrong", [{"thinking": 0}, {"thinking": 4, "repeats": 0}])
def test_what_cannot_be_asked_is_refused(memorised: Reasoner, wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError):
        answer_extended_and_parallel(memorised, PROBLEMS, **wrong)
