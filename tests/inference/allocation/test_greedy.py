"""Greedy marginal gain: the allocation worked out by hand, and what failures teach."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import SettingsError
from breadth.inference.allocation.allocator import Grant, Progress
from breadth.inference.allocation.elimination import Elimination
from breadth.inference.allocation.greedy import GreedyMarginal, greedy_counts

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


def test_known_chances_solve_more_than_even_rounds(simulate: Callable[..., tuple[int, int]]) -> None:
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
def test_bad_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(bad))):
        GreedyMarginal(**bad)  # type: ignore[arg-type]  # wrong on purpose
