"""How far a policy has moved from its reference: KL divergence estimated from the log-probs of the tokens it sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from breadth.base.errors import MeasureError
from breadth.measure.finite import FloatArray, numbers
from breadth.measure.intervals import REPLICATES, Interval, interval_from_draws, resampled_means

_ESTIMATORS: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "k1": lambda d: d,
    "k2": lambda d: d * d / 2,
    "k3": lambda d: np.expm1(-d) + d,
}
_LOWEST = -700.0
# exp(-d) overflows a double below this; no honest log-prob of a sampled token is e^700 less likely than under the reference.


@dataclass(frozen=True)
class Drift:
    """One estimator's mean drift per token, averaged both ways; log both, they differ when drift goes with length."""

    token_mean: Interval
    """Mean over all tokens: long sequences count more."""
    sequence_mean: Interval
    """Mean over sequences of each sequence's mean per token: every sequence counts once."""


@dataclass(frozen=True)
class KLDrift:
    """KL(policy || reference) per token, by three estimators of the same samples, in nats."""

    k1: Drift
    """Mean of d: unbiased, noisy, may be negative."""
    k2: Drift
    """Mean of d^2 / 2: small variance, biased unless the two policies are close; its gradient is the right one."""
    k3: Drift
    """Mean of exp(-d) + d - 1: unbiased, never negative, less noisy when close; heavy-tailed when far apart."""
    tokens: int
    """Tokens counted."""
    sequences: int
    """Sequences with at least one counted token."""


def kl_tokens(logprobs: npt.ArrayLike, reference_logprobs: npt.ArrayLike, estimator: str) -> FloatArray:
    """Estimate KL at each token; NaN wherever a log-prob is NaN (padding).

    With d = logprobs - reference_logprobs: k1 = d, k2 = d^2 / 2, k3 = exp(-d) + d - 1 (Schulman, "Approximating KL divergence", 2020).
    The tokens must have been sampled from the policy of ``logprobs``, at temperature 1 without top-p or top-k.
    """
    if estimator not in _ESTIMATORS:
        raise MeasureError(f"Unknown KL estimator {estimator!r}.", f"Use one of {', '.join(_ESTIMATORS)}.")
    current, reference = numbers(logprobs, "logprobs"), numbers(reference_logprobs, "reference_logprobs")
    if current.shape != reference.shape:
        raise MeasureError(f"logprobs have shape {current.shape}, reference_logprobs {reference.shape}.", "Give both for the same tokens.")
    with np.errstate(invalid="ignore"):  # inf - inf is NaN, as padding may be
        gap = current - reference
    if np.any(gap < _LOWEST):
        raise MeasureError(
            f"A token is e^{-gap[gap < _LOWEST][0]:.0f} times less likely than under the reference.",
            "Mask padding, or check the log-probs.",
        )
    return _ESTIMATORS[estimator](gap)


def kl_drift(
    logprobs: npt.ArrayLike,
    reference_logprobs: npt.ArrayLike,
    mask: npt.ArrayLike,
    *,
    replicates: int = REPLICATES,
    level: float = 0.95,
    seed: int = 0,
) -> KLDrift:
    """Drift of a policy from its reference on sequences x tokens it sampled; only tokens where ``mask`` is true count.

    Whatever stands outside the mask, NaN and infinity too, changes nothing. Sequences without a counted token are left out.
    Intervals resample whole sequences; sequences of one prompt go together, so with many per prompt they are too narrow. Compare
    two runs at matched reward, not at matched step.
    """
    counted = _counted(logprobs, reference_logprobs, mask)
    current, reference = (np.where(counted, np.asarray(values, dtype=np.float64), 0.0) for values in (logprobs, reference_logprobs))
    lengths = counted.sum(axis=1)
    drawn = lengths > 0
    totals = np.stack([kl_tokens(current, reference, name).sum(axis=1)[drawn] for name in _ESTIMATORS], axis=1)
    drifts = _both_means(totals, lengths[drawn].astype(np.float64), replicates, level, seed)
    return KLDrift(drifts["k1"], drifts["k2"], drifts["k3"], int(lengths.sum()), int(drawn.sum()))


def _counted(logprobs: npt.ArrayLike, reference_logprobs: npt.ArrayLike, mask: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    counted = np.asarray(mask).astype(bool)
    for name, values in (("logprobs", logprobs), ("reference_logprobs", reference_logprobs)):
        array = numbers(values, name)
        if array.ndim != 2 or array.shape != counted.shape:
            raise MeasureError(
                f"{name} have shape {array.shape}, the mask {counted.shape}.", "Give sequences x tokens of one shape, padded."
            )
        bad = int(np.count_nonzero(counted & ~np.isfinite(array)))
        if bad:
            raise MeasureError(f"{bad} of {int(counted.sum())} counted {name} are NaN or infinite.", "Mask those tokens, or repair them.")
    if not counted.any():
        raise MeasureError("The mask counts no token.", "Set the mask on the generated tokens.")
    return counted


def _both_means(totals: FloatArray, lengths: FloatArray, replicates: int, level: float, seed: int) -> dict[str, Drift]:
    size, means = len(lengths), totals / lengths[:, None]
    kinds = totals.shape[1]
    draws = resampled_means(np.column_stack([totals, means, lengths]), replicates=replicates, seed=seed)

    def interval(value: float, values: FloatArray) -> Interval:
        return interval_from_draws(value, values, problems=size, level=level, method=f"cluster bootstrap over {size} sequences")

    return {
        name: Drift(
            token_mean=interval(float(totals[:, kind].sum() / lengths.sum()), draws[:, kind] / draws[:, -1]),
            sequence_mean=interval(float(means[:, kind].mean()), draws[:, kinds + kind]),
        )
        for kind, name in enumerate(_ESTIMATORS)
    }
