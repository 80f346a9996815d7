"""The records of allocators, and when a task is settled."""

from __future__ import annotations

import pickle

import pytest

from breadth.base.errors import SettingsError
from breadth.base.settings import dumps, loads
from breadth.inference.allocation.allocator import Allocator, Grant, Progress, is_settled, tasks_with_new_draws
from breadth.inference.allocation.elimination import Elimination
from breadth.inference.allocation.greedy import GreedyMarginal
from breadth.inference.allocation.round_robin import RoundRobin
from breadth.inference.catalogue import ALLOCATORS
from breadth.inference.stopping.posterior import BetaLead
from breadth.inference.voting import VoteState

FOUR_AGREE = VoteState((4,), (0, 0, 0, 0))


def settled(progress: Progress) -> bool:
    return is_settled(progress, score=0.8, stop=BetaLead(), most=10)


def test_an_unjudged_task_is_settled_by_its_vote() -> None:
    assert not settled(Progress(3, vote_state=VoteState((3,), (0, 0, 0))))  # P = 0.9375
    assert settled(Progress(4, vote_state=FOUR_AGREE))  # P = 0.96875


def test_a_judged_task_is_settled_by_the_judge_alone() -> None:
    assert not settled(Progress(4, graded=4, best=0.79, vote_state=FOUR_AGREE))
    assert settled(Progress(4, graded=4, best=0.8))
    assert settled(Progress(4, graded=4, solved=1))
    assert not settled(Progress(4, graded=4))


def test_the_most_draws_settle_anything() -> None:
    assert settled(Progress(10, graded=10, best=0.1))
    assert settled(Progress(10))


def test_only_tasks_with_a_further_draw_have_moved() -> None:
    before = {"a": Progress(1), "b": Progress(1), "c": Progress(5)}
    now = {"a": Progress(2), "b": Progress(1), "c": Progress(6), "d": Progress(1)}
    assert tasks_with_new_draws(before, now, (Grant("d"), Grant("b"), Grant("a"))) == ["d", "a"]


def test_impossible_progress_is_refused() -> None:
    with pytest.raises(SettingsError, match="solved = 2"):
        Progress(3, graded=1, solved=2)
    with pytest.raises(SettingsError, match="draws = 1"):
        Progress(1, graded=2)
    with pytest.raises(SettingsError, match="at least one draw"):
        Grant("a", 0)


@pytest.mark.parametrize("name", ALLOCATORS.names())
def test_every_allocator_survives_toml_and_pickle_and_ends(name: str) -> None:
    allocator: Allocator = ALLOCATORS.load(name)()
    assert loads(Allocator, dumps(allocator)) == allocator  # type: ignore[type-abstract]  # the family reads its members
    assert pickle.loads(pickle.dumps(allocator)) == allocator
    assert list(allocator(())) == []


@pytest.mark.parametrize("allocator", [Elimination(most=5), RoundRobin(most=5), GreedyMarginal(most=5)])
def test_nothing_is_ever_granted_beyond_the_most(allocator: Allocator) -> None:
    draws = dict.fromkeys("abc", 0)
    allocation = allocator(tuple(draws))
    grants = next(allocation)
    with pytest.raises(StopIteration):
        for _ in range(100):
            assert grants
            assert len({grant.task for grant in grants}) == len(grants)
            for grant in grants:
                draws[grant.task] += grant.draws
            grants = allocation.send({task: Progress(count, graded=count) for task, count in draws.items()})
    assert draws == {"a": 5, "b": 5, "c": 5}


@pytest.mark.parametrize("allocator", [Elimination(), RoundRobin(), GreedyMarginal()])
def test_a_task_that_cannot_be_drawn_for_gets_no_more(allocator: Allocator) -> None:
    allocation = allocator(("dead", "live"))
    next(allocation)
    grants = allocation.send({"dead": Progress(), "live": Progress(1)})
    assert {grant.task for grant in grants} == {"live"}
    with pytest.raises(StopIteration):
        allocation.send({"dead": Progress(), "live": Progress(1)})
