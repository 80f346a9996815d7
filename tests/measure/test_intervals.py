"""Intervals: hand-worked proportions, bootstrap that covers, and no certainty from nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from breadth.base.errors import MeasureError
from breadth.measure.intervals import (
    Interval,
    beta_quantile,
    clopper_pearson,
    cluster_bootstrap,
    curve_intervals,
    interval_from_resamples,
    mean_interval,
    quotient,
    ratio_interval,
    resample,
    resample_counts,
    t_critical,
    t_sf_two_sided,
    wilson,
)

FREEDOMS = [1, 1.3, 2, 2.5, 4.7, 10, 33, 99, 199.9, 200, 201, 598, 2998]


@pytest.mark.parametrize(
    ("df", "level", "reach"), [(1, 0.95, 12.706), (2, 0.95, 4.303), (10, 0.9, 1.812), (30, 0.99, 2.750)]
)
def test_the_table_of_every_textbook(df: float, level: float, reach: float) -> None:
    assert t_critical(df, level) == pytest.approx(reach, abs=5e-4)
    assert t_sf_two_sided(df, t_critical(df, level)) == pytest.approx(1 - level, rel=1e-12)


def test_two_degrees_of_freedom_have_a_formula() -> None:
    # The chance is 1 - t / sqrt(2 + t^2); that of t = 1 is 1 - 1 / sqrt(3), that of t = 5 is 1 - 5 / sqrt(27).
    assert t_sf_two_sided(2, 1) == pytest.approx(1 - 1 / math.sqrt(3), rel=1e-14)
    assert t_sf_two_sided(2, -5) == pytest.approx(1 - 5 / math.sqrt(27), rel=1e-13)


@pytest.mark.parametrize("df", FREEDOMS)
@pytest.mark.parametrize("level", [0.01, 0.5, 0.9, 0.95, 0.975, 0.999, 0.999999])
def test_reaches_as_far_as_scipy(df: float, level: float) -> None:
    assert t_critical(df, level) == pytest.approx(-special.stdtrit(df, (1 - level) / 2), rel=1e-13)


@pytest.mark.parametrize("df", FREEDOMS)
@pytest.mark.parametrize("distance", [1e-3, 0.1, 1, 1.5, 2, 3, 8, 30, 1e4])
def test_gives_the_chances_of_scipy_far_out_too(df: float, distance: float) -> None:
    assert t_sf_two_sided(df, distance) == pytest.approx(2 * special.stdtr(df, -distance), rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("df", [1e4, 1e5, 1e6])
def test_holds_ten_digits_up_to_a_million_degrees_of_freedom(df: float) -> None:
    assert t_critical(df, 0.95) == pytest.approx(special.stdtrit(df, 0.975), rel=1e-10)


@pytest.mark.parametrize("probability", [1e-6, 0.025, 0.5, 0.975, 1 - 1e-6])
@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 40), (9, 1), (2.5, 0.7), (7, 3), (300, 700), (99_999, 2), (5e4, 5e4)])
def test_beta_quantiles_are_those_of_scipy(a: float, b: float, probability: float) -> None:
    # Of the logarithm of the gamma function some 1e6 in size a float keeps ten digits, so the chance has about ten too.
    assert beta_quantile(a, b, probability) == pytest.approx(special.betaincinv(a, b, probability), rel=1e-8)


def test_a_beta_quantile_by_hand() -> None:
    # Beta(1, b) is below x with chance 1 - (1 - x)^b, Beta(a, 1) with x^a.
    assert beta_quantile(1, 4, 1 - 0.9**4) == pytest.approx(0.1, rel=1e-12)
    assert beta_quantile(3, 1, 0.008) == pytest.approx(0.2, rel=1e-12)


def test_the_ends_of_the_scale() -> None:
    assert t_sf_two_sided(5, 0.0) == 1.0
    assert t_sf_two_sided(5, math.inf) == t_sf_two_sided(5, 1e200) == 0.0
    assert math.isnan(t_sf_two_sided(5, math.nan))


def _ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def _grand_mean(clusters: list[npt.NDArray[Any]]) -> float:
    return float(np.mean(np.concatenate(clusters)))


def test_wilson_by_hand() -> None:
    # z^2 = 3.841459. 0 of 10: high = z^2 / (10 + z^2) = 3.841459 / 13.841459 = 0.277533.
    assert _ends(wilson(0, 10)) == pytest.approx((0.0, 0.277533), abs=1e-6)
    assert _ends(wilson(10, 10)) == pytest.approx((0.722467, 1.0), abs=1e-6)
    # 5 of 10: middle 0.5; half = 1.959964 / 1.3841459 * sqrt(0.025 + 3.841459 / 400) = 0.263407.
    assert _ends(wilson(5, 10)) == pytest.approx((0.236593, 0.763407), abs=1e-6)


def test_clopper_pearson_by_hand() -> None:
    # 0 of 10: (1 - high)^10 = 0.025, so high = 1 - 0.025^0.1 = 0.308497.
    assert _ends(clopper_pearson(0, 10)) == pytest.approx((0.0, 0.308497), abs=1e-6)
    assert _ends(clopper_pearson(10, 10)) == pytest.approx((0.691503, 1.0), abs=1e-6)
    # 1 of 2: low solves 1 - (1-p)^2 = 0.025, p = 1 - sqrt(0.975) = 0.012579; symmetric.
    assert _ends(clopper_pearson(1, 2)) == pytest.approx((0.012579, 0.987421), abs=1e-6)


@pytest.mark.parametrize("method", [wilson, clopper_pearson])
def test_no_trials_is_all_of_the_range(method: Any) -> None:
    interval = method(0, 0)
    assert math.isnan(interval.value)
    assert _ends(interval) == (0.0, 1.0)


@pytest.mark.parametrize("method", [wilson, clopper_pearson])
@pytest.mark.parametrize("counts", [(-1, 3), (4, 3), (0, -1)])
def test_impossible_counts_are_refused(method: Any, counts: tuple[int, int]) -> None:
    with pytest.raises(MeasureError, match="trials"):
        method(*counts)


@given(st.integers(1, 200), st.data())
@settings(max_examples=40, deadline=None)
def test_proportion_intervals_mirror_and_hold_the_share(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    for method in (wilson, clopper_pearson):
        interval, mirrored = method(successes, trials), method(trials - successes, trials)
        assert 0 <= interval.low <= successes / trials <= interval.high <= 1
        assert interval.low == pytest.approx(1 - mirrored.high, abs=1e-9)


def test_clopper_pearson_never_covers_too_rarely() -> None:
    for truth in (0.02, 0.3, 0.9):
        chances = [math.comb(12, k) * truth**k * (1 - truth) ** (12 - k) for k in range(13)]
        covered = sum(chance for k, chance in enumerate(chances) if truth in clopper_pearson(k, 12))
        assert covered >= 0.95


def test_bootstrap_interval_of_a_mean_agrees_with_the_textbook() -> None:
    values = np.random.default_rng(3).normal(2.0, 1.0, 200)
    interval = mean_interval(values, replicates=4000)
    error = values.std(ddof=1) / math.sqrt(200)
    assert interval.value == pytest.approx(values.mean())
    # Student's t with 199 degrees of df reaches 1.972 standard errors.
    assert interval.low == pytest.approx(values.mean() - 1.972 * error, abs=0.15 * error)
    assert interval.high == pytest.approx(values.mean() + 1.972 * error, abs=0.15 * error)


def test_bootstrap_covers_with_few_problems() -> None:
    rng = np.random.default_rng(0)
    held = [0.0 in mean_interval(rng.normal(size=12), replicates=400, seed=seed) for seed in range(400)]
    assert 0.92 <= np.mean(held) <= 0.98


def test_all_problems_alike_is_not_certainty() -> None:
    # 20 of 20 problems solved: with bounds the ends are Clopper-Pearson's, 0.025^(1/20) = 0.831567 and 1.
    interval = mean_interval(np.ones(20), bounds=(0.0, 1.0))
    assert _ends(interval) == pytest.approx((0.831567, 1.0), abs=1e-6)
    assert _ends(interval) == pytest.approx(_ends(clopper_pearson(20, 20)))
    # In the middle of its bounds: 0.5 * 0.831567 = 0.415783, and that plus 0.168433.
    assert _ends(mean_interval(np.full(20, 0.5), bounds=(0.0, 1.0))) == pytest.approx((0.415783, 0.584217), abs=1e-6)
    assert _ends(mean_interval(np.ones(20))) == (-math.inf, math.inf)


def test_one_problem_says_nothing() -> None:
    assert _ends(mean_interval([0.7])) == (-math.inf, math.inf)
    interval = mean_interval([1.0], bounds=(0.0, 1.0))
    assert _ends(interval) == pytest.approx((0.025, 1.0))
    assert "no spread" in interval.method


def test_curve_columns_are_the_same_as_apart() -> None:
    table = np.random.default_rng(1).random((30, 3))
    whole = curve_intervals(table, seed=5)
    assert [interval.value for interval in whole] == pytest.approx(table.mean(axis=0))
    for column, interval in enumerate(whole):
        alone = mean_interval(table[:, column], seed=5)
        assert _ends(interval) == pytest.approx(_ends(alone))


def test_ratio_weighs_clusters_by_their_counts() -> None:
    # (1 + 9) / (1 + 3) = 2.5, not the mean of 1 and 3.
    assert ratio_interval([1.0, 9.0], [1, 3]).value == 2.5
    rng = np.random.default_rng(2)
    counts = rng.integers(1, 50, 300)
    interval = ratio_interval(counts * 3.0 + rng.normal(size=300), counts)
    assert 3.0 in interval
    assert interval.high - interval.low < 0.05
    with pytest.raises(MeasureError, match="Counts"):
        ratio_interval([1.0, 2.0], [0, 0])


def test_general_bootstrap_agrees_with_the_fast_one() -> None:
    values = np.random.default_rng(4).random(40)
    slow = cluster_bootstrap(_grand_mean, list(values[:, None]), replicates=2000)
    fast = mean_interval(values, replicates=2000)
    assert slow.value == pytest.approx(fast.value)
    assert _ends(slow) == pytest.approx(_ends(fast), abs=0.01)


def test_resampling_within_problems_adds_their_spread() -> None:
    # Every problem has the same samples: problems alone show no spread, samples within do.
    clusters = [np.array([0.0, 1.0, 0.0, 1.0]) for _ in range(25)]
    assert _ends(cluster_bootstrap(_grand_mean, clusters, replicates=200)) == (-math.inf, math.inf)
    both = cluster_bootstrap(_grand_mean, clusters, within=True, replicates=1000)
    # 100 fair coins: standard error 0.05, interval about 0.4 to 0.6.
    assert _ends(both) == pytest.approx((0.4, 0.6), abs=0.03)


def test_undefined_resamples_are_counted_and_left_out() -> None:
    def share_of_first(clusters: list[npt.NDArray[Any]]) -> float:
        total = float(np.concatenate(clusters).sum())
        return float(clusters[0].sum()) / total if total else math.nan

    clusters = [np.array([value]) for value in (0.0, 0.0, 1.0)]
    interval = cluster_bootstrap(share_of_first, clusters, replicates=500)
    assert "resamples undefined" in interval.method
    assert math.isfinite(interval.low)


def test_undefined_value_has_no_ends() -> None:
    interval = interval_from_resamples(math.nan, [math.nan] * 50, problems=5)
    assert math.isnan(interval.value)
    assert 123.0 in interval


@given(st.integers(1, 40), st.integers(1, 30), st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_resamples_draw_as_many_problems_as_there_are(problems: int, replicates: int, seed: int) -> None:
    counts = np.concatenate(list(resample_counts(problems, replicates, seed)))
    assert counts.shape == (replicates, problems)
    assert np.all(counts.sum(axis=1) == problems)
    assert np.array_equal(counts, np.concatenate(list(resample_counts(problems, replicates, seed))))


def test_many_problems_are_resampled_in_slices() -> None:
    slices = list(resample_counts(1_000_000, 9, 0))
    assert [len(part) for part in slices] == [4, 4, 1]
    # How often one problem is drawn is nearly Poisson(1): variance 1.
    assert slices[0].var() == pytest.approx(1.0, abs=0.01)


def test_bad_input_is_refused() -> None:
    with pytest.raises(MeasureError, match="1 of 3"):
        mean_interval([1.0, math.nan, 0.0])
    with pytest.raises(MeasureError, match="empty"):
        mean_interval([])
    with pytest.raises(MeasureError, match="too few"):
        mean_interval([1.0, 0.0], replicates=10)
    with pytest.raises(MeasureError, match="level"):
        mean_interval([1.0, 0.0], level=95)
    with pytest.raises(MeasureError, match="no samples"):
        cluster_bootstrap(_grand_mean, [np.empty(0), np.ones(2)])
    with pytest.raises(MeasureError, match="no problems"):
        cluster_bootstrap(_grand_mean, [])


def test_value_is_the_ratio_of_sums() -> None:
    resamples = resample({"a": [1, 2, 1], "b": [0, 1, 0], "n": [2, 2, 4], "one": [1, 1, 1]}, ["x", "x", "y"])
    assert resamples.ratio("a", "n", (0, 1)).value == 4 / 8
    assert resamples.ratio("b", "one", (0, 1)).value == 1 / 3
    assert resamples.ratio("a", "n", (0, 1)).method == "cluster bootstrap over 2 problems"
    assert resamples.sums["a"].tolist() == [3, 1]


def test_agrees_with_the_bootstrap_of_summed_clusters() -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 9, 120)
    totals = rng.binomial(counts, 0.4)
    ours = resample({"t": totals, "n": counts}, np.arange(120) // 3, seed=5).ratio("t", "n", (0, 1))
    theirs = ratio_interval(totals.reshape(40, 3).sum(1), counts.reshape(40, 3).sum(1), seed=5)
    assert (ours.value, ours.low, ours.high) == pytest.approx((theirs.value, theirs.low, theirs.high), abs=1e-12)


def test_rows_of_one_problem_are_not_independent_evidence() -> None:
    rng = np.random.default_rng(2)
    columns = {"t": np.repeat(rng.integers(0, 2, 40), 10), "n": np.ones(400)}
    rows = resample(columns, np.arange(400)).ratio("t", "n", (0, 1))
    problems = resample(columns, np.repeat(np.arange(40), 10)).ratio("t", "n", (0, 1))
    # Ten copies of each row: the honest interval is wider by about the square root of ten.
    assert 2.5 < (problems.high - problems.low) / (rows.high - rows.low) < 4


def test_a_difference_rests_on_the_same_resamples() -> None:
    rng = np.random.default_rng(3)
    hard = rng.normal(0, 5, 60)
    resamples = resample({"a": hard + 1, "b": hard, "n": np.ones(60)}, np.arange(60))
    gap = resamples.interval(lambda c: c["a"] / c["n"] - c["b"] / c["n"], "n", (-100, 100))
    # The two columns differ by exactly 1 on every problem, however much the problems differ.
    assert gap.value == pytest.approx(1)
    assert gap.method.endswith("no spread")
    assert resamples.ratio("a", "n", (-100, 100)).high - resamples.ratio("a", "n", (-100, 100)).low > 2


def test_a_ratio_without_counts_is_nan_and_the_others_stand() -> None:
    resamples = resample({"t": [0, 1], "n": [1, 1], "none": [0, 0]}, [1, 2])
    empty = resamples.ratio("t", "none", (0, 1))
    assert math.isnan(empty.value)
    assert (empty.low, empty.high, empty.method) == (0, 1, "no problems")
    assert resamples.ratio("t", "n", (0, 1)).value == 0.5


def test_problems_without_a_count_are_not_counted_as_evidence() -> None:
    resamples = resample({"t": [1, 0, 0, 0], "n": [2, 1, 0, 0]}, [1, 2, 3, 4])
    interval = resamples.ratio("t", "n", (0, 1))
    assert interval.value == 1 / 3
    assert interval.method.startswith("cluster bootstrap over 2 problems")


def test_no_rows_at_all() -> None:
    only = resample({"t": [], "n": []}, []).ratio("t", "n", (0, 8))
    assert math.isnan(only.value)
    assert (only.low, only.high) == (0, 8)


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(MeasureError, match="Lengths differ"):
        resample({"t": [1.0]}, [1, 2])
    with pytest.raises(MeasureError, match="1 of 1 values of t are NaN or infinite"):
        resample({"t": [math.nan]}, [1])


def test_quotient_has_nan_for_nothing() -> None:
    assert quotient(np.array([1.0, 1.0]), np.array([4.0, 0.0])).tolist() == pytest.approx([0.25, math.nan], nan_ok=True)
