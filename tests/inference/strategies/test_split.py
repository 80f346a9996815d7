"""Sequential times parallel: at its ends a vote, best-of-N or one chain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from breadth.base.errors import SettingsError
from breadth.inference.records import Ask, Candidate, Task
from breadth.inference.strategies.best_of_n import BestOfN
from breadth.inference.strategies.revision import Revision
from breadth.inference.strategies.split import Split
from breadth.inference.strategies.vote import Vote
from breadth.testing.strategies import check_strategy, drive

TASK = Task(({"role": "user", "content": "6 * 7?"},), seed=3)
KEYS = ("1", "2", "2", "3", "1", "2", None, "1")


def varied(ask: Ask, number: int) -> Candidate:
    key = KEYS[number % len(KEYS)]
    return Candidate(f"reply {number}", key, key, tokens=5 + number)


def scored(candidate: Candidate) -> Candidate:
    return replace(candidate, score=0.1 * (int(candidate.text.split()[1]) % 7))


@pytest.mark.parametrize("seed", range(6))
def test_chains_of_one_are_a_vote(seed: int) -> None:
    task = TASK.with_seed(seed)
    split = drive(Split(8, Revision(rounds=1)), task, varied).answer
    vote = drive(Vote(8), task, varied).answer
    assert (split.key, split.votes, split.tied, split.confidence, split.basis) == (
        vote.key,
        vote.votes,
        vote.tied,
        vote.confidence,
        vote.basis,
    )
    assert [candidate.text for candidate in split.candidates] == [candidate.text for candidate in vote.candidates]
    assert split.independent


@pytest.mark.parametrize("weighted", [False, True])
def test_chains_of_one_with_a_judge_are_best_of_n(weighted: bool) -> None:
    split = drive(Split(8, Revision(rounds=1, judge="j", weighted=weighted)), TASK, varied, judge=scored).answer
    best = drive(BestOfN(8, weighted=weighted), TASK, varied, judge=scored).answer
    assert split.chosen is not None
    assert best.chosen is not None
    assert (split.chosen.text, split.votes, split.tied) == (best.chosen.text, best.votes, best.tied)


def test_one_chain_is_a_revision() -> None:
    split = drive(Split(1, Revision(rounds=5)), TASK, varied).answer
    chain = drive(Revision(rounds=5), TASK, varied).answer
    assert split.key == chain.key
    assert [candidate.text for candidate in split.candidates] == [candidate.text for candidate in chain.candidates]


def test_the_best_of_each_chain_then_the_best_of_these() -> None:
    # Chains 1 1 1 | 2 2 3 | 2 3 2: their choices 1, 2, 2 make 2 win, though 2 has no more replies in all than 4 of 9.
    keys = iter("111223232")
    answer = drive(Split(3, Revision(rounds=3)), TASK, [Candidate(key, key, key, tokens=1) for key in keys]).answer
    assert answer.key == "2"
    assert answer.votes == {"2": 2, "1": 1}
    assert answer.basis.endswith("each chain one vote")
    assert len(answer.candidates) == 9
    # Changes: none | 2 to 3 | 2 to 3, 3 to 2 (a return).
    assert answer.figures == {"chains": 3, "rounds": 9, "changes": 3, "returns": 1}


@pytest.mark.parametrize("strategy", [Split(), Split(1), Split(3, Revision(rounds=2, judge="j"))])
def test_the_contract(strategy: Split) -> None:
    check_strategy(strategy)
    check_strategy(strategy, judge=lambda candidate: replace(candidate, score=float(candidate.key == "41")))


def test_bad_settings_are_refused() -> None:
    with pytest.raises(SettingsError, match="chains"):
        Split(0)
