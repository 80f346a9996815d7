"""Curves against numbers worked out by hand; crossings; the honesty of what is predicted."""

from __future__ import annotations

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.comparison.accuracy_curves import (
    AccuracyCurves,
    extrapolate_past_samples,
    find_crossing,
    measure_curves,
    recommend,
)
from breadth.comparison.policies import ComparedPolicy, keep_common_problems, read_run_policies
from breadth.runs.reader import Run


@pytest.fixture
def pair(broad: Run, narrow: Run) -> tuple[AccuracyCurves, AccuracyCurves]:
    found, most = keep_common_problems([*read_run_policies(broad, "broad"), *read_run_policies(narrow, "narrow")])
    first, second = (measure_curves(policy, most) for policy in found)
    return first, second


def test_pass_and_votes_by_hand(pair: tuple[AccuracyCurves, AccuracyCurves]) -> None:
    broad, narrow = pair
    # Right of four: 2, 1, 1, 3. pass@1 = 7/16; pass@2 = 1 - C(n-c,2)/C(4,2): 5/6, 1/2, 1/2, 1; pass@4: all.
    assert broad.passed.mean(axis=0)[[0, 1, 3]] == pytest.approx([7 / 16, (5 / 6 + 1 / 2 + 1 / 2 + 1) / 4, 1.0])
    assert narrow.passed.mean(axis=0) == pytest.approx([0.5] * 4)
    # maj@4: a has 1,1 against 7,8: right; b: four different, one right: 1/4; c: 8,8 wins: 0; d: right.
    assert broad.voted is not None
    assert broad.voted[:, -1] == pytest.approx([1.0, 0.25, 0.0, 1.0])
    assert broad.vote_at(1) == pytest.approx([0.5, 0.25, 0.25, 0.75])


def test_a_crossing_is_found_and_not_called_sure_on_four_problems(pair: tuple[AccuracyCurves, AccuracyCurves]) -> None:
    broad, narrow = pair
    found = find_crossing(narrow, broad)
    assert found is not None
    assert (found.before, found.after) == (1, 2)
    assert found.ahead.difference.value == pytest.approx(1 / 16)
    assert found.behind.difference.value == pytest.approx(-0.5)
    assert not found.is_significant
    assert find_crossing(broad, broad) is None


def simulated(rates: np.ndarray[tuple[int, ...], np.dtype[np.float64]], samples: int, seed: int) -> AccuracyCurves:
    right = np.random.default_rng(seed).random((len(rates), samples)) < rates[:, None]
    names = np.repeat([f"p{number:03}" for number in range(len(rates))], samples).astype(object)
    answers = tuple("1" if one else str(2 + place % 5) for place, one in enumerate(right.ravel().tolist()))
    return measure_curves(ComparedPolicy("simulated", names, answers, right.ravel(), None), samples)


def test_a_beta_population_is_predicted_by_its_own_half() -> None:
    rates = np.random.default_rng(5).beta(0.6, 2.0, 200)
    found = extrapolate_past_samples(simulated(rates, 32, 1))
    assert found.is_reliable is True
    # The truth at 128 samples, known here because the rates are.
    truth = float(np.mean(1 - (1 - rates) ** 128))
    assert found.fits.zero_inflated_pass[0].low - 0.02 <= truth <= found.fits.beta_pass[0].high + 0.02


def test_a_population_that_is_no_beta_is_caught() -> None:
    # Half of the problems always solved, half at 2 %: no Beta has both a mass at 1 and a rise as late as that.
    rates = np.array([1.0] * 100 + [0.02] * 100)
    assert extrapolate_past_samples(simulated(rates, 64, 2)).is_reliable is False


def test_too_few_samples_are_not_tested() -> None:
    assert extrapolate_past_samples(simulated(np.full(20, 0.4), 4, 3)).is_reliable is None


@pytest.fixture
def both(broad: Run, narrow: Run) -> list[AccuracyCurves]:
    found, most = keep_common_problems([*read_run_policies(broad, "broad"), *read_run_policies(narrow, "narrow")])
    return [measure_curves(policy, most) for policy in found]


def test_by_draws(both: list[AccuracyCurves]) -> None:
    advice = recommend(both, draws=4)
    assert [policy.curves.policy.name for policy in advice.choices] == ["broad, step 0", "narrow, step 50"]
    # broad by votes of four: (1 + 1/4 + 0 + 1) / 4 = 0.5625; narrow: 2 of 4.
    assert [policy.score.value for policy in advice.choices] == pytest.approx([0.5625, 0.5])
    assert advice.choices[0].method == "a vote of 4"
    assert not advice.is_significant


def test_by_tokens_a_shorter_reply_buys_more(both: list[AccuracyCurves]) -> None:
    advice = recommend(both, tokens=15)  # broad writes 10 a reply, narrow 5
    assert {policy.curves.policy.name: policy.draws for policy in advice.choices} == {
        "broad, step 0": 1,
        "narrow, step 50": 3,
    }
    assert recommend(both, tokens=7).choices[0].curves.policy.name == "narrow, step 50"
    assert len(recommend(both, tokens=7).choices) == 1
    assert recommend(both, tokens=1000).choices[0].cut
    with pytest.raises(MeasureError, match="pay for no sample"):
        recommend(both, tokens=3)
