"""Votes over equivalence classes: who wins, how ties fall, what is never a vote."""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.inference.records import Candidate, Judge, Task
from breadth.inference.voting import (
    Poll,
    VoteState,
    answer_unread,
    best_scored,
    break_tie,
    class_weights,
    judge_score,
    majority,
    request_scores,
    select_best,
    weighted_best,
)

KEYS = st.lists(st.sampled_from(["1", "2", "3", None]), max_size=12)


def poll_of(*keys: str | None, task: Task | None = None, scores: list[float | None] | None = None) -> Poll:
    poll = Poll(task or Task("q"))
    given_scores = scores or [None] * len(keys)
    poll.add(
        Candidate(f"{place}", key, key, score=score)
        for place, (key, score) in enumerate(zip(keys, given_scores, strict=True))
    )
    return poll


def one_way(first: str, second: str) -> bool:
    """Say that an inequality is an interval, but not the other way round, as math-verify does."""
    return (first, second) == ("x>1", "(1,oo)")


# --- where a vote stands


def test_standing() -> None:
    standing = poll_of("a", None, "b", "b", "c").state
    assert standing == VoteState((2, 1, 1), (0, 1, 1, 2), 1)
    assert (standing.total, standing.leader, standing.runner_up, standing.rest) == (4, 2, 1, 1)
    nothing = Poll(Task("q")).state
    assert (nothing.total, nothing.leader, nothing.runner_up, nothing.rest) == (0, 0, 0, 0)


# --- majority


def test_the_most_votes_win_and_the_first_of_them_speaks() -> None:
    answer = majority(poll_of("5", "4", None, "4"))
    assert (answer.key, answer.text, answer.tied, answer.confidence) == ("4", "1", (), None)
    assert list(answer.votes.items()) == [("4", 2), ("5", 1)]
    assert len(answer.candidates) == 4


@given(KEYS, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_the_order_of_arrival_changes_nothing(keys: list[str | None], shuffler: random.Random) -> None:
    shuffled = list(keys)
    shuffler.shuffle(shuffled)
    first, second = majority(poll_of(*keys)), majority(poll_of(*shuffled))
    assert (first.key, first.votes, first.tied) == (second.key, second.votes, second.tied)


@given(KEYS)
@settings(max_examples=60)
def test_an_unread_answer_is_never_a_vote(keys: list[str | None]) -> None:
    read = [key for key in keys if key is not None]
    answer = majority(poll_of(*keys))
    assert sum(answer.votes.values()) == len(read)
    assert answer.key in read if read else answer.key is None
    assert answer.unread == len(keys) - len(read)


def test_ties_fall_uniformly_over_seeds_and_are_recorded() -> None:
    winners = Counter(
        majority(poll_of("a", "b", "b", "c", "c", "a", "d", task=Task("q", seed=seed))).key for seed in range(3000)
    )
    assert winners.keys() == {"a", "b", "c"}
    # Three cells of 1000: chi-square with two degrees of freedom exceeds 13.8 once in a thousand.
    assert sum((count - 1000) ** 2 / 1000 for count in winners.values()) < 13.8
    assert majority(poll_of("a", "b")).tied == ("a", "b")


def test_a_tie_falls_the_same_way_for_the_same_seed_only() -> None:
    assert len({break_tie(["a", "b", "c"], 5), break_tie(["c", "a", "b"], 5)}) == 1
    assert break_tie(["a"], 0) == "a"
    # Neither neighbouring seeds nor other answers share their fate.
    same = sum(break_tie(["a", "b"], seed) == break_tie(["a", "b"], seed + 1) for seed in range(1000))
    assert 430 < same < 570


def test_nothing_readable() -> None:
    poll = Poll(Task("q"))
    poll.add([Candidate("cut", finish="length"), Candidate("done"), Candidate("more")])
    answer = majority(poll)
    assert (answer.text, answer.key, answer.votes) == ("done", None, {})
    assert "No answer could be read" in answer.notes[0]
    assert answer_unread(Poll(Task("q"))).chosen is None
    assert answer_unread(Poll(Task("q"))).notes == ()


# --- weights


def test_the_most_weight_wins_and_the_heaviest_speaks() -> None:
    poll = poll_of("a", "b", "a", None, "b")
    answer = majority(poll, weights={0: 0.2, 1: 0.5, 2: 0.9, 3: 100.0})
    assert answer.votes == pytest.approx({"a": 1.1, "b": 0.5})
    assert answer.text == "2"
    assert majority(poll_of("a", "a"), weights={1: 0.5}).text == "1", "the first one weighs nothing"


def test_equal_sums_tie_in_any_order() -> None:
    # 0.1 + 0.2 + 0.3 differs from 0.3 + 0.2 + 0.1 in plain floating point.
    poll = poll_of("a", "a", "a", "b", "b", "b")
    assert majority(poll, weights=dict(enumerate([0.1, 0.2, 0.3, 0.3, 0.2, 0.1]))).tied == ("a", "b")


def test_the_same_candidate_twice_weighs_by_its_places() -> None:
    poll = Poll(Task("q"))
    same = Candidate("x", "a", "a")
    poll.add([same, same])
    assert class_weights(poll, {0: 1.0, 1: 5.0}) == {"a": 6}


def test_without_any_weight_votes_count_alike() -> None:
    answer = majority(poll_of("a", "b", "b"), weights={})
    assert (answer.key, answer.votes) == ("b", {"b": 2, "a": 1})
    assert "No vote had any weight" in answer.notes[0]


# --- equivalence


def test_equivalent_answers_are_one_whichever_way_the_test_says_so() -> None:
    task = Task("q", equivalent=one_way)
    for keys in (("x>1", "(1,oo)", "7"), ("(1,oo)", "x>1", "7")):
        answer = majority(poll_of(*keys, task=task))
        assert answer.votes == {"(1,oo)": 2, "7": 1}
        assert answer.key == "(1,oo)"


def test_the_commonest_key_stands_for_a_class() -> None:
    task = Task("q", equivalent=lambda first, second: {first, second} == {"0.5", "half"})
    answer = majority(poll_of("half", "0.5", "0.5", "3", task=task))
    assert (answer.key, answer.votes, answer.text) == ("0.5", {"0.5": 3, "3": 1}, "1")


def test_a_tie_between_classes_falls_the_same_way_in_any_order() -> None:
    for seed in range(20):
        task = Task("q", seed=seed, equivalent=lambda first, second: {first, second} == {"0.5", "half"})
        winners = {
            majority(poll_of(*keys, task=task)).key for keys in (("half", "0.5", "3", "3"), ("3", "0.5", "3", "half"))
        }
        assert len(winners) == 1


def test_each_pair_of_keys_is_compared_once() -> None:
    asked: list[tuple[str, str]] = []

    def never(first: str, second: str) -> bool:
        asked.append((first, second))
        return False

    majority(poll_of("a", "b", "a", "b", "a", task=Task("q", equivalent=never)))
    assert asked == [("a", "b"), ("b", "a")]


# --- best of N


def test_the_best_score_wins() -> None:
    answer = best_scored(poll_of("a", "b", "a", scores=[0.4, 0.9, 0.6]))
    assert (answer.key, answer.votes, answer.tied) == ("b", {"a": 2, "b": 1}, ())


def test_unscored_nan_and_unread_cannot_win() -> None:
    assert best_scored(poll_of("a", "b", None, "c", scores=[0.1, math.nan, 5.0, None])).key == "a"
    assert best_scored(poll_of(None, None, scores=[0.1, 0.7])).text == "1"


def test_without_any_score_the_plain_vote_decides() -> None:
    answer = best_scored(poll_of("a", "b", "b"))
    assert (answer.key, answer.notes) == ("b", ("No candidate was scored: the plain vote decided.",))
    # Those with a score are unread: what the judge said of them decides nothing while others can be read.
    assert best_scored(poll_of("a", None, scores=[None, 0.9])).key == "a"
    assert best_scored(poll_of(None)).votes == {}


def test_equal_scores_are_a_tie_between_answers_not_completions() -> None:
    answer = best_scored(poll_of("a", "b", "a", scores=[0.9, 0.9, 0.9]))
    assert answer.tied == ("a", "b")
    assert best_scored(poll_of("a", "a", scores=[0.9, 0.9])).tied == ()
    task = Task("q", equivalent=one_way)
    assert best_scored(poll_of("x>1", "(1,oo)", task=task, scores=[0.9, 0.9])).tied == ()


def test_weighted_best_of_n_adds_scores_by_answer() -> None:
    answer = weighted_best(poll_of("a", "b", "a", "b", scores=[0.5, 0.9, 0.6, None]))
    assert answer.votes == pytest.approx({"a": 1.1, "b": 0.9})
    assert answer.text == "2"
    assert weighted_best(poll_of("a", "b", scores=[math.nan, 0.1])).key == "b"


def test_weighted_best_of_n_does_not_sum_negative_scores() -> None:
    # Summed, a would have -3 and b -2: three mediocre agreeing votes would lose to one bad one.
    answer = weighted_best(poll_of("a", "a", "a", "b", scores=[-1.0, -1.0, -1.0, -2.0]))
    assert answer.key == "a"
    assert "below 0" in answer.notes[0]


def test_weighted_best_of_n_with_scores_of_nought_is_the_plain_vote() -> None:
    answer = weighted_best(poll_of("a", "b", "b", scores=[0.0, 0.0, None]))
    assert (answer.key, len(answer.notes)) == ("b", 1)


def test_ten_thousand_different_answers_are_counted_in_no_time() -> None:
    poll = Poll(Task("q"))
    begun = time.process_time()
    poll.add(Candidate("x", str(number), str(number), score=1.0) for number in range(10_000))
    best = best_scored(poll)
    assert len(best.tied) == 10_000
    assert time.process_time() - begun < 3, "twenty times as long where each is held against all the others"


def poll(*scored: tuple[str, float | None]) -> Poll:
    made = Poll(Task("q"))
    made.add(Candidate(key, key, key, score=score) for key, score in scored)
    return made


def test_the_best_single_score_or_the_best_sum() -> None:
    made = poll(("4", 0.5), ("4", 0.5), ("5", 0.9))
    assert select_best(made, by="x").key == "5"
    assert select_best(made, by="x", weighted=True).key == "4"
    assert select_best(made).key == "4"


def test_a_judge_that_says_nothing_leaves_it_to_the_vote() -> None:
    answer = select_best(poll(("4", None), ("4", None), ("5", None)), by="strict")
    assert answer.key == "4"
    assert answer.notes == ("The judge 'strict' scored nothing: the plain vote decided.",)
    assert select_best(poll(), by="strict").notes == ()


def test_solved_is_a_score_where_there_is_no_other() -> None:
    assert judge_score(Candidate("", solved=True)) == 1
    assert judge_score(Candidate("", solved=False)) == 0
    assert judge_score(Candidate("", solved=True, score=0.25)) == 0.25
    assert judge_score(Candidate("")) is None


def test_nobody_is_asked_without_a_judge_or_a_candidate() -> None:
    assert list(request_scores([Candidate("a")], "")) == []
    assert list(request_scores([], "x")) == []
    assert list(request_scores([Candidate("a")], "x")) == [Judge((Candidate("a"),), "x")]


@pytest.mark.parametrize(
    ("counts", "leader", "runner_up", "rest"),
    [((), 0, 0, 0), ((3,), 3, 0, 0), ((3, 2), 3, 2, 0), ((3, 2, 2), 3, 2, 2), ((4, 1, 1, 1), 4, 1, 2)],
)
def test_leader_runner_up_and_rest(counts: tuple[int, ...], leader: int, runner_up: int, rest: int) -> None:
    state = VoteState(counts, tuple(label for label, count in enumerate(counts) for _ in range(count)))
    assert (state.leader, state.runner_up, state.rest, state.total) == (leader, runner_up, rest, sum(counts))


def test_a_tie_is_broken_by_the_hash_of_seed_and_keys() -> None:
    # Eight bytes of BLAKE2b over the seed and the sorted keys, as a number modulo the number of keys.
    digest = hashlib.blake2b(b"7\0a\0b\0c", digest_size=8).hexdigest()
    assert break_tie(["c", "a", "b"], 7) == "abc"[int(digest, 16) % 3]
    assert break_tie(["only"], 7) == "only"


def test_a_poll_groups_candidates_as_they_arrive() -> None:
    made = poll_of("a", None, "b", "a")
    assert made.arrivals == [0, 1, 0]
    assert made.state == VoteState((2, 1), (0, 1, 0), 1)
    assert made.keys == ["a", "b"]
    assert made.class_keys(made.seen) == ["a", "", "b", "a"]
    assert class_weights(made) == {"a": 2.0, "b": 1.0}
    assert class_weights(made, {0: 0.5, 2: 3.0}) == {"a": 0.5, "b": 3.0}


def test_a_tie_is_named_and_a_clear_win_is_not() -> None:
    assert majority(poll_of("a", "b")).tied == ("a", "b")
    assert majority(poll_of("a", "b", "b")).tied == ()
    assert best_scored(poll_of("a", "b", scores=[1.0, 1.0])).tied == ("a", "b")
    assert best_scored(poll_of("a", "b", scores=[1.0, 0.5])).tied == ()


def test_scores_of_zero_are_summed_and_below_zero_are_not() -> None:
    assert weighted_best(poll_of("a", "b", "b", scores=[1.0, 0.0, 0.75])).notes == ()
    assert "below 0" in " ".join(weighted_best(poll_of("a", "b", scores=[1.0, -0.1])).notes)


def test_what_a_judge_says_replaces_the_candidates_and_nothing_leaves_them() -> None:
    def result_of(verdicts: list[Candidate], candidates: list[Candidate], by: str) -> list[Candidate]:
        asking = request_scores(candidates, by)
        try:
            next(asking)
            asking.send(verdicts)
        except StopIteration as end:
            return list(end.value)
        raise AssertionError("it asks once")

    given, scored = [Candidate("a")], [Candidate("a", score=0.5)]
    assert result_of([], given, "") == given
    assert result_of([], [], "x") == []
    assert result_of(scored, given, "x") == scored
    assert result_of([], given, "x") == given
