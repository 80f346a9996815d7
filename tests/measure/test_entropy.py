"""The entropy law: the numbers of the specification, honest refusals, and every real run judged."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from breadth.base.errors import MeasureError
from breadth.measure.entropy import (
    MIN_LAW_POINTS,
    Gradient,
    LawFit,
    compare_prediction,
    covariance_products,
    early_points,
    exact_entropy_change,
    fit_law,
    kl_drift,
    kl_tokens,
    predict_entropy_change,
    predict_tail,
)
from breadth.measure.validate import FloatArray

ENTROPY = np.array([0.60, 0.40, 0.25, 0.15, 0.08, 0.03])
SCORE = np.array([0.403364, 0.502453, 0.564792, 0.601450, 0.625014, 0.640864])
NOISE = np.array([0.002, -0.001, 0.001, -0.002, 0.001, -0.001])


def decline(n: int) -> FloatArray:
    return np.asarray(0.03 + 0.6 * np.exp(-3 * np.linspace(0, 1, n)))


def lawful(n: int, noise: float, seed: int) -> tuple[FloatArray, FloatArray]:
    """A run that obeys the law with a = 0.3, b = 0.95 up to noise correlated by half."""
    rng = np.random.default_rng(seed)
    error = np.zeros(n)
    for place in range(n):
        error[place] = (0.5 * error[place - 1] if place else 0.0) + math.sqrt(0.75) * rng.standard_normal()
    return decline(n), 0.95 - 0.3 * np.exp(decline(n)) + noise * error


def test_the_law_without_noise_is_returned_exactly() -> None:
    exact = 0.95 - 0.3 * np.exp(ENTROPY)
    assert exact == pytest.approx(SCORE, abs=5e-7)
    fit = fit_law(range(6), ENTROPY, exact)
    assert fit.a == pytest.approx(0.3, abs=1e-12)
    assert fit.b == pytest.approx(0.95, abs=1e-12)
    assert fit.ceiling.value == pytest.approx(0.65, abs=1e-12)
    assert fit.r2 == pytest.approx(1.0)


def test_three_noisy_points_predict_the_next_three() -> None:
    noisy = 0.95 - 0.3 * np.exp(ENTROPY) + NOISE
    early = fit_law(range(3), ENTROPY[:3], noisy[:3])
    assert early.a == pytest.approx(0.297480, abs=5e-7)
    assert early.b == pytest.approx(0.946804, abs=5e-7)
    assert early.ceiling.value == pytest.approx(0.649324, abs=5e-7)
    assert not early.valid
    held_out = predict_tail(range(6), ENTROPY, noisy, 3)
    assert held_out.law == pytest.approx(0.001330, abs=5e-7)


def test_the_rivals_by_hand() -> None:
    # Early scores 1, 2, 3 at steps 0, 1, 2; later 3 and 5 at steps 3, 4.
    held_out = predict_tail(range(5), [0.5, 0.4, 0.3, 0.2, 0.1], [1, 2, 3, 3, 5], 3)
    assert held_out.mean == pytest.approx(math.sqrt((1 + 9) / 2))
    assert held_out.last == pytest.approx(math.sqrt((0 + 4) / 2))
    assert held_out.line == pytest.approx(math.sqrt((1 + 0) / 2))
    assert held_out.early_points == 3


def test_the_early_part_is_that_of_the_published_demonstration_or_two_fifths() -> None:
    # 36 of 236 steps; 15 % of longer runs; at most 40 % of shorter ones.
    assert [early_points(n) for n in (236, 2400, 100, 50, 35, 12)] == [36, 360, 36, 20, 14, 4]


@pytest.mark.parametrize("early", [2, 6])
def test_an_early_part_must_leave_something_and_fit_something(early: int) -> None:
    with pytest.raises(MeasureError, match="early part"):
        predict_tail(range(6), ENTROPY, SCORE, early)


def test_a_lawful_run_is_valid_with_the_ceiling_inside() -> None:
    entropy, score = lawful(120, 0.005, 0)
    fit = fit_law(range(120), entropy, score)
    assert fit.valid
    assert fit.reasons == ()
    assert 0.65 in fit.ceiling
    assert fit.ceiling.high - fit.ceiling.low < 0.02
    assert fit.held_out is not None
    assert fit.held_out.law < min(fit.held_out.mean, fit.held_out.last, fit.held_out.line)


def test_lawful_runs_are_mostly_valid_and_lawless_ones_hardly_ever() -> None:
    fits = [fit_law(range(60), *lawful(60, 0.01, seed)) for seed in range(40)]
    assert sum(fit.valid for fit in fits) >= 33
    assert sum(0.65 in fit.ceiling for fit in fits) >= 35
    rng = np.random.default_rng(1)
    stalled = [fit_law(range(60), decline(60), 0.5 + 0.05 * rng.standard_normal(60)) for _ in range(40)]
    assert sum(fit.valid for fit in stalled) <= 2
    steady = [
        fit_law(range(60), decline(60), 0.2 + 0.005 * np.arange(60) + 0.01 * rng.standard_normal(60)) for _ in range(40)
    ]
    assert sum(fit.valid for fit in steady) <= 2


def test_steps_left_are_those_until_a_twentieth_of_the_store_is_left() -> None:
    # H = 0.6 * 0.97^t, so the start level is that of the middle of the first 8: floor = ln(1 + 0.05 (e^H0 - 1)).
    entropy = 0.6 * 0.97 ** np.arange(64)
    fit = fit_law(range(64), entropy, 0.95 - 0.3 * np.exp(entropy))
    start = (entropy[3] + entropy[4]) / 2
    assert fit.floor == pytest.approx(math.log(1 + 0.05 * (math.exp(start) - 1)))
    assert fit.steps_left is not None
    assert fit.steps_left.value == pytest.approx(math.log(fit.floor / 0.6) / math.log(0.97) - 63, abs=0.5)


def test_an_intervention_is_a_reason_by_itself() -> None:
    entropy, score = lawful(120, 0.005, 0)
    fit = fit_law(range(120), entropy, score, interventions=["entropy_coef = 0.001", "KL coefficient 0.04"])
    assert not fit.valid
    assert len(fit.reasons) == 2
    assert "entropy_coef = 0.001" in fit.reasons[0]
    assert fit.ceiling == fit_law(range(120), entropy, score).ceiling


def reasons(entropy: npt.ArrayLike, score: npt.ArrayLike) -> str:
    fit = fit_law(range(len(np.asarray(entropy))), entropy, score)
    assert not fit.valid
    return " ".join(fit.reasons)


def test_each_refusal_says_why() -> None:
    rng = np.random.default_rng(2)
    noise = rng.standard_normal(80)
    entropy, score = lawful(80, 0.005, 3)
    assert "not seen falling (rising)" in reasons(entropy[::-1], score[::-1])
    assert "sign is wrong" in reasons(entropy, -score)
    narrow = 0.6 - 0.0005 * np.arange(80)
    assert "range of entropy is too narrow" in reasons(narrow, 0.95 - 0.3 * np.exp(narrow) + 0.02 * noise)
    assert "not clearly related" in reasons(entropy, 0.4 - 0.001 * np.exp(entropy) + 0.1 * noise)
    assert "no better than a straight line" in reasons(entropy, 0.2 + 0.005 * np.arange(80) + 0.003 * noise)
    assert f"at least {MIN_LAW_POINTS}" in reasons(entropy[:11], score[:11])
    assert "The score is 0.5 at all 80 points" in reasons(entropy, np.full(80, 0.5))
    assert "negative at 1 of 80" in reasons(np.append(entropy[:-1], -0.1), score)
    late = np.concatenate([np.full(40, 0.6), 0.6 - 0.01 * np.arange(40)])
    assert "all of the first 32 points" in reasons(late, 0.95 - 0.3 * np.exp(late) + 0.001 * noise)


def test_a_law_that_breaks_later_is_refused_with_its_error() -> None:
    # The score stops following entropy after a third of the run.
    entropy, score = lawful(120, 0.003, 4)
    broken = np.where(np.arange(120) < 40, score, score[:40].mean() + 0.2)
    fit = fit_law(range(120), entropy, broken)
    assert any("misses the rest by" in reason for reason in fit.reasons)
    assert fit.held_out is not None
    assert 0 not in fit.held_out.mean_error


def test_constant_entropy_and_empty_runs_are_refused_without_numbers() -> None:
    fit = fit_law(range(20), np.full(20, 0.3), np.arange(20.0))
    assert math.isnan(fit.a)
    assert "Entropy is 0.3 at all 20 points" in " ".join(fit.reasons)
    empty = fit_law([], [], [])
    assert not empty.valid
    assert empty.points == 0
    assert math.isnan(empty.ceiling.value)


def test_pairs_with_a_missing_half_are_dropped_and_counted() -> None:
    entropy, score = lawful(60, 0.005, 5)
    whole = fit_law(range(60), entropy, score)
    holes = np.concatenate([entropy, [math.nan, 0.1, 0.2, 1e200]])
    fit = fit_law(range(64), holes, np.concatenate([score, [0.5, math.inf, 1e150, 0.3]]))
    assert (fit.points, fit.dropped) == (60, 4)
    assert (fit.a, fit.b) == (whole.a, whole.b)


def test_sums_over_tokens_and_uneven_lists_are_refused() -> None:
    with pytest.raises(MeasureError, match="mean per token"):
        fit_law(range(20), np.linspace(900, 300, 20), np.arange(20.0))
    with pytest.raises(MeasureError, match="one score per entropy"):
        fit_law(range(20), np.zeros(20), np.zeros(19))
    with pytest.raises(MeasureError, match="cannot be read"):
        fit_law(range(2), ["a", "b"], [1, 2])


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 5), st.floats(-3, 3), st.lists(st.floats(0, 3), min_size=2, max_size=30, unique=True))
def test_any_exact_law_is_recovered(a: float, b: float, entropy: list[float]) -> None:
    x = np.exp(entropy)
    if np.ptp(x) < 1e-3:
        return
    fit = fit_law(range(len(entropy)), entropy, b - a * x)
    assert fit.a == pytest.approx(a, rel=1e-6)
    assert fit.ceiling.value == pytest.approx(b - a, rel=1e-6, abs=1e-6)


@pytest.fixture(scope="session")
def real(fixtures: Path) -> dict[str, LawFit]:
    """The law fitted to every real run."""
    rows = parquet.read_table(fixtures / "law" / "entropy_score.parquet").to_pydict()
    runs: dict[str, list[tuple[int, float, float]]] = {}
    for run, *pair in zip(rows["run_file"], rows["step"], rows["entropy"], rows["score"], strict=True):
        runs.setdefault(run, []).append((pair[0], pair[1], pair[2]))
    return {run: fit_law(*zip(*points, strict=True)) for run, points in runs.items()}


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_real_fits_match_the_reference(real: dict[str, LawFit], fixtures: Path) -> None:
    reference = table(fixtures / "law" / "reference_fits.csv")
    assert len(reference) >= 30
    for row in reference:
        fit = real[row["run_file"]]
        assert fit.points == int(row["points"])
        assert fit.a == pytest.approx(float(row["a_ols"]), abs=6e-6)
        assert fit.b == pytest.approx(float(row["b_ols"]), abs=6e-6)
        assert fit.r2 == pytest.approx(float(row["r2_ols"]), abs=6e-5)


def test_the_law_holds_on_a_minority_of_real_runs_and_the_rest_say_why(real: dict[str, LawFit]) -> None:
    valid = [run for run, fit in real.items() if fit.valid]
    assert 1 <= len(valid) < len(real) / 2
    for fit in real.values():
        assert fit.valid == (not fit.reasons)
        assert all(reason.endswith(".") and any(mark.isdigit() for mark in reason) for reason in fit.reasons)


def test_runs_that_rose_stalled_or_were_solved_are_refused(real: dict[str, LawFit], fixtures: Path) -> None:
    refused = 0
    for row in table(fixtures / "training_logs" / "labels.csv"):
        told = f"{row['label']} {row['reason']}"
        if row["file"] in real and any(
            word in told for word in ("explosion", "stalled", "solved", "no movement", "too short")
        ):
            assert not real[row["file"]].valid, row["file"]
            refused += 1
    assert refused >= 3
    rising = [fit for run, fit in real.items() if run.startswith("uqcxu9") and fit.points >= 100]
    assert rising
    assert all("not seen falling (rising)" in " ".join(fit.reasons) for fit in rising)


def test_held_out_scores_of_three_runs_are_too_few_to_judge(fixtures: Path) -> None:
    rows = table(fixtures / "law" / "kg_grpo_entropy_vs_eval.csv")
    for run, said in (
        ("E1_outcome", "0.06494 at all 4 points"),
        ("E2_heuristic", "6 pairs"),
        ("E3_verifiable", "8 pairs"),
    ):
        points = [
            (float(row["step"]), float(row["entropy"]), float(row["eval_em"])) for row in rows if row["run"] == run
        ]
        fit = fit_law(*zip(*points, strict=True))
        assert not fit.valid
        assert said in " ".join(fit.reasons)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 30), st.floats(-1, 12) | st.just(math.nan), st.floats() | st.integers(0, 2).map(float)
        ),
        max_size=40,
    )
)
def test_whatever_was_logged_gets_an_answer(rows: list[tuple[int, float, float]]) -> None:
    fit = fit_law([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])
    assert fit.points + fit.dropped == len(rows)
    assert fit.valid == (not fit.reasons)
    assert fit.points >= MIN_LAW_POINTS or not fit.valid


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
