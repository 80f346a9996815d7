"""Votes replayed in arrays give exactly what runs draw by draw give, for every rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.inference.records import Candidate
from breadth.inference.replay import played_by_run, replay
from breadth.inference.replay_votes import counted, last_draws
from breadth.inference.stopping.beta_lead import BetaLead
from breadth.inference.stopping.certificate import Certificate
from breadth.inference.stopping.dirichlet import Dirichlet
from breadth.inference.stopping.lead import Lead
from breadth.inference.stopping.never import Never
from breadth.inference.stopping.risk import Risk
from breadth.inference.stopping.rule import StopRule
from breadth.inference.stopping.shape_library import ShapeLibrary
from breadth.inference.stopping.shapes import Shapes
from breadth.inference.stopping.sprt import Sprt
from breadth.inference.stopping.window import Window
from breadth.inference.stored_votes import Reels, StoredVotes
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.vote import Vote

LIBRARY = ShapeLibrary.fit([[12], [9, 2, 1], [5, 4, 2, 1], [11, 1]])
RULES: list[StopRule] = [
    Never(),
    Lead(2),
    Window(2),
    BetaLead(0.9),
    Dirichlet(0.8),
    Sprt(0.8, 0.2, 0.2),
    Certificate(0.5),
    Shapes(0.1, LIBRARY),
    Risk(),
    Risk(0.05, LIBRARY, 12),
    Risk(0.15, LIBRARY, 12),
]


def store(*answers: str) -> dict[str, list[Candidate]]:
    """One question for each text; each letter is a candidate with that answer, '-' one without."""
    return {
        f"q{place}": [
            Candidate(f"is {key}", key, key, tokens=10 + number) if key != "-" else Candidate("?", tokens=3)
            for number, key in enumerate(keys)
        ]
        for place, keys in enumerate(answers)
    }


STORES = st.lists(st.text("abc-", min_size=1, max_size=12), min_size=1, max_size=4)


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{type(rule).__name__}")
@settings(max_examples=12, deadline=None)
@given(answers=STORES, most=st.integers(1, 14))
def test_arrays_give_exactly_what_runs_give(rule: StopRule, width: int, answers: list[str], most: int) -> None:
    candidates = store(*answers)
    strategy = AdaptiveVote(most, width, rule)
    truths = dict.fromkeys(candidates, "a")
    counted = replay(candidates, {"it": strategy}, repeats=3, truths=truths).outcomes["it"].by_question
    votes = StoredVotes.of_candidates(candidates, truths)
    run = played_by_run(strategy, candidates, Reels(votes, votes.orders(3)))
    for name, column in zip(counted, (run.correct, run.agreeing, run.samples, run.started, run.tokens), strict=True):
        np.testing.assert_allclose(counted[name], column.reshape(-1, 3).mean(axis=1), err_msg=name)


@settings(max_examples=25, deadline=None)
@given(answers=STORES, n=st.integers(1, 14))
def test_a_plain_vote_is_counted_as_it_runs(answers: list[str], n: int) -> None:
    candidates = store(*answers)
    counted = replay(candidates, {"it": Vote(n)}, repeats=3).outcomes["it"].by_question
    votes = StoredVotes.of_candidates(candidates)
    run = played_by_run(Vote(n), candidates, Reels(votes, votes.orders(3)))
    for name, column in zip(counted, (run.correct, run.agreeing, run.samples, run.started, run.tokens), strict=True):
        np.testing.assert_allclose(counted[name], column.reshape(-1, 3).mean(axis=1), err_msg=name)


def test_what_is_a_vote_and_what_is_not() -> None:
    assert counted(Vote(5)) == AdaptiveVote(5, 5, Never(), 5)
    assert counted(AdaptiveVote(stop=Lead(2))) == AdaptiveVote(stop=Lead(2))


def test_a_path_ends_at_the_first_yes_the_limit_or_the_end_of_the_store() -> None:
    votes = StoredVotes.of_classes([[0, 0, 0, 1], [0, 1, 0, 1], [0, 1, -1, -1]], sizes=[4, 4, 2])
    reels = Reels(votes, np.broadcast_to(np.arange(4), (3, 1, 4)).astype(np.int64))
    assert last_draws(Lead(2), 40, reels, 8).tolist() == [1, 3, 1]
    assert last_draws(Lead(2), 3, reels, 8).tolist() == [1, 2, 1]


def test_a_path_ends_where_there_is_nothing_to_vote_on() -> None:
    votes = StoredVotes.of_classes([[-1, -1, -1, 0], [-1, 0, -1, -1]], sizes=[4, 4])
    reels = Reels(votes, np.broadcast_to(np.arange(4), (2, 1, 4)).astype(np.int64))
    assert last_draws(Never(), 40, reels, 2).tolist() == [1, 3]
