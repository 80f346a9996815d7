"""Votes as arrays: the five largest counts against sorting them anew after every draw."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from breadth.base.errors import MeasureError
from breadth.inference.records import Candidate
from breadth.inference.stored_votes import TOP_COUNTS, Paths, ReplayOrders, StoredVotes, map_combinations

TABLES = arrays(np.int32, st.tuples(st.integers(1, 4), st.integers(1, 25)), elements=st.integers(-1, 8))


@settings(max_examples=60, deadline=None)
@given(TABLES)
def test_counts_carried_along_are_those_of_counting_anew(classes: np.ndarray) -> None:
    paths = Paths(classes)
    for row, draw in np.ndindex(classes.shape):
        votes = [label for label in classes[row, : draw + 1].tolist() if label >= 0]
        largest = sorted(Counter(votes).values(), reverse=True)[:TOP_COUNTS]
        assert paths.top_counts[row, draw].tolist() == largest + [0] * (TOP_COUNTS - len(largest))
        assert paths.total[row, draw] == len(votes)
        assert paths.rest[row, draw] == len(votes) - sum(largest[:2])
        label = classes[row, draw]
        assert paths.earlier[row, draw] == (0 if label < 0 else classes[row, :draw].tolist().count(label))


def test_six_answers_one_vote_each_then_the_sixth_leads() -> None:
    # The sixth answer is not among the five counts kept until it ties them; then it overtakes all of them.
    ranked = Paths(np.array([[0, 1, 2, 3, 4, 5, 5, 5]], dtype=np.int32)).top_counts[0]
    assert ranked[5].tolist() == [1, 1, 1, 1, 1]
    assert ranked[6].tolist() == [2, 1, 1, 1, 1]
    assert ranked[7].tolist() == [3, 1, 1, 1, 1]


def test_a_looked_up_function_is_called_once_for_each_combination() -> None:
    calls: list[tuple[int, int]] = []

    def worth(first: int, second: int) -> int:
        calls.append((first, second))
        return 10 * first + second

    first, second = np.array([[3, 1, 3], [0, 1, 3]], dtype=np.int32), np.array([[2, 0, 2], [0, 0, 1]], dtype=np.int32)
    np.testing.assert_array_equal(map_combinations(worth, first, second), [[32, 10, 32], [0, 10, 31]])
    assert sorted(calls) == [(0, 0), (1, 0), (3, 1), (3, 2)]


def test_looking_up_many_large_numbers_sorts_instead_of_filling_a_table() -> None:
    columns = [np.array([0, 900, 900, 17], dtype=np.int32), np.array([5000, 3, 3, 0], dtype=np.int32)]
    np.testing.assert_array_equal(map_combinations(lambda a, b: a - b, *columns), [-5000, 897, 897, 17])


def test_no_paths_at_all_give_nothing() -> None:
    empty = Paths(np.zeros((0, 3), dtype=np.int32))
    assert map_combinations(lambda a: a, empty.leader).shape == (0, 3)


HELD = {
    "first": [Candidate("", key, key, tokens=5) if key else Candidate("", tokens=9) for key in ("x", None, "y", "x")],
    "second": [Candidate("", "z", "z", tokens=1)],
}


def test_candidates_are_numbered_by_answer_and_padded() -> None:
    votes = StoredVotes.from_candidates(HELD, truths={"first": "x", "second": "w"})
    assert votes.classes.tolist() == [[0, -1, 1, 0], [0, -1, -1, -1]]
    assert votes.sizes.tolist() == [4, 1]
    assert votes.right[0].tolist() == [1, 0, 0, 1]
    assert votes.right[1, 0] == 0
    assert votes.counts.tolist() == [[2, 1], [1, 0]]
    assert votes.modal.tolist() == [[True, False, False, True], [True, False, False, False]]
    assert votes.tokens[0].tolist() == [5, 9, 5, 5]


def test_orders_hold_every_candidate_once_and_padding_last() -> None:
    votes = StoredVotes.from_candidates(HELD)
    orders = votes.orders(50, seed=4)
    assert np.sort(orders, axis=2).tolist() == np.broadcast_to(np.arange(4), (2, 50, 4)).tolist()
    assert np.all(orders[1, :, 0] == 0)
    assert len({tuple(order) for order in orders[0].tolist()}) > 15
    np.testing.assert_array_equal(orders, votes.orders(50, seed=4))


def test_tokens_add_up_along_a_path() -> None:
    votes = StoredVotes.from_candidates(HELD)
    assert ReplayOrders(votes, np.array([[[1, 0, 3, 2]], [[0, 1, 2, 3]]])).cumulative_tokens.tolist() == [
        [9, 14, 19, 24],
        [1, 1, 1, 1],
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-1, 3), min_size=1, max_size=12))
def test_what_leads_after_each_draw_is_what_counting_anew_says(labels: list[int]) -> None:
    flags = [label == 1 for label in labels]
    votes = StoredVotes.from_classes([labels], correct=[flags])
    reels = ReplayOrders(votes, np.arange(len(labels)).reshape(1, 1, -1))
    full = Counter(label for label in labels if label >= 0)
    modes = {label for label, count in full.items() if count == max(full.values())}
    for draw in range(len(labels)):
        seen = Counter(label for label in labels[: draw + 1] if label >= 0)
        leaders = [label for label, count in seen.items() if count == max(seen.values())]
        agreeing = np.mean([label in modes for label in leaders]) if leaders else float(not modes)
        assert reels.agreement[0, draw] == pytest.approx(agreeing)
        assert reels.correct[0, draw] == pytest.approx(np.mean([label == 1 for label in leaders]) if leaders else 0.0)


def test_some_questions_are_a_store_of_their_own() -> None:
    part = StoredVotes.from_candidates(HELD).subset([1])
    assert part.questions == ("second",)
    assert part.classes.tolist() == [[0, -1, -1, -1]]


@pytest.mark.parametrize("classes", [[], [[]], [0, 1], [[-2]]])
def test_tables_that_are_no_votes_are_refused(classes: list[int]) -> None:
    with pytest.raises(MeasureError, match="one row per question"):
        StoredVotes.from_classes(classes)


def test_unequal_tables_are_refused() -> None:
    with pytest.raises(MeasureError, match="equal shapes"):
        StoredVotes.from_classes([[0, 1]], tokens=[[1]])
    with pytest.raises(MeasureError, match="equal shapes"):
        StoredVotes.from_classes([[0, 1]], questions=["a", "b"])
