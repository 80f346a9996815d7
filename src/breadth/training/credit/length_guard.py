"""The length guard: detects a collapse of response length and stops rewarding it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch

from breadth.base.catalogue import Paper
from breadth.base.errors import MechanismError, require
from breadth.base.stats import Mean
from breadth.training.mechanism import Effect, Mechanism, Role, Selection
from breadth.training.ops import masked_values
from breadth.training.records import Rollouts, not_none


@dataclass(frozen=True)
class LengthGuardState:
    """What the length guard keeps between generations."""

    generations: int = 0
    """Generations seen."""
    start: float = 0.0
    """Mean response length over the settling generations so far, in tokens; the reference once they are over."""
    smoothed: float = 0.0
    """Exponential mean of the response length since, in tokens; starts from the reference."""
    collapsed: bool = False
    """Whether the smoothed length is below the floor."""


@dataclass(frozen=True)
class LengthGuard(Mechanism[Rollouts, LengthGuardState]):
    """Detect a collapse of response length; while it lasts, give no credit to the short responses.

    It comes after the estimator.

    The run counts as collapsed while the exponential mean (weight ``smoothing``) of the mean length is below ``floor``
    times its mean over the first ``settle`` generations. One item whose checker took a bare boxed answer brought the
    mean length from 510.7 to 45.7 tokens in 58 steps, before the accuracy moved (2605.28388). Rule and numbers are
    ours, those of `breadth.measure.degeneracy`.

    The right reaction is to stop and look at the newest data. ``act="stop"`` does so: it raises. ``act="mute"`` keeps
    the run alive: positive advantages of responses shorter than ``floor`` times the start become 0, so the shortcut is
    not reinforced. Nothing rewards length, and failures keep their negative advantages. ``act="report"`` only logs.

    Harm: shorter is often better, and a model that becomes concise is muted too: do not use it where that is the aim. A
    change of the data mix also changes the length. Muting makes a group's mean advantage negative.
    """

    paper = Paper(
        "arXiv 2605.28388",
        "over-hard problems",
        "no formula was published; gates and states are ours, and the docstrings say so",
    )
    neutral: ClassVar[Mapping[str, Any]] = {"floor": 0.0}

    follows = Role.ESTIMATOR

    floor: float = 0.5
    """Share of the starting length below which the run counts as collapsed, and a response as too short."""
    act: Literal["report", "mute", "stop"] = "mute"
    """What to do while collapsed."""
    settle: int = 5
    """Generations whose mean length is the start."""
    smoothing: float = 0.1
    """Weight of the newest generation in the exponential mean: a memory of about ten."""

    def __post_init__(self) -> None:
        require(self, "floor", 0 <= self.floor < 1, "a number from 0 to below 1")
        require(self, "act", self.act in ("report", "mute", "stop"), "'report', 'mute' or 'stop'")
        require(self, "settle", self.settle >= 1, "1 or more")
        require(self, "smoothing", 0 < self.smoothing <= 1, "a number above 0, at most 1")

    def init(self) -> LengthGuardState:
        """Start with no generation seen."""
        return LengthGuardState()

    def apply(self, batch: Rollouts, state: LengthGuardState, selection: Selection | None) -> Effect[Rollouts]:
        """Measure the lengths; while collapsed, act on responses that are too short."""
        if state.collapsed and self.act == "stop":
            raise MechanismError(
                f"Responses collapsed from {state.start:.0f} tokens to {state.smoothed:.0f}, below"
                f" {self.floor:g} of the start.",
                "Check the newest data and its checker for answers that need no work; act = 'mute' or 'report'"
                " continues training.",
            )
        lengths, advantages = batch.lengths.to(batch.rewards), not_none(batch.advantages)
        short = (lengths < self.floor * state.start) if state.collapsed else torch.zeros_like(batch.is_scored)
        rising = advantages > 0
        positive = rising.any(1) if rising.ndim == 2 else rising
        scored = batch.is_scored
        stats = {
            "length": Mean(masked_values(lengths, scored).sum(), scored.sum()),
            "short": Mean((short & positive).sum(), positive.sum()),
        }
        if self.act == "mute" and state.collapsed:
            muted = (short[:, None] if advantages.ndim == 2 else short) & rising
            batch = replace(batch, advantages=advantages.masked_fill(muted, 0.0))
        return Effect(batch, stats=stats)

    def update(self, state: LengthGuardState, stats: Mapping[str, Any]) -> LengthGuardState:
        """Update the mean length; a generation without a scored rollout does not count."""
        length = stats["length"].value if "length" in stats else math.nan
        if math.isnan(length):
            return state
        generations = state.generations + 1
        if generations <= self.settle:
            start = state.start + (length - state.start) / generations
            return LengthGuardState(generations, start, start)
        smoothed = state.smoothed + self.smoothing * (length - state.smoothed)
        return LengthGuardState(generations, state.start, smoothed, smoothed < self.floor * state.start)
