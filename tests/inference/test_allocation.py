"""Allocators: when a task is settled, the queue, the greedy gain worked out by hand, rounds of elimination."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import SettingsError
from breadth.base.settings import dumps, loads
from breadth.inference.allocation import (
    Allocation,
    Allocator,
    Elimination,
    Grant,
    GreedyMarginal,
    Progress,
    RoundRobin,
    greedy_counts,
    is_settled,
    tasks_with_new_draws,
)
from breadth.inference.catalogue import ALLOCATORS
from breadth.inference.stopping.posterior import BetaLead
from breadth.inference.voting import VoteState


def simulate(allocator: Allocator, chances: Sequence[float], budget: int, seed: int) -> tuple[int, int]:
    """Draw as the allocator says, each task solved with its known chance; return (tasks solved, draws made)."""
    rng = np.random.default_rng(seed)
    chance_of = {f"task {number}": chance for number, chance in enumerate(chances)}
    progress = dict.fromkeys(chance_of, Progress())
    allocation = allocator(list(chance_of))
    left = budget
    grants = next(allocation, ())
    while grants and left > 0:
        for grant in grants:
            made, before = min(grant.draws, left), progress[grant.task]
            left -= made
            draws, solved = before.draws + made, before.solved + int(rng.binomial(made, chance_of[grant.task]))
            progress[grant.task] = Progress(draws, graded=draws, solved=solved)
        try:
            grants = allocation.send(progress)
        except StopIteration:
            break
    return sum(task.solved > 0 for task in progress.values()), budget - left


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
    with pytest.raises(SettingsError, match="at least one sample"):
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


@dataclass(frozen=True)
class ToCompletion(Allocator):
    """What users do without an allocator: one task until it is solved, then the next."""

    def __call__(self, tasks: Sequence[str]) -> Allocation:
        for name in tasks:
            while not (yield (Grant(name),))[name].solved:
                pass


def test_the_unsolved_go_back_to_the_end_of_the_queue() -> None:
    allocation = RoundRobin(width=2)(("a", "b", "c"))
    assert next(allocation) == (Grant("a"), Grant("b"))
    progress = {"a": Progress(1, graded=1), "b": Progress(1, graded=1, solved=1), "c": Progress()}
    assert allocation.send(progress) == (Grant("c"), Grant("a"))
    progress |= {"a": Progress(2, graded=2), "c": Progress(1, graded=1)}
    assert allocation.send(progress) == (Grant("c"), Grant("a"))


def test_it_solves_more_for_the_same_attempts_than_solving_to_completion() -> None:
    # 50 tasks of chance 0.5 and 50 of 0.05, 200 attempts. Expected: 46.4 solved round-robin, 18.2 one after the other,
    # in mixed order.
    chances = [0.5, 0.05] * 50
    robin = [simulate(RoundRobin(width=4, most=10_000), chances, 200, seed)[0] for seed in range(300)]
    assert np.mean(robin) == pytest.approx(46.4, abs=0.7)
    rng = np.random.default_rng(1)
    alone = [simulate(ToCompletion(), rng.permutation(chances).tolist(), 200, seed)[0] for seed in range(300)]
    assert np.mean(alone) == pytest.approx(18.2, abs=1.2)


@pytest.mark.parametrize("bad", [{"width": 0}, {"most": 0}, {"score": float("nan")}])
def test_the_queue_needs_a_sensible_score(bad: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=next(iter(bad))):
        RoundRobin(**bad)  # type: ignore[arg-type]  # wrong on purpose


CHANCES = {"easy": 0.5, "hard": 0.1, "hopeless": 0.02}


def expected_solved(chances: dict[str, float], counts: dict[str, int]) -> float:
    return sum(1 - (1 - chance) ** counts[name] for name, chance in chances.items())


def test_ten_draws_over_three_tasks() -> None:
    # Gains: easy .5 .25 .125 .0625 .03125; hard .1 .09 .081 .0729 .06561 .059; hopeless .02. The ten largest: four
    # easy, six hard.
    counts = greedy_counts(CHANCES, 10)
    assert counts == {"easy": 4, "hard": 6, "hopeless": 0}
    assert expected_solved(CHANCES, counts) == pytest.approx(1.406, abs=5e-4)
    assert expected_solved(CHANCES, {"easy": 4, "hard": 3, "hopeless": 3}) == pytest.approx(1.267, abs=5e-4)


def test_the_allocator_grants_the_same_in_one_wave() -> None:
    assert next(GreedyMarginal(CHANCES, wave=10)(tuple(CHANCES))) == (Grant("easy", 4), Grant("hard", 6))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=3), st.integers(0, 7))
def test_no_allocation_solves_more(chances: list[float], draws: int) -> None:
    named = {str(place): chance for place, chance in enumerate(chances)}
    greedy = expected_solved(named, greedy_counts(named, draws))
    for counts in product(range(draws + 1), repeat=len(chances)):
        if sum(counts) <= draws:
            assert expected_solved(named, dict(zip(named, counts, strict=True))) <= greedy + 1e-12


def test_failed_draws_lower_the_chance() -> None:
    allocator = GreedyMarginal({"a": 0.6, "b": 0.5}, strength=2, wave=1)
    # a: (1.2 + 0) / (2 + 1) = 0.4 after a failure, below b's 0.5; then b: 1 / 3, below a again.
    assert allocator.posterior_chance("a", Progress(1, graded=1)) == pytest.approx(0.4)
    allocation = allocator(("a", "b"))
    assert next(allocation) == (Grant("a"),)
    assert allocation.send({"a": Progress(1, graded=1), "b": Progress()}) == (Grant("b"),)
    assert allocation.send({"a": Progress(1, graded=1), "b": Progress(1, graded=1)}) == (Grant("a"),)
    with pytest.raises(StopIteration):
        allocation.send({"a": Progress(2, graded=2, solved=1), "b": Progress(2, graded=2, solved=1)})


def test_a_task_nothing_is_known_of_has_a_uniform_prior() -> None:
    # Beta(1, 1): mean 1/2, after one failure 1/3, after a failure and a success 2/4.
    progress = (Progress(), Progress(1, graded=1), Progress(2, graded=2, solved=1))
    assert [GreedyMarginal().posterior_chance("a", one) for one in progress] == pytest.approx([1 / 2, 1 / 3, 1 / 2])


def test_gains_below_the_price_are_not_drawn() -> None:
    assert greedy_counts(CHANCES, 100, price=0.1) == {"easy": 3, "hard": 1, "hopeless": 0}
    assert next(GreedyMarginal({"a": 0.02}, price=0.05)(("a",)), None) is None


def test_certain_and_impossible_tasks() -> None:
    assert greedy_counts({"sure": 1.0, "never": 0.0}, 5) == {"sure": 1, "never": 0}
    assert greedy_counts({"sure": 1.0}, 0) == {"sure": 0}


def test_known_chances_solve_more_than_even_rounds() -> None:
    chances = [0.6, 0.02] * 20
    known = {f"task {number}": chance for number, chance in enumerate(chances)}
    greedy = [simulate(GreedyMarginal(known, strength=1000), chances, 40, seed)[0] for seed in range(60)]
    even = [simulate(Elimination(), chances, 40, seed)[0] for seed in range(60)]
    assert np.mean(greedy) > np.mean(even) + 3


@pytest.mark.parametrize(
    "bad",
    [
        {"chances": {"a": 1.5}},
        {"chance": -0.1},
        {"strength": 0},
        {"wave": 0},
        {"price": 1},
        {"most": 0},
        {"score": float("nan")},
    ],
)
def test_the_greedy_gain_needs_a_sensible_prior(bad: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(bad))):
        GreedyMarginal(**bad)  # type: ignore[arg-type]  # wrong on purpose


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


def test_it_costs_the_sum_of_the_inverse_chances() -> None:
    # Chances 0.1, 0.2, ... 1: to solve all takes the sum of 10/i = 29.29 draws on average, where ten of everything
    # costs 100.
    chances = [number / 10 for number in range(1, 11)]
    runs = [simulate(Elimination(most=10_000), chances, 100_000, seed) for seed in range(400)]
    assert all(solved == 10 for solved, _ in runs)
    # Variance of one run: the sum of (1 - p) / p^2 = 125.7, so the mean of 400 has a standard error of 0.56.
    assert np.mean([draws for _, draws in runs]) == pytest.approx(29.29, abs=2.0)


@pytest.mark.parametrize("bad", [{"draws": 0}, {"most": 0}, {"score": float("nan")}])
def test_elimination_needs_sensible_rounds(bad: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=next(iter(bad))):
        Elimination(**bad)  # type: ignore[arg-type]  # wrong on purpose
