"""Curves against numbers worked out by hand; crossings; the honesty of what is foretold."""

from __future__ import annotations

import numpy as np
import pytest

from breadth.comparison.accuracy_curves import Worth, beyond, crossing, worth
from breadth.comparison.policies import ComparedPolicy, on_common_problems, read_policies
from breadth.runs.reader import Run


@pytest.fixture
def pair(broad: Run, narrow: Run) -> tuple[Worth, Worth]:
    found, most = on_common_problems([*read_policies(broad, "broad"), *read_policies(narrow, "narrow")])
    one, other = (worth(contestant, most) for contestant in found)
    return one, other


def test_pass_and_votes_by_hand(pair: tuple[Worth, Worth]) -> None:
    broad, narrow = pair
    # Right of four: 2, 1, 1, 3. pass@1 = 7/16; pass@2 = 1 - C(n-c,2)/C(4,2): 5/6, 1/2, 1/2, 1; pass@4: all.
    assert broad.passed.mean(axis=0)[[0, 1, 3]] == pytest.approx([7 / 16, (5 / 6 + 1 / 2 + 1 / 2 + 1) / 4, 1.0])
    assert narrow.passed.mean(axis=0) == pytest.approx([0.5] * 4)
    # maj@4: a has 1,1 against 7,8: right; b: four different, one right: 1/4; c: 8,8 wins: 0; d: right.
    assert broad.voted is not None
    assert broad.voted[:, -1] == pytest.approx([1.0, 0.25, 0.0, 1.0])
    assert broad.vote_at(1) == pytest.approx([0.5, 0.25, 0.25, 0.75])


def test_a_crossing_is_found_and_not_called_sure_on_four_problems(pair: tuple[Worth, Worth]) -> None:
    broad, narrow = pair
    found = crossing(narrow, broad)
    assert found is not None
    assert (found.before, found.after) == (1, 2)
    assert found.ahead.difference.value == pytest.approx(1 / 16)
    assert found.behind.difference.value == pytest.approx(-0.5)
    assert not found.sure
    assert crossing(broad, broad) is None


def simulated(rates: np.ndarray[tuple[int, ...], np.dtype[np.float64]], samples: int, seed: int) -> Worth:
    right = np.random.default_rng(seed).random((len(rates), samples)) < rates[:, None]
    names = np.repeat([f"p{number:03}" for number in range(len(rates))], samples).astype(object)
    answers = tuple("1" if one else str(2 + place % 5) for place, one in enumerate(right.ravel().tolist()))
    return worth(ComparedPolicy("simulated", names, answers, right.ravel(), None), samples)


def test_a_beta_population_is_foretold_by_its_own_half() -> None:
    rates = np.random.default_rng(5).beta(0.6, 2.0, 200)
    found = beyond(simulated(rates, 32, 1))
    assert found.honest is True
    # The truth at 128 samples, known here because the rates are.
    truth = float(np.mean(1 - (1 - rates) ** 128))
    assert found.found.zero_inflated_pass[0].low - 0.02 <= truth <= found.found.beta_pass[0].high + 0.02


def test_a_population_that_is_no_beta_is_caught() -> None:
    # Half of the problems always solved, half at 2 %: no Beta has both a mass at 1 and a rise as late as that.
    rates = np.array([1.0] * 100 + [0.02] * 100)
    assert beyond(simulated(rates, 64, 2)).honest is False


def test_too_few_samples_are_not_tested() -> None:
    assert beyond(simulated(np.full(20, 0.4), 4, 3)).honest is None
