"""Where a log was put together, and what jumps there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from breadth.doctor.evidence import log_defects as module
from breadth.doctor.evidence.log_defects import (
    NanRun,
    find_interleaved_writers,
    jump_at_restart,
    jumps_near,
    length_scaling,
    missing_steps,
    nan_runs,
    remove_jump,
    restart_steps,
    token_entropy,
)
from breadth.doctor.evidence.record import Evidence
from breadth.runs.reader import MetricSeries, Run
from breadth.runs.schema import Header, MetricPoint
from breadth.runs.writer import RunWriter


def run(rows: list[tuple[int, float, int, int]]) -> Run:
    """Return a run of (step, entropy, attempt, source)."""
    points = tuple(
        MetricPoint(step, {"entropy": value}, attempt=attempt, source=source) for step, value, attempt, source in rows
    )
    return Run(Path("nowhere"), Header(), points, (), frozenset(), ())


def noise(size: int, seed: int = 0) -> Any:
    """Return factors near one."""
    return np.exp(np.random.default_rng(seed).normal(0, 0.02, size))


def test_restarts_and_other_files_are_seams() -> None:
    rows = (
        [(step, 1.0, 0, 0) for step in range(1, 31)]
        + [(step, 1.0, 1, 0) for step in range(21, 41)]
        + [(step, 1.0, 0, 1) for step in range(41, 61)]
    )
    assert restart_steps(run(rows), "entropy") == (21, 41)
    assert restart_steps(run(rows), "reward") == ()


def test_rows_that_are_printed_twice_are_no_restarts() -> None:
    rows = [(step, 1.0, 2 * step + copy, 0) for step in range(1, 61) for copy in (0, 1)]
    assert restart_steps(run(rows), "entropy") == ()


def test_missing_steps_are_counted_against_the_usual_distance() -> None:
    steps = np.array([10, 20, 30, 40, 60, 70, 120, 130])
    assert missing_steps(MetricSeries("entropy", steps, np.ones(8))) == {120: 40}  # 40 to 60 is one missing point


def test_a_jump_is_measured_beyond_the_trend_and_taken_out() -> None:
    steps = np.arange(1, 101)
    smooth = 2 * 0.3 ** (steps / 100) * noise(100)
    values = smooth * np.where(steps > 60, 5, 1)
    made = run([(int(step), float(value), int(step > 60), 0) for step, value in zip(steps, values, strict=True)])
    found = jump_at_restart(made, MetricSeries("entropy", steps, values))
    assert found is not None
    assert found.step == 61
    assert found.factor.value == pytest.approx(5, rel=0.06)
    assert 5 in found.factor
    assert found.first_is_untrained
    assert remove_jump(MetricSeries("entropy", steps, values), found) == pytest.approx(smooth, rel=0.06)


def test_steps_of_both_starts_are_compared() -> None:
    rows = [(step, float(value), 0, 0) for step, value in zip(range(1, 71), noise(70), strict=True)]
    rows += [(step, 3 * float(value), 1, 0) for step, value in zip(range(61, 121), noise(60, 1), strict=True)]
    made = run(rows)
    found = jump_at_restart(made, made.series("entropy"))
    assert found is not None
    assert found.logged_twice == 10
    assert found.overlap_ratio == pytest.approx(3, rel=0.05)


def test_nothing_jumps_where_nothing_was_put_together() -> None:
    values = np.where(np.arange(100) < 60, 1.0, 0.2) * noise(100)
    made = run([(step + 1, float(value), 0, 0) for step, value in enumerate(values)])
    assert jump_at_restart(made, made.series("entropy")) is None
    assert jumps_near(made.series("entropy"), 62)
    assert not jumps_near(made.series("entropy"), 30)
    assert not jumps_near(MetricSeries("reward", np.arange(4), np.arange(4.0)), 2)


def test_zeros_do_not_reach_the_logarithm() -> None:
    values = np.where(np.arange(100) % 10 == 3, 0.0, np.where(np.arange(100) < 60, 1.0, 0.2) * noise(100))
    made = run([(step + 1, float(value), int(step >= 60), 0) for step, value in enumerate(values)])
    found = jump_at_restart(made, made.series("entropy"))
    assert found is not None
    assert found.factor.value == pytest.approx(0.2, rel=0.06)


def log(folder: Path, pairs: np.ndarray, attempts: bool = True) -> Run:
    writer = RunWriter(folder / "run", Header(name="made"))
    writer.points(
        MetricPoint(step, {"entropy": float(value)}, attempt=(step - 1 + place) if attempts else place)
        for step, pair in enumerate(pairs, 1)
        for place, value in enumerate(pair)
    )
    return Run.open(folder / "run")


def test_two_levels_in_any_order(tmp_path: Path) -> None:
    dice = np.random.default_rng(0)
    pairs = np.array([0.5, 0.1]) * np.exp(dice.normal(0, 0.1, (60, 2)))
    swapped = np.where(dice.random((60, 1)) < 0.5, pairs, pairs[:, ::-1])
    found = find_interleaved_writers(log(tmp_path, swapped), "entropy")
    assert found is not None
    assert found.steps == 60
    assert found.low == pytest.approx(0.1, rel=0.05)
    assert found.high == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.5])
def test_the_same_noise_twice_is_not_two_levels(tmp_path: Path, noise: float) -> None:
    pairs = 0.5 * np.exp(np.random.default_rng(1).normal(0, noise, (400, 2)))
    assert find_interleaved_writers(log(tmp_path, pairs), "entropy") is None


def test_a_restart_over_the_same_steps_is_not(tmp_path: Path) -> None:
    assert find_interleaved_writers(log(tmp_path, np.tile([0.5, 0.1], (60, 1)), attempts=False), "entropy") is None


NUMBERS = np.linspace(1, 2, 60)


def with_nan(first: int, behind: int, value: float = np.nan) -> np.ndarray:
    return np.where((np.arange(60) >= first) & (np.arange(60) < behind), value, NUMBERS)


def test_a_stretch_that_passes_and_one_that_does_not(make: Any) -> None:
    case = make(
        entropy=with_nan(20, 30), reward=with_nan(50, 60, np.inf), loss=with_nan(3, 4), grad_norm=with_nan(10, 17)
    )
    assert nan_runs(case) == [NanRun("reward", 51, 60, 10, True), NanRun("entropy", 21, 30, 10, False)]


def test_a_few_at_the_end_do_not_hide_a_longer_stretch(make: Any) -> None:
    odd = with_nan(20, 40)
    odd[-2:] = np.nan
    assert nan_runs(make(entropy=odd)) == [NanRun("entropy", 21, 40, 20, False)]


def test_of_what_never_was_a_number_nothing_is_told(make: Any) -> None:
    never = np.full(60, np.nan)
    assert nan_runs(make(entropy=never, grad_norm=never)) == []


T = np.linspace(0, 1, 100)


def test_a_sum_has_the_exponent_one(make: Any, around: Any) -> None:
    length = 200 * 0.3**T * np.exp(around(0 * T, 0.1))
    found = length_scaling(make(entropy=0.4 * length * np.exp(around(0 * T, 0.02, 1)), length=length))
    assert found is not None
    assert found.is_proportional
    assert found.exponent.value == pytest.approx(1, abs=0.05)
    assert found.trend.verdict == "flat"
    assert found.trend.start.value == pytest.approx(0.4, rel=0.03)


def test_an_exact_power_is_read_off(make: Any, around: Any) -> None:
    length = 200 * np.exp(around(0 * T, 0.1))
    found = length_scaling(make(entropy=length**0.4, length=length))
    assert found is not None
    assert found.exponent.value == pytest.approx(0.4, abs=1e-9)
    assert not found.is_proportional


def test_a_common_trend_alone_is_no_proportion(make: Any, around: Any) -> None:
    found = length_scaling(
        make(entropy=0.1**T * np.exp(around(0 * T, 0.05)), length=500 * 0.1**T * np.exp(around(0 * T, 0.05, 1)))
    )
    assert found is not None
    assert abs(found.exponent.value) < 0.35
    assert not found.is_proportional


def test_nothing_to_compare_is_none(make: Any) -> None:
    assert length_scaling(make(entropy=T)) is None
    assert length_scaling(make(entropy=T + 1, length=np.full(100, 50.0))) is None
    assert length_scaling(make(entropy=T[:7] + 1, length=T[:7] + 1)) is None
    assert length_scaling(make(entropy=0 * T, length=T + 1)) is None
    assert length_scaling(Evidence("nothing")) is None


STEPS = range(1, 13)


def test_three_tokens_by_hand(make: Any) -> None:
    rows = {"problem": ["a", "b", "c"], "entropy": [[0.1, 0.3], [0.8], []]}
    found = token_entropy(make(entropy=np.full(12, 0.4), rollouts=dict.fromkeys(STEPS, rows)))
    assert found is not None
    assert found.per_token == pytest.approx(np.full(12, 1.2 / 3))
    assert found.per_sequence == pytest.approx(np.full(12, 1.2 / 2))
    assert not found.is_sequence_sum
    assert found.logged_ratio.verdict == "flat"


def test_masked_tokens_do_not_count_and_a_mask_of_another_length_is_ignored(make: Any) -> None:
    rows = {
        "problem": ["a", "b", "c"],
        "entropy": [[0.5, 9.0, 0.1], [0.4], [0.2, 0.2]],
        "mask": [[True, False, True], None, [True]],
    }
    found = token_entropy(make(entropy=np.full(12, 0.4), rollouts=dict.fromkeys(STEPS, rows)))
    assert found is not None
    assert found.per_token == pytest.approx(np.full(12, (0.6 + 0.4 + 0.4) / 5))
    assert found.per_sequence == pytest.approx(np.full(12, 1.4 / 3))


def test_a_sum_is_told_from_a_mean(make: Any) -> None:
    rows = {"problem": ["a"], "entropy": [[0.2] * 30]}
    for logged, summed in ((6.3, True), (0.21, False)):
        found = token_entropy(make(entropy=np.full(12, logged), rollouts=dict.fromkeys(STEPS, rows)))
        assert found is not None
        assert found.is_sequence_sum == summed


def test_steps_are_left_out_where_there_are_too_many(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"problem": ["a"], "entropy": [[0.2, 0.4]]}
    evidence = make(entropy=np.full(40, 0.3), rollouts=dict.fromkeys(range(1, 41), rows))
    monkeypatch.setattr(module, "MAX_TOKEN_STEPS", 10)
    found = token_entropy(evidence)
    assert found is not None
    assert len(found.steps) == 10
    assert (found.steps[0], found.steps[-1]) == (1, 40)
    monkeypatch.setattr(module, "MAX_TOKENS_READ", 18)
    fewer = token_entropy(evidence)
    assert fewer is not None
    assert len(fewer.steps) == 9


def test_too_little_is_none(make: Any) -> None:
    rows = {"problem": ["a"], "entropy": [[0.2, 0.4]]}
    assert token_entropy(Evidence("nothing")) is None
    assert token_entropy(make(entropy=np.ones(12))) is None
    assert token_entropy(make(entropy=np.ones(12), rollouts=dict.fromkeys(range(1, 6), rows))) is None
    for odd in ([], [float("nan")]):
        without = {"problem": ["a"], "entropy": [odd]}
        assert token_entropy(make(entropy=np.ones(12), rollouts=dict.fromkeys(STEPS, without))) is None
    assert token_entropy(make(entropy=np.zeros(12), rollouts=dict.fromkeys(STEPS, rows))) is None
