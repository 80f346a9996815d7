"""REPO-R: scales advantages by the surprise of a token, adapted to keep the run's starting entropy."""

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
from breadth.training.ops import MAX_LOG_RATIO
from breadth.training.records import Batch


@dataclass(frozen=True)
class RepoState:
    """What REPO keeps between steps."""

    steps: int = 0
    """Optimizer steps seen."""
    start: float = 0.0
    """Mean entropy over the settling steps so far, in nats; the target once they are over."""
    scale: float = 0.0
    """Relative change of an advantage per nat of surprise."""


@dataclass(frozen=True)
class Repo(Mechanism[Batch, RepoState]):
    """Reward rare tokens of correct answers more and blame those of wrong answers less, to keep the starting entropy.

    With the surprise ``s = -logprob`` of the sampled token, without its gradient, before the surrogate::

        A > 0:  A * (1 + scale * s)            A < 0:  A * max(0, 1 - scale * s)
        scale doubles after a step whose entropy is below the start, halves after one above, inside [smallest, largest]

    REPO-R (2603.11682). It needs no logits, so it works with fused losses. The entropy it compares is that of the
    sampled tokens unless ``reads`` asks for the exact one. The floor of 0 keeps a rare token of a wrong answer from
    being rewarded (``scale * s > 1``). The surprise is clamped to 20 nats.

    Source of the defaults: the rule is the paper's. We have not seen its numbers, so scale 0.1, its range (three
    doublings or halvings) and the settling steps are **ours**. The paper's start is that of training; ours is the mean
    over the first ``settle`` steps, with a constant scale.

    Harm: the advantages have no bound: at a scale of 0.8 a token of 1 % in a right answer gets 4.7
    times its advantage. Doubling and halving at every step oscillates around the start by design. The paper's
    strongest row was not this but strictly on-policy updates with the ratio in full precision.
    """

    paper = Paper("arXiv 2603.11682", "REPO-R", "floor at zero against sign flips; the range of the scale is ours")
    neutral: ClassVar[Mapping[str, Any]] = {"scale": 0.0, "smallest": 0.0}

    precedes = Role.SURROGATE

    scale: float = 0.1
    """Scale of the first steps; ours."""
    smallest: float = 0.0125
    """Smallest scale; ours."""
    largest: float = 0.8
    """Largest scale; ours."""
    reads: EntropySource = "sampled"
    """Which entropy is compared with the start: that of the sampled tokens, or the exact one."""
    settle: int = 5
    """Optimizer steps whose mean entropy is the start; ours."""

    def __post_init__(self) -> None:
        require(self, "scale", 0 <= self.scale < math.inf, "a number of 0 or more")
        require(self, "smallest", 0 <= self.smallest <= self.scale, "a number from 0 to the scale")
        require(self, "largest", self.scale <= self.largest < math.inf, "a finite number, the scale or more")
        require(self, "reads", self.reads in ("sampled", "exact"), "sampled or exact")
        require(self, "settle", self.settle >= 1, "1 or more")

    @property
    def needs(self) -> frozenset[str]:
        """Nothing, or the entropy of each token without gradient."""
        return fields_for(self.reads)

    def init(self) -> RepoState:
        """Start with the configured scale."""
        return RepoState(scale=self.scale)

    def apply(self, batch: Batch, state: RepoState, selection: Selection | None) -> Effect[Batch]:
        """Scale this micro-batch's advantages and measure its entropy."""
        change = state.scale * (-batch.logprobs.detach()).clamp(max=MAX_LOG_RATIO)
        blamed = batch.advantages < 0
        factor = torch.where(blamed, (1 - change).clamp(min=0), 1 + change).to(batch.advantages.dtype)
        muted = blamed & (factor == 0)
        stats = {"entropy": mean_entropy(batch, self.reads), "muted": Mean(muted.sum(), batch.mask.sum())}
        return Effect(replace(batch, advantages=batch.advantages * factor), stats=stats)

    def update(self, state: RepoState, stats: Mapping[str, Any]) -> RepoState:
        """Measure the start, then double or halve the scale."""
        entropy = stats.get("entropy", Mean()).value
        if not math.isfinite(entropy):
            return state
        steps = state.steps + 1
        if steps <= self.settle:
            return replace(state, steps=steps, start=state.start + (entropy - state.start) / steps)
        factor = 2.0 if entropy < state.start else 0.5 if entropy > state.start else 1.0
        return replace(state, steps=steps, scale=max(self.smallest, min(self.largest, state.scale * factor)))

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report a scale of 0, which doubling does not change."""
        return (
            NoEffect("repo", "its scale is 0 and doubling keeps it there.", "Set a scale above 0, e.g. 0.1.")
            if self.scale == 0
            else None
        )
