"""What a training run does under its noise, and what is true of it: the definitions behind every label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import betaln

from breadth.measure.validate import FloatArray

BoolArray = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass
class Curves:
    """What a run does, without the noise of single steps but with its slow wander: one value per step."""

    score: FloatArray
    """Chance that a rollout is right."""
    agreement: FloatArray
    """How far the problems differ: the sum of the two parameters of the Beta distribution of a problem's chance. Small:
    each problem is solved or hopeless, so groups are flat.
    """
    entropy: FloatArray
    """Nats per token."""
    length: FloatArray
    """Tokens of a completion that is not cut."""
    truncated: FloatArray
    """Share of completions cut at the cap."""
    kl: FloatArray
    """Divergence from the reference, nats per token."""
    grad: FloatArray
    """Norm of the gradient where no group is flat."""
    learning_rate: FloatArray
    """Learning rate."""
    loss: FloatArray
    """Size of the loss."""
    held_out: FloatArray
    """Score on held-out problems."""
    frozen: BoolArray
    """Steps at which the policy repeats itself and nothing has noise any more."""
    broken: BoolArray
    """Steps whose gradient is NaN."""

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.score)


def flat_share(score: FloatArray, agreement: FloatArray, size: int) -> FloatArray:
    """Return the chance that all rollouts of a group are right or all are wrong (beta-binomial)."""
    chance = np.clip(score, 1e-9, 1 - 1e-9)
    right, wrong = agreement * chance, agreement * (1 - chance)
    return np.asarray(
        np.exp(betaln(right + size, wrong) - betaln(right, wrong))
        + np.exp(betaln(right, wrong + size) - betaln(right, wrong))
    )


def stretch_means(values: FloatArray, share: float = 1 / 8) -> FloatArray:
    """Return the mean of every stretch that covers a share of the run."""
    width = max(1, round(len(values) * share))
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray((sums[width:] - sums[:-width]) / width)


def fall_from_best(values: FloatArray) -> float:
    """Return the largest fall from the best stretch to a later one, as a share of the best (0 to 1)."""
    means = stretch_means(values)
    best = np.maximum.accumulate(means)
    return float(np.max(np.where(best > 0, 1 - means / np.maximum(best, 1e-9), 0.0)))


def _ends(values: FloatArray) -> tuple[float, float]:
    means = stretch_means(values)
    return float(means[0]), float(means[-1])


MIN_FALL = 0.3
"""A score has collapsed when an eighth of the run lies at least this far under its best eighth."""
MAX_HEALTHY_DIP = 0.15
"""A dip of a healthy score stays under this share of its best."""


def has_entropy_collapse(curves: Curves, _: int) -> bool:
    """Say whether a quarter of the starting entropy is left at the end, or less."""
    return _ends(curves.entropy)[1] <= 0.25 * float(curves.entropy[0])


def has_entropy_explosion(curves: Curves, _: int) -> bool:
    """Say whether some eighth of the run has three times the starting entropy, or more."""
    return float(stretch_means(curves.entropy).max()) >= 3 * float(curves.entropy[0])


def has_score_collapse(curves: Curves, _: int) -> bool:
    """Say whether the score falls by MIN_FALL of its best and stays there for an eighth of the run."""
    return fall_from_best(curves.score) >= MIN_FALL


def has_no_learning(curves: Curves, _: int) -> bool:
    """Say whether the score cannot move: no gradient, no learning rate, or no difference between rewards."""
    flat = float(np.ptp(curves.score)) <= 0.02
    without_cause = bool(np.all(curves.grad == 0) or np.all(curves.learning_rate <= 1e-11))
    return flat and (without_cause or bool(np.all(curves.score <= 0.002)))


def has_numerical_failure(curves: Curves, _: int) -> bool:
    """Say whether the gradient is NaN, the loss 10,000 or more or the divergence negative for an eighth of a run."""
    odd = (curves.broken, np.abs(curves.loss) >= 1e4, curves.kl < 0)
    return any(bool(stretch_means(found.astype(float)).max() >= 1 - 1e-9) for found in odd)


def has_overfitting(curves: Curves, _: int) -> bool:
    """Say whether the held-out score falls by a quarter of its best while the training score does not fall."""
    held_out, train = stretch_means(curves.held_out), stretch_means(curves.score)
    best = int(np.argmax(held_out))
    return bool(held_out[-1] < 0.75 * held_out[best] and train[-1] >= train[best])


def has_truncation(curves: Curves, _: int) -> bool:
    """Say whether two in five completions or more are cut for a quarter of the run."""
    return float(stretch_means(curves.truncated, 1 / 4).max()) >= 0.4


def has_zero_variance_groups(curves: Curves, size: int) -> bool:
    """Say whether 80 % of the groups or more are flat at the end, and the score is below 0.8."""
    flat = flat_share(curves.score, curves.agreement, size)
    return _ends(flat)[1] >= 0.8 and _ends(curves.score)[1] < 0.8


def has_length_collapse(curves: Curves, _: int) -> bool:
    """Say whether answers shrink to 35 % of their starting length for an eighth of the run, and the score collapses."""
    shorter = float(stretch_means(curves.length).min()) <= 0.35 * float(curves.length[0])
    return shorter and has_score_collapse(curves, 0)


def has_drift(curves: Curves, _: int) -> bool:
    """Say whether the divergence ends at half a nat or more, thirty times its first eighth, and the score is lower."""
    start, end = _ends(curves.kl)
    return end >= 0.5 and end >= 30 * start and fall_from_best(curves.score) >= 0.1


def is_healthy(curves: Curves, size: int) -> bool:
    """Say whether nothing is wrong, with room, by the means of eighths.

    The score rises by 0.1 or more and never dips by 15 %; entropy stays between 44 and 135 % of its start; at most 5 %
    are cut; at the end at most 45 % of the groups are flat, unless the task is solved or the score still rises.
    """
    entropy = stretch_means(curves.entropy) / _ends(curves.entropy)[0]
    flat = flat_share(curves.score, curves.agreement, size)
    start, end = _ends(curves.score)
    means = stretch_means(curves.score)
    still_learns = end - float(means[len(means) // 2]) >= 0.05
    return bool(
        fall_from_best(curves.score) < MAX_HEALTHY_DIP
        and entropy.min() >= 0.44
        and entropy.max() <= 1.35
        and float(curves.truncated.max()) <= 0.05
        and end - start >= 0.1
        and (_ends(flat)[1] <= 0.45 or end >= 0.9 or still_learns)
        and not any(has_failure(curves, size) for has_failure in FAILURE_DEFINITIONS.values())
    )


FAILURE_DEFINITIONS: Mapping[str, Callable[[Curves, int], bool]] = {
    "entropy-collapse": has_entropy_collapse,
    "entropy-explosion": has_entropy_explosion,
    "score-collapse": has_score_collapse,
    "no-learning": has_no_learning,
    "numerical-failure": has_numerical_failure,
    "overfitting": has_overfitting,
    "truncation": has_truncation,
    "zero-variance-groups": has_zero_variance_groups,
    "length-collapse": has_length_collapse,
    "drift": has_drift,
}
"""Finding -> whether it is true of curves, given the size of a group."""
DEFINITIONS = {"healthy": is_healthy, **FAILURE_DEFINITIONS}
"""Label -> the same."""
