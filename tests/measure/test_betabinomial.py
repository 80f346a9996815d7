"""Beta-binomial likelihoods: equal to the textbook form, right derivatives, and a climb that reaches the top."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaln

from breadth.measure.betabinomial import (
    CONCENTRATION,
    Objective,
    beta_objective,
    log_failure,
    maximise,
    tally,
    zero_inflated_objective,
)

ONE = np.arange(1)


def _data(seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    samples = rng.integers(1, 15, 60)
    return samples.astype(float), rng.binomial(samples, rng.beta(0.5, 2, 60)).astype(float)


def _objectives(seed: int) -> tuple[Objective, Objective]:
    samples, correct = _data(seed)
    every = np.ones((1, 60))
    return (
        beta_objective(tally(samples, correct, every, unsolved_apart=False)),
        zero_inflated_objective(tally(samples, correct, every, unsolved_apart=True)),
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
        weighted = build(tally(samples, correct, weights.astype(float), unsolved_apart=apart))
        copied = build(tally(samples[repeated], correct[repeated], np.ones((1, len(repeated))), unsolved_apart=apart))
        assert weighted(at[:, :size], ONE)[0] == pytest.approx(copied(at[:, :size], ONE)[0])


def test_equal_problems_climb_to_a_single_rate() -> None:
    # Ten problems, each exactly 3 of 10: less spread than chance, so the likelihood rises all the way to the narrowest Beta.
    objective = beta_objective(tally(np.full(10, 10.0), np.full(10, 3.0), np.ones((1, 10)), unsolved_apart=False))
    found, _ = maximise(objective, np.zeros((1, 2)))
    alpha, beta = np.exp(found[0])
    assert alpha / (alpha + beta) == pytest.approx(0.3, abs=1e-4)
    assert alpha + beta > CONCENTRATION / 1000


def test_failure_by_hand() -> None:
    # Uniform rates: the mean of (1 - p)^k is 1 / (k + 1).
    one = np.ones(1)
    assert np.exp(log_failure(one, one, np.array([1.0, 2.0, 9.0])))[0] == pytest.approx([1 / 2, 1 / 3, 1 / 10])
