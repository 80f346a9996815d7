"""Paired comparison: p-values counted by hand, and a test that keeps its promise."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.paired_tests import HumpTest, hump_test, hump_test_counts, paired_difference, sign_flipped_sums
from breadth.measure.validate import FloatArray


def test_five_wins_of_five_by_hand() -> None:
    # Of 32 sign patterns two reach |sum| = 5.
    result = paired_difference([1, 1, 1, 1, 1], [0, 0, 0, 0, 0])
    assert result.p_value == 2 / 32
    assert (result.wins, result.losses, result.ties) == (5, 0, 0)
    assert result.difference.value == 1.0
    # Five equal differences show no spread: no claim about its size.
    assert result.difference.low == -math.inf


def test_ties_do_not_count_in_the_test_but_do_in_the_mean() -> None:
    # Three wins, two ties: 2 of 8 patterns; mean 3/5.
    result = paired_difference([1, 1, 1, 0, 0], [0, 0, 0, 0, 0])
    assert result.p_value == 0.25
    assert result.difference.value == pytest.approx(0.6)


def test_unequal_differences_by_hand() -> None:
    # Differences 3, 1, -1: sum 3. Sums of all patterns: +-5, +-3 (twice), +-1; |sum| >= 3 in 6 of 8.
    assert paired_difference([3, 1, 0], [0, 0, 1]).p_value == 6 / 8


def test_identical_arms_differ_by_nothing() -> None:
    result = paired_difference([0.2, 0.4], [0.2, 0.4])
    assert result.p_value == 1.0
    assert 0.0 in result.difference


def test_many_problems_agree_with_the_exact_sign_test() -> None:
    # 25 wins and 5 losses of 30: 2 * (142506 + 27405 + 4060 + 435 + 30 + 1) / 2^30 = 0.000325.
    first = np.array([1.0] * 25 + [0.0] * 5)
    result = paired_difference(first, 1 - first)
    assert 0.0001 <= result.p_value <= 0.001
    assert result.difference.low > 0


def test_pairing_sees_what_separate_intervals_hide() -> None:
    rng = np.random.default_rng(0)
    difficulty = rng.random(60)
    result = paired_difference(difficulty + 0.03 + rng.normal(0, 0.02, 60), difficulty)
    assert result.p_value < 0.001
    assert result.difference.high - result.difference.low < 0.02


def test_false_alarms_stay_at_five_percent() -> None:
    rng = np.random.default_rng(1)
    alarms = [
        paired_difference(rng.exponential(size=12), rng.exponential(size=12), replicates=40).p_value <= 0.05
        for _ in range(300)
    ]
    assert np.mean(alarms) <= 0.08


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=10))
@settings(max_examples=40, deadline=None)
def test_swapping_the_arms_only_turns_the_sign(pairs: list[tuple[int, int]]) -> None:
    first, second = ([pair[side] / 8 for pair in pairs] for side in (0, 1))
    forward, backward = (paired_difference(a, b, replicates=50) for a, b in ((first, second), (second, first)))
    assert forward.p_value == backward.p_value
    assert forward.difference.value == pytest.approx(-backward.difference.value)
    assert (forward.wins, forward.losses) == (backward.losses, backward.wins)


def test_flips_turn_whole_rows() -> None:
    sums, exact = sign_flipped_sums(np.array([[1.0, 2.0], [10.0, 20.0]]), 0)
    assert exact
    assert sorted(map(tuple, sums.tolist())) == [(-11.0, -22.0), (-9.0, -18.0), (9.0, 18.0), (11.0, 22.0)]


def test_bad_input_is_refused() -> None:
    with pytest.raises(MeasureError, match="first has 2, second has 3"):
        paired_difference([1, 2], [1, 2, 3])
    with pytest.raises(MeasureError, match="1 of 2 values of second"):
        paired_difference([1, 2], [1, math.nan])


def _outcomes(curve: npt.ArrayLike, problems: int, rng: np.random.Generator) -> FloatArray:
    """Right or wrong at each budget; problems differ in difficulty around the curve."""
    chances = np.clip(np.asarray(curve) + rng.uniform(-0.2, 0.2, (problems, 1)), 0, 1)
    return (rng.random(chances.shape) < chances).astype(float)


def test_six_problems_all_lost_by_hand() -> None:
    # Each of six problems is right at the first budget and wrong at the last: only the pattern observed reaches it, 1
    # of 64.
    result = hump_test([1, 2], np.tile([1.0, 0.0], (6, 1)))
    assert result.p_value == 1 / 64
    assert result.is_positive
    assert result.can_tell
    assert result.peak == 1.0
    assert result.fall.value == 1.0
    assert result.fall.low > 0


def test_four_problems_can_never_be_enough() -> None:
    # 1 of 16 is 0.0625.
    result = hump_test([1, 2], np.tile([1.0, 0.0], (4, 1)))
    assert result.p_value == 1 / 16
    assert not result.is_positive
    assert not result.can_tell
    assert (result.fall.low, result.fall.high) == (-1.0, 1.0)


def test_bounds_by_hand() -> None:
    # Five problems lose 1 from the first budget to the last. Of 32 patterns the sums over sqrt(5) are 5 (once), 3 (five
    # times), ...;
    # one pattern in 32 may lie beyond, so the reach is 3 / sqrt(5) and the ends are 1 -+ 3 / sqrt(5) * sqrt(5) / 5 =
    # 0.4 and 1.6, cut to 1.
    result = hump_test([1, 2], np.tile([1.0, 0.0], (5, 1)))
    assert result.is_positive
    assert (result.fall.low, result.fall.high) == pytest.approx((0.4, 1.0))


def test_the_best_is_chosen_again_in_every_flip() -> None:
    # Rows (1,0,0) and (0,1,0) of differences to the last: sizes 1 and 1, statistic max(1, 1) = 1. Flipping signs:
    # max(+-1, +-1)
    # is 1 unless both are flipped, so 3 of 4 patterns reach it; a test of the first column alone would say 1 of 2.
    assert hump_test([1, 2, 3], [[1, 0, 0], [0, 1, 0]]).p_value == 0.75


def test_budgets_may_come_in_any_order() -> None:
    table = _outcomes([0.3, 0.6, 0.5], 50, np.random.default_rng(0))
    shuffled = hump_test([30, 10, 20], table[:, [2, 0, 1]])
    assert shuffled == hump_test([10, 20, 30], table)
    assert shuffled.budgets == (10.0, 20.0, 30.0)


def test_nothing_differs() -> None:
    result = hump_test([1, 2], [[1, 1], [0, 0]])
    assert (result.p_value, result.is_positive, result.can_tell) == (1.0, False, False)
    assert (result.fall.low, result.fall.high) == (-1.0, 1.0)


@pytest.mark.parametrize("curve", [[0.5] * 6, [0.2, 0.35, 0.45, 0.5, 0.5, 0.5], [0.2, 0.3, 0.4, 0.5, 0.6, 0.7]])
def test_false_alarms_stay_at_five_percent_on_flat_and_rising_curves(curve: list[float]) -> None:
    rng = np.random.default_rng(7)
    alarms = [hump_test(np.arange(1, 7), _outcomes(curve, 40, rng), seed=seed).is_positive for seed in range(200)]
    assert np.mean(alarms) <= 0.05 + 2.33 * math.sqrt(0.05 * 0.95 / 200)


def test_a_naive_test_of_the_best_budget_would_raise_false_alarms() -> None:
    rng = np.random.default_rng(7)
    naive = []
    for seed in range(200):
        table = _outcomes([0.5] * 6, 40, rng)
        best = int(np.argmax(table[:, :-1].mean(axis=0)))
        comparison = paired_difference(table[:, best], table[:, -1], replicates=40, seed=seed)
        naive.append(comparison.p_value / 2 <= 0.05 and comparison.difference.value > 0)
    assert np.mean(naive) > 0.12


def test_correlated_steps_of_one_trace_raise_no_false_alarms() -> None:
    rng = np.random.default_rng(8)

    def trace() -> FloatArray:
        # A state that is kept with chance 0.8 and drawn again otherwise: flat in the mean, neighbours alike.
        states = [rng.random(40) < 0.4]
        while len(states) < 6:
            states.append(np.where(rng.random(40) < 0.8, states[-1], rng.random(40) < 0.4))
        return np.array(states, dtype=float).T

    alarms = [hump_test(np.arange(1, 7), trace(), seed=seed).is_positive for seed in range(200)]
    assert np.mean(alarms) <= 0.05 + 2.33 * math.sqrt(0.05 * 0.95 / 200)


def test_a_real_fall_is_seen_and_its_size_held() -> None:
    rng = np.random.default_rng(9)
    results = [hump_test([1, 2, 4, 8], _outcomes([0.3, 0.6, 0.65, 0.45], 150, rng), seed=seed) for seed in range(60)]
    assert np.mean([result.is_positive for result in results]) > 0.9
    assert np.mean([0.2 in result.fall for result in results]) >= 0.9
    assert all(result.is_positive == (result.fall.low > 0) for result in results)


def test_counts_form_by_simulation_and_on_a_clear_fall() -> None:
    rng = np.random.default_rng(10)
    alarms = [
        hump_test_counts([1, 2, 3, 4], rng.binomial(200, 0.3, 4), np.full(4, 200), seed=seed).is_positive
        for seed in range(200)
    ]
    assert np.mean(alarms) <= 0.05 + 2.33 * math.sqrt(0.05 * 0.95 / 200)
    clear = hump_test_counts([1, 2, 3], [50, 120, 60], [200, 200, 200])
    assert clear.is_positive
    assert clear.peak == 2.0
    # 120/200 - 60/200 = 0.3, standard error sqrt(0.24/200 + 0.21/200) = 0.047; about two of them to either side.
    assert clear.fall.value == pytest.approx(0.3)
    assert (clear.fall.low, clear.fall.high) == pytest.approx((0.21, 0.39), abs=0.02)


def test_bad_outcomes_are_refused() -> None:
    with pytest.raises(MeasureError, match="at least two budgets"):
        hump_test([1], [[1], [0]])
    with pytest.raises(MeasureError, match="each once"):
        hump_test([1, 1], [[1, 0], [0, 1]])
    with pytest.raises(MeasureError, match="columns of outcomes has 2"):
        hump_test([1, 2, 3], [[1, 0], [0, 1]])
    with pytest.raises(MeasureError, match="between 0 and 1"):
        hump_test([1, 2], [[1, 7], [0, 1]])
    with pytest.raises(MeasureError, match="1 of 4"):
        hump_test([1, 2], [[1.0, math.nan], [0.0, 1.0]])
    with pytest.raises(MeasureError, match="level"):
        hump_test([1, 2], [[1, 0], [0, 1]], level=95)
    with pytest.raises(MeasureError, match="no trials"):
        hump_test_counts([1, 2], [0, 0], [0, 5])
    with pytest.raises(MeasureError, match="more correct"):
        hump_test_counts([1, 2], [6, 0], [5, 5])


def _waits(fixtures: Path, source: str, questions: int) -> HumpTest:
    with (fixtures / "budgets" / "wait_extrapolation_accuracy.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["source"].endswith(source)]
    correct = [round(float(row["accuracy"]) * questions) for row in rows]
    return hump_test_counts([float(row["avg_token_length"]) for row in rows], correct, [questions] * len(rows))


def test_forced_waits_hurt_one_model_and_not_another(fixtures: Path) -> None:
    onevision = _waits(fixtures, "R1-Onevision-7B-RL-mathv_evaluation_results.json", 3040)
    assert onevision.is_positive
    # Best after one wait, at about 1,179 tokens: 556 of 3,040 right, against 421 after six.
    assert onevision.peak == pytest.approx(1179.35, abs=0.01)
    assert onevision.fall.value == pytest.approx(135 / 3040)
    qvq = _waits(fixtures, "QVQ_oly_results.json", 6728)
    assert not qvq.is_positive
    assert qvq.peak == max(qvq.budgets)


def test_reasked_answers_fall_in_no_model_from_first_to_last_step(fixtures: Path) -> None:
    rows = pq.read_table(fixtures / "budgets" / "overthinking_trace_runs.parquet").to_pandas()
    assert rows["model_alias"].nunique() == 4
    for _, runs in rows.groupby("model_alias"):
        tasks = runs.groupby("task_id")[["correct_at_step_1", "final_correct"]].mean()
        result = hump_test([1, 10], tasks.to_numpy())
        assert not result.is_positive
        assert result.can_tell


def test_eight_problems_by_step_cannot_tell(fixtures: Path) -> None:
    rows = pq.read_table(fixtures / "budgets" / "overthinking_trace_steps_small.parquet").to_pandas()
    probe = rows[rows["probe"] == "real_traces_gsm8k_probe"].pivot(index="run_id", columns="step", values="correct")
    result = hump_test(probe.columns.to_numpy(), probe.to_numpy())
    # 0, 2 and 1 of 8 right: one problem loses a right answer, far from proof.
    assert result.accuracies == (0.0, 0.25, 0.125)
    assert result.peak == 2.0
    assert not result.is_positive
    assert not result.can_tell
