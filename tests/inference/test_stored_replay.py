"""Replays: arrays give exactly what runs draw by draw give, by hand on small stores, and the figures of real votes."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import comb
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError, StrategyError
from breadth.inference.halting import Halt
from breadth.inference.records import Answer, Ask, Candidate, Fork, Judge, Run, Sampling, Task
from breadth.inference.stopping.posterior import BetaLead, Dirichlet
from breadth.inference.stopping.risk import Risk
from breadth.inference.stopping.rule import Lead, Never, StopRule, UnanimousWindow
from breadth.inference.stopping.sequential import Certificate, Sprt
from breadth.inference.stopping.shapes import ShapeLibrary, Shapes
from breadth.inference.stored_replay import as_adaptive_vote, last_draws, replay, replay_draw_by_draw
from breadth.inference.stored_votes import ReplayOrders, StoredVotes
from breadth.inference.strategies.adaptive_vote import AdaptiveVote
from breadth.inference.strategies.vote import Vote
from breadth.inference.strategy import Strategy
from breadth.inference.voting import Poll, best_scored, majority


def store(*answers: str) -> dict[str, list[Candidate]]:
    """One question for each text; each letter is a candidate with that answer, '-' one without."""
    return {
        f"q{place}": [
            Candidate(f"is {key}", key, key, tokens=10 + number) if key != "-" else Candidate("?", tokens=3)
            for number, key in enumerate(keys)
        ]
        for place, keys in enumerate(answers)
    }


def test_by_hand_two_of_three_votes() -> None:
    # Votes a a b, first two of them: aa with chance 1/3, else a tie that counts half. Right: 1/3 + 2/3 * 1/2 = 2/3.
    outcome = replay(store("aab"), {"two": Vote(2)}, repeats=4000, truths={"q0": "a"}).outcomes["two"]
    assert outcome.accuracy is not None
    assert outcome.accuracy.value == pytest.approx(2 / 3, abs=0.02)
    assert outcome.agreement.value == outcome.accuracy.value
    assert outcome.samples.value == outcome.samples_started.value == 2
    assert outcome.tokens.value == pytest.approx(2 * 11, abs=0.05)


def test_a_unanimous_question_stops_at_the_fourth_vote_and_starts_no_more() -> None:
    outcome = replay(store("a" * 12), {"beta": AdaptiveVote()}, repeats=2).outcomes["beta"]
    assert (outcome.samples.value, outcome.samples_started.value, outcome.agreement.value) == (4, 4, 1)
    assert outcome.accuracy is None, "nobody said what is right"


def test_any_mode_of_a_tied_store_agrees_and_a_store_without_a_vote_agrees_with_no_answer() -> None:
    replayed = replay(store("ab", "--"), {"one": Vote(1), "all": Vote(2)}, repeats=5)
    assert replayed.outcomes["one"].by_question["agreement"].tolist() == [1, 1]
    assert replayed.outcomes["all"].by_question["agreement"].tolist() == [1, 1]


def test_an_unreadable_candidate_is_a_draw_and_no_vote() -> None:
    outcome = replay(store("-a"), {"one": Vote(1)}, repeats=2000, truths={"q0": "a"}).outcomes["one"]
    assert outcome.by_question["agreement"][0] == pytest.approx(0.5, abs=0.04)
    assert outcome.by_question["accuracy"][0] == pytest.approx(0.5, abs=0.04)


def test_grades_of_one_answer_that_differ_are_averaged() -> None:
    outcome = replay(store("aab"), {"all": Vote(3)}, correct={"q0": [True, False, False]}, repeats=2).outcomes["all"]
    assert outcome.by_question["accuracy"].tolist() == [0.5]


def test_the_share_of_correct_draws_is_that_of_the_hypergeometric_law() -> None:
    # Three draws of 8 a and 4 b: a wins with two or three of them.
    chance = (comb(8, 3) + comb(8, 2) * 4) / comb(12, 3)
    outcome = replay(store("a" * 8 + "b" * 4), {"three": Vote(3)}, repeats=6000, truths={"q0": "a"}).outcomes["three"]
    assert outcome.by_question["accuracy"][0] == pytest.approx(chance, abs=0.02)


def test_strategies_are_compared_on_the_same_orders() -> None:
    candidates = store("aaab", "aabb", "abcd", "aaaa")
    replayed = replay(candidates, {"two": Vote(2), "same": Vote(2), "four": Vote(4)}, repeats=7)
    assert replayed.difference("two", "same", "agreement").difference.value == 0
    compared = replayed.difference("four", "two")
    assert (compared.difference.value, compared.wins, compared.ties) == (2, 4, 0)
    again = replay(candidates, {"two": Vote(2)}, repeats=7)
    np.testing.assert_array_equal(
        again.outcomes["two"].by_question["agreement"], replayed.outcomes["two"].by_question["agreement"]
    )


@pytest.mark.parametrize(
    ("held", "strategies", "problem"),
    [
        ({}, {"v": Vote(1)}, "one row per question"),
        ({"q": []}, {"v": Vote(1)}, "one row per question"),
        ({"q": [Candidate("")], "r": []}, {"v": Vote(1)}, "no stored candidates"),
        ({"q": [Candidate("")]}, {}, "0 strategies"),
    ],
)
def test_nothing_to_replay_is_refused(
    held: dict[str, list[Candidate]], strategies: dict[str, Strategy], problem: str
) -> None:
    with pytest.raises(MeasureError, match=problem):
        replay(held, strategies)


def test_missing_truths_and_grades_are_refused() -> None:
    with pytest.raises(MeasureError, match="no true answer"):
        replay(store("a", "b"), {"v": Vote(1)}, truths={"q0": "a"})
    with pytest.raises(MeasureError, match="1 candidates and 2 grades"):
        replay(store("a"), {"v": Vote(1)}, correct={"q0": [True, True]})


def real_votes(fixtures: Path, name: str) -> StoredVotes:
    table = pq.read_table(
        fixtures / "votes" / f"consol_{name}_vote40.parquet", columns=["question_id", "answer", "correct"]
    ).to_pydict()
    rows: dict[object, list[int]] = {}
    for place, question in enumerate(table["question_id"]):
        rows.setdefault(question, []).append(place)
    keys: dict[object, dict[str, int]] = {question: {} for question in rows}
    classes = [
        [keys[q].setdefault(table["answer"][place], len(keys[q])) for place in places] for q, places in rows.items()
    ]
    return StoredVotes.from_classes(
        classes, correct=[[table["correct"][place] for place in places] for places in rows.values()]
    )


@pytest.mark.parametrize(
    ("stop", "agreement", "samples"),
    [(Lead(4), 0.980, 12.4), (BetaLead(0.90), 0.984, 13.2), (BetaLead(0.95), 0.996, 16.7)],
    ids=str,
)
def test_the_published_rules_on_real_votes(fixtures: Path, stop: StopRule, agreement: float, samples: float) -> None:
    outcome = replay(
        real_votes(fixtures, "o3mini_low_aime24"), {"it": AdaptiveVote(40, 1, stop)}, repeats=400
    ).outcomes["it"]
    assert outcome.agreement.value == pytest.approx(agreement, abs=0.004)
    assert outcome.samples.value == pytest.approx(samples, abs=0.3)


def test_a_thousand_settings_on_the_largest_set_take_about_a_minute(fixtures: Path) -> None:
    votes = real_votes(fixtures, "gpt4omini_gsm8k")
    settings_ = {f"{t}": AdaptiveVote(40, 1, BetaLead(float(t))) for t in np.linspace(0.5, 0.99, 50)}
    began = time.process_time()
    outcomes = replay(votes, settings_, repeats=10).outcomes
    assert (time.process_time() - began) / len(settings_) * 1000 < 100, "seconds for a thousand settings"
    costs = [outcome.by_question["samples"].mean() for outcome in outcomes.values()]
    assert costs == sorted(costs), "a higher threshold never stops earlier"


@dataclass(frozen=True)
class Halves(Strategy):
    """Two votes of two side by side, then the best of the two by score; for the requests a vote does not make."""

    sampling: Sampling | None = None
    prefix: str = ""
    judged: bool = False

    def __call__(self, task: Task) -> Run:
        answers: list[Answer] = yield Fork((Vote(2)(task), Vote(2)(task)))
        poll = Poll(task)
        poll.add(one for answer in answers for one in answer.candidates)
        poll.add((yield Ask(1, sampling=self.sampling, prefix=self.prefix)))
        if self.judged:
            yield Judge(tuple(poll.seen))
            return best_scored(poll)
        return majority(poll)


def test_forks_draw_from_one_store() -> None:
    outcome = replay(store("aaabb"), {"halves": Halves()}, repeats=3, truths={"q0": "a"}).outcomes["halves"]
    assert outcome.samples.value == outcome.samples_started.value == 5
    assert outcome.by_question["accuracy"].tolist() == [1]


def test_a_judge_needs_stored_scores() -> None:
    with pytest.raises(StrategyError, match="none is stored"):
        replay(store("aaabb"), {"halves": Halves(judged=True)})
    scored = {"q0": [replace(one, score=float(one.key == "b")) for one in store("aaabb")["q0"]]}
    outcome = replay(scored, {"halves": Halves(judged=True)}, truths={"q0": "b"}).outcomes["halves"]
    assert outcome.by_question["accuracy"].tolist() == [1]


def test_what_was_not_stored_is_refused() -> None:
    with pytest.raises(StrategyError, match="beginning of the reply"):
        replay(store("aaaaa"), {"prefix": Halves(prefix="Well")})
    with pytest.raises(StrategyError, match="other sampling parameters"):
        replay(store("aaaaa"), {"hot": Halves(Sampling(temperature=1.5))})
    replay(store("aaaaa"), {"log-probs of the same draw": Halves(Sampling(top_logprobs=20))})


@dataclass(frozen=True)
class Needy(Strategy):
    """Needs what it says."""

    needs: ClassVar[frozenset[str]] = frozenset({"confidences"})

    def __call__(self, task: Task) -> Run:
        poll = Poll(task)
        poll.add((yield Ask(4, halt=Hesitation())))
        return majority(poll)


@dataclass(frozen=True)
class Hesitation(Halt):
    """Ends a completion at its first token of confidence below 1."""

    def watch(self) -> Hesitation:
        return self

    def push(self, text: str, logprob: float, confidence: float) -> bool:
        return confidence < 1


def test_a_strategy_whose_needs_are_not_stored_is_refused_at_the_start() -> None:
    with pytest.raises(StrategyError, match="needs confidences, and 4 of"):
        replay(store("aabb"), {"needy": Needy()})
    with pytest.raises(StrategyError, match="only counts"):
        replay(StoredVotes.from_classes([[0, 1]]), {"needy": Needy()})


def test_a_halt_is_replayed_on_stored_confidences() -> None:
    sure, unsure = np.full(10, 5, dtype=np.float32), np.array([5, 5, 0.5, 5], dtype=np.float32)
    held = [
        Candidate("", key, key, tokens=len(c), confidences=c)
        for key, c in (("a", unsure), ("a", unsure), ("a", unsure), ("b", sure))
    ]
    outcome = replay({"q": held}, {"needy": Needy()}, repeats=2, truths={"q": "b"}).outcomes["needy"]
    assert outcome.by_question["accuracy"].tolist() == [1], "the three cut ones do not vote"
    assert outcome.tokens.value == 3 * 3 + 10


def test_a_lower_cap_cuts_longer_candidates() -> None:
    # Tokens 10, 11, 12, 13, 14: with a cap of 12 on the last draw it is cut, and no vote, in two orders of five.
    outcome = replay(store("ababa"), {"halves": Halves(Sampling(max_tokens=12))}, repeats=400).outcomes["halves"]
    whole = replay(store("ababa"), {"halves": Halves()}, repeats=400).outcomes["halves"]
    assert whole.tokens.value == 60
    # The last draw loses 1 token of 13 or 2 of 14 with chance 1/5 each.
    assert 60 - outcome.tokens.value == pytest.approx(3 / 5, abs=0.15)


LIBRARY = ShapeLibrary.fit([[12], [9, 2, 1], [5, 4, 2, 1], [11, 1]])
RULES: list[StopRule] = [
    Never(),
    Lead(2),
    UnanimousWindow(2),
    BetaLead(0.9),
    Dirichlet(0.8),
    Sprt(0.8, 0.2, 0.2),
    Certificate(0.5),
    Shapes(0.1, LIBRARY),
    Risk(),
    Risk(0.05, LIBRARY, 12),
    Risk(0.15, LIBRARY, 12),
]


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
    votes = StoredVotes.from_candidates(candidates, truths)
    run = replay_draw_by_draw(strategy, candidates, ReplayOrders(votes, votes.orders(3)))
    for name, column in zip(counted, (run.correct, run.agreement, run.samples, run.started, run.tokens), strict=True):
        np.testing.assert_allclose(counted[name], column.reshape(-1, 3).mean(axis=1), err_msg=name)


@settings(max_examples=25, deadline=None)
@given(answers=STORES, n=st.integers(1, 14))
def test_a_plain_vote_is_counted_as_it_runs(answers: list[str], n: int) -> None:
    candidates = store(*answers)
    counted = replay(candidates, {"it": Vote(n)}, repeats=3).outcomes["it"].by_question
    votes = StoredVotes.from_candidates(candidates)
    run = replay_draw_by_draw(Vote(n), candidates, ReplayOrders(votes, votes.orders(3)))
    for name, column in zip(counted, (run.correct, run.agreement, run.samples, run.started, run.tokens), strict=True):
        np.testing.assert_allclose(counted[name], column.reshape(-1, 3).mean(axis=1), err_msg=name)


def test_what_is_a_vote_and_what_is_not() -> None:
    assert as_adaptive_vote(Vote(5)) == AdaptiveVote(5, 5, Never(), 5)
    assert as_adaptive_vote(AdaptiveVote(stop=Lead(2))) == AdaptiveVote(stop=Lead(2))


def test_a_path_ends_at_the_first_yes_the_limit_or_the_end_of_the_store() -> None:
    votes = StoredVotes.from_classes([[0, 0, 0, 1], [0, 1, 0, 1], [0, 1, -1, -1]], sizes=[4, 4, 2])
    reels = ReplayOrders(votes, np.broadcast_to(np.arange(4), (3, 1, 4)).astype(np.int64))
    assert last_draws(Lead(2), 40, reels, 8).tolist() == [1, 3, 1]
    assert last_draws(Lead(2), 3, reels, 8).tolist() == [1, 2, 1]


def test_a_path_ends_where_there_is_nothing_to_vote_on() -> None:
    votes = StoredVotes.from_classes([[-1, -1, -1, 0], [-1, 0, -1, -1]], sizes=[4, 4])
    reels = ReplayOrders(votes, np.broadcast_to(np.arange(4), (2, 1, 4)).astype(np.int64))
    assert last_draws(Never(), 40, reels, 2).tolist() == [1, 3]
