"""How training moves a policy: the entropy law, what makes entropy fall, and the KL divergence from the reference.

- The law R = b - a exp(H): what score is left to buy with entropy, and whether the law holds on this run at all.
- Entropy changes by the covariance of log-prob and advantage; does it predict the entropy change that was measured?
- KL divergence from the reference, estimated from the log-probs of the tokens the policy sampled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.measure.intervals import (
    BOOTSTRAP_REPLICATES,
    UNBOUNDED,
    Bounds,
    Interval,
    check_level,
    interval_from_resamples,
    resample_means,
)
from breadth.measure.series import Line, clean_series, fit_line, is_usable, is_varying
from breadth.measure.trends import Trend, steps_until, trend
from breadth.measure.validate import BoolArray, FloatArray, IntArray, as_finite, as_floats, check_same_length

MIN_LAW_POINTS = 12
"""Fewest pairs of entropy and score the law is tested on: the early part then has four, two more than it has
parameters.
"""
_EARLY_SHARE, _USUAL_EARLY_POINTS, _MAX_EARLY_SHARE, _MIN_EARLY_POINTS = 0.15, 36, 0.4, 4
# The published demonstration fits 36 of 236 steps, 15 % (2505.22617); a shorter run gets up to 40 % so that two
# parameters can be
# fitted and most of the run is still held out.
_MAX_NATS = 50.0
# No vocabulary has e^50 words: beyond this the numbers are sums over tokens, not entropies of one.
_SPENT_SHARE = 0.05
# Entropy counts as exhausted when 5 % of the score the law held in store at the start is left.


@dataclass(frozen=True)
class HeldOutErrors:
    """Root mean square errors on the part of a run that was not fitted."""

    law: float
    """The law fitted on the early part, given the later entropies."""
    mean: float
    """The mean score of the early part."""
    last: float
    """The last score of the early part."""
    line: float
    """A straight line in the step through the early part."""
    early_points: int
    """How many points the early part has."""
    mean_error: Interval
    """Mean of later score minus the law's prediction; an interval without 0 says the law fitted early fails later."""


@dataclass(frozen=True)
class LawFit:
    """The law fitted to one run, and whether to believe it."""

    a: float
    """Score paid per unit of exp(entropy). Nearly collinear with b: read the ceiling, not a or b alone."""
    b: float
    """Intercept. Nearly collinear with a."""
    ceiling: Interval
    """Score at zero entropy, ``b - a``, with an interval that allows for autocorrelated noise."""
    r2: float
    """Share of the score's variance the fit describes; NaN for a constant score."""
    held_out: HeldOutErrors | None
    """Errors on the later part of the law fitted to the early part, and of its rivals; None with too few points."""
    floor: float
    """Entropy at which the run is exhausted: 5 % of what the law held in store at the start is left."""
    steps_left: Interval | None
    """Steps until entropy reaches the floor by its recent trend; None when it is not falling."""
    valid: bool
    """Whether the law may be used on this run."""
    reasons: tuple[str, ...]
    """Why not, one sentence each with the numbers; empty when valid."""
    points: int
    """Pairs used."""
    dropped: int
    """Pairs left out because entropy or score was NaN or infinite."""


def fit_law(
    steps: npt.ArrayLike,
    entropy: npt.ArrayLike,
    score: npt.ArrayLike,
    *,
    interventions: Sequence[str] = (),
    level: float = 0.95,
) -> LawFit:
    """Fit ``R = -a exp(H) + b`` by least squares and test whether it holds on this run (Cui et al., 2505.22617).

    ``entropy`` is the mean policy entropy per token in nats on the training rollouts, ``score`` the validation score
    (or, with more noise and shaping in it, the training reward) at the same step. ``interventions`` names what acted on
    entropy, e.g. ``"entropy_coef = 0.001"``: the law is about runs left alone, so each makes it not valid. It is also
    not valid when

    - there are fewer than 12 pairs, or entropy does not fall, or the score is constant;
    - a is not clearly positive, or the ceiling's interval is wider to either side than all the score the fit explains:
      the range of entropy is too narrow for the noise;
    - the law fitted on the early part (the first 15 %, at least 36 points, at most 40 %) predicts the rest worse than
      the early mean, the last early value or a straight line in the step, or misses it by more than its own error
      allows.

    a and b are nearly collinear on a narrow range, so only the ceiling has an interval. Misleads when the score is a
    proxy that is being gamed (the law then predicts the proxy), and when entropy is noisy: noise in H flattens a.
    """
    run = _pair_columns(steps, entropy, score)
    falls = trend(run.steps, run.entropy, level=level)
    line = fit_line(run.x, run.score) if is_varying(run.x) else None
    early = early_points(len(run))
    testable = early >= _MIN_EARLY_POINTS and is_varying(run.x[:early])
    held_out = predict_tail(run.steps, run.entropy, run.score, early, level=level) if testable else None
    reasons = (
        *_doubts_about_run(run, interventions, falls),
        *_doubts_about_fit(run, line, level),
        *_doubts_about_tail(run, early, held_out),
    )
    floor = math.log1p(_SPENT_SHARE * max(math.expm1(falls.start.value), 0.0))
    return LawFit(
        a=-line.slope if line else math.nan,
        b=line.intercept if line else math.nan,
        ceiling=(
            line.value_at(1.0, level)
            if line
            else Interval(math.nan, -math.inf, math.inf, level, "entropy does not vary")
        ),
        r2=r_squared(run.score, line.predict(run.x)) if line else math.nan,
        held_out=held_out,
        floor=floor,
        steps_left=steps_until(run.steps, run.entropy, floor, level=level) if falls.verdict == "falling" else None,
        valid=not reasons,
        reasons=reasons,
        points=len(run),
        dropped=run.dropped,
    )


def early_points(points: int) -> int:
    """Count the points of a run's early part: the first 15 %, at least 36 points, at most 40 % of the run."""
    return min(max(math.ceil(_EARLY_SHARE * points), _USUAL_EARLY_POINTS), int(_MAX_EARLY_SHARE * points))


def predict_tail(
    steps: npt.ArrayLike, entropy: npt.ArrayLike, score: npt.ArrayLike, early: int, *, level: float = 0.95
) -> HeldOutErrors:
    """Fit the law and three simple rivals on the first ``early`` points and measure their errors on the rest."""
    check_level(level)
    run = _pair_columns(steps, entropy, score)
    if not 3 <= early < len(run):
        raise MeasureError(f"The early part is {early} of {len(run)} points.", "Take at least 3 and leave at least 1.")
    known, later, x = run.score[:early], run.score[early:], run.x[early:]
    law = fit_line(run.x[:early], known)
    straight = (
        fit_line(run.steps[:early], known).predict(run.steps[early:]) if is_varying(run.steps[:early]) else known.mean()
    )
    guesses = (law.predict(x), known.mean(), known[-1], straight)
    by_law, by_mean, by_last, by_line = (math.sqrt(float(np.mean((later - guess) ** 2))) for guess in guesses)
    return HeldOutErrors(by_law, by_mean, by_last, by_line, early, law.mean_error(x, later, level))


@dataclass(frozen=True)
class _Run:
    steps: FloatArray
    entropy: FloatArray
    score: FloatArray
    dropped: int

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def x(self) -> FloatArray:
        return np.asarray(np.exp(self.entropy), dtype=np.float64)


def _doubts_about_run(run: _Run, interventions: Sequence[str], entropy: Trend) -> Iterator[str]:
    for intervention in interventions:
        yield f"Entropy was intervened on ({intervention}); the law is about runs left alone."
    if len(run) < MIN_LAW_POINTS:
        yield f"There are {len(run)} pairs of entropy and score; at least {MIN_LAW_POINTS} are needed."
    negative = int(np.count_nonzero(run.entropy < 0))
    if negative:
        yield (
            f"Entropy is negative at {negative} of {len(run)} points (lowest {run.entropy.min():.3g}), which no token's"
            " entropy can be."
        )
    if len(run) and not is_varying(run.x):
        yield f"Entropy is {run.entropy[0]:.4g} at all {len(run)} points: there is nothing to fit."
    elif len(run) >= MIN_LAW_POINTS and entropy.verdict != "falling":
        yield f"Entropy is not seen falling ({entropy.verdict}): {entropy.reason}."


def _doubts_about_fit(run: _Run, line: Line | None, level: float) -> Iterator[str]:
    if line is None:
        return
    if not is_varying(run.score):
        yield f"The score is {run.score[0]:.4g} at all {len(run)} points."
        return
    slope, ceiling = line.slope_interval(level), line.value_at(1.0, level)
    reach, far = slope.high - slope.value, ceiling.high - ceiling.value
    if slope.value >= 0:
        yield (
            f"The sign is wrong: the score rises with entropy (a = {-slope.value:.4g} +- {reach:.2g}; the law has a"
            " > 0)."
        )
        return
    spread = float(np.ptp(np.quantile(run.x, [0.05, 0.95])))
    if slope.high >= 0:
        yield (
            f"Score and entropy are not clearly related: a = {-slope.value:.4g} +- {reach:.2g}, over {spread:.3g} in"
            " exp(entropy)."
        )
    if far > -slope.value * spread:
        yield (
            f"The range of entropy is too narrow: the ceiling {ceiling.value:.3g} is known to +- {far:.2g}, "
            f"more than the {-slope.value * spread:.2g} of score that entropy explains."
        )


def _doubts_about_tail(run: _Run, early: int, held_out: HeldOutErrors | None) -> Iterator[str]:
    if held_out is None:
        if early >= _MIN_EARLY_POINTS and is_varying(run.x):
            yield (
                f"Entropy is {run.entropy[0]:.4g} at all of the first {early} points, so nothing can be predicted from"
                " them."
            )
        return
    rivals = {
        "the early mean": held_out.mean,
        "the last early value": held_out.last,
        "a straight line in the step": held_out.line,
    }
    rival = min(rivals, key=lambda name: rivals[name])
    if held_out.law >= rivals[rival]:
        yield (
            f"Fitted on the first {early} points the law predicts the rest no better than {rival}: "
            f"error {held_out.law:.3g} against {rivals[rival]:.3g}."
        )
    if 0 not in held_out.mean_error:
        yield (
            f"Fitted on the first {early} points the law misses the rest by {held_out.mean_error.value:+.3g} on"
            f" average; its own noise allows {held_out.mean_error.high - held_out.mean_error.value:.2g}."
        )


def r_squared(values: FloatArray, fitted: FloatArray) -> float:
    """Return the share of the values' variance that a fit describes; NaN for constant values."""
    total = float(np.sum((values - values.mean()) ** 2))
    return 1 - float(np.sum((values - fitted) ** 2)) / total if is_varying(values) else math.nan


def _pair_columns(steps: npt.ArrayLike, entropy: npt.ArrayLike, score: npt.ArrayLike) -> _Run:
    try:
        nats, gained = np.asarray(entropy, dtype=np.float64), np.asarray(score, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise MeasureError(
            f"Entropy or score cannot be read as numbers: {error}.", "Give both as flat lists of numbers."
        ) from error
    if nats.shape != gained.shape:
        raise MeasureError(
            f"Entropy has shape {nats.shape}, score {gained.shape}.",
            "Give one score per entropy, logged at the same step.",
        )
    both = is_usable(nats) & is_usable(gained)
    of_entropy = clean_series(steps, np.where(both, nats, np.nan))
    of_score = clean_series(steps, np.where(both, gained, np.nan))
    if len(of_entropy) and float(of_entropy.values.max()) > _MAX_NATS:
        raise MeasureError(
            f"Entropy reaches {of_entropy.values.max():.3g} nats; one token's stays under 15.",
            "Give the mean per token, not the sum over tokens.",
        )
    return _Run(of_entropy.steps, of_entropy.values, of_score.values, of_entropy.dropped)


Gradient: TypeAlias = Literal["natural", "vanilla"]
"""How an advantage becomes a step on the logits: ``natural`` moves a logit by its advantage, ``vanilla`` by probability
times that.
"""
_MIN_STEPS = 10
# Fewer steps than this leave a regression with autocorrelated noise nothing to say.


@dataclass(frozen=True)
class CovariancePrediction:
    """How well the covariance at each step predicts the entropy change to the next."""

    slope: Interval
    """Entropy change per unit of minus covariance: the effective step size when the identity holds; positive then."""
    correlation: Interval
    """Correlation of minus covariance and entropy change."""
    steps: int
    """Entropy changes used."""
    verdict: Literal["predicts", "does not predict", "cannot tell"]
    """``predicts``: the correlation's interval lies above 0.

    ``does not predict``: it holds 0 or less and nothing above 0.5.
    ``cannot tell``: too few steps, nothing varies, or the interval is too wide for either."""
    note: str
    """Why the verdict is ``cannot tell``; empty otherwise."""


def covariance_products(
    logprobs: npt.ArrayLike, advantages: npt.ArrayLike, mask: npt.ArrayLike | None = None
) -> FloatArray:
    """Return each token's (logprob - mean) * (advantage - mean), its share in their covariance; NaN outside the mask.

    Means are over all counted tokens of the batch given, so give the whole batch (Cui et al., arXiv 2505.22617). Their
    mean over counted tokens is the batch covariance: a stand-in for the covariance within states, which needs the full
    distribution. High values are likely tokens rewarded and unlikely tokens punished; both sharpen. Means of advantages
    weigh long sequences more.
    """
    current, credit = as_floats(logprobs, "logprobs"), as_floats(advantages, "advantages")
    counted = np.ones(current.shape, dtype=bool) if mask is None else np.asarray(mask).astype(bool)
    if not current.shape == credit.shape == counted.shape:
        raise MeasureError(
            f"logprobs have shape {current.shape}, advantages {credit.shape}, the mask {counted.shape}.",
            "Give one of each for every token.",
        )
    if not counted.any():
        raise MeasureError("No token is counted.", "Set the mask on the generated tokens.")
    inside, gains = (
        as_finite(current[counted], "logprobs inside the mask"),
        as_finite(credit[counted], "advantages inside the mask"),
    )
    products = np.full(current.shape, np.nan)
    products[counted] = (inside - inside.mean()) * (gains - gains.mean())
    return products


def predict_entropy_change(
    logits: npt.ArrayLike, advantages: npt.ArrayLike, step_size: float, gradient: Gradient
) -> FloatArray:
    """Predict each state's entropy change to first order: minus the policy's covariance of log-prob and logit step.

    ``natural``: -step_size * Cov(log p, A), the form usually quoted. ``vanilla``: -step_size * Cov(log p, p * (A - mean
    A)), what a plain policy-gradient step on the logits does. ``logits`` and ``advantages`` are states x actions,
    already at the sampling temperature; a masked action needs a large negative finite logit.
    """
    log_policy, move = _log_policy_and_step(logits, advantages, step_size, gradient)
    policy = np.exp(log_policy)
    centred = log_policy - (policy * log_policy).sum(axis=-1, keepdims=True)
    return np.asarray(-(policy * centred * move).sum(axis=-1))


def exact_entropy_change(
    logits: npt.ArrayLike, advantages: npt.ArrayLike, step_size: float, gradient: Gradient
) -> FloatArray:
    """Return each state's entropy after the step minus before, from the full distributions: what is predicted."""
    log_policy, move = _log_policy_and_step(logits, advantages, step_size, gradient)
    return policy_entropy(log_softmax(log_policy + move)) - policy_entropy(log_policy)


def compare_prediction(
    covariances: npt.ArrayLike,
    entropies: npt.ArrayLike,
    *,
    replicates: int = BOOTSTRAP_REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> CovariancePrediction:
    """Regress the entropy change from each step to the next on minus the covariance logged at that step.

    ``covariances[t]`` and ``entropies[t]`` belong to step t, steps in order without gaps; the last covariance has no
    change to predict and is not used. Intervals resample blocks of neighbouring steps, about n^(1/3) long, because a
    run's steps go together. The slope absorbs learning rate, clipping and updates per step. Entropies averaged another
    way than the covariances, or batches of few prompts, weaken the correlation without the identity being wrong.
    """
    cause, entropy = as_finite(covariances, "covariances"), as_finite(entropies, "entropies")
    check_same_length(covariances=cause, entropies=entropy)
    predictor, change = -cause[:-1], np.diff(entropy)
    reason = _reason_not_to_regress(predictor, change)
    if reason:
        nothing = Interval(math.nan, -math.inf, math.inf, level, reason)
        return CovariancePrediction(nothing, nothing, len(change), "cannot tell", reason)
    slope, correlation = regress_rows(predictor[None], change[None])
    picks = resample_blocks(len(change), replicates, seed)
    slopes, correlations = regress_rows(predictor[picks], change[picks])
    method = f"moving blocks of {block_length(len(change))} over {len(change)} steps"
    steep = _block_interval(slope, slopes, len(change), level, method, UNBOUNDED)
    close = _block_interval(correlation, correlations, len(change), level, method, (-1.0, 1.0))
    verdict, note = correlation_verdict(close)
    return CovariancePrediction(steep, close, len(change), verdict, note)


def _log_policy_and_step(
    logits: npt.ArrayLike, advantages: npt.ArrayLike, step_size: float, gradient: Gradient
) -> tuple[FloatArray, FloatArray]:
    """Log-policy and logit step of each state, both states x actions (or one state)."""
    scores, gains = np.atleast_1d(as_floats(logits, "logits")), np.atleast_1d(as_floats(advantages, "advantages"))
    if scores.shape != gains.shape or scores.size == 0:
        raise MeasureError(
            f"logits have shape {scores.shape}, advantages {gains.shape}.",
            "Give one advantage for every action of every state.",
        )
    as_finite(scores, "logits (mask with a large negative number, not -inf)", ndim=scores.ndim)
    as_finite(gains, "advantages", ndim=gains.ndim)
    if gradient not in ("natural", "vanilla"):
        raise MeasureError(f"Unknown gradient {gradient!r}.", "Use natural or vanilla.")
    log_policy = log_softmax(scores)
    if gradient == "natural":
        return log_policy, step_size * gains
    policy = np.exp(log_policy)
    return log_policy, step_size * policy * (gains - (policy * gains).sum(axis=-1, keepdims=True))


def log_softmax(scores: FloatArray) -> FloatArray:
    """Return the logarithm of the softmax over the last axis."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def policy_entropy(log_policy: FloatArray) -> FloatArray:
    """Return the entropy of each state in nats."""
    return np.asarray(-(np.exp(log_policy) * log_policy).sum(axis=-1))


def _reason_not_to_regress(predictor: FloatArray, change: FloatArray) -> str:
    if len(change) < _MIN_STEPS:
        return f"only {len(change)} entropy changes, {_MIN_STEPS} needed"
    if np.ptp(predictor) == 0:
        return "the covariance never changes"
    if np.ptp(change) == 0:
        return "the entropy change is always the same"
    return ""


def regress_rows(predictor: FloatArray, change: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Slope and correlation of each row; NaN where a row does not vary."""
    x, y = (values - values.mean(axis=1, keepdims=True) for values in (predictor, change))
    xx, xy, yy = (x * x).sum(axis=1), (x * y).sum(axis=1), (y * y).sum(axis=1)
    unknown = np.full_like(xy, np.nan)
    slope = np.divide(xy, xx, out=unknown.copy(), where=xx > 0)
    return slope, np.divide(xy, np.sqrt(xx * yy), out=unknown, where=xx * yy > 0)


def block_length(steps: int) -> int:
    """Return the length of bootstrap blocks: the cube root of the steps."""
    return max(1, round(math.cbrt(steps)))


def resample_blocks(steps: int, replicates: int, seed: int) -> IntArray:
    """Return the steps of each moving-block resample, replicates x steps."""
    length = block_length(steps)
    starts = np.random.default_rng(seed).integers(0, steps - length + 1, (replicates, -(-steps // length)))
    return (starts[:, :, None] + np.arange(length)).reshape(replicates, -1)[:, :steps]


def _block_interval(
    value: FloatArray, draws: FloatArray, steps: int, level: float, method: str, bounds: Bounds
) -> Interval:
    blocks = max(2, steps // block_length(steps))
    return interval_from_resamples(float(value[0]), draws, problems=blocks, level=level, bounds=bounds, method=method)


def correlation_verdict(correlation: Interval) -> tuple[Literal["predicts", "does not predict", "cannot tell"], str]:
    """Say what an interval of the correlation means for the prediction, and why it may mean nothing."""
    if correlation.low > 0:
        return "predicts", ""
    if correlation.high < 0.5:
        return "does not predict", ""
    return "cannot tell", f"the correlation may lie anywhere from {correlation.low:.2f} to {correlation.high:.2f}"


_ESTIMATORS: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "k1": lambda d: d,
    "k2": lambda d: d * d / 2,
    "k3": lambda d: np.expm1(-d) + d,
}
_MIN_LOG_RATIO = -700.0
# exp(-d) overflows a double below this; no honest log-prob of a sampled token is e^700 less likely than under the
# reference.


@dataclass(frozen=True)
class DriftMeans:
    """One estimator's mean drift per token, averaged both ways; log both, they differ when drift goes with length."""

    token_mean: Interval
    """Mean over all tokens: long sequences count more."""
    sequence_mean: Interval
    """Mean over sequences of each sequence's mean per token: every sequence counts once."""


@dataclass(frozen=True)
class KLDrift:
    """KL(policy || reference) per token, by three estimators of the same samples, in nats."""

    k1: DriftMeans
    """Mean of d: unbiased, noisy, may be negative."""
    k2: DriftMeans
    """Mean of d^2 / 2: small variance, biased unless the two policies are close; its gradient is the right one."""
    k3: DriftMeans
    """Mean of exp(-d) + d - 1: unbiased, never negative, less noisy when close; heavy-tailed when far apart."""
    tokens: int
    """Tokens counted."""
    sequences: int
    """Sequences with at least one counted token."""


def kl_tokens(logprobs: npt.ArrayLike, reference_logprobs: npt.ArrayLike, estimator: str) -> FloatArray:
    """Estimate KL at each token; NaN wherever a log-prob is NaN (padding).

    With d = logprobs - reference_logprobs: k1 = d, k2 = d^2 / 2, k3 = exp(-d) + d - 1 (Schulman, "Approximating KL
    divergence", 2020). The tokens must have been sampled from the policy of ``logprobs``, at temperature 1 without
    top-p or top-k.
    """
    if estimator not in _ESTIMATORS:
        raise MeasureError(f"Unknown KL estimator {estimator!r}.", f"Use one of {', '.join(_ESTIMATORS)}.")
    current, reference = as_floats(logprobs, "logprobs"), as_floats(reference_logprobs, "reference_logprobs")
    if current.shape != reference.shape:
        raise MeasureError(
            f"logprobs have shape {current.shape}, reference_logprobs {reference.shape}.",
            "Give both for the same tokens.",
        )
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, as padding may be
        gap = current - reference
    if np.any(gap < _MIN_LOG_RATIO):
        raise MeasureError(
            f"A token is e^{-gap[gap < _MIN_LOG_RATIO][0]:.0f} times less likely than under the reference.",
            "Mask padding, or check the log-probs.",
        )
    return _ESTIMATORS[estimator](gap)


def kl_drift(
    logprobs: npt.ArrayLike,
    reference_logprobs: npt.ArrayLike,
    mask: npt.ArrayLike,
    *,
    replicates: int = BOOTSTRAP_REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> KLDrift:
    """Drift of a policy from its reference on sequences x tokens it sampled; only tokens where ``mask`` is true count.

    Values outside the mask, NaN and infinity too, change nothing. Sequences without a counted token are left
    out. Intervals resample whole sequences; sequences of one prompt go together, so with many per prompt they are too
    narrow. Compare two runs at matched reward, not at matched step.
    """
    counted = check_token_mask(logprobs, reference_logprobs, mask)
    current, reference = (
        np.where(counted, np.asarray(values, dtype=np.float64), 0.0) for values in (logprobs, reference_logprobs)
    )
    lengths = counted.sum(axis=1)
    drawn = lengths > 0
    totals = np.stack([kl_tokens(current, reference, name).sum(axis=1)[drawn] for name in _ESTIMATORS], axis=1)
    drifts = _token_and_sequence_means(totals, lengths[drawn].astype(np.float64), replicates, level, seed)
    return KLDrift(drifts["k1"], drifts["k2"], drifts["k3"], int(lengths.sum()), int(drawn.sum()))


def check_token_mask(logprobs: npt.ArrayLike, reference_logprobs: npt.ArrayLike, mask: npt.ArrayLike) -> BoolArray:
    """Return the mask as booleans; refuse columns of another shape and counted tokens that are not finite."""
    counted = np.asarray(mask).astype(bool)
    for name, values in (("logprobs", logprobs), ("reference_logprobs", reference_logprobs)):
        array = as_floats(values, name)
        if array.ndim != 2 or array.shape != counted.shape:
            raise MeasureError(
                f"{name} have shape {array.shape}, the mask {counted.shape}.",
                "Give sequences x tokens of one shape, padded.",
            )
        bad = int(np.count_nonzero(counted & ~np.isfinite(array)))
        if bad:
            raise MeasureError(
                f"{bad} of {int(counted.sum())} counted {name} are NaN or infinite.",
                "Mask those tokens, or repair them.",
            )
    if not counted.any():
        raise MeasureError("The mask counts no token.", "Set the mask on the generated tokens.")
    return counted


def _token_and_sequence_means(
    totals: FloatArray, lengths: FloatArray, replicates: int, level: float, seed: int
) -> dict[str, DriftMeans]:
    size, means = len(lengths), totals / lengths[:, None]
    kinds = totals.shape[1]
    draws = resample_means(np.column_stack([totals, means, lengths]), replicates=replicates, seed=seed)

    def interval(value: float, values: FloatArray) -> Interval:
        return interval_from_resamples(
            value, values, problems=size, level=level, method=f"cluster bootstrap over {size} sequences"
        )

    return {
        name: DriftMeans(
            token_mean=interval(float(totals[:, kind].sum() / lengths.sum()), draws[:, kind] / draws[:, -1]),
            sequence_mean=interval(float(means[:, kind].mean()), draws[:, kinds + kind]),
        )
        for kind, name in enumerate(_ESTIMATORS)
    }
