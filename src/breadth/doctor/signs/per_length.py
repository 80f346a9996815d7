"""Whether logged entropy goes with the length of completions, as a sum over each sequence does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from breadth.doctor.evidence import FEWEST, Evidence
from breadth.measure.intervals import Interval, normal_quantile
from breadth.measure.trends import Trend, factor_trend

_NEAR = 0.25
# How far from 1 the whole interval of the exponent may lie: a sum over a sequence has exactly 1; prompts that draw long
# and unsure
# answers alike make a mean over tokens go with length too, but less than in proportion.


@dataclass(frozen=True)
class PerLength:
    """Entropy beside the mean length of the same steps."""

    exponent: Interval
    """Of entropy in length, from one step to the next: 1 for a sum over a sequence, near 0 for a mean over tokens."""
    trend: Trend
    """Entropy over length: where it started and where it is."""

    @property
    def proportional(self) -> bool:
        """Whether entropy is in proportion to length, for sure."""
        return self.exponent.low > 1 - _NEAR and self.exponent.high < 1 + _NEAR


def per_length(evidence: Evidence) -> PerLength | None:
    """Compare entropy with the mean length; None where one of them is logged at fewer than eight common steps, or length never moves.

    The exponent is read from the differences of neighbouring steps, where a common trend, such as a true collapse of
    both, leaves nothing.
    """
    entropy, length = evidence.series("entropy"), evidence.series("length")
    if entropy is None or length is None:
        return None
    steps = np.intersect1d(entropy.steps, length.steps)
    above, below = entropy.values[np.isin(entropy.steps, steps)], length.values[np.isin(length.steps, steps)]
    good = (above > 0) & (below > 0)
    if good.sum() < FEWEST:
        return None
    up, across = np.diff(np.log(above[good])), np.diff(np.log(below[good]))
    up, across = up - up.mean(), across - across.mean()
    power = float(across @ across)
    if power <= len(across) * 1e-18:
        return None
    slope = float(across @ up) / power
    left = up - slope * across
    reach = normal_quantile(0.95) * float(np.sqrt(left @ left / max(len(left) - 2, 1) / power))
    exponent = Interval(slope, slope - reach, slope + reach, 0.95, "least squares on differences of logarithms")
    return PerLength(exponent, factor_trend(steps[good], above[good] / below[good]))
