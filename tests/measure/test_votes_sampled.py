"""The Monte Carlo fallback against the exact count, and what weights do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from breadth.base.errors import MeasureError
from breadth.measure.votes import maj_at_k
from breadth.measure.votes_sampled import sampled_maj_at_k

CLASSES = [0, 0, 0, 0, 1, 1, 1, 2, -1, -1]
CORRECT = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("k", [1, 2, 3, 5, 10])
def test_without_weights_it_agrees_with_the_exact_count(k: int) -> None:
    truth = float(maj_at_k([4, 3, 1], [1, 0, 0], k, unparsable=2))
    sampled = sampled_maj_at_k(CLASSES, CORRECT, k, draws=40_000, seed=1)
    assert abs(sampled.value - truth) < 4 * 0.5 / math.sqrt(40_000)
    assert sampled.low <= sampled.value <= sampled.high


def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    truth = float(maj_at_k([4, 3, 1], [1, 0, 0], 3, unparsable=2))
    held = sum(truth in sampled_maj_at_k(CLASSES, CORRECT, 3, draws=500, seed=seed) for seed in range(200))
    # Binomial(200, .95) has a standard deviation of 3.1; shared ties make the interval a little wide.
    assert 180 <= held <= 200


def test_the_same_seed_gives_the_same_interval_and_batches_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    first = sampled_maj_at_k(CLASSES, CORRECT, 3, draws=300, seed=5)
    assert first == sampled_maj_at_k(CLASSES, CORRECT, 3, draws=300, seed=5)
    monkeypatch.setattr("breadth.measure.votes_sampled._CELLS", 70)
    assert sampled_maj_at_k(CLASSES, CORRECT, 3, draws=300, seed=5) == first


def test_weights_decide_and_zero_weight_is_no_vote() -> None:
    # Two samples, k=2: the heavier one wins every draw.
    assert sampled_maj_at_k([0, 1], [1, 0], 2, weights=[2.0, 1.0], draws=50).value == 1.0
    assert sampled_maj_at_k([0, 1], [1, 0], 2, weights=[1.0, 2.0], draws=50).value == 0.0
    assert sampled_maj_at_k([0, 1], [1, 0], 2, weights=[1.0, 1.0], draws=50).value == 0.5
    assert sampled_maj_at_k([0, 0], [1, 1], 2, weights=[0.0, 0.0], draws=50).value == 0.0
    # k=1: the sample drawn wins, whatever its weight.
    assert sampled_maj_at_k([0, 1], [1, 0], 1, weights=[9.0, 1.0], draws=20_000).value == pytest.approx(0.5, abs=0.02)


def test_nobody_votes() -> None:
    nothing = sampled_maj_at_k([-1, -1, -1], [0, 0, 1], 2, draws=100)
    assert (nothing.value, nothing.low) == (0.0, 0.0)
    assert 0 < nothing.high < 0.05


@pytest.mark.parametrize(
    ("classes", "correct", "k", "weights", "draws"),
    [
        ([], [], 1, None, 10),
        ([0, 1], [1], 1, None, 10),
        ([0, 1], [1, float("nan")], 1, None, 10),
        ([0, 1], [1, 0], 3, None, 10),
        ([0, 1], [1, 0], 0, None, 10),
        ([0, 1], [1, 0], 1, [1.0, -1.0], 10),
        ([0, 1], [1, 0], 1, [1.0], 10),
        ([0, 1], [1, 0], 1, None, 0),
    ],
)
def test_votes_it_must_refuse(classes: list[int], correct: list[float], k: int, weights: list[float] | None, draws: int) -> None:
    with pytest.raises(MeasureError):
        sampled_maj_at_k(classes, correct, k, weights=weights, draws=draws)


def test_weighted_votes_agree_with_every_draw_enumerated() -> None:
    from itertools import combinations

    classes, weights = np.array([0, 0, 1, 1, 2, -1]), np.array([0.5, 0.2, 0.6, 0.1, 0.65, 3.0])
    outcomes = []
    for draw in combinations(range(6), 3):
        sums = [sum(weights[i] for i in draw if classes[i] == label) for label in range(3)]
        outcomes.append(float(sums.index(max(sums)) == 0 and max(sums) > 0))
    sampled = sampled_maj_at_k(classes, classes == 0, 3, weights=weights, draws=40_000, seed=2)
    assert sampled.value == pytest.approx(float(np.mean(outcomes)), abs=0.01)
