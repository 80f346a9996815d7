"""The entropy bonus: a fixed price for every nat of entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass

from breadth.base.checks import require
from breadth.training.entropy import ENTROPY_GRADIENT, entropy_bonus_terms, mean_entropy
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Selection
from breadth.training.records import Batch


@dataclass(frozen=True)
class EntropyBonus(Mechanism[Batch, None]):
    """Pay the policy for staying undecided, the same for every token and at every step.

    ``loss -= coefficient * H`` on each token, with the exact entropy H and its gradient; -logprob of the sampled token
    would be no substitute, since its gradient is zero on average. The term is averaged like the policy loss, over the
    whole batch.

    Source of the default: verl shipped 0.001 until it set its default to 0, and TRL's is 0 too; there is no value that
    fits all.

    Harm: too small a coefficient does nothing, too large a one makes the entropy explode, and the range between is
    narrow (2505.22617); the bonus is also reported to lengthen responses without making them right more often
    (2509.03646). Prefer a mechanism that reads the entropy it pays for: ``entropy-target``, ``fork-thermostat``.
    """

    coefficient: float = 0.001
    """Price of one nat of entropy; 0.001 in earlier versions of verl, 0 (off) in verl and TRL today."""

    def __post_init__(self) -> None:
        require(self, "coefficient", 0 <= self.coefficient < math.inf, "a number of 0 or more")

    @property
    def needs(self) -> frozenset[str]:
        """The entropy of each token, with its gradient."""
        return frozenset({"entropy", ENTROPY_GRADIENT})

    def apply(self, batch: Batch, state: None, selection: Selection | None) -> Effect[Batch]:
        """Add the price of this micro-batch's entropies to the loss."""
        return Effect(batch, entropy_bonus_terms(batch, self.coefficient), {"entropy": mean_entropy(batch, "exact")})

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Without a price it only reports."""
        if self.coefficient == 0:
            return NoEffect(
                "entropy-bonus",
                "its coefficient is 0, so nothing is paid for entropy.",
                "Set a coefficient above 0, e.g. 0.001.",
            )
        return None
