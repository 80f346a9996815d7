"""pass@k against the published numbers, against exact binomials, and on counts it must refuse."""

from __future__ import annotations

import math
from fractions import Fraction
from math import comb
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaln

from breadth.base.errors import MeasureError
from breadth.measure.pass_at_k import (
    MAX_CONCENTRATION,
    Objective,
    as_sample_sizes,
    beta_objective,
    beta_pass_at_k,
    chart_ks,
    count_exceedances,
    extrapolate_pass_at_k,
    log_failure,
    maximise,
    mean_pass_at_k,
    pass_at_k,
    share_always_solved,
    share_never_solved,
    zero_inflated_objective,
)
from breadth.measure.validate import BoolArray, FloatArray


def exact(n: int, c: int, k: int) -> Fraction:
    return 1 - Fraction(comb(n - c, k), comb(n, k))


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (10, 3, 5, 11 / 12),
        (8, 2, 4, 0.7857142857),
        (16, 1, 8, 0.5),
        (200, 3, 100, 0.8768844221),
        (10_000, 1, 5000, 0.5),
    ],
)
def test_the_numbers_worked_out_by_hand(n: int, c: int, k: int, expected: float) -> None:
    # (10, 3, 5): 1 - C(7,5)/C(10,5) = 1 - 21/252 = 11/12; with c = 1 the one right sample is drawn with chance k/n.
    assert float(pass_at_k(n, c, k)) == pytest.approx(expected, abs=1e-10)


def test_the_biased_plug_in_would_say_something_else() -> None:
    # 1 - 0.7^5 = 0.83193 is what the estimator must not return.
    assert float(pass_at_k(10, 3, 5)) > 0.9


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_all_k_at_once_equal_the_exact_binomials(pair: tuple[int, int]) -> None:
    n, c = pair
    curve = pass_at_k(n, c, np.arange(1, n + 1))
    expected = np.array([float(exact(n, c, k)) for k in range(1, n + 1)])
    np.testing.assert_allclose(curve, expected, rtol=1e-12, atol=0)
    assert np.all(np.diff(curve) >= -1e-15)
    assert curve[0] == pytest.approx(c / n, rel=1e-14)


@pytest.mark.parametrize(
    ("n", "c", "k"), [(10_000, 1, 1), (10_000, 37, 100), (100_000, 2, 50_000), (1_000_000, 3, 10), (10_000, 9_999, 1)]
)
def test_large_counts_stay_exact(n: int, c: int, k: int) -> None:
    assert float(pass_at_k(n, c, k)) == pytest.approx(float(exact(n, c, k)), rel=1e-11)


def test_more_draws_than_wrong_samples_is_certain() -> None:
    np.testing.assert_array_equal(pass_at_k([5, 5, 5], [5, 4, 0], [1, 2, 5]), [[1, 1, 1], [0.8, 1, 1], [0, 0, 0]])


def test_shapes_follow_n_and_c_and_a_single_k_adds_no_axis() -> None:
    n, c = np.full((2, 3), 8), np.array([0, 4, 8])
    assert pass_at_k(n, c, [1, 2]).shape == (2, 3, 2)
    np.testing.assert_allclose(pass_at_k(n, c, 1), [[0, 0.5, 1], [0, 0.5, 1]])


def test_the_mean_gives_every_problem_the_same_weight() -> None:
    # Problem 1: 1 of 2 right; problem 2: 0 of 4; problem 3: 1 of 4. k=1: (1/2 + 0 + 1/4)/3 = 1/4; k=2: (1 + 0 + 1/2)/3
    # = 1/2.
    np.testing.assert_allclose(mean_pass_at_k([2, 4, 4], [1, 0, 1], [1, 2]), [0.25, 0.5])
    assert float(mean_pass_at_k([2, 4, 4], [1, 0, 1], 2)) == pytest.approx(0.5)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(4, 12), st.integers(0, 4)), min_size=1, max_size=30))
def test_the_mean_equals_the_mean_of_the_curves(problems: list[tuple[int, int]]) -> None:
    n, c = np.array(problems).T
    np.testing.assert_allclose(mean_pass_at_k(n, c, [1, 3, 4]), pass_at_k(n, c, [1, 3, 4]).mean(axis=0), rtol=1e-12)


def test_many_different_pairs_are_computed_in_parts_without_changing_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    n, c = np.full(50, 64), np.arange(50)
    whole = mean_pass_at_k(n, c, [1, 64]), pass_at_k(n, c, [1, 64])
    monkeypatch.setattr("breadth.measure.pass_at_k._MAX_TABLE_CELLS", 300)
    np.testing.assert_allclose(mean_pass_at_k(n, c, [1, 64]), whole[0], rtol=1e-14)
    np.testing.assert_array_equal(pass_at_k(n, c, [1, 64]), whole[1])


def test_shares_of_problems_without_a_signal() -> None:
    assert share_never_solved([4, 4, 4, 4], [0, 4, 2, 0]) == 0.5
    assert share_always_solved([4, 4, 4, 4], [0, 4, 2, 0]) == 0.25


def test_whole_floats_are_counts() -> None:
    assert float(pass_at_k(10.0, 3.0, 5)) == pytest.approx(11 / 12)


@pytest.mark.parametrize(
    ("n", "c", "k", "says"),
    [
        ([8, 4, 2], [1, 1, 1], [1, 8], "2 of 3 problems have fewer"),
        ([8], [9], [1], "1 of 1 problems"),
        ([8], [-1], [1], "1 of 1 problems"),
        ([0], [0], [1], "1 of 1 problems"),
        ([], [], [1], "empty"),
        ([8], [1], [0], "from 1 up"),
        ([8], [1], [], "from 1 up"),
        ([8], [1], [[1, 2]], "from 1 up"),
        ([8], [float("nan")], [1], "whole numbers"),
        ([8], [1.5], [1], "whole numbers"),
        ([8], ["one"], [1], "whole numbers"),
        ([8, 8, 8], [1, 1], [1], "do not fit"),
    ],
)
def test_counts_it_must_refuse(n: list[int], c: list[int], k: list[int], says: str) -> None:
    for measure in (pass_at_k, mean_pass_at_k):
        with pytest.raises(MeasureError, match=says):
            measure(n, c, k)


def test_the_k_of_a_chart() -> None:
    assert chart_ks(1) == [1]
    assert chart_ks(6) == [1, 2, 4, 6]
    assert chart_ks(64) == [1, 2, 4, 8, 16, 32, 64]


ONE = np.arange(1)


def _data(seed: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    samples = rng.integers(1, 15, 60)
    return samples.astype(float), rng.binomial(samples, rng.beta(0.5, 2, 60)).astype(float)


def _objectives(seed: int) -> tuple[Objective, Objective]:
    samples, correct = _data(seed)
    every = np.ones((1, 60))
    return (
        beta_objective(count_exceedances(samples, correct, every, unsolved_apart=False)),
        zero_inflated_objective(count_exceedances(samples, correct, every, unsolved_apart=True)),
    )


@given(st.integers(0, 20), st.floats(-2, 2), st.floats(-2, 2), st.floats(-3, 2))
@settings(max_examples=25, deadline=None)
def test_likelihoods_equal_the_textbook_form(seed: int, log_alpha: float, log_beta: float, logit: float) -> None:
    (samples, correct), (plain, inflated) = _data(seed), _objectives(seed)
    alpha, beta, share = math.exp(log_alpha), math.exp(log_beta), 1 / (1 + math.exp(-logit))
    each = betaln(correct + alpha, samples - correct + beta) - betaln(alpha, beta)
    assert plain(np.array([[log_alpha, log_beta]]), ONE)[0][0] == pytest.approx(each.sum())
    mixed = np.log(share * (correct == 0) + (1 - share) * np.exp(each))
    assert inflated(np.array([[log_alpha, log_beta, logit]]), ONE)[0][0] == pytest.approx(mixed.sum())


@given(st.integers(0, 20), st.floats(-2, 2), st.floats(-2, 2), st.floats(-3, 2))
@settings(max_examples=25, deadline=None)
def test_derivatives_equal_finite_differences(seed: int, log_alpha: float, log_beta: float, logit: float) -> None:
    for objective, size in zip(_objectives(seed), (2, 3), strict=True):
        at = np.array([[log_alpha, log_beta, logit]])[:, :size]
        _, gradient, hessian = objective(at, ONE)
        for index in range(size):
            step = 1e-5 * np.eye(size)[index]
            (above, slope_above, _), (below, slope_below, _) = objective(at + step, ONE), objective(at - step, ONE)
            assert gradient[0, index] == pytest.approx((above - below)[0] / 2e-5, abs=1e-4)
            assert hessian[0, index] == pytest.approx((slope_above - slope_below)[0] / 2e-5, abs=1e-4)


def test_the_climb_ends_where_nothing_near_is_higher() -> None:
    for objective, size in zip(_objectives(3), (2, 3), strict=True):
        found, value = maximise(objective, np.zeros((1, size)))
        assert np.abs(objective(found, ONE)[1]).max() < 1e-3
        rng = np.random.default_rng(0)
        for _ in range(50):
            assert objective(found + rng.normal(0, 0.3, (1, size)), ONE)[0][0] <= value[0] + 1e-9


def test_weights_stand_for_repeated_problems() -> None:
    samples, correct = _data(5)
    weights = np.random.default_rng(1).integers(0, 4, (1, 60))
    repeated = np.repeat(np.arange(60), weights[0])
    at = np.array([[0.3, -0.2, -1.0]])
    for build, size in ((beta_objective, 2), (zero_inflated_objective, 3)):
        apart = size == 3
        weighted = build(count_exceedances(samples, correct, weights.astype(float), unsolved_apart=apart))
        copied = build(
            count_exceedances(samples[repeated], correct[repeated], np.ones((1, len(repeated))), unsolved_apart=apart)
        )
        assert weighted(at[:, :size], ONE)[0] == pytest.approx(copied(at[:, :size], ONE)[0])


def test_equal_problems_climb_to_a_single_rate() -> None:
    # Ten problems, each exactly 3 of 10: less spread than chance, so the likelihood rises all the way to the narrowest
    # Beta.
    objective = beta_objective(
        count_exceedances(np.full(10, 10.0), np.full(10, 3.0), np.ones((1, 10)), unsolved_apart=False)
    )
    found, _ = maximise(objective, np.zeros((1, 2)))
    alpha, beta = np.exp(found[0])
    assert alpha / (alpha + beta) == pytest.approx(0.3, abs=1e-4)
    assert alpha + beta > MAX_CONCENTRATION / 1000


def test_failure_by_hand() -> None:
    # Uniform rates: the mean of (1 - p)^k is 1 / (k + 1).
    one = np.ones(1)
    assert np.exp(log_failure(one, one, np.array([1.0, 2.0, 9.0])))[0] == pytest.approx([1 / 2, 1 / 3, 1 / 10])


def test_beta_half_two_of_the_specification() -> None:
    assert beta_pass_at_k(0.5, 2, [1, 10, 100, 1000, 10000]) == pytest.approx(
        [0.2, 0.61224, 0.86821, 0.95800, 0.98671], abs=5e-6
    )


def test_failure_falls_as_the_power_alpha() -> None:
    failures = 1 - beta_pass_at_k(0.5, 2, [1e5, 1e6])
    assert math.log10(failures[1] / failures[0]) == pytest.approx(-0.5, abs=1e-4)


@given(st.floats(0.05, 20), st.floats(0.05, 20))
@settings(max_examples=40, deadline=None)
def test_pass_at_k_starts_at_the_mean_and_never_falls(alpha: float, beta: float) -> None:
    curve = beta_pass_at_k(alpha, beta, np.arange(200))
    assert curve[0] == 0
    assert curve[1] == pytest.approx(alpha / (alpha + beta))
    assert np.all(np.diff(curve) >= -1e-12)


def test_four_hundred_problems_of_thirty_two_samples() -> None:
    rng = np.random.default_rng(4)
    correct = rng.binomial(32, rng.beta(0.5, 2, 400))
    result = extrapolate_pass_at_k(np.full(400, 32), correct, [1, 1000])
    assert (result.beta.alpha, result.beta.beta) == pytest.approx((0.5, 2.0), rel=0.2)
    # Truth: pass@1 0.2, pass@1000 0.958.
    assert 0.2 in result.beta_pass[0]
    assert 0.958 in result.beta_pass[1]
    assert result.beta_pass[1].high - result.beta_pass[1].low < 0.06
    assert not result.has_impossible_problems
    assert result.unsolved == int(np.sum(correct == 0))


def test_intervals_hold_the_truth() -> None:
    rng, held = np.random.default_rng(2), []
    for seed in range(30):
        samples = rng.integers(8, 33, 150)
        correct = rng.binomial(samples, rng.beta(0.5, 2, 150))
        held.append(0.86821 in extrapolate_pass_at_k(samples, correct, [100], replicates=60, seed=seed).beta_pass[0])
    assert np.mean(held) >= 0.85


def test_impossible_problems_are_found_and_correct_the_forecast() -> None:
    # Three tenths impossible, the rest Beta(1, 2): pass@k for large k tends to 0.7; a plain Beta creeps on towards 1.
    rng = np.random.default_rng(3)
    correct = rng.binomial(32, rng.beta(1, 2, 500)) * (np.arange(500) >= 150)
    result = extrapolate_pass_at_k(np.full(500, 32), correct, [10_000])
    assert result.has_impossible_problems
    assert 0.3 in result.zero_share
    assert 0.7 in result.zero_inflated_pass[0]
    assert result.beta_pass[0].low > 0.8
    assert result.zero_inflated.log_likelihood > result.beta.log_likelihood


def test_without_unsolved_problems_both_fits_agree() -> None:
    result = extrapolate_pass_at_k([8] * 6, [1, 7, 4, 2, 8, 5], [100], replicates=100)
    assert result.zero_inflated == result.beta
    assert result.zero_inflated.zero_share == 0
    assert result.gain == 0
    assert result.always_solved == 1


def test_problems_all_alike_share_one_rate() -> None:
    # Ten problems at 3 of 10: pass@k = 1 - 0.7^k, 0.91765 at 7.
    result = extrapolate_pass_at_k([10] * 10, [3] * 10, [1, 7], replicates=100)
    assert not result.beta.is_overdispersed
    assert result.beta.pass_at_k([1, 7]) == pytest.approx([0.3, 0.917646], abs=1e-5)
    # Ten equal problems are no proof that the eleventh is.
    assert result.beta_pass[0].high - result.beta_pass[0].low > 0.2


@given(st.lists(st.tuples(st.integers(2, 20), st.integers(0, 20)), min_size=2, max_size=12), st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_any_counts_give_a_rising_curve_or_a_clear_error(pairs: list[tuple[int, int]], seed: int) -> None:
    samples = [drawn for drawn, _ in pairs]
    correct = [min(drawn, right) for drawn, right in pairs]
    if sum(correct) in (0, sum(samples)):
        with pytest.raises(MeasureError, match="no curve to extrapolate"):
            extrapolate_pass_at_k(samples, correct, [1])
        return
    result = extrapolate_pass_at_k(samples, correct, [1, 10, 100], replicates=40, seed=seed)
    for intervals in (result.beta_pass, result.zero_inflated_pass):
        values = [interval.value for interval in intervals]
        assert values == sorted(values)
        assert all(0 <= interval.low <= interval.value <= interval.high <= 1 + 1e-12 for interval in intervals)
    assert result.gain >= 0


@pytest.mark.parametrize(
    ("samples", "correct", "problem"),
    [
        ([4, 4], [0, 0], "No sample of 8 succeeded"),
        ([4, 4], [4, 4], "Every sample of 8 succeeded"),
        ([4], [2], "One problem"),
        ([1, 1], [0, 1], "one sample"),
        ([4, 0], [2, 0], "no samples"),
        ([4, 4], [5, 0], "more correct"),
        ([4, 4.5], [1, 0], "1 of 2 values of samples"),
        ([4, 4], [1], "samples has 2, correct has 1"),
        ([4, math.nan], [1, 0], "NaN"),
    ],
)
def test_bad_input_is_refused(samples: list[float], correct: list[float], problem: str) -> None:
    with pytest.raises(MeasureError, match=problem):
        extrapolate_pass_at_k(samples, correct, [10])


def test_bad_beta_is_refused() -> None:
    with pytest.raises(MeasureError, match="positive"):
        beta_pass_at_k(0.0, 2.0, [1])


def _answers(fixtures: Path, name: str) -> BoolArray:
    rows = pq.read_table(fixtures / "votes" / name, columns=["question_id", "sample_index", "correct"]).to_pandas()
    table = rows.pivot(index="question_id", columns="sample_index", values="correct")
    assert table.shape[1] == 40
    return np.asarray(table, dtype=bool)


def test_twenty_real_samples_predict_forty(fixtures: Path) -> None:
    answers = _answers(fixtures, "consol_gpt4omini_gsm8k_vote40.parquet")
    result = extrapolate_pass_at_k(np.full(len(answers), 20), answers[:, :20].sum(axis=1), [40])
    observed = float(answers.any(axis=1).mean())
    assert observed == pytest.approx(0.9833, abs=1e-4)
    assert observed in result.zero_inflated_pass[0]
    # Some questions (or their keys) are beyond the model: a Beta has no mass at 0 and promises too much.
    assert result.has_impossible_problems
    assert result.beta_pass[0].low > observed


def test_thirty_competition_problems_predict_with_wide_intervals(fixtures: Path) -> None:
    answers = _answers(fixtures, "consol_o3mini_low_aime24_vote40.parquet")
    result = extrapolate_pass_at_k(np.full(30, 20), answers[:, :20].sum(axis=1), [40])
    observed = float(answers.any(axis=1).mean())
    assert observed == pytest.approx(0.9)
    assert observed in result.beta_pass[0]
    assert observed in result.zero_inflated_pass[0]


def test_every_sample_there_is_may_be_drawn_and_no_more() -> None:
    assert pass_at_k(4, 1, 4) == 1.0
    assert pass_at_k(4, 0, 4) == 0.0
    assert pass_at_k([1, 1], [0, 1], 1).tolist() == [0.0, 1.0]
    assert mean_pass_at_k([2, 3], [1, 1], [1, 2]).tolist() == pytest.approx([(1 / 2 + 1 / 3) / 2, (1 + 2 / 3) / 2])
    with pytest.raises(MeasureError, match="1 of 2 problems have fewer"):
        pass_at_k([4, 3], [1, 1], 4)
    assert as_sample_sizes(3, [3, 4]).tolist() == [3]


def test_where_most_problems_are_unsolved_the_rest_is_forecast() -> None:
    # 18 of 20 problems were never solved in 32 samples, two half of the time: more samples hardly help.
    fit = extrapolate_pass_at_k([32] * 20, [0] * 18 + [15, 17], [1, 1000], replicates=40)
    assert fit.zero_inflated_pass[0].value == pytest.approx(0.05, abs=1e-3)
    assert fit.zero_inflated_pass[1].value == pytest.approx(0.1, abs=1e-2)
    assert fit.zero_share.value == pytest.approx(0.9, abs=1e-2)
    assert (fit.problems, fit.unsolved, fit.always_solved) == (20, 18, 0)


def test_problems_that_are_always_solved_are_counted() -> None:
    fit = extrapolate_pass_at_k([4] * 4, [4, 4, 2, 0], [1], replicates=40)
    assert (fit.problems, fit.unsolved, fit.always_solved) == (4, 1, 2)
    assert fit.ks == (1,)
