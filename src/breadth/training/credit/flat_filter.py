"""The flat filter: drops zero-variance groups and reports how many they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from breadth.base.catalogue import Paper
from breadth.base.errors import require
from breadth.base.stats import Mean
from breadth.training.mechanism import CLIP_HIGHER, Effect, Mechanism, NoEffect, RecipeTable, Regime, Role, Selection
from breadth.training.ops import group_count, group_mean, masked_values
from breadth.training.records import REWARD_TOLERANCE, Rollouts, find_successes, not_none


@dataclass(frozen=True)
class FlatFilter(Mechanism[Rollouts, None]):
    """Drop every group that is all correct or all wrong, so that it does not dilute the loss of the others.

    A group is kept if its rollouts differ in accuracy, as in DAPO (2503.14476), in reward, or if any has an advantage.
    Dropped rollouts leave the loss and its denominator. There is no refill, as in ScaleRL; DAPO samples new problems
    instead, at up to three times the generation. So the batch shrinks by the stat ``dropped``, a share of the groups.
    ``solve_all`` and ``solve_none`` are the shares of groups solved by all and by none of their rollouts, if
    ``correct`` is given.

    Put it after the estimator; with ``on="advantage"`` also after every bonus. A group of one rollout is flat (verl
    keeps it). Rollouts of unknown accuracy or reward are ignored; a group with no others is dropped.

    Harm: with ``on="correct"`` it also drops groups whose only signal is a bonus: use the advantage there. With
    ``on="reward"`` any shaping, even a length penalty of 1e-5, keeps a flat group. Training accuracy over kept groups
    is conditional on mixed groups and cannot be compared between runs.
    """

    paper = Paper("arXiv 2503.14476", "DAPO: dynamic sampling", "zero-variance groups are dropped without refill")
    recipes: ClassVar[Mapping[str, RecipeTable]] = {
        "dapo": RecipeTable(
            ({"kind": "group-advantage"}, {"kind": "flat-filter"}, CLIP_HIGHER),
            "2503.14476",
            "Flat groups are dropped, not refilled; overlong shaping is a reward function's job.",
        ),
    }

    follows = Role.ESTIMATOR

    on: Literal["correct", "reward", "advantage"] = "correct"
    """What must differ within a group to keep it; for the advantage, what must be nonzero. Accuracy in DAPO's code."""

    def __post_init__(self) -> None:
        require(self, "on", self.on in ("correct", "reward", "advantage"), "'correct', 'reward' or 'advantage'")

    @property
    def needs(self) -> frozenset[str]:
        """The accuracy, if it decides."""
        return frozenset({"correct"} if self.on == "correct" else ())

    def apply(self, batch: Rollouts, state: None, selection: Selection | None) -> Effect[Rollouts]:
        """Drop the flat groups and count them."""
        before = not_none(batch.kept)
        kept = group_count(batch.groups, self._differs_from_group(batch)) > 0
        stats = {"dropped": _share_of_groups(batch.groups, ~kept, before)} | solve_shares(batch)
        return Effect(replace(batch, kept=before & kept), stats=stats)

    def no_effect(self, regime: Regime) -> NoEffect | None:
        """Report groups of one: all are flat, so nothing is left to train on."""
        if regime.group_size == 1 and self.on != "advantage":
            reason = f"with one rollout per problem no group differs in {self.on}, so every rollout is dropped."
            return NoEffect("flat-filter", reason, "Sample at least two per problem, or leave it out.")
        return None

    def _differs_from_group(self, batch: Rollouts) -> Tensor:
        """Return which rollouts differ from their group, or have an advantage."""
        if self.on == "advantage":
            advantages = not_none(batch.advantages)
            if advantages.ndim == 2:
                advantages = (advantages if batch.mask is None else masked_values(advantages, batch.mask)).abs().amax(1)
            return not_none(batch.kept) & (advantages.abs() > REWARD_TOLERANCE)
        metric = (not_none(batch.correct) if self.on == "correct" else batch.rewards).double()
        known = batch.is_scored & torch.isfinite(metric)
        away = masked_values(metric - group_mean(metric, batch.groups, known), known).abs()
        return away > REWARD_TOLERANCE * (1 + masked_values(metric, known).abs())


def solve_shares(batch: Rollouts) -> dict[str, Mean]:
    """Return the shares of groups solved by all and by none of their rollouts."""
    if batch.correct is None:
        return {}
    won, known = find_successes(batch)
    wins, count = group_count(batch.groups, won), group_count(batch.groups, known)
    return {
        "solve_all": _share_of_groups(batch.groups, wins == count, known),
        "solve_none": _share_of_groups(batch.groups, wins == 0, known),
    }


def _share_of_groups(groups: Tensor, marked: Tensor, mask: Tensor) -> Mean:
    """Return the share of groups inside the mask that are marked."""
    return Mean(len(torch.unique(groups[mask & marked])), len(torch.unique(groups[mask])))
