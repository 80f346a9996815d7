"""Whole windows of one answer, and the draws they cost."""

from __future__ import annotations

import numpy as np
import pytest

from breadth.base.errors import MeasureError, SettingsError
from breadth.inference.stopping.window import UnanimousWindow, expected_window_draws
from breadth.inference.stored_votes import Paths
from breadth.inference.voting import VoteState


def is_decided(votes: str, size: int = 3) -> bool:
    labels = tuple(ord(vote) - ord("a") for vote in votes)
    return UnanimousWindow(size).is_decided(
        VoteState(tuple(sorted(map(labels.count, set(labels)), reverse=True)), labels)
    )


def test_only_whole_windows_count() -> None:
    assert is_decided("aaa")
    assert not is_decided("baaa"), "three in a row, but across two windows"
    assert is_decided("baaaaa")
    assert is_decided("aabbbb"), "the second window, whoever leads"
    assert not is_decided("aabbb")
    assert is_decided("aaabc"), "a window that agreed stays one"


def test_a_vote_that_cannot_be_read_fills_no_place() -> None:
    along = UnanimousWindow(3).is_decided_along(Paths(np.array([[0, -1, 0, -1, 0, 1]], dtype=np.int32)))
    assert along.tolist() == [[False, False, False, False, True, True]]


@pytest.mark.parametrize(
    ("shares", "draws"), [((0.9, 0.1), 8.461), ((0.7, 0.3), 22.752), ((0.5, 0.3, 0.2), 35.550), ((1.0,), 5.0)]
)
def test_the_draws_to_expect(shares: tuple[float, ...], draws: float) -> None:
    assert expected_window_draws(shares) == pytest.approx(draws, abs=5e-4)


def test_the_draws_to_expect_are_those_of_simulated_votes() -> None:
    rng = np.random.default_rng(0)
    votes = rng.choice(2, size=(20_000, 40), p=(0.8, 0.2)).astype(np.int32)
    along = UnanimousWindow(5).is_decided_along(Paths(votes))
    taken = np.where(along.any(axis=1), along.argmax(axis=1) + 1, 40)
    assert taken.mean() == pytest.approx(expected_window_draws((0.8, 0.2)), abs=4 * taken.std() / np.sqrt(len(taken)))


def test_bad_windows_are_refused() -> None:
    with pytest.raises(SettingsError, match="size"):
        UnanimousWindow(0)


@pytest.mark.parametrize(("size", "most"), [(7, 40), (0, 40), (-1, 40), (-4, -40), (5, 4), (5, 0), (5, -5)])
def test_votes_that_are_not_whole_windows_are_refused(size: int, most: int) -> None:
    with pytest.raises(MeasureError, match="whole windows"):
        expected_window_draws((1.0,), size, most)


def test_a_window_of_one_vote_is_the_first_vote() -> None:
    assert is_decided("a", 1)
    assert not UnanimousWindow(1).is_decided(VoteState())
    assert UnanimousWindow().size == 5
    assert UnanimousWindow(1).is_decided_along(Paths(np.array([[-1, 0, 1]], dtype=np.int32))).tolist() == [
        [False, True, True]
    ]


def test_recorded_windows_end_where_single_ones_do() -> None:
    classes = np.array([[0, 1, 1, 1, 1, 0], [0, 0, 1, 1, 0, 0]], dtype=np.int32)
    assert UnanimousWindow(2).is_decided_along(Paths(classes)).tolist() == [
        [False, False, False, True, True, True],  # 01 11 10
        [False, True, True, True, True, True],
    ]


def test_one_window_costs_its_size_and_two_the_chance_of_a_second() -> None:
    assert expected_window_draws((0.5, 0.5), size=2, most=2) == 2.0
    # A pair agrees with chance 1/2: 2 votes half of the time, 4 otherwise.
    assert expected_window_draws((0.5, 0.5), size=2, most=4) == 3.0
    # A window of one vote always agrees.
    assert expected_window_draws((0.5, 0.5), size=1, most=3) == 1.0
