"""Calibration: the specification's numbers, ranking by hand, intervals that cover, a risk promise that is kept."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.calibration import auroc, brier, ece_equal_mass, ece_equal_width, risk_coverage, threshold_for_risk

CONFIDENCES = [0.9] * 4 + [0.6] * 4
CORRECT = [1, 1, 1, 0, 1, 0, 0, 1]


def test_numbers_of_the_specification() -> None:
    # Brier: (3 * 0.01 + 0.81 + 2 * 0.16 + 2 * 0.36) / 8 = 0.235. ECE: (|0.75 - 0.9| + |0.5 - 0.6|) / 2 = 0.125, in
    # either binning.
    assert brier(CONFIDENCES, CORRECT) == pytest.approx(0.235)
    assert ece_equal_width(CONFIDENCES, CORRECT) == pytest.approx(0.125)
    assert ece_equal_mass(CONFIDENCES, CORRECT) == pytest.approx(0.125)


@given(st.lists(st.booleans(), min_size=1, max_size=60))
@settings(max_examples=30, deadline=None)
def test_a_constant_equal_to_the_accuracy(outcomes: list[bool]) -> None:
    accuracy = sum(outcomes) / len(outcomes)
    stated = [accuracy] * len(outcomes)
    assert ece_equal_width(stated, outcomes) == pytest.approx(0, abs=1e-12)
    assert ece_equal_mass(stated, outcomes) == pytest.approx(0, abs=1e-12)
    assert brier(stated, outcomes) == pytest.approx(accuracy * (1 - accuracy))


def test_binnings_differ_by_hand() -> None:
    # 0.91 wrong and 0.99 right share a bin of equal width: |1.90 - 1| / 2 = 0.45; apart in equal mass: (0.91 + 0.01) /
    # 2 = 0.46.
    assert ece_equal_width([0.91, 0.99], [0, 1]) == pytest.approx(0.45)
    assert ece_equal_mass([0.91, 0.99], [0, 1]) == pytest.approx(0.46)
    assert ece_equal_mass([0.91, 0.99], [0, 1], bins=1) == pytest.approx(0.45)


def test_edges_of_bins() -> None:
    # 0.1 belongs to the second bin and 1.0 to the last: bins 0.05 | 0.1 | 1.0 give (0.05 + 0.9 + 0) / 3.
    assert ece_equal_width([0.05, 0.1, 1.0], [0, 1, 1]) == pytest.approx((0.05 + 0.9) / 3)
    # 0.57 * 100 is 56.999... in binary, but 0.57 and 0.575 share a bin: |1.145 - 1| / 2.
    assert ece_equal_width([0.57, 0.575], [0, 1], bins=100) == pytest.approx(0.0725)


def test_auroc_and_delong_by_hand() -> None:
    # Right: 3, 2; wrong: 1, 2.5. Pairs won: 3>1, 3>2.5, 2>1; lost: 2<2.5. Placements (1, 0.5) and (1, 0.5), variance
    # 0.125 each;
    # DeLong 0.125/2 + 0.125/2 = 0.125. On the log-odds: ln 3 +- t(1) * 0.35355 / 0.1875 with t = 12.7062: 1.0986 +-
    # 23.96.
    interval = auroc([3, 2, 1, 2.5], [1, 1, 0, 0])
    assert interval.value == 0.75
    assert math.log(interval.low / (1 - interval.low)) == pytest.approx(1.0986 - 23.959, abs=0.01)


def test_ties_count_half_and_any_scale_will_do() -> None:
    # Right 5 against wrong 5 and -100: half and one, of two.
    assert auroc([5, 5, -100], [1, 0, 0]).value == 0.75
    assert auroc([1, 1, 1, 1], [1, 0, 1, 0]).value == 0.5


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=2, max_size=40))
@settings(max_examples=40, deadline=None)
def test_auroc_counts_pairs_and_mirrors(samples: list[tuple[int, bool]]) -> None:
    scores, right = [score for score, _ in samples], [outcome for _, outcome in samples]
    if all(right) or not any(right):
        with pytest.raises(MeasureError, match="at least one of each"):
            auroc(scores, right)
        return
    pairs = [(a > b) + (a == b) / 2 for a, x in samples if x for b, y in samples if not y]
    interval, mirrored = auroc(scores, right), auroc([-score for score in scores], right)
    assert interval.value == pytest.approx(sum(pairs) / len(pairs))
    assert interval.low <= interval.value <= interval.high
    assert interval.low == pytest.approx(1 - mirrored.high)


def test_perfect_separation_is_not_certainty() -> None:
    # Ten of each: 0.025^(1/10) = 0.691503.
    interval = auroc(np.arange(20), np.arange(20) >= 10)
    assert (interval.value, interval.low, interval.high) == pytest.approx((1.0, 0.691503, 1.0), abs=1e-6)
    assert auroc(np.ones(20), np.arange(20) >= 10).high > 0.5


def test_samples_of_one_problem_go_together() -> None:
    # Score and outcome hang on the problem: 30 problems of 8 samples. Truth by a large simulation of the same law.
    rng = np.random.default_rng(0)

    def draw(problems: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        skill = rng.normal(size=(problems, 1))
        scores = skill * 1.5 + rng.normal(size=(problems, 8))
        right = rng.normal(size=(problems, 8)) < skill
        return scores.ravel(), right.ravel(), np.repeat(np.arange(problems), 8)

    scores, right, _ = draw(20_000)
    truth = auroc(scores, right).value
    draws = [draw(30) for _ in range(200)]
    clustered = np.mean([truth in auroc(*sample) for sample in draws])
    separate = np.mean([truth in auroc(*sample[:2]) for sample in draws])
    assert clustered >= 0.91
    assert separate < clustered - 0.05


def test_risk_coverage_by_hand() -> None:
    # Most confident first: right, wrong, right, right -> risks 0, 1/2, 1/3, 1/4; mean 13/48.
    result = risk_coverage([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 1])
    assert result.coverages == (0.25, 0.5, 0.75, 1.0)
    assert result.risks == pytest.approx((0, 1 / 2, 1 / 3, 1 / 4))
    assert result.area == pytest.approx(13 / 48)
    assert result.thresholds == (0.9, 0.8, 0.7, 0.6)


def test_equal_scores_enter_together() -> None:
    # One right and one wrong at the same score: risk 1/2 at every number answered, on average.
    result = risk_coverage([1, 1], [1, 0])
    assert result.coverages == (1.0,)
    assert result.area == pytest.approx(0.5)


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=50))
@settings(max_examples=30, deadline=None)
def test_risk_at_full_coverage_is_the_error_rate(samples: list[tuple[int, bool]]) -> None:
    result = risk_coverage([score for score, _ in samples], [right for _, right in samples])
    assert result.coverages[-1] == 1.0
    assert result.risks[-1] == pytest.approx(np.mean([not right for _, right in samples]))


def test_threshold_by_hand() -> None:
    # 100 right answers at one score: one threshold tried, bound 1 - 0.05^(1/100) = 0.029513.
    found = threshold_for_risk(np.ones(100), np.ones(100), 0.03)
    assert found is not None
    assert (found.coverage, found.risk, found.threshold) == (1.0, 0.0, 1.0)
    assert found.risk_bound == pytest.approx(0.029513, abs=1e-6)
    assert threshold_for_risk(np.ones(100), np.ones(100), 0.029) is None


def test_threshold_separates_sure_from_unsure() -> None:
    # 300 sure and right, 300 unsure and half right: two thresholds tried, so 0.025 each; bound 1 - 0.025^(1/300) =
    # 0.012221.
    found = threshold_for_risk([0.9] * 300 + [0.5] * 300, [1] * 300 + [0, 1] * 150, 0.05)
    assert found is not None
    assert (found.threshold, found.coverage) == (0.9, 0.5)
    assert found.risk_bound == pytest.approx(0.012221, abs=1e-6)


def test_the_promised_risk_is_kept() -> None:
    # Chance of being right equals the score, uniform on [0, 1]: above t the true risk is (1 - t) / 2.
    rng, broken, coverages = np.random.default_rng(1), 0, []
    for _ in range(400):
        scores = rng.random(500)
        found = threshold_for_risk(scores, rng.random(500) < scores, 0.25)
        if found is not None:
            broken += (1 - found.threshold) / 2 > 0.25
            coverages.append(found.coverage)
    assert broken / 400 <= 0.05
    # Knowing the truth one would answer half; the promise costs about half of that at 500 samples.
    assert np.mean(coverages) > 0.25


def test_bad_input_is_refused() -> None:
    for measure in (brier, ece_equal_width, ece_equal_mass):
        with pytest.raises(MeasureError, match=r"2 of 3 confidences lie outside \[0, 1\]"):
            measure([1.2, -0.1, 0.5], [1, 0, 1])
    with pytest.raises(MeasureError, match="neither 0 nor 1"):
        brier([0.5], [0.5])
    with pytest.raises(MeasureError, match="confidences has 1, correct has 2"):
        brier([0.5], [0, 1])
    with pytest.raises(MeasureError, match="NaN"):
        auroc([math.nan, 1.0], [0, 1])
    with pytest.raises(MeasureError, match="problems has 1"):
        auroc([0.0, 1.0], [0, 1], ["a"])
    with pytest.raises(MeasureError, match="bins"):
        ece_equal_width([0.5], [1], bins=0)
    with pytest.raises(MeasureError, match="level"):
        auroc([0.0, 1.0], [0, 1], level=95)
    with pytest.raises(MeasureError, match="Target"):
        threshold_for_risk([0.5], [1], 0.0)


def test_a_reward_model_ranks_real_answers(fixtures: Path) -> None:
    rows = pq.read_table(fixtures / "votes" / "qwen25math_rm_example_math100x8.parquet").to_pandas()
    scores, right = rows["confidence"].to_numpy(), rows["correct"].to_numpy()
    with pytest.raises(MeasureError, match="outside"):
        brier(scores, right)
    by_problem = auroc(scores, right, rows["question_id"].to_numpy())
    pairs = scores[right][:, None] - scores[~right]
    assert by_problem.value == pytest.approx(float(((pairs > 0) + (pairs == 0) / 2).mean()))
    # A trained reward model does rank, and 100 problems of 8 samples are worth less than 800 samples.
    alone = auroc(scores, right)
    assert 0.5 < by_problem.low < alone.low
    curve = risk_coverage(scores, right)
    assert curve.risks[-1] == pytest.approx(0.09)
    assert curve.area < 0.09 / 2
