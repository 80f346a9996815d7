"""Elimination: rounds for the open tasks only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from breadth.base.errors import SettingsError
from breadth.inference.allocation.allocator import Grant, Progress
from breadth.inference.allocation.elimination import Elimination
from breadth.inference.voting import VoteState


def test_solved_tasks_leave_and_the_others_go_on() -> None:
    allocation = Elimination(draws=2, score=0.9)(("a", "b", "c"))
    assert next(allocation) == (Grant("a", 2), Grant("b", 2), Grant("c", 2))
    progress = {
        "a": Progress(2, graded=2, best=0.95),
        "b": Progress(2, graded=2, best=0.5),
        "c": Progress(2, vote_state=VoteState((2,), (0, 0))),
    }
    assert allocation.send(progress) == (Grant("b", 2), Grant("c", 2))
    progress |= {"b": Progress(4, graded=4, solved=1), "c": Progress(4, vote_state=VoteState((4,), (0,) * 4))}
    with pytest.raises(StopIteration):
        allocation.send(progress)


def test_the_last_round_of_a_task_is_cut_at_its_most() -> None:
    allocation = Elimination(draws=4, most=6)(("a",))
    assert next(allocation) == (Grant("a", 4),)
    assert allocation.send({"a": Progress(4)}) == (Grant("a", 2),)


def test_it_costs_the_sum_of_the_inverse_chances(simulate: Callable[..., tuple[int, int]]) -> None:
    # Chances 0.1, 0.2, ... 1: to solve all takes the sum of 10/i = 29.29 draws on average, where ten of everything
    # costs 100.
    chances = [number / 10 for number in range(1, 11)]
    runs = [simulate(Elimination(most=10_000), chances, 100_000, seed) for seed in range(400)]
    assert all(solved == 10 for solved, _ in runs)
    # Variance of one run: the sum of (1 - p) / p^2 = 125.7, so the mean of 400 has a standard error of 0.56.
    assert np.mean([draws for _, draws in runs]) == pytest.approx(29.29, abs=2.0)


@pytest.mark.parametrize("bad", [{"draws": 0}, {"most": 0}, {"score": float("nan")}])
def test_bad_settings_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=next(iter(bad))):
        Elimination(**bad)  # type: ignore[arg-type]  # wrong on purpose
