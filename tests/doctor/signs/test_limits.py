"""What is missing is split into three parts that add up, the best policy is scored on other questions, and a foretelling is tested."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.doctor.signs.limits import cross_fitted_best, foretold, limits
from breadth.doctor.signs.sweeps import Draws
from breadth.inference.records import Sampling
from breadth.tuning.tuned import Tuned


def draws(right: Any) -> Draws:
    worth = np.asarray(right, dtype=np.float64)
    return Draws((worth == 0).astype(np.int64), worth, worth, worth, (1, worth.shape[1]), True, Sampling(), "made")


def judged(*options: Any) -> Tuned:
    made = SimpleNamespace(
        options=[SimpleNamespace(scores=np.asarray(one, dtype=np.float64)) for one in options],
        evidence=SimpleNamespace(plan=SimpleNamespace(seed=0)),
    )
    return cast("Tuned", made)


def test_an_option_that_is_always_best_is_chosen_everywhere() -> None:
    table = np.column_stack([np.full(20, 0.2), np.linspace(0.5, 1, 20)])
    np.testing.assert_array_equal(cross_fitted_best(table), table[:, 1])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000))
def test_luck_does_not_count(seed: int) -> None:
    # Each option is right on one question only: whatever is best elsewhere is wrong here, so nothing of it is promised.
    assert cross_fitted_best(np.eye(10), seed).sum() <= 2


def test_on_noise_the_promise_is_no_better_than_the_mean() -> None:
    promised = [cross_fitted_best(np.random.default_rng(seed).random((40, 10))).mean() for seed in range(100)]
    assert np.mean(promised) == pytest.approx(0.5, abs=0.01)  # the best of ten columns reads about 0.57


def test_the_parts_add_up_and_the_largest_leads() -> None:
    # Of 20 questions 5 are never right; the policy in use scores 0.4, the best 0.6 on the other 15 and 0 on those.
    right = np.ones((20, 8))
    right[:5], right[5:, 0] = 0, 0
    best = np.where(np.arange(20) < 5, 0.0, 0.6)
    found = limits(judged(best, best / 2), draws(right), best * 2 / 3, 10)
    assert found.policy.value == pytest.approx(0.75 * 0.2)
    assert found.selector.value == pytest.approx(0.75 * 0.4)
    assert found.out.value == pytest.approx(0.25)
    assert found.lead.value == pytest.approx(0.05)
    assert (found.largest, found.draws) == ("selector", 80)


def test_a_foretelling_keeps_to_what_was_drawn() -> None:
    rng = np.random.default_rng(0)
    # Half of the questions are right half of the time, half never: out of reach of 80 draws is one half.
    chances = np.where(np.arange(200) < 100, 0.5, 0.0)
    found = foretold(draws(rng.random((200, 8)) < chances[:, None]), 80)
    assert found is not None
    assert 0.5 in found
    assert found.value == pytest.approx(0.5, abs=0.03)
    assert found.low > 0.3


def test_a_foretelling_that_fails_its_test_is_not_told() -> None:
    # The first four draws of each question are never right but on two, the last four always: no fit to the first half
    # foretells that.
    right = np.zeros((100, 8))
    right[:2, :2], right[:, 4:] = 1, 1
    assert foretold(draws(right), 80) is None


def test_what_has_no_curve_is_not_foretold() -> None:
    assert foretold(draws(np.ones((20, 8))), 80) is None
    assert foretold(draws(np.zeros((20, 8))), 80) is None
    assert foretold(draws(np.eye(20)[:, :3]), 30) is None  # half of three draws are too few to fit
