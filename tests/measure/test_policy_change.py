"""Covariance and entropy: the specification's numbers, exact identities, and a training loop it must predict."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.policy_change import (
    Gradient,
    compare_prediction,
    covariance_products,
    exact_entropy_change,
    kl_drift,
    kl_tokens,
    predict_entropy_change,
)
from breadth.measure.validate import FloatArray

LOGPROBS = [-0.05, -0.10, -2.30, -0.02, -1.20, -3.00]
ADVANTAGES = [1.0, 1.0, 1.0, -1.0, -1.0, -1.0]
LOGITS = [2.0, 1.0, 0.0, -1.0]
GAINS = [1.0, -0.5, 0.25, -2.0]


def test_products_of_the_specification() -> None:
    products = covariance_products(LOGPROBS, ADVANTAGES)
    assert products == pytest.approx([1.061667, 1.011667, -1.188333, -1.091667, 0.088333, 1.888333], abs=1e-6)
    assert products.mean() == pytest.approx(0.295)


@pytest.mark.parametrize("filler", [1e9, math.nan, -math.inf])
def test_padding_changes_nothing(filler: float) -> None:
    padded = covariance_products([*LOGPROBS, filler], [*ADVANTAGES, filler], [1] * 6 + [0])
    assert padded[:6].tolist() == covariance_products(LOGPROBS, ADVANTAGES).tolist()
    assert math.isnan(padded[6])


@given(st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_mean_product_is_the_covariance(seed: int) -> None:
    logprobs, advantages = np.random.default_rng(seed).normal(size=(2, 3, 5))
    expected = np.cov(logprobs.ravel(), advantages.ravel(), ddof=0)[0, 1]
    assert covariance_products(logprobs, advantages).mean() == pytest.approx(expected)


def test_entropy_changes_of_the_specification() -> None:
    assert exact_entropy_change(LOGITS, GAINS, 0.01, "natural") == pytest.approx(-0.005127, abs=5e-7)
    assert predict_entropy_change(LOGITS, GAINS, 0.01, "natural") == pytest.approx(-0.005123, abs=5e-7)
    assert exact_entropy_change(LOGITS, GAINS, 0.01, "vanilla") == pytest.approx(-0.001451, abs=5e-7)
    assert predict_entropy_change(LOGITS, GAINS, 0.01, "vanilla") == pytest.approx(-0.001449, abs=5e-7)


def test_prediction_becomes_exact_as_the_step_shrinks() -> None:
    ratios = [
        float(
            exact_entropy_change(LOGITS, GAINS, step, "natural")
            / predict_entropy_change(LOGITS, GAINS, step, "natural")
        )
        for step in (0.1, 0.01, 0.001)
    ]
    assert ratios == pytest.approx([1.005109, 1.000736, 1.000076], abs=5e-7)


@given(st.integers(0, 200), st.sampled_from(["natural", "vanilla"]))
@settings(max_examples=40, deadline=None)
def test_prediction_is_the_derivative_of_entropy(seed: int, gradient: Gradient) -> None:
    logits, gains = np.random.default_rng(seed).normal(size=(2, 4, 6))
    step = 1e-5
    slope = (
        exact_entropy_change(logits, gains, step, gradient) - exact_entropy_change(logits, gains, -step, gradient)
    ) / (2 * step)
    assert predict_entropy_change(logits, gains, 1.0, gradient) == pytest.approx(slope, abs=1e-6)


@pytest.mark.parametrize("gradient", ["natural", "vanilla"])
def test_constant_advantages_change_nothing(gradient: Gradient) -> None:
    assert exact_entropy_change(LOGITS, [3.0] * 4, 0.5, gradient) == pytest.approx(0, abs=1e-15)
    assert predict_entropy_change(LOGITS, [3.0] * 4, 0.5, gradient) == pytest.approx(0, abs=1e-15)


def test_a_uniform_policy_changes_to_second_order_only() -> None:
    assert predict_entropy_change(np.zeros(4), GAINS, 0.01, "natural") == pytest.approx(0, abs=1e-15)
    small, large = (float(exact_entropy_change(np.zeros(4), GAINS, step, "natural")) for step in (0.001, 0.01))
    assert large / small == pytest.approx(100, rel=0.02)


def test_masked_actions_with_a_large_negative_logit_do_not_matter() -> None:
    wide = exact_entropy_change([*LOGITS, -1e9], [*GAINS, 5.0], 0.01, "natural")
    assert wide == pytest.approx(exact_entropy_change(LOGITS, GAINS, 0.01, "natural"))


def _training(steps: int, rate: float, noise: float, seed: int) -> tuple[FloatArray, FloatArray]:
    """Natural-gradient steps on 20 states with noisy advantages: the covariance and entropy logged at each step."""
    rng = np.random.default_rng(seed)
    logits, worth = rng.normal(size=(2, 20, 8))
    covariances, entropies = [], []
    for _ in range(steps):
        log_policy = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        entropies.append(float(-(np.exp(log_policy) * log_policy).sum(axis=1).mean()))
        gains = worth + noise * rng.normal(size=worth.shape)
        covariances.append(-float(predict_entropy_change(logits, gains, 1.0, "natural").mean()))
        logits = logits + rate * gains
    return np.array(covariances), np.array(entropies)


def test_a_training_run_is_predicted_with_its_step_size() -> None:
    result = compare_prediction(*_training(80, 0.01, 3.0, 0))
    assert result.verdict == "predicts"
    assert result.steps == 79
    assert result.correlation.low > 0.95
    # The slope is the step size, 0.01, up to second order in it.
    assert result.slope.value == pytest.approx(0.01, rel=0.05)
    assert result.slope.low > 0.009


def test_slope_and_correlation_by_hand() -> None:
    # Covariances 0, -1, 0, -1, ... against changes 0, 2, 0, 2, ...: minus covariance 0, 1, 0, 1: slope 2, correlation
    # 1.
    covariances = [0.0, -1.0] * 8
    entropies = np.concatenate([[0.0], np.cumsum([0.0, 2.0] * 8)])[:16]
    result = compare_prediction(covariances, entropies)
    assert result.slope.value == pytest.approx(2.0)
    assert result.correlation.value == pytest.approx(1.0)
    assert result.verdict in ("predicts", "cannot tell")


def test_unrelated_series_are_not_predicted() -> None:
    rng = np.random.default_rng(1)
    pairs = [(rng.normal(size=200), rng.normal(size=200).cumsum()) for _ in range(60)]
    verdicts = [compare_prediction(*pair, replicates=200).verdict for pair in pairs]
    assert verdicts.count("predicts") <= 6
    assert verdicts.count("does not predict") >= 50


def test_short_noisy_series_cannot_tell() -> None:
    rng = np.random.default_rng(4)
    covariances = rng.normal(size=14)
    entropies = np.concatenate([[0.0], np.cumsum(-covariances[:-1] + 2 * rng.normal(size=13))])
    result = compare_prediction(covariances, entropies)
    assert result.verdict == "cannot tell"
    assert "may lie anywhere" in result.note


@pytest.mark.parametrize(
    ("covariances", "entropies", "note"),
    [
        (np.arange(5.0), np.arange(5.0) ** 2, "only 4 entropy changes"),
        (np.ones(20), np.arange(20.0) ** 2, "the covariance never changes"),
        (np.arange(20.0), np.arange(20.0), "always the same"),
        (np.arange(1.0), np.arange(1.0), "only 0 entropy changes"),
    ],
)
def test_nothing_to_go_by(covariances: FloatArray, entropies: FloatArray, note: str) -> None:
    result = compare_prediction(covariances, entropies)
    assert result.verdict == "cannot tell"
    assert note in result.note
    assert math.isnan(result.slope.value)


def test_bad_input_is_refused() -> None:
    with pytest.raises(MeasureError, match="shape"):
        covariance_products([1.0, 2.0], [1.0])
    with pytest.raises(MeasureError, match="No token"):
        covariance_products([1.0], [1.0], [0])
    with pytest.raises(MeasureError, match="1 of 2 values of advantages inside the mask"):
        covariance_products([1.0, 2.0], [1.0, math.nan])
    with pytest.raises(MeasureError, match="-inf"):
        exact_entropy_change([0.0, -math.inf], [1.0, 1.0], 0.1, "natural")
    with pytest.raises(MeasureError, match="every action"):
        predict_entropy_change([0.0, 1.0], [1.0], 0.1, "natural")
    with pytest.raises(MeasureError, match="natural or vanilla"):
        predict_entropy_change([0.0], [1.0], 0.1, "other")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(MeasureError, match="2 of 12 values of entropies"):
        compare_prediction(np.arange(12.0), [math.nan] * 2 + [1.0] * 10)


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
def test_padding_does_not_change_the_drift(filler: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    logprobs, reference = -rng.exponential(size=(4, 6)), -rng.exponential(size=(4, 6))
    mask = np.arange(6) < rng.integers(1, 7, (4, 1))
    clean = kl_drift(logprobs, reference, mask, replicates=50)
    assert clean == kl_drift(np.where(mask, logprobs, filler), np.where(mask, reference, -filler), mask, replicates=50)
    long_logprobs, long_reference = (
        np.pad(values, ((0, 0), (0, 3)), constant_values=filler) for values in (logprobs, reference)
    )
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
        drift = kl_drift(
            np.log(policy)[tokens], np.log(reference)[tokens], np.ones((30, 20)), replicates=200, seed=seed
        )
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
def test_bad_log_probs_are_refused(arguments: tuple[Any, Any, Any], problem: str) -> None:
    with pytest.raises(MeasureError, match=problem):
        kl_drift(*arguments)


def test_unknown_estimator_is_refused() -> None:
    with pytest.raises(MeasureError, match="k1, k2, k3"):
        kl_tokens([0.0], [0.0], "k4")
