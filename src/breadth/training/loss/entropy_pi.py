"""EntroPIC: a proportional-integral controller of entropy that acts on the likely tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.entropy import EntropySource, fields_for, mean_entropy
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Role, Selection
from breadth.training.records import Batch


@dataclass(frozen=True)
class PIState:
    """What the controller keeps between steps."""

    steps: int = 0
    """Optimizer steps seen."""
    start: float = 0.0
    """Mean entropy over the settling steps so far, in nats; the target if none is given."""
    error: float = 0.0
    """Entropy minus target in the last step; above 0 is too much entropy."""
    accumulated: float = 0.0
    """Sum of all errors so far."""
    coefficient: float = 0.0
    """Share of \\|A\\| added to the advantages of likely tokens: above 0 sharpens the policy, below 0 broadens it."""


@dataclass(frozen=True)
class EntropyPI(Mechanism[Batch, PIState]):
    """Steer entropy to a target from both sides by raising or lowering the advantages of likely tokens.

    After each optimizer step, from its mean entropy H and for the next step; before the surrogate::

        error       = H - target                    (above 0: too much entropy; some summaries flip the sign)
        coefficient = clip(proportional * error + integral * (sum of earlier errors), -1, 1)
        A          += coefficient * |A|             on tokens more likely than the threshold

    EntroPIC (2511.15248). At the limit of 1 no advantage changes its sign. Source of the defaults: the released code
    (gains 1 and 0.01, threshold 0.95, exact entropy; its script holds 0.1 nats at temperature 0.6); we have not
    read the paper's tables. Differences from that code: one coefficient for the whole batch, from the step before
    (there each micro-batch has its own, from its own entropy). The change passes through the surrogate's clip and is
    averaged over all tokens (there unclipped, over the likely tokens only, which gives it more weight). The sum is
    frozen while the coefficient is at its limit and the error points outwards (anti-wind-up, ours). Without a target
    the run keeps its starting entropy.

    Harm: a target that the run cannot reach drives the coefficient to -1 or 1 and keeps it there: then the likely
    tokens of every correct answer (-1) or of every wrong one (1) have no advantage. It acts only where there is an
    advantage.
    """

    paper = Paper("arXiv 2511.15248", "EntroPIC", "one coefficient per batch, inside the clip, with anti-wind-up")
    neutral: ClassVar[Mapping[str, Any]] = {"proportional": 0.0, "integral": 0.0}

    precedes = Role.SURROGATE

    proportional: float = 1.0
    """Coefficient for an error of one nat."""
    integral: float = 0.01
    """Coefficient for one nat-step of error accumulated before."""
    target: float | None = None
    """Target entropy per trained token, in nats.

    None: the mean over the first ``settle`` steps, during which it is idle.
    """
    threshold: float = 0.95
    """Probability above which a token is likely."""
    reads: EntropySource = "exact"
    """Which entropy the controller reads: exact, or that of the sampled tokens (which needs no logits)."""
    settle: int = 5
    """Optimizer steps whose mean is the target if none is given; ours."""

    LIMIT = 1.0
    """Largest coefficient in either direction."""

    def __post_init__(self) -> None:
        for field in ("proportional", "integral"):
            require(self, field, 0 <= getattr(self, field) < math.inf, "a number of 0 or more")
        require(self, "target", self.target is None or 0 <= self.target < math.inf, "a number of 0 or more")
        require(self, "threshold", 0 < self.threshold < 1, "a probability between 0 and 1, both excluded")
        require(self, "reads", self.reads in ("sampled", "exact"), "sampled or exact")
        require(self, "settle", self.settle >= 1, "1 or more")

    @property
    def needs(self) -> frozenset[str]:
        """The entropy of each token if the controller reads it, without gradient."""
        return fields_for(self.reads)

    def init(self) -> PIState:
        """Start with no step seen and a coefficient of 0."""
        return PIState()

    def apply(self, batch: Batch, state: PIState, selection: Selection | None) -> Effect[Batch]:
        """Shift the advantages of this micro-batch's likely tokens and measure its entropy."""
        likely = batch.mask & (batch.logprobs.detach() > math.log(self.threshold))
        shifted = torch.where(likely, batch.advantages + state.coefficient * batch.advantages.abs(), batch.advantages)
        stats = {"entropy": mean_entropy(batch, self.reads), "likely": Mean(likely.sum(), batch.mask.sum())}
        return Effect(replace(batch, advantages=shifted), stats=stats)

    def update(self, state: PIState, stats: Mapping[str, Any]) -> PIState:
        """Measure the error, set the coefficient, then add the error to the sum."""
        entropy = stats.get("entropy", Mean()).value
        if not math.isfinite(entropy):
            return state
        steps = state.steps + 1
        if self.target is None and steps <= self.settle:
            return replace(state, steps=steps, start=state.start + (entropy - state.start) / steps)
        error = entropy - (state.start if self.target is None else self.target)
        wanted = self.proportional * error + self.integral * state.accumulated
        coefficient = max(-self.LIMIT, min(self.LIMIT, wanted))
        wound_up = wanted != coefficient and error * wanted > 0
        accumulated = state.accumulated if wound_up else state.accumulated + error
        return replace(state, steps=steps, error=error, accumulated=accumulated, coefficient=coefficient)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report gains of 0: the coefficient stays zero."""
        if self.proportional == 0 and self.integral == 0:
            return NoEffect(
                "entropy-pi",
                "both gains are 0, so no advantage is ever shifted.",
                "Set proportional or integral above 0.",
            )
        return None
