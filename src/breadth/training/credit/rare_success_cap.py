"""The rare-success cap: limits the advantage of a group's only success."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.mechanism import Effect, Mechanism, NoEffect, Regime, Role, Selection
from breadth.training.ops import group_count
from breadth.training.records import Rollouts, find_successes, not_none


@dataclass(frozen=True)
class RareSuccessCap(Mechanism[Rollouts, None]):
    """Limit the advantage of a large group's only success, which may be luck or a checker error.

    In a group of ``size`` or more scored rollouts with exactly one success, that success's advantage is at most
    ``cap``. Dividing by the group's (population) deviation makes it sqrt(n - 1) otherwise: 2.65 in a group of 8, 5.57
    in one of 32. Ours; it guards against the harm of overly hard problems (2605.28388). Success is ``correct`` if
    given; else the rewards must have two levels (any two). It comes after the estimator. If rewards of 0 and 1 are not
    divided by a deviation (leave-one-out, ``scale="none"``), no advantage exceeds 1 and a cap of 2 never acts (check
    ``capped``).

    Harm: a true first success on a hard problem is limited too. A second, independent checker is the better guard if
    there is one. The group's advantages no longer sum to zero.
    """

    paper = Paper(
        "arXiv 2605.28388",
        "over-hard problems",
        "no formula was published; gates and states are ours, and the docstrings say so",
    )
    neutral: ClassVar[Mapping[str, Any]] = {"cap": math.inf}

    follows = Role.ESTIMATOR

    cap: float = 2.0
    """Largest advantage of a lone success; our choice. It acts from groups of 8 on: sqrt(7) = 2.65; inf is no cap."""
    size: int = 8
    """Scored rollouts from which one success counts as rare; our choice: below 8, one in n is a poor estimate."""

    def __post_init__(self) -> None:
        require(self, "cap", self.cap >= 0, "a number of 0 or more")
        require(self, "size", self.size >= 2, "2 or more")

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        """Cap the advantage of every lone success, on all of its tokens."""
        won, known = find_successes(batch)
        lone = won & (group_count(batch.groups, won) == 1) & (group_count(batch.groups, known) >= self.size)
        advantages = not_none(batch.advantages)
        rows = lone[:, None] if advantages.ndim == 2 else lone
        capped = torch.where(rows, advantages.clamp(max=self.cap), advantages)
        acted = (capped != advantages).any(1) if advantages.ndim == 2 else capped != advantages
        stats = {"lone": Mean(lone.sum(), won.sum()), "capped": Mean(acted.sum(), won.sum())}
        return Effect(replace(batch, advantages=capped), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report groups that are too small to be capped."""
        if regime.group_size is not None and regime.group_size < self.size:
            reason = (
                f"it acts on groups of {self.size} or more, and there are {regime.group_size} rollouts per problem."
            )
            return NoEffect("rare-success-cap", reason, f"Sample at least {self.size} per problem, or lower size.")
        return None
