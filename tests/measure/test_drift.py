"""KL drift: by hand, exact in expectation, untouched by padding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.drift import kl_drift, kl_tokens


def test_estimators_by_hand() -> None:
    # d = 0.5 and -1. k2: 0.125, 0.5. k3: exp(-0.5) + 0.5 - 1 = 0.106531, e - 2 = 0.718282.
    logprobs, reference = [-1.0, -2.0], [-1.5, -1.0]
    assert kl_tokens(logprobs, reference, "k1") == pytest.approx([0.5, -1.0])
    assert kl_tokens(logprobs, reference, "k2") == pytest.approx([0.125, 0.5])
    assert kl_tokens(logprobs, reference, "k3") == pytest.approx([0.106531, 0.718282], abs=1e-6)


def test_k1_and_k3_are_exact_in_expectation_and_k2_nearly() -> None:
    policy, reference = np.array([0.5, 0.3, 0.2]), np.array([0.45, 0.25, 0.3])
    divergence = float((policy * np.log(policy / reference)).sum())
    means = {name: float(policy @ kl_tokens(np.log(policy), np.log(reference), name)) for name in ("k1", "k2", "k3")}
    assert means["k1"] == pytest.approx(divergence)
    assert means["k3"] == pytest.approx(divergence)
    assert means["k2"] == pytest.approx(divergence, rel=0.1)
    assert means["k2"] != pytest.approx(divergence, rel=1e-3)


def test_small_drifts_keep_their_digits() -> None:
    # k3 = d^2/2 - d^3/6 + ...: at d = 1e-6 that is 5e-13, which 1 - 1 would lose without expm1.
    assert kl_tokens([1e-6], [0.0], "k3")[0] == pytest.approx(5e-13, rel=1e-3)


def test_token_and_sequence_means_by_hand() -> None:
    # Sequence one: a single token with d = 1. Sequence two: three tokens with d = 0.
    drift = kl_drift([[-1.0, 0, 0], [-1.0, -1.0, -1.0]], [[-2.0, 0, 0], [-1.0, -1.0, -1.0]], [[1, 0, 0], [1, 1, 1]])
    assert drift.k1.token_mean.value == pytest.approx(0.25)
    assert drift.k1.sequence_mean.value == pytest.approx(0.5)
    assert drift.k3.token_mean.value == pytest.approx(math.exp(-1) / 4)
    assert (drift.tokens, drift.sequences) == (4, 2)
    assert "sequences" in drift.k1.token_mean.method


def test_a_policy_that_has_not_moved() -> None:
    logprobs = -np.random.default_rng(0).random((5, 7))
    drift = kl_drift(logprobs, logprobs, np.ones((5, 7)))
    for one in (drift.k1, drift.k2, drift.k3):
        assert one.token_mean.value == 0.0
        assert one.sequence_mean.value == 0.0


@given(st.sampled_from([math.nan, math.inf, -math.inf, 1e9, 1.0]), st.integers(0, 50))
@settings(max_examples=30, deadline=None)
def test_padding_changes_nothing(filler: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logprobs, reference = -rng.exponential(size=(4, 6)), -rng.exponential(size=(4, 6))
    mask = np.arange(6) < rng.integers(1, 7, (4, 1))
    clean = kl_drift(logprobs, reference, mask, replicates=50)
    assert clean == kl_drift(np.where(mask, logprobs, filler), np.where(mask, reference, -filler), mask, replicates=50)
    long_logprobs, long_reference = (np.pad(values, ((0, 0), (0, 3)), constant_values=filler) for values in (logprobs, reference))
    longer = kl_drift(long_logprobs, long_reference, np.pad(mask, ((0, 0), (0, 3))), replicates=50)
    assert clean.k3.token_mean.value == pytest.approx(longer.k3.token_mean.value)


def test_single_precision_is_summed_in_double() -> None:
    # 100,000 tokens of d = 1e-4: single precision would lose digits of the total, not of each value.
    logprobs = np.full((10, 10_000), -1e-4, dtype=np.float32)
    drift = kl_drift(logprobs, np.full((10, 10_000), -2e-4, dtype=np.float32), np.ones((10, 10_000)))
    assert drift.k1.token_mean.value == pytest.approx(1e-4, rel=1e-6)


def test_intervals_hold_the_true_divergence() -> None:
    policy, reference = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.3, 0.4])
    divergence, rng, held = float((policy * np.log(policy / reference)).sum()), np.random.default_rng(1), []
    for seed in range(150):
        tokens = rng.choice(3, (30, 20), p=policy)
        drift = kl_drift(np.log(policy)[tokens], np.log(reference)[tokens], np.ones((30, 20)), replicates=200, seed=seed)
        held.append((divergence in drift.k1.token_mean, divergence in drift.k3.sequence_mean))
    assert np.all(np.mean(held, axis=0) >= 0.9)


def test_one_sequence_has_no_interval_and_empty_ones_are_left_out() -> None:
    drift = kl_drift([[-1.0], [math.nan]], [[-2.0], [0.0]], [[1], [0]])
    assert drift.sequences == 1
    assert drift.k1.token_mean.value == 1.0
    assert (drift.k1.token_mean.low, drift.k1.token_mean.high) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (([[-1.0, math.nan]], [[-1.0, -1.0]], [[1, 1]]), "1 of 2 counted logprobs are NaN"),
        (([[-1.0]], [[-math.inf]], [[1]]), "1 of 1 counted reference_logprobs"),
        (([[-1.0]], [[-1.0]], [[0]]), "counts no token"),
        (([[-1.0]], [[-1.0, -2.0]], [[1]]), "shape"),
        (([-1.0], [-1.0], [1]), "shape"),
        (([[-900.0]], [[-1.0]], [[1]]), "less likely"),
        (([[-1.0], [-1.0, -2.0]], [[-1.0]], [[1]]), "cannot be read as numbers"),
    ],
)
def test_bad_input_is_refused(arguments: tuple[Any, Any, Any], problem: str) -> None:
    with pytest.raises(MeasureError, match=problem):
        kl_drift(*arguments)


def test_unknown_estimator_is_refused() -> None:
    with pytest.raises(MeasureError, match="k1, k2, k3"):
        kl_tokens([0.0], [0.0], "k4")
