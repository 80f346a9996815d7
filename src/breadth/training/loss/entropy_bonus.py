"""The entropy bonus with a fixed coefficient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from breadth.base.errors import require
from breadth.training.entropy import ENTROPY_GRADIENT, entropy_bonus_terms, mean_entropy
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Selection
from breadth.training.records import Batch


@dataclass(frozen=True)
class EntropyBonus(Mechanism[Batch, None]):
    """Reward entropy with the same coefficient on every token and at every step.

    ``loss -= coefficient * H`` on each token, with the exact entropy H and its gradient. The -logprob of the sampled
    token is no substitute: its gradient is zero on average. The term is averaged over the whole batch, like the policy
    loss.

    Source of the default: verl's was 0.001 before it became 0; TRL's is 0 too. No value fits all runs.

    Harm: a small coefficient does nothing, a large one makes the entropy explode, and the range between is narrow
    (2505.22617). The bonus is also reported to lengthen responses without making them correct more often (2509.03646).
    Prefer a mechanism that controls the entropy: ``entropy-target``, ``fork-thermostat``.
    """

    neutral: ClassVar[Mapping[str, Any]] = {"coefficient": 0.0}

    coefficient: float = 0.001
    """Coefficient of the entropy; 0.001 in earlier versions of verl, 0 (off) in verl and TRL today."""

    def __post_init__(self) -> None:
        require(self, "coefficient", 0 <= self.coefficient < math.inf, "a number of 0 or more")

    @property
    def needs(self) -> frozenset[str]:
        """The entropy of each token, with its gradient."""
        return frozenset({"entropy", ENTROPY_GRADIENT})

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        """Add the entropy term of this micro-batch to the loss."""
        return Effect(batch, entropy_bonus_terms(batch, self.coefficient), {"entropy": mean_entropy(batch, "exact")})

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report a coefficient of 0."""
        if self.coefficient == 0:
            return NoEffect(
                "entropy-bonus",
                "its coefficient is 0, so entropy is not rewarded.",
                "Set a coefficient above 0, e.g. 0.001.",
            )
        return None
