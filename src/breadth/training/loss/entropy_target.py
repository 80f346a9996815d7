"""The entropy target of Skywork-OR1: an entropy bonus that grows while the policy has too little entropy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.entropy import ENTROPY_GRADIENT, EntropySource, entropy_bonus_terms, mean_entropy
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Selection
from breadth.training.records import Batch


@dataclass(frozen=True)
class TargetState:
    """What the entropy target keeps between steps."""

    steps: int = 0
    """Optimizer steps seen."""
    coefficient: float = 0.0
    """Coefficient of the entropy bonus while it is active."""
    paying: bool = False
    """Whether the last entropy was below the target, so the bonus is active in this step."""
    start: float = 0.0
    """Mean entropy over the settling steps so far, in nats."""
    lowest: float = 0.0
    """Smallest entropy seen; 0 before the first."""
    highest: float = 0.0
    """Largest entropy seen; 0 before the first."""
    outside: int = 0
    """1 if the target is above every entropy seen in the run, -1 if below every one, else 0 (and while settling)."""

    def observe(self, entropy: float, settle: int) -> TargetState:
        """Return the state with one more entropy seen."""
        steps = self.steps + 1
        start = self.start + (entropy - self.start) / steps if steps <= settle else self.start
        lowest, highest = (entropy, entropy) if steps == 1 else (min(entropy, self.lowest), max(entropy, self.highest))
        return replace(self, steps=steps, start=start, lowest=lowest, highest=highest)


@dataclass(frozen=True)
class EntropyTarget(Mechanism[Batch, TargetState]):
    """Raise the entropy bonus until the policy keeps enough entropy; add nothing while it has enough.

    After each optimizer step, from its mean entropy H and for the next step::

        coefficient = clip(coefficient + (increment if H < target else -increment), smallest, largest)
        loss       -= coefficient * exact entropy, if H < target

    Skywork-OR1 (2505.22312), whose controller reads the sampled entropy while its loss uses the exact one. It updates
    once per generation, ours per optimizer step; these agree on-policy. Source of the defaults: all its released
    scripts (on-policy, temperature 1). TRL's port reads the exact entropy, with 0.005 for the increment and 1 for the
    largest coefficient.

    Harm: a target above every entropy of the run (entropies in RL are 0.03 to 0.6 nats, not the 2 to 10 of some
    manuals) drives the coefficient to its limit; then ``outside`` is 1 in the log. A target below every entropy never
    acts: -1. Set ``target_share`` if you do not know the level. The coefficient falls as slowly as it rises.
    """

    paper = Paper(
        "arXiv 2505.22312",
        "Skywork-OR1's adaptive coefficient",
        "stepped per optimizer step; the target may be a share of the run's own start",
    )
    neutral: ClassVar[Mapping[str, Any]] = {"smallest": 0.0, "largest": 0.0}

    target: float = 0.2
    """Target entropy per trained token, in nats; not used with ``target_share``."""
    target_share: float | None = None
    """Target as a multiple of the mean entropy over the first ``settle`` steps, during which there is no bonus. None:
    ``target``.
    """
    increment: float = 1e-4
    """Change of the coefficient per step."""
    smallest: float = 0.0
    """Smallest coefficient, and the initial one."""
    largest: float = 0.005
    """Largest coefficient."""
    reads: EntropySource = "sampled"
    """Which entropy is compared with the target: that of the sampled tokens, or the exact one."""
    settle: int = 5
    """Optimizer steps whose mean is the start, and after which ``outside`` is computed; ours."""

    def __post_init__(self) -> None:
        for field in ("target", "increment", "largest"):
            require(self, field, 0 <= getattr(self, field) < math.inf, "a number of 0 or more")
        require(self, "target_share", self.target_share is None or 0 < self.target_share < math.inf, "a number above 0")
        require(self, "smallest", 0 <= self.smallest <= self.largest, "a number from 0 to the largest")
        require(self, "reads", self.reads in ("sampled", "exact"), "sampled or exact")
        require(self, "settle", self.settle >= 1, "1 or more")

    @property
    def needs(self) -> frozenset[str]:
        """The entropy of each token, with its gradient: the bonus uses the exact one, whatever the controller reads."""
        return frozenset({"entropy", ENTROPY_GRADIENT})

    def init(self) -> TargetState:
        """Start with no step seen and the smallest coefficient."""
        return TargetState(coefficient=self.smallest)

    def apply(self, batch: Batch, state: TargetState, selection: Selection | None) -> Effect[Batch]:
        """Add the entropy bonus while it is active, and measure the entropies."""
        stats = {"sampled": mean_entropy(batch, "sampled"), "exact": mean_entropy(batch, "exact")}
        return Effect(batch, entropy_bonus_terms(batch, state.coefficient if state.paying else 0.0), stats)

    def update(self, state: TargetState, stats: Mapping[str, Any]) -> TargetState:
        """Move the coefficient by one increment towards the target."""
        entropy = stats.get(self.reads, Mean()).value
        if not math.isfinite(entropy):
            return state
        seen = state.observe(entropy, self.settle)
        if self.target_share is not None and seen.steps <= self.settle:
            return seen
        target = self.target if self.target_share is None else self.target_share * seen.start
        wanted = seen.coefficient + (self.increment if entropy < target else -self.increment)
        outside = 0 if seen.steps < self.settle else int(target > seen.highest) - int(target < seen.lowest)
        return replace(
            seen, coefficient=max(self.smallest, min(self.largest, wanted)), paying=entropy < target, outside=outside
        )

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report a coefficient that can never leave 0."""
        if self.largest == 0 or (self.increment == 0 and self.smallest == 0):
            return NoEffect(
                "entropy-target",
                "its coefficient can never leave 0.",
                "Set an increment and a largest coefficient above 0.",
            )
        return None
