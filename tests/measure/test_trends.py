"""Lines: least squares by hand, and errors that hold under autocorrelated noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from breadth.base.errors import MeasureError
from breadth.measure.trends import (
    Trend,
    edge_points,
    log_trend,
    mean_change,
    measured_levels,
    robust_slope,
    steps_until,
    trend,
)
from breadth.measure.validate import FloatArray


def test_a_perfect_line_by_hand() -> None:
    # All 28 pairs rise: S = 28, variance 8 * 7 * 21 / 18 = 65.33, (28 - 1) / 8.083 = 3.340 on 8 - 2 degrees of freedom.
    line = robust_slope(range(8), range(8))
    assert line.tau == 1.0
    assert line.p_value == pytest.approx(2 * special.stdtr(6, -27 / math.sqrt(8 * 7 * 21 / 18)))
    assert line.p_value == pytest.approx(0.0156, abs=5e-4)
    interval = line.interval()
    assert (interval.value, interval.low, interval.high) == (1.0, 1.0, 1.0)


def test_the_slope_is_per_step_and_bears_gaps() -> None:
    steps = [0, 10, 20, 50, 60, 100, 200, 210, 400]
    assert robust_slope(steps, [5 - 0.02 * step for step in steps]).interval().value == pytest.approx(-0.02)


def test_three_wild_points_of_twenty_do_not_decide() -> None:
    rng = np.random.default_rng(0)
    values = 1 - 0.02 * np.arange(20) + 0.01 * rng.standard_normal(20)
    values[[4, 11, 19]] = [50.0, -80.0, 1e6]
    found = robust_slope(range(20), values)
    assert found.interval().value == pytest.approx(-0.02, abs=0.004)
    assert found.interval().high < 0


def brute_variance(steps: FloatArray, values: FloatArray) -> float:
    first, second = np.triu_indices(len(steps), 1)
    up = np.sign(steps[second] - steps[first])
    orders = np.array(list(itertools.permutations(range(len(values)))))
    return float(np.var((np.sign(values[orders[:, second]] - values[orders[:, first]]) * up).sum(axis=1)))


def test_the_variance_with_ties_is_that_of_all_orders() -> None:
    # Ties among steps and among values; all 40,320 orders enumerated. The values alternate, so no autocorrelation is
    # corrected.
    steps = np.array([0.0, 0, 1, 2, 2, 2, 3, 4])
    values = np.array([1.0, 5, 1, 5, 2, 6, 3, 6])
    found = robust_slope(steps, values)
    score = sum(
        np.sign((values[j] - values[i]) * (steps[j] - steps[i])) for i, j in itertools.combinations(range(8), 2)
    )
    deviation = (abs(score) - 1) / -special.stdtrit(6, found.p_value / 2)
    assert deviation**2 == pytest.approx(brute_variance(steps, values))
    assert found.tau == pytest.approx(stats.kendalltau(steps, values).statistic)


@pytest.mark.parametrize("points", [12, 24, 60, 111])
def test_a_constant_series_whose_steps_repeat_has_no_slope(points: int) -> None:
    # Kendall's variance of three values a step, all equal, cancels to zero only up to rounding.
    found = robust_slope(np.arange(points) // 3, np.ones(points))
    assert (found.tau, found.p_value, found.interval().value) == (0.0, 1.0, 0.0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-20, 20), min_size=8, max_size=40), st.integers(1, 7))
def test_slope_and_tau_agree_with_scipy(values: list[int], gap: int) -> None:
    steps = np.arange(len(values)) * gap
    found = robust_slope(steps, values)
    assert found.interval().value == pytest.approx(stats.theilslopes(values, steps).slope)
    if len(set(values)) > 1:
        assert found.tau == pytest.approx(stats.kendalltau(steps, values).statistic)
    else:
        assert (found.tau, found.p_value) == (0.0, 1.0)
    assert found.interval().low <= found.interval().value <= found.interval().high


def test_autocorrelated_noise_widens_the_interval() -> None:
    rng = np.random.default_rng(1)
    news = rng.standard_normal(200)
    sluggish = np.array(
        [sum(0.7**lag * news[place - lag] for lag in range(min(place, 30) + 1)) for place in range(200)]
    )
    calm, slow = (robust_slope(range(200), values / values.std()).interval() for values in (news, sluggish))
    assert slow.high - slow.low > 1.8 * (calm.high - calm.low)


@pytest.mark.parametrize(("steps", "values"), [([], []), (range(7), range(7)), ([3] * 20, range(20))])
def test_too_few_points_or_steps_give_no_slope(steps: list[int], values: list[int]) -> None:
    found = robust_slope(steps, values)
    assert math.isnan(found.tau)
    assert math.isnan(found.interval().value)
    assert (found.interval().low, found.interval().high) == (-math.inf, math.inf)


def test_a_straight_line_is_continued_by_hand() -> None:
    # 1 - 0.02 t is 0.54 at the last step, 23; 0.2 is (0.54 - 0.2) / 0.02 = 17 steps ahead.
    time = steps_until(range(24), [1 - 0.02 * step for step in range(24)], 0.2)
    assert time is not None
    assert time.value == pytest.approx(17)
    assert (time.low, time.high) == pytest.approx((17, 17))
    assert "straight" in time.method


def test_a_decay_is_continued_by_hand() -> None:
    # 0.8 * 0.9^t meets 0.8 * 0.9^30 seven steps after step 23.
    time = steps_until(range(24), [0.8 * 0.9**step for step in range(24)], 0.8 * 0.9**30)
    assert time is not None
    assert time.value == pytest.approx(7)
    assert "exponential" in time.method


def test_the_interval_covers_both_continuations_where_the_noise_cannot_tell_them_apart() -> None:
    rng = np.random.default_rng(3)
    values = 1 - 0.5 * np.arange(90) / 90 + 0.01 * rng.standard_normal(90)
    time = steps_until(range(90), values, 0.2)
    assert time is not None
    # The line meets 0.2 after 144 - 89 = 55 steps; the exponential with the same slope at the end later.
    assert 55 in time
    assert time.high > 70


def test_there_is_no_time_without_a_trend_towards_the_target() -> None:
    falling = [1 - 0.02 * step for step in range(24)]
    assert steps_until(range(24), falling, 2.0) is None
    assert steps_until(range(24), [1.0] * 24, 0.5) is None
    assert steps_until(range(7), range(7), 10) is None
    crossed = steps_until(range(24), falling, 0.8)
    assert crossed is not None
    assert (crossed.value, crossed.low, crossed.high) == (0.0, 0.0, 0.0)


def test_a_trend_that_may_be_none_may_take_for_ever() -> None:
    rng = np.random.default_rng(5)
    time = steps_until(range(30), 1 - 0.002 * np.arange(30) + 0.05 * rng.standard_normal(30), 0.1)
    assert time is None or time.high == math.inf


def test_forecast_intervals_hold_the_truth() -> None:
    # Of 60 noisy straight declines, the true time 1 - 0.5 t / 60 = 0.2 (step 96, 37 after the last) is inside in at
    # least 9 of 10.
    rng = np.random.default_rng(2)
    declines = (1 - 0.5 * np.arange(60) / 60 + 0.01 * rng.standard_normal(60) for _ in range(60))
    times = [steps_until(range(60), values, 0.2) for values in declines]
    assert sum(time is not None and 37 in time for time in times) >= 54


@pytest.mark.parametrize("target", [math.nan, math.inf])
def test_a_target_is_a_number(target: float) -> None:
    with pytest.raises(MeasureError, match="target"):
        steps_until(range(24), range(24), target)


def test_an_edge_is_an_eighth_and_at_least_three() -> None:
    assert [edge_points(points) for points in (8, 24, 31, 32, 800)] == [3, 3, 3, 4, 100]


def test_levels_and_their_errors_by_hand() -> None:
    # Near either end the nearest five of 0, 1, 0, 1 ... differ by 1 each time: variance 1/2. Medians of three: 0, 1, 0
    # and 1, 0, 1.
    # Error of each: sqrt(pi/2 * 0.5 / 3) = 0.51166; four differences leave 8/3 degrees of freedom, t = 3.4202.
    start, end, change = measured_levels(np.array([0.0, 1.0] * 8), 0.95)
    assert (start.value, end.value, change.value) == (0.0, 1.0, 1.0)
    assert start.high == pytest.approx(3.4202 * 0.51166, rel=1e-3)
    assert end.low == pytest.approx(1 - 3.4202 * 0.51166, rel=1e-3)
    assert change.high - 1 == pytest.approx(math.sqrt(2) * 3.4202 * 0.51166, rel=1e-3)


def test_a_constant_series_is_known_exactly() -> None:
    start, end, change = measured_levels(np.full(40, 0.3), 0.95)
    assert (start.low, start.high, end.low, change.low, change.high) == (0.3, 0.3, 0.3, 0.0, 0.0)


@pytest.mark.parametrize("points", [16, 40, 200])
def test_the_change_is_held_by_its_interval_however_bent_the_curve_is(points: int) -> None:
    rng, t, held, draws = np.random.default_rng(points), np.linspace(0, 1, points), 0, 400
    curve = -2 * t + np.sin(5 * t) / 2 - (t > 0.7)  # a bend and a jump that no one smooth curve follows
    size = edge_points(points)
    true = float(np.median(curve[-size:]) - np.median(curve[:size]))
    for _ in range(draws):
        held += true in measured_levels(curve + rng.normal(0, 0.1, points), 0.95)[2]
    assert held / draws > 0.93


OPPOSITE = {"rising": "falling", "falling": "rising", "flat": "flat", "cannot tell": "cannot tell"}

Sluggish = Callable[[int, float, np.random.Generator], FloatArray]


def test_levels_of_a_clean_decline_by_hand() -> None:
    # 16 points from 4.0 down by 0.2: the first three are 4.0, 3.8, 3.6, the last three 1.4, 1.2, 1.0.
    found = trend(range(16), [4.0 - 0.2 * step for step in range(16)])
    assert found.verdict == "falling"
    assert found.start.value == pytest.approx(3.8)
    assert found.start_spread == pytest.approx(0.2 * 1.4826, abs=1e-4)
    assert found.end.value == pytest.approx(1.2)
    assert found.change.value == pytest.approx(-2.6)
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(1.2 / 3.8)
    assert found.slope.value == pytest.approx(-0.2)
    assert found.tau == -1.0
    assert found.relevant_change == pytest.approx(0.38)
    assert (found.points, found.dropped) == (16, 0)


def test_the_level_at_the_start_is_the_median_of_the_first_eighth() -> None:
    values = [*[1.0] * 9, *[50.0] * 3, *[1.0] * 84]  # 96 points: the first 12, of which a quarter are wild
    found = trend(range(96), values)
    assert found.start.value == 1.0
    assert found.verdict == "flat"


@pytest.mark.parametrize("count", [0, 1, 3, 7])
def test_fewer_than_eight_points_cannot_tell(count: int) -> None:
    found = trend(range(count), range(count))
    assert found.verdict == "cannot tell"
    assert f"{count} usable points" in found.reason
    assert (found.change.low, found.change.high) == (-math.inf, math.inf)
    assert found.ratio is None


def test_what_is_not_a_number_is_counted_and_reported() -> None:
    found = trend(
        range(12), [1.0, math.nan, 2.0, math.inf, 3.0, math.nan, 4.0, 5.0, -math.inf, math.nan, math.nan, 6.0]
    )
    assert (found.points, found.dropped) == (6, 6)
    assert found.verdict == "cannot tell"
    assert "6 were not numbers" in found.reason


def test_intervals_of_a_noisy_decline_hold_the_truth(sluggish: Sluggish) -> None:
    # Entropy of the collapse that other tools were tried on: 0.8 to 0.02 over 200 steps, here with autocorrelated
    # noise.
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, 200)
    start, end = (float(np.median(0.02 + 0.78 * np.exp(-4 * part))) for part in (t[:25], t[-25:]))
    found = [trend(range(200), 0.02 + 0.78 * np.exp(-4 * t) + 0.02 * sluggish(200, 0.5, rng)) for _ in range(60)]
    assert all(one.verdict == "falling" for one in found)
    assert sum(start in one.start for one in found) >= 53
    assert sum(end - start in one.change for one in found) >= 53
    assert sum(one.ratio is not None and end / start in one.ratio and one.ratio.high < 0.25 for one in found) >= 53


def test_flat_is_reported_only_when_a_relevant_change_is_excluded() -> None:
    rng = np.random.default_rng(1)
    noise = rng.standard_normal(200)
    assert trend(range(200), 1 + 0.02 * noise).verdict == "flat"
    # The same series with noise that could hide a tenth of the level.
    assert trend(range(200), 1 + 0.5 * noise).verdict == "cannot tell"
    # A change of 0.02 that is certain but too small to matter is flat; the caller may say it matters.
    creeping = 1 + 0.0001 * np.arange(200) + 0.001 * noise
    assert trend(range(200), creeping).verdict == "flat"
    assert trend(range(200), creeping, relevant=0.005).verdict == "rising"


def test_near_zero_the_ratio_is_withheld_and_the_spread_is_the_measure() -> None:
    rng = np.random.default_rng(2)
    found = trend(range(64), 0.1 * rng.standard_normal(64))
    assert found.ratio is None
    assert found.relevant_change == found.start_spread
    below = trend(range(64), np.linspace(-0.5, 0.2, 64))
    assert below.verdict == "rising"
    assert below.ratio is None


def test_constant_series_are_flat() -> None:
    found = trend(range(20), [0.25] * 20)
    assert found.verdict == "flat"
    assert (found.change.low, found.change.high, found.p_value) == (0.0, 0.0, 1.0)
    assert trend(range(20), [0.0] * 20).verdict == "flat"


def test_a_series_that_comes_back_is_not_called_a_trend() -> None:
    rng = np.random.default_rng(3)
    hump = np.concatenate([np.linspace(1, 3, 40), np.linspace(3, 1, 40)]) + 0.02 * rng.standard_normal(80)
    assert trend(range(80), hump).verdict in {"flat", "cannot tell"}


def test_a_collapse_at_the_end_is_a_fall_below_the_start() -> None:
    rng = np.random.default_rng(4)
    collapsed = np.concatenate([np.linspace(1, 2, 170), np.full(30, 0.2)]) + 0.02 * rng.standard_normal(200)
    found = trend(range(200), collapsed)
    assert found.verdict == "falling"
    # Medians of the first 25 of the line and of the last 25: 1 + 12 / 169 and 0.2.
    assert 0.2 - (1 + 12 / 169) in found.change
    assert found.change.high - found.change.low < 0.1


def test_a_long_rise_that_ends_below_the_start_turned() -> None:
    rng = np.random.default_rng(4)
    turned = np.concatenate([np.linspace(1, 2, 540), np.full(60, 0.5)]) + 0.02 * rng.standard_normal(600)
    found = trend(range(600), turned)
    assert found.verdict == "cannot tell"
    assert "turned" in found.reason
    assert found.change.high < 0 < found.slope.low


@pytest.mark.parametrize("spikes", [[0, 20, 39], [5, 6, 33], [37, 38]])
def test_spikes_do_not_decide(spikes: list[int]) -> None:
    rng = np.random.default_rng(5)
    steady = 1 + 0.01 * rng.standard_normal(40)
    falling = steady - 0.01 * np.arange(40)
    for values, verdict in ((steady, "flat"), (falling, "falling")):
        spiked = values.copy()
        spiked[spikes] = 1e5
        found = trend(range(40), spiked)
        assert found.verdict == verdict
        assert found.change.value == pytest.approx(trend(range(40), values).change.value, abs=0.03)


def false_alarms(sluggish: Sluggish, n: int, rho: float, draws: int, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    found = [trend(range(n), 5 + sluggish(n, rho, rng), relevant=0.0) for _ in range(draws)]
    return {
        "verdict": float(np.mean([one.verdict in {"rising", "falling"} for one in found])),
        "test": float(np.mean([one.p_value < 0.05 for one in found])),
        "slope": float(np.mean([0 not in one.slope for one in found])),
        "change": float(np.mean([0 not in one.change for one in found])),
    }


@pytest.mark.parametrize(("n", "draws"), [(16, 300), (40, 300), (100, 300)])
def test_noise_correlated_by_half_is_called_a_trend_in_at_most_7_percent(
    sluggish: Sluggish, n: int, draws: int
) -> None:
    rates = false_alarms(sluggish, n, 0.5, draws, seed=n)
    assert max(rates.values()) <= 0.07, rates


def test_even_shorter_series_and_slower_noise_stay_near_the_level(sluggish: Sluggish) -> None:
    assert false_alarms(sluggish, 12, 0.5, 300, seed=12)["verdict"] <= 0.07
    assert false_alarms(sluggish, 100, 0.8, 150, seed=100)["verdict"] <= 0.10


def test_real_declines_are_found(sluggish: Sluggish) -> None:
    # A fall of three noise standard deviations over 40 points with autocorrelation 0.5.
    rng = np.random.default_rng(6)
    found = [trend(range(40), 9 - 3 * np.linspace(0, 1, 40) + sluggish(40, 0.5, rng)).verdict for _ in range(100)]
    assert found.count("falling") >= 60
    assert found.count("rising") == 0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=8, max_size=30), st.integers(1, 9), st.integers(-100, 100))
def test_units_and_sign_do_not_matter(values: list[int], scale: int, shift: int) -> None:
    steps = np.arange(len(values))
    plain = trend(steps, values, relevant=3)
    scaled = trend(7 + 10 * steps, np.array(values) * -4.0 * scale + shift, relevant=12 * scale)
    assert scaled.verdict == OPPOSITE[plain.verdict]
    assert scaled.change.value == pytest.approx(-4 * scale * plain.change.value)
    assert scaled.slope.value == pytest.approx(-0.4 * scale * plain.slope.value)
    assert plain.change.low <= plain.change.value <= plain.change.high


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(20)), st.integers(0, 5))
def test_the_order_of_logging_does_not_matter_and_seeds_hardly(order: list[int], seed: int) -> None:
    values = np.tile([0.1, -0.1, 0.2, 0.0], 5) - 0.3 * np.arange(20)
    assert trend(order, values[order], seed=seed).verdict == "falling"
    assert trend(order, values[order]) == trend(range(20), values)


@pytest.mark.parametrize(("relevant", "level"), [(-1.0, 0.95), (math.nan, 0.95), (math.inf, 0.95), (None, 1.0)])
def test_settings_out_of_range_are_refused(relevant: float | None, level: float) -> None:
    with pytest.raises(MeasureError):
        trend(range(20), range(20), relevant=relevant, level=level)


def test_what_falls_by_factors_is_reported_in_its_own_units_by_hand() -> None:
    # 16 points that halve every four steps from 8: the first three are 8, 6.727, 5.657, the last three 0.841, 0.707,
    # 0.595.
    found = log_trend(range(16), 8 * 0.5 ** (np.arange(16) / 4))
    assert found.verdict == "falling"
    assert (found.start.value, found.end.value) == pytest.approx((6.7272, 0.70711), abs=1e-4)
    assert found.change.value == pytest.approx(0.70711 - 6.7272, abs=1e-4)
    assert found.ratio is not None
    assert found.ratio.value == pytest.approx(0.5 ** (13 / 4))
    assert found.slope.value == pytest.approx(0.5**0.25 - 1)  # 16 % less every step
    assert found.relevant_change == pytest.approx(0.67272, abs=1e-5)
    assert found.reason.startswith("from 6.727 to 0.7071, 0.105 times [")


def test_a_rise_by_factors_in_three_paces_is_sure_by_its_logarithm_and_not_on_a_straight_scale() -> None:
    # Level, then faster and faster to six times the start: straight, no smooth curve follows and the rest passes for
    # sluggish noise.
    paces = np.interp(np.arange(30), [0, 6, 20, 26, 29], np.log([0.5, 0.52, 1.3, 2.5, 3.05]))
    values = np.exp(paces + np.random.default_rng(0).normal(0, 0.02, 30))
    straight, by_factors = trend(range(30), values), log_trend(range(30), values)
    assert by_factors.verdict == "rising"
    assert by_factors.ratio is not None
    assert 4.5 < by_factors.ratio.low < by_factors.ratio.high < 7
    assert straight.ratio is None or straight.ratio.low < 3


@pytest.mark.parametrize("points", [30, 120])
@pytest.mark.parametrize("middle", [0.23, 0.45, 0.5, 0.72])
@pytest.mark.parametrize("width", [0.02, 0.06, 0.1])
def test_a_passage_between_levels_is_no_autocorrelated_noise(points: int, middle: float, width: float) -> None:
    steps = np.linspace(0, 1, points)
    values = 2 - 1 / (1 + np.exp(-(steps - middle) / width)) + np.random.default_rng(0).normal(0, 0.03, points)
    found = trend(range(points), values)
    assert found.verdict == "falling"
    assert found.ratio is not None
    assert 0.4 < found.ratio.low < found.ratio.high < 0.65


def test_without_a_logarithm_the_trend_is_straight() -> None:
    values = np.linspace(1, 0, 20)
    assert log_trend(range(20), values) == trend(range(20), values)


def test_the_unit_does_not_matter_to_what_moves_by_factors(sluggish: Sluggish) -> None:
    values = np.exp(0.1 * sluggish(60, 0.5, np.random.default_rng(3)) - np.linspace(0, 2, 60))
    one, other = log_trend(range(60), values), log_trend(range(60), 1e4 * values)
    assert one.verdict == other.verdict == "falling"
    assert one.ratio is not None
    assert other.ratio is not None
    assert (one.ratio.low, one.ratio.high) == pytest.approx((other.ratio.low, other.ratio.high))


@pytest.fixture(scope="session")
def real(fixtures: Path) -> dict[str, Trend]:
    """Trend of the entropy of every real run."""
    rows = parquet.read_table(fixtures / "law" / "entropy_score.parquet").to_pydict()
    runs: dict[str, list[tuple[int, float]]] = {}
    for run, step, entropy in zip(rows["run_file"], rows["step"], rows["entropy"], strict=True):
        runs.setdefault(run, []).append((step, entropy))
    return {run: trend(*zip(*points, strict=True)) for run, points in runs.items()}


def test_entropy_of_real_runs_moves_as_their_labels_say(real: dict[str, Trend]) -> None:
    # From the labels: entropy 0.117 -> 0.016; 2.87 -> 1.22; no movement 1.33 -> 1.34; doubles 0.15 -> 0.31; four rows.
    collapsed = real["hs-zz27__incident_commander.log"]
    assert collapsed.verdict == "falling"
    assert collapsed.ratio is not None
    assert 0.14 in collapsed.ratio
    assert collapsed.ratio.high < 0.5
    assert real["rohunagrawal__lc_meta-llama_Llama-3_2-3B_g_Easy.jsonl"].verdict == "falling"
    assert real["alexchilton__wordle_grpo.json"].verdict == "flat"
    doubled = real["uqcxu9__logs_train_v5_reward.log"]
    assert doubled.verdict == "rising"
    assert doubled.ratio is not None
    assert 2.1 in doubled.ratio
    assert real["akshay-babbar__probe_explore.log"].verdict == "cannot tell"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-(10**12), 10**12) | st.integers(0, 5), st.floats() | st.integers(0, 3).map(float)),
        max_size=40,
    )
)
def test_whatever_was_logged_gets_an_answer(rows: list[tuple[int, float]]) -> None:
    found = trend([step for step, _ in rows], [value for _, value in rows])
    assert found.points + found.dropped == len(rows)
    assert found.verdict in OPPOSITE
    assert not found.change.low > found.change.high
    assert not found.slope.low > found.slope.high


def test_medians_of_repeated_values_are_no_change() -> None:
    # The median of the first eighth is 0, that of the last 1/16, in a series of the same values in another order.
    first, last = [0, 0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1, 1]
    middle = [0, 1, 0, 1, 1, 0, 1, 0] * 7
    values = np.array([*first, *middle, *last]) / 16
    found = trend(range(len(values)), values)
    assert found.end.value > found.start.value
    assert found.verdict in ("flat", "cannot tell")
    risen = trend(range(80), np.repeat([0.0, 1.0], 40) + np.tile([0.0, 0.1], 40))
    assert risen.verdict == "rising"


def test_the_change_of_means_by_hand() -> None:
    # Sixteen values of 0 and 1 by turns, then higher by 2: neighbours differ by 1, or by 2 at the step.
    values = np.array([0.0, 1.0] * 4 + [2.0, 3.0] * 4)
    found = mean_change(values, 0.95)
    assert found.value == pytest.approx((3 + 2 + 3) / 3 - (0 + 1 + 0) / 3)
    error = math.sqrt(float(np.mean(np.diff(values) ** 2)) / 3)
    assert found.high - found.value == pytest.approx(stats.t.ppf(0.975, 10) * error, rel=0.02)
